"""All mechanisms of configs/attention at tiny sizes, some of another package, and captioners with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import yaml
from helpers.configurations import CONFIGS
from helpers.tiny_captioner import WORDS
from torch import Tensor, nn
from torch.nn import functional

from caption import attention as library
from caption.attention import (
    AdditiveScore,
    Alignment,
    Attention,
    GridMemory,
    Query,
    QuerySizes,
    ReadOutput,
    ScoredAttention,
    Softmax,
    Stochastic,
    WeighOutput,
)
from caption.captioner import Captioner
from caption.core.regions import Views
from caption.core.runtime.trust import make
from caption.core.tensor_tree import State, TensorTree
from caption.data.photos import ImageTransform
from caption.decoders import (
    AdaptiveDecoder,
    Decoder,
    DeepOutput,
    Gate,
    InitialState,
    ShowAttendAndTellDecoder,
    TransformerDecoder,
)
from caption.decoders.base import Memory, Trace
from caption.encoders import Encoder, SmallCNN
from caption.objectives import CaptionBatch, Objective
from caption.search import BeamSearch
from caption.text.vocabulary import Vocabulary
from tools.tables.table import laid_over

# -- mechanisms of another package ---------------------------------------------------------------------------------


class OwnSampling(Stochastic, Alignment):
    """A sampling alignment that has only the contract in common with Multinoulli."""

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return scores.softmax(-1)

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        return memory.values.new_ones(len(memory.values), hypotheses)

    def select(
        self, weights: Tensor, state: TensorTree = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if state is None or not (self.training or self.at_test != "expectation"):
            nowhere = torch.full_like(weights[..., 0], -1).long()
            return weights, nowhere, weights.new_zeros(weights.shape[:-1])
        argmax = not self.training and self.at_test == "argmax"
        location = weights.argmax(-1) if argmax else self.draw(weights)
        log_prob = weights.log().gather(-1, location[..., None]).squeeze(-1)
        return functional.one_hot(location, weights.shape[-1]).to(weights), location, log_prob


class LargestWeighted(Attention):
    """z_d = L · max_i α_i a_id, without a sum, so the context is not affine in the weights."""

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.queries = nn.Linear(query_sizes.hidden, 8)
        self.keys = nn.Linear(region_sizes[0], 8)

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.keys(views[0].vectors))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        scores = self.queries(query.hidden) @ memory.keys.mT
        if memory.mask is not None:
            scores = scores.where(memory.mask[:, None], -torch.inf)
        return WeighOutput(scores.softmax(-1))

    def read(
        self, maps: Tensor, query: Query, memory: GridMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        return ReadOutput(maps.shape[-1] * (maps[..., None] * memory.values[:, None]).amax(2))


# -- the table -----------------------------------------------------------------------------------------------------


def scored(score: Any = None, alignment: Any = None, smoothing: float = 0.0) -> ScoredAttention:
    return ScoredAttention(score or AdditiveScore(6), alignment or Softmax(), smoothing)


def smaller(tree: Any) -> Any:
    """Settings with sizes a sixteenth as large, and windows smaller than the grid."""
    if isinstance(tree, dict):
        return {name: 1.5 if name == "reach" else smaller(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [smaller(value) for value in tree]
    return tree // 16 if isinstance(tree, int) and tree >= 32 else tree


def configured() -> Iterator[tuple[str, Any, bool]]:
    """For each file in configs/attention that changes the decoder: its name, the decoder with smaller sizes, and
    whether more than the attention differs."""
    base = yaml.safe_load((CONFIGS / "shapes_soft.yaml").read_text(encoding="utf-8"))["model"]["decoder"]
    for path in sorted((CONFIGS / "attention").glob("*.yaml")):
        model = yaml.safe_load(path.read_text(encoding="utf-8"))["model"]
        if "refiner" not in model:
            changed = model["decoder"]
            more = "class_path" in changed or set(changed["init_args"]) != {"attention"}
            yield path.stem, smaller(laid_over(base, changed)), more


ATTENTIONS: dict[str, Callable[[], Attention]] = {
    name: partial(make, decoder["init_args"]["attention"], Attention)
    for name, decoder, more in configured()
    if not more or name == "sentinel"  # which `decoder_for` gives its decoder
}
"""By the name of the configuration."""
OWN: dict[str, Callable[[], Attention]] = {
    "own sampling": lambda: scored(alignment=OwnSampling()),
    "own reading": LargestWeighted,
}
TWO_VIEWS = ("attention_via_attention", "parent_weighted", "pyramid_attention")


def lstm(attention: Attention, gate: Gate | None = None, **options: Any) -> ShowAttendAndTellDecoder:
    return ShowAttendAndTellDecoder(
        attention, 6, 7, InitialState(dropout=0), gate, DeepOutput(dropout=0), **options
    )


def decoder_for(attention: Attention) -> Decoder:
    """A decoder that gives the attention what it reads."""
    if isinstance(attention, library.SentinelAttention):
        return AdaptiveDecoder(attention, 6, 7, InitialState(dropout=0), dropout=0)
    return lstm(attention)


DECODERS: dict[str, Callable[[], Decoder]] = {
    name: partial(make, decoder, Decoder) for name, decoder, more in configured() if name not in ATTENTIONS
}
"""By the name of the configuration."""
OWN_DECODERS: dict[str, Callable[[], Decoder]] = {
    "transformer, additive": lambda: TransformerDecoder(scored(), 2, 8, 2, 12, dropout=0),
    "two attentions": lambda: TwoAttentions(scored(), library.MultiHeadAttention(2, 8)),
}


def decoder(name: str) -> Decoder:
    """A decoder of one of the four tables, unbuilt."""
    decoders = DECODERS | OWN_DECODERS
    return decoders[name]() if name in decoders else decoder_for((ATTENTIONS | OWN)[name]())


class TwoAttentions(ShowAttendAndTellDecoder):
    """Attends twice with h[t-1], and updates the LSTM with the sum of both contexts. Its trace is that of the first."""

    def __init__(self, attention: Attention, second: Attention) -> None:
        super().__init__(attention, 6, 7, InitialState(dropout=0), readout=DeepOutput(dropout=0))
        self.second = nn.ModuleList([second])

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        super().build(region_sizes, vocabulary_size, padding, start)
        self.second[0].build(region_sizes, QuerySizes(7, 6))
        self.resize = nn.Linear(self.second[0].context_size, self.attention.context_size)

    def project(self, views: Views) -> Memory:
        memory = super().project(views)
        return memory._replace(projected=(*memory.projected, self.second[0].project(memory.views)))

    def advance(self, state: State, embedded: Tensor) -> tuple[State, tuple[Tensor, Tensor]]:
        hidden, cell, attending = state.carried
        query = Query(hidden, cell, embedded)
        first = self.attention(query, state.shared.projected[0], attending)
        second = self.second[0](query, state.shared.projected[1], None)
        context = first.context + self.resize(second.context)
        hidden, cell = self.cell(self.dropout(embedded), context, hidden, cell)
        carried = state.carried._replace(hidden=hidden, cell=cell)
        return State(state.shared, carried, Trace.of(first)), (hidden, context)


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


def captioner(decoder: Decoder, scale: float = 2.0, end: float = -4.0, seed: int = 0) -> Captioner:
    """A captioner in double precision, with fixed random weights and captions of several words.

    Args:
        decoder: unbuilt.
        scale: factor of the decoder's weights.
        end: the bias of the end token.
    """
    torch.manual_seed(seed)
    two = any(attention.view_count == 2 for attention in decoder.attentions.values())
    model = Captioner(
        Pyramid() if two else SmallCNN((4, 4, 6)),
        decoder,
        Vocabulary(WORDS),
        ImageTransform(32, "crop"),
        BeamSearch(beam_size=3, max_length=8),
    ).double()
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.mul_(1.0 if "norm" in name or "bias" in name else scale)
        words: Any = getattr(decoder, "readout", decoder).to_words
        words.bias[2] = end
    return model.eval()


def descend(
    model: Captioner, objective: Objective, views: Views, captions: CaptionBatch, steps: int
) -> list[float]:
    """The NLL before each step of Adam in training mode, in which the same is drawn at every step."""
    optimizer = torch.optim.Adam(model.decoder.parameters(), 0.03)
    model.decoder.train()
    losses = []
    for _ in range(steps):
        torch.manual_seed(0)
        optimizer.zero_grad()
        loss = objective(model, views, captions)
        loss.value.backward()
        optimizer.step()
        losses.append(float(loss.logged["NLL"]))
    return losses
