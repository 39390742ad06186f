"""The interface of decoders for training, search and analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, AttentionOutput
from caption.attention.maps import named_maps, sum_of_penalties
from caption.core.parts import Part
from caption.core.regions import Views, WeightProperties
from caption.core.tensor_tree import State, TensorTree, combine, map_tensors


class Memory(NamedTuple):
    """The decoder's representation of an image, computed once per image."""

    views: Views
    """The regions, from which h[0] is computed."""
    projected: tuple[TensorTree, ...]
    """The memory of each of the decoder's attentions, in the order of `Decoder.attentions`."""


class Trace(NamedTuple):
    """The attention at the step that emitted a word; (B, K, ...) in search, (N, ...) in an unroll."""

    weights: Tensor
    """(..., L) the summary α[t] for heatmaps; `Decoder.properties` describes it."""
    maps: dict[str, Tensor]
    """(..., S, L) all maps by name, if there are more than the summary: heads, hops, levels."""
    gate: Tensor | None = None
    """(...) β[t]; the mean over the features for a vector gate; None without a gate."""
    location: Tensor | None = None
    """(...) int64 or (..., 2) float, the chosen location, see `attention.ReadOutput`; None for soft attention and
    where several layers or models attend."""
    log_prob: Tensor | None = None
    """(...) log-density of the sampled location, 0 where none was sampled; None for mechanisms that do not sample."""

    @classmethod
    def of(cls, output: AttentionOutput, gate: Tensor | None = None) -> Trace:
        """The trace of a decoder that attends once per step."""
        maps = {} if isinstance(output.maps, Tensor) else named_maps(output.maps)
        return cls(output.weights, maps, gate, output.location, output.log_prob)


class Unrolled(NamedTuple):
    """The result of teacher forcing on a batch of captions. It has only the N real steps, in unspecified order."""

    logits: Tensor
    """(N, V) logits of the word at each real step."""
    trace: Trace
    """The attention at each real step, tensors (N, ...)."""
    queries: Tensor
    """(N, H) without gradient: the state before each step, h[t-1], which does not depend on the attention at step t."""
    positions: Tensor
    """(N,) int64: index of each real step in the flattened (B, K, T)."""
    shape: tuple[int, int, int]
    """(B, K, T)."""
    real: Tensor | None = None
    """(B, L) bool: the mask of the regions, see `Regions`; None when all are real."""

    def has_steps(self) -> Tensor:
        """(B, K) bool: True for captions with at least one step. Their number is the N of the paper's 1/N Σ_n."""
        return self.unpack(torch.ones_like(self.positions)).any(-1)

    def pack(self, padded: Tensor) -> Tensor:
        """(B, K, T, ...) -> (N, ...): the entries of the real steps, e.g. of the target words."""
        return padded.flatten(0, 2).index_select(0, self.positions)

    def unpack(self, packed: Tensor) -> Tensor:
        """(N, ...) -> (B, K, T, ...), zero where there is no step, so that sums over T include only real steps."""
        images, hypotheses, steps = self.shape
        flat = packed.new_zeros(images * hypotheses * steps, *packed.shape[1:])
        return flat.index_copy(0, self.positions, packed).unflatten(0, self.shape)


