"""Small mechanisms that are more than a weighted average under one map per step, and captioners with them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from helpers import tiny_captioner
from torch import Tensor, nn
from torch.nn import functional

from caption.attention import Attention, Query, QuerySizes, ReadOutput, WeighOutput
from caption.captioner import Captioner
from caption.data.resize import ImageTransform
from caption.decoders import Decoder, LSTMDecoder
from caption.decoders.base import Memory, Trace
from caption.decoders.unroll import Advanced
from caption.encoders import Encoder, SmallCNN
from caption.regions import Views, WeightProperties
from caption.search import BeamSearch
from caption.tensor_tree import State, TensorTree
from caption.text.vocabulary import Vocabulary

SIZE = 8


class DotMemory(NamedTuple):
    """Keys (B, L, S) and values (B, L, D) of one grid, and its mask (B, L)."""

    keys: Tensor
    values: Tensor
    mask: Tensor | None


class DotAttention(Attention):
    """Base class with scores e_i = q · k_i, which subclasses turn into maps."""

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = region_sizes[0]
        self.queries = nn.Linear(query_sizes.hidden, SIZE)
        self.keys = nn.Linear(region_sizes[0], SIZE)

    def project(self, views: Views) -> DotMemory:
        return DotMemory(self.keys(views[0].vectors), views[0].vectors, views[0].mask)

    def scores(self, query: Query, memory: DotMemory) -> Tensor:
        """(B, K, L), -inf where masked."""
        scores = self.queries(query.hidden) @ memory.keys.mT
        return scores if memory.mask is None else scores.masked_fill(~memory.mask[:, None], -torch.inf)


class HeadMaps(NamedTuple):
    heads: Tensor
    """(B, K, M, L)."""


class FourHeads(Attention):
    """Four heads, each with its own softmax and values; their contexts are concatenated and projected."""

    heads = 4

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = 5
        self.queries = nn.Linear(query_sizes.hidden, SIZE)
        self.keys = nn.Linear(region_sizes[0], SIZE)
        self.values = nn.Linear(region_sizes[0], SIZE)
        self.out = nn.Linear(SIZE, 5)

    def project(self, views: Views) -> DotMemory:
        vectors = views[0].vectors
        return DotMemory(self._split(self.keys(vectors)), self._split(self.values(vectors)), views[0].mask)

    def weigh(self, query: Query, memory: DotMemory, state: TensorTree) -> WeighOutput:
        scores = self._split(self.queries(query.hidden)) @ memory.keys.mT  # (B, M, K, L)
        if memory.mask is not None:
            scores = scores.masked_fill(~memory.mask[:, None, None], -torch.inf)
        return WeighOutput(HeadMaps(scores.softmax(-1).transpose(1, 2)))

    def read(
        self, maps: HeadMaps, query: Query, memory: DotMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        contexts = maps.heads.transpose(1, 2) @ memory.values  # (B, M, K, S / M)
        return ReadOutput(self.out(contexts.transpose(1, 2).flatten(2)))

    def summary(self, maps: HeadMaps) -> Tensor:
        return maps.heads.mean(2)

    def grids(self, views: list[tuple[int, int]]) -> dict[str, tuple[int, int]]:
        return {"heads": views[0]}

    def _split(self, vectors: Tensor) -> Tensor:
        """(B, N, S) -> (B, M, N, S / M)."""
        return vectors.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Sentinel(DotAttention):
    """A sentinel computed from h takes the remaining share of the softmax: z = Σ α_i a_i + (1 − Σ α_i) s."""

    properties = WeightProperties(sentinel=True)

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        super().build(region_sizes, query_sizes)
        self.score = nn.Linear(query_sizes.hidden, 1)
        self.value = nn.Linear(query_sizes.hidden, region_sizes[0])

    def weigh(self, query: Query, memory: DotMemory, state: TensorTree) -> WeighOutput:
        scores = torch.cat((self.scores(query, memory), self.score(query.hidden) + 3), -1)
        return WeighOutput(scores.softmax(-1)[..., :-1])

    def read(
        self, maps: Tensor, query: Query, memory: DotMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        left = 1 - maps.sum(-1, keepdim=True)
        return ReadOutput(maps @ memory.values + left * self.value(query.hidden))


class Signed(DotAttention):
    """α = tanh(e) / √L: a region may be subtracted."""

    properties = WeightProperties(sums_to_one=False, signed=True)

    def weigh(self, query: Query, memory: DotMemory, state: TensorTree) -> WeighOutput:
        scores = self.scores(query, memory)
        return WeighOutput(scores.tanh().where(scores.isfinite(), 0.0) / scores.shape[-1] ** 0.5)

    def read(
        self, maps: Tensor, query: Query, memory: DotMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        return ReadOutput(maps @ memory.values)


class MaxPooling(DotAttention):
    """z_d = L · max_i α_i a_id, without a sum, so the context is not affine in the weights."""

    def weigh(self, query: Query, memory: DotMemory, state: TensorTree) -> WeighOutput:
        return WeighOutput(self.scores(query, memory).softmax(-1))

    def read(
        self, maps: Tensor, query: Query, memory: DotMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        return ReadOutput(maps.shape[-1] * (maps[..., None] * memory.values[:, None]).amax(2))


class LevelMaps(NamedTuple):
    fine: Tensor
    """(B, K, L) over the first grid."""
    coarse: Tensor
    """(B, K, L') over the second."""
    balance: Tensor
    """(B, K, 2) the share of each level; not over regions."""


class TwoLevels(Attention):
    """A softmax on each of two grids, and one between them: z = b_0 Σ α_i a_i + b_1 Σ α'_i a'_i."""

    view_count = 2

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        assert len(region_sizes) == 2
        self.context_size = 6
        self.levels = nn.ModuleList(nn.Linear(size, 6) for size in region_sizes)
        self.queries = nn.Linear(query_sizes.hidden, 6)
        self.balance = nn.Linear(query_sizes.hidden, 2)

    def project(self, views: Views) -> tuple[DotMemory, ...]:
        values = [level(view.vectors) for level, view in zip(self.levels, views, strict=True)]
        return tuple(DotMemory(v, v, view.mask) for v, view in zip(values, views, strict=True))

    def weigh(self, query: Query, memory: tuple[DotMemory, ...], state: TensorTree) -> WeighOutput:
        maps = []
        for level in memory:
            scores = self.queries(query.hidden) @ level.keys.mT
            if level.mask is not None:
                scores = scores.masked_fill(~level.mask[:, None], -torch.inf)
            maps.append(scores.softmax(-1))
        return WeighOutput(LevelMaps(*maps, self.balance(query.hidden).softmax(-1)))

    def read(
        self, maps: LevelMaps, query: Query, memory: tuple[DotMemory, ...], weighed: WeighOutput | None = None
    ) -> ReadOutput:
        fine, coarse = maps.fine @ memory[0].values, maps.coarse @ memory[1].values
        return ReadOutput(maps.balance[..., :1] * fine + maps.balance[..., 1:] * coarse)

    def summary(self, maps: LevelMaps) -> Tensor:
        return maps.fine

    def grids(self, views: list[tuple[int, int]]) -> dict[str, tuple[int, int]]:
        return {"fine": views[0], "coarse": views[1]}


MECHANISMS = (FourHeads, Sentinel, Signed, TwoLevels, MaxPooling)


class Pyramid(Encoder):
    """8 x 8 regions of 32 pixels, and 4 x 4 that are the means of four."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = SmallCNN((4, 4, 6))
        self.region_sizes = (6, 6)

    def normalise(self, images: Tensor) -> Tensor:
        return self.inner.normalise(images)

    def features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.inner.features(images)
        return fine, functional.avg_pool2d(fine, 2)


class TwoAttentions(LSTMDecoder):
    """Attends twice with h[t-1], and updates the LSTM with the sum of both contexts. Its trace is that of the first."""

    def __init__(self, attention: Attention, second: Attention) -> None:
        super().__init__(attention, embedding_size=6, hidden_size=7)
        self.second = nn.ModuleList([second])

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        super().build(region_sizes, vocabulary_size, padding, start)
        self.second[0].build(region_sizes, QuerySizes(7, 6))

    def project(self, views: Views) -> Memory:
        memory = super().project(views)
        return memory._replace(projected=(*memory.projected, self.second[0].project(memory.views)))

    def advance(
        self, state: State, embedded: Tensor, offsets: tuple[Tensor, ...], weights: tuple[Tensor, ...]
    ) -> Advanced:
        hidden, cell, attending = state.carried
        query = Query(hidden, cell, embedded)
        first = self.attention(query, state.shared.projected[0], attending)
        second = self.second[0](query, state.shared.projected[1], None)
        context = first.context + second.context
        inputs = torch.cat((hidden, context), -1)
        i, f, o, g = (offsets[0] + functional.linear(inputs, weights[0])).chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        carried = state.carried._replace(hidden=hidden, cell=cell)
        outputs = type(self).Outputs(hidden, context)
        return Advanced(State(state.shared, carried, Trace.of(first)), outputs, (inputs,))

    class Outputs(NamedTuple):
        hidden: Tensor
        context: Tensor


def captioner(attention: Attention, decoder: Decoder | None = None) -> Captioner:
    """A tiny captioner with the mechanism, with fixed random weights and captions of several words."""
    torch.manual_seed(0)
    made = Captioner(
        Pyramid() if attention.view_count == 2 else SmallCNN((4, 4, 6)),
        decoder or LSTMDecoder(attention, embedding_size=6, hidden_size=7),
        Vocabulary(tiny_captioner.WORDS),
        ImageTransform(32, "crop"),
        BeamSearch(beam_size=3, max_length=8),
    )
    with torch.no_grad():
        for name, parameter in made.decoder.named_parameters():
            parameter.mul_(1.0 if "bias" in name else 3.0)
        made.decoder.readout.to_words.bias[2] = -6.0  # no end token
    return made.eval()
