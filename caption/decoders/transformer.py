"""The Transformer decoder (Vaswani et al. 2017): parallel in training, with a cache in decoding.

Every layer attends to the image with a mechanism of this package, so its maps are traced, drawn and edited like those
of the LSTM decoders; `caption.attention.map_hooks.record_self_attention` records the self-attention over words. In
training, the T steps of a caption are computed in parallel, as K · T queries of one image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, AttentionOutput, Query, QuerySizes
from caption.attention.maps import named_maps
from caption.attention.options import at_least_one
from caption.attention.scaled_dot_product import ScaledDotProduct
from caption.core.errors import UserError
from caption.core.parts import Spec
from caption.core.regions import Views
from caption.core.runtime.trust import make
from caption.core.tensor_tree import State, TensorTree, leaves, map_tensors
from caption.decoders.base import (
    Decoder,
    Memory,
    Trace,
    Unrolled,
    in_working_precision,
    real_positions,
)


class Cache(NamedTuple):
    """Keys and values of the words so far, of one layer."""

    keys: Tensor
    """(B, K, M, T, H / M)."""
    values: Tensor
    """(B, K, M, T, H / M)."""


class TransformerDecoder(Decoder):
    """Word vectors √H E y + positions; in every layer masked self-attention, attention to the image, and a feed-forward
    network.

    Layer normalisation precedes each part (pre-norm, Xiong et al. 2020), so training needs no warm-up. The weights for
    heatmaps are the mean over the layers; `Trace.maps` has the maps of each layer. `Trace.location` is that of a single
    layer; several layers read different regions, so that there is none.

    Args:
        attention: the mechanism that attends to the image, of which each layer gets a copy with its own weights; or a
            list with a mechanism for each layer. It must not keep a state from word to word. A mechanism that samples
            is trained with `caption.objectives.Reinforce`: the log-density of a step is the sum over the layers. Each
            layer draws for itself whether a caption reads the expectation.
        layers: number of layers.
        hidden_size: H, width of the layers.
        heads: M, of the self-attention; H is divisible by it.
        inner_size: width of the feed-forward networks.
        dropout: on the embeddings and after each part.
        longest: maximal number of words of a caption.

    Raises:
        UserError: `layers` or `heads` is below 1; the width is not divisible by the number of heads; the number of
            mechanisms in the list is not `layers`; in use, the attention keeps a state, or a caption is too long.
    """

    def __init__(
        self,
        attention: Attention | list[Attention],
        layers: int = 2,
        hidden_size: int = 512,
        heads: int = 8,
        inner_size: int = 1024,
        dropout: float = 0.1,
        longest: int = 128,
    ) -> None:
        super().__init__()
        at_least_one(self, layers=layers, heads=heads)
        if hidden_size % heads:
            raise UserError(
                f"hidden_size {hidden_size} of TransformerDecoder is not divisible by heads {heads}"
            )
        self.hidden_size = self.query_size = hidden_size
        self.heads = heads
        self.inner_size = inner_size
        self.longest = longest
        self.dropout = nn.Dropout(dropout)
        if isinstance(attention, Attention):
            attention = [attention, *(make(attention.spec, Attention) for _ in range(layers - 1))]
        if len(attention) != layers:
            raise UserError(
                f"attention of TransformerDecoder lists {len(attention)} mechanisms for {layers} layers"
            )
        self.layers = nn.ModuleList(
            Layer(mechanism, hidden_size, heads, inner_size, dropout) for mechanism in attention
        )

    @property
    def spec(self) -> Spec:
        """Lists the layers' mechanisms if they differ."""
        spec = super().spec
        mechanisms = [attention.spec for attention in self.attentions.values()]
        if any(mechanism != mechanisms[0] for mechanism in mechanisms):
            spec["init_args"]["attention"] = mechanisms
        return spec

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        self.embed = nn.Embedding(vocabulary_size, self.hidden_size, padding_idx=padding)
        nn.init.normal_(self.embed.weight, std=self.hidden_size**-0.5)
        self.register_buffer("positions", sinusoids(self.longest + 1, self.hidden_size), persistent=False)
        for layer in self.layers:
            layer.build(region_sizes)  # type: ignore[operator]
        self.norm = nn.LayerNorm(self.hidden_size)
        self.to_words = nn.Linear(self.hidden_size, vocabulary_size)

    def project(self, views: Views) -> Memory:
        views = in_working_precision(views, self.embed.weight)
        return Memory(views, tuple(attention.project(views) for attention in self.attentions.values()))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        vectors = memory.views[0].vectors
        images = vectors.shape[0]
        empty = vectors.new_zeros(images, hypotheses, self.heads, 0, self.hidden_size // self.heads)
        return State(memory, tuple(Cache(empty, empty) for _ in self.layers), trace=None)

    def _embedded(self, words: Tensor, first: int) -> Tensor:
        """Words (B, K, T), the first one at position `first` -> (B, K, T, H)."""
        positions: Tensor = self.positions  # type: ignore[assignment]
        if first + words.shape[-1] > len(positions):
            raise UserError(
                f"a caption of more than {self.longest} words does not fit TransformerDecoder: raise `longest`, or "
                "lower the search's max_length, and in training data.max_words and the max_length of "
                "SelfCriticalSequence"
            )
        embedded = self.embed(words) * self.hidden_size**0.5
        return self.dropout(embedded + positions[first : first + words.shape[-1]])

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        caches: tuple[Cache, ...] = state.carried  # one for each layer
        hidden = self._embedded(words[..., None], first=caches[0].keys.shape[3])
        extended, outputs = [], []
        for layer, memory, cache in zip(self.layers, state.shared.projected, caches, strict=True):
            hidden, cache, output = layer(hidden, memory, cache)
            extended.append(cache)
            outputs.append(output)
        logits = self.to_words(self.norm(hidden)).squeeze(2)
        return logits.float().log_softmax(-1), State(state.shared, tuple(extended), trace_of(outputs))

    def forward(self, memory: Memory, words: Tensor, lengths: Tensor) -> Unrolled:
        hidden = self._embedded(words, first=0)
        inputs = hidden
        outputs = []
        for layer, projected in zip(self.layers, memory.projected, strict=True):
            hidden, _, output = layer(hidden, projected, None)
            outputs.append(output)
        positions = real_positions(lengths, words)
        trace = map_tensors(lambda tensor: tensor.flatten(0, 1).index_select(0, positions), trace_of(outputs))
        queries = inputs.detach().flatten(0, 2).index_select(0, positions)
        logits = self.to_words(self.norm(hidden.flatten(0, 2).index_select(0, positions)))
        mask = memory.views[0].mask
        return Unrolled(logits, trace, queries, positions, words.shape, mask)  # type: ignore[arg-type]

    def trace_name(self, number: int, name: str) -> str:
        return f"layer {number} {name}"


class Layer(nn.Module):
    """One layer: masked self-attention, attention to the image, and a feed-forward network, each with a residual
    connection."""

    def __init__(
        self, attention: Attention, hidden_size: int, heads: int, inner_size: int, dropout: float
    ) -> None:
        super().__init__()
        self.attention = attention
        self.hidden_size = hidden_size
        self.heads = heads
        self.inner_size = inner_size
        self.dropout = nn.Dropout(dropout)

    def build(self, region_sizes: tuple[int, ...]) -> None:
        """Create the weights. Called once."""
        size = self.hidden_size
        self.attention.build(region_sizes, QuerySizes(size, size))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.projections = nn.Linear(size, 3 * size)
        self.product = ScaledDotProduct()
        self.output = nn.Linear(size, size)
        self.from_context = nn.Linear(self.attention.context_size, size)
        self.inner = nn.Sequential(
            nn.Linear(size, self.inner_size), nn.ReLU(), self.dropout, nn.Linear(self.inner_size, size)
        )

    def forward(
        self, hidden: Tensor, memory: TensorTree, cache: Cache | None
    ) -> tuple[Tensor, Cache, AttentionOutput]:
        """Process T new words (B, K, T, H) of each hypothesis.

        Args:
            hidden: output of the layer below.
            memory: the attention's memory of the B images.
            cache: keys and values of the previous words; None = no previous words, and the self-attention is causal.

        Returns:
            (B, K, T, H), the cache with the new words, and the attention's output for K · T queries.
        """
        hypotheses, steps = hidden.shape[1:3]
        parts = self.projections(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = parts.permute(3, 0, 1, 4, 2, 5)  # each (B, K, M, T, H / M)
        if cache is not None:
            keys, values = torch.cat((cache.keys, keys), 3), torch.cat((cache.values, values), 3)
        self_attended = self.product(queries, keys, values, causal=cache is None and steps > 1)
        hidden = hidden + self.dropout(self.output(self_attended.transpose(2, 3).flatten(3)))
        image_queries = self.norms[1](hidden).flatten(1, 2)
        # All words of a caption have its state, for example that it reads the expectation of hard attention.
        state = map_tensors(
            lambda tensor: tensor.repeat_interleave(steps, 1), self.attention.start(memory, hypotheses)
        )
        attended = self.attention(Query(image_queries, word=image_queries), memory, state)
        if any(tensor.is_floating_point() for tensor in leaves(attended.state)):
            raise UserError(
                "the attention of a TransformerDecoder cannot keep a state from word to word, since training computes "
                "all words in parallel: take a score and an alignment without a state"
            )
        context = self.from_context(attended.context).unflatten(1, (hypotheses, steps))
        hidden = hidden + self.dropout(context)
        hidden = hidden + self.dropout(self.inner(self.norms[2](hidden)))
        return hidden, Cache(keys, values), attended


def trace_of(outputs: Sequence[AttentionOutput]) -> Trace:
    """The maps of the layers, their mean as the summary, the location that a single layer chose, and the sum of the
    log-densities of their samples."""
    maps = {
        f"layer {number} {name}": tensor
        for number, output in enumerate(outputs)
        for name, tensor in named_maps(output.maps).items()
    }
    sampled = [output.log_prob for output in outputs if output.log_prob is not None]
    return Trace(
        torch.stack([output.weights for output in outputs]).mean(0),
        maps,
        location=outputs[0].location if len(outputs) == 1 else None,
        log_prob=torch.stack(sampled).sum(0) if sampled else None,
    )


def sinusoids(length: int, size: int) -> Tensor:
    """(T, H) positions as sines and cosines of wavelengths from 2π to 10000 · 2π (section 3.5)."""
    position = torch.arange(length)[:, None]
    rate = torch.exp(torch.arange(0, size, 2) * (-torch.log(torch.tensor(10000.0)) / size))
    angles = position * rate
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :size]