class Decoder(Part, nn.Module):
    """Base class of decoders, which generate captions word by word. `forward` and repeated `step` give the same
    log-probabilities."""

    query_size: int
    """Length H of the state that queries the attention; known from the start."""

    @property
    def attentions(self) -> Mapping[str, Attention]:
        """The attention mechanisms by their dotted name, in the order of their use in a step.

        A mechanism nested in another is not listed.
        """
        attentions: dict[str, Attention] = {}
        for name, module in self.named_modules():
            nested = any(name.startswith(f"{outer}.") for outer in attentions)
            if isinstance(module, Attention) and not nested:
                attentions[name] = module
        return attentions

    @property
    def properties(self) -> WeightProperties:
        """Properties of `Trace.weights`: those of the attention, combined if there are several."""
        declared = [attention.properties for attention in self.attentions.values()]
        return WeightProperties(
            all(properties.sums_to_one for properties in declared),
            any(properties.signed for properties in declared),
            any(properties.sentinel for properties in declared),
        )

    def map_grids(self, views: Sequence[tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """The grid (rows, cols) of each map in `Trace.maps`, by name, for images whose views have these grids."""
        return {
            self.trace_name(number, name): grid
            for number, attention in enumerate(self.attentions.values())
            for name, grid in attention.grids(views).items()
        }

    @property
    def map_views(self) -> dict[str, int]:
        """The index of the view that each map in `Trace.maps` covers, by name."""
        return {
            self.trace_name(number, name): view
            for number, attention in enumerate(self.attentions.values())
            for name, view in attention.map_views.items()
        }

    def trace_name(self, number: int, name: str) -> str:
        """The name in `Trace.maps` of a map of one of `attentions`."""
        return name

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor | None:
        """The sum of the attention mechanisms' penalties, given `Trace.maps` of an unroll; None if there are none."""
        penalties = []
        for number, attention in enumerate(self.attentions.values()):
            names = {name: self.trace_name(number, name) for name in attention.map_views}
            penalties.append(
                attention.penalty({map_name: maps[name] for map_name, name in names.items() if name in maps})
            )
        return sum_of_penalties(penalties)

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        """Create the weights. Called once.

        Args:
            region_sizes: length D of the region vectors of each view.
            vocabulary_size: number of words V.
            padding: id of the padding word.
            start: id of the start token.
        """
        raise NotImplementedError

    def project(self, views: Views) -> Memory:
        """Compute the memory: everything that depends on the image alone, once per image."""
        raise NotImplementedError

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        """The state before the first word, for K = `hypotheses` captions of each image."""
        raise NotImplementedError

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """Advance by one word.

        Args:
            state: after the previous words.
            words: (B, K) int64, the previous word of each caption.

        Returns:
            (B, K, V) float32 log-probabilities of the next word, and the state, whose `trace` is a `Trace`.
        """
        raise NotImplementedError

    def query_of(self, carried: TensorTree) -> Tensor:
        """(B, K, H) the state h[t-1], taken from `State.carried`, for `Unrolled.queries`."""
        return carried.hidden

    def forward(self, memory: Memory, words: Tensor, lengths: Tensor) -> Unrolled:
        """Teacher forcing; by default `step`, word by word.

        Args:
            memory: of the B images.
            words: (B, K, T) int64, the input words: the start token, then the caption without its end token.
            lengths: (B, K) int64, number of real steps of each caption; 0 for an absent caption. In the host's memory
                a GPU is not waited for.
        """
        state = self.start(memory, words.shape[1])
        columns = []
        for inputs in words.unbind(2):
            query = self.query_of(state.carried).detach()
            log_probs, state = self.step(state, inputs)
            columns.append((log_probs, state.trace, query))
        positions = real_positions(lengths, words)
        logits, trace, queries = select_real(join_steps(columns), positions)
        mask = memory.views[0].mask
        return Unrolled(logits, trace, queries, positions, words.shape, mask)  # type: ignore[arg-type]


def real_positions(lengths: Tensor, words: Tensor) -> Tensor:
    """(N,) int64 `Unrolled.positions` of captions of `lengths` (B, K) in `words` (B, K, T), on the device of the words.

    Lengths in the host's memory are counted there, so that the host does not wait for a GPU.
    """
    real = torch.arange(words.shape[-1], device=lengths.device) < lengths[..., None]
    return real.flatten().nonzero().squeeze(-1).to(words.device, non_blocking=True)


def join_steps(columns: Sequence[TensorTree]) -> TensorTree:
    """One tree of tensors (B, K, ...) per time -> one tree (B, K, T, ...)."""
    return combine(lambda column: torch.stack(column, 2), columns)


def select_real(steps: TensorTree, positions: Tensor) -> TensorTree:
    """Tensors (B, K, T, ...) -> (N, ...) of the real steps."""
    # `index_select` and not an index: its gradient needs no sorting on a GPU.
    return map_tensors(lambda tensor: tensor.flatten(0, 2).index_select(0, positions), steps)


def in_working_precision(views: Views, weight: Tensor) -> Views:
    """Convert regions to the precision in which a decoder reads them at every step.

    Stored regions are in half precision. Under autocast, a GPU reads them in the lower precision. A CPU is slow in low
    precision except for large matrix products, so there they get the precision of the decoder's weights.

    Args:
        views: of the images.
        weight: one of the decoder's weights.
    """
    device, dtype = weight.device.type, weight.dtype
    if device != "cpu" and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    return tuple(view._replace(vectors=view.vectors.to(dtype)) for view in views)
