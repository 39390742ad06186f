"""Multi-head attention (Vaswani et al. 2017, section 3.2.2): several attentions in parallel, each in a subspace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.options import above_zero, at_least_one
from caption.core.errors import UserError
from caption.core.parts import Part
from caption.core.regions import Views
from caption.core.tensor_tree import TensorTree


class HeadMaps(NamedTuple):
    """The maps of M heads."""

    heads: Tensor
    """(B, K, M, L)."""


class HeadGates(Part, nn.Module):
    """Learned gates that can switch heads off: hard concrete variables (Louizos et al. 2018; Voita et al. 2019,
    section 6).

    In training a gate is sampled, g = min(1, max(0, ḡ)) with ḡ a stretched concrete variable, so that it can be exactly
    0 and still learn. In evaluation it is σ(log odds), stretched and clipped (Louizos et al. 2018, section 2). The
    penalty is the expected number of open gates, Σ_m σ(log odds_m − temperature · log(stretch / (1 + stretch))). Gates
    are sampled again at each step of a caption.

    Args:
        temperature: of the concrete distribution.
        stretch: how far the variable extends below 0 and above 1.
        start: log odds of an open gate before training.
        speed: factor by which the log odds learn faster than other weights. Adam moves a weight by at most about the
            learning rate per step. The log odds must fall by 4.4 before a gate is 0 in evaluation, which would take a
            thousand steps or more without this factor.

    Raises:
        UserError: the speed is not above 0.
    """

    def __init__(
        self, temperature: float = 0.33, stretch: float = 0.1, start: float = 2.0, speed: float = 10.0
    ) -> None:
        super().__init__()
        above_zero(self, speed=speed)
        self.temperature = temperature
        self.stretch = stretch
        self.start = start
        self.speed = speed

    def build(self, heads: int) -> None:
        """Create the gates. Called once."""
        self.weight = nn.Parameter(torch.full((heads,), self.start / self.speed))

    @property
    def log_odds(self) -> Tensor:
        """(M,)."""
        return self.weight * self.speed

    def forward(self) -> Tensor:
        """(M,) gates from 0 to 1."""
        if not self.training:
            return self._stretched(self.log_odds)
        uniform = torch.rand_like(self.weight).clamp(1e-6, 1 - 1e-6)
        return self._stretched((self.log_odds + uniform.log() - (1 - uniform).log()) / self.temperature)

    @torch.no_grad()
    def in_evaluation(self) -> Tensor:
        """(M,) the gates in evaluation, in either mode."""
        return self._stretched(self.log_odds)

    def _stretched(self, logits: Tensor) -> Tensor:
        return (logits.sigmoid() * (1 + 2 * self.stretch) - self.stretch).clamp(0, 1)

    def expected_open(self) -> Tensor:
        """The expected number of gates that are not 0."""
        shift = self.temperature * math.log(self.stretch / (1 + self.stretch))
        return (self.log_odds - shift).sigmoid().sum()


class MultiHeadAttention(Attention):
    """z = W_o [α^1 V^1; …; α^M V^M], with α^m = softmax(Q^m K^mᵀ / √(A/M)).

    The context is a mixture of projected regions. The summary for heatmaps is the mean over the heads.

    Args:
        heads: M.
        size: A, the width of all heads together, divisible by M.
        gates: learned gates that can switch heads off, with a penalty that the loss term
            `caption.objectives.AttentionPenalty` weighs; None = all heads are read.
        output_size: length of z; None = A.

    Raises:
        UserError: `heads` is below 1; the size is not divisible by the number of heads.
    """

    map_views = {"heads": 0}

    def __init__(
        self,
        heads: int = 4,
        size: int = 512,
        gates: HeadGates | None = None,
        output_size: int | None = None,
    ) -> None:
        super().__init__()
        at_least_one(self, heads=heads)
        if size % heads:
            raise UserError(f"size {size} of MultiHeadAttention is not divisible by heads {heads}")
        self.heads = heads
        self.size = size
        self.gates = gates
        self.output_size = output_size or size

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = self.output_size
        self.keys = nn.Linear(region_sizes[0], self.size)
        self.values = nn.Linear(region_sizes[0], self.size)
        self.queries = nn.Linear(query_sizes.hidden, self.size)
        self.output = nn.Linear(self.size, self.output_size)
        if self.gates is not None:
            self.gates.build(self.heads)

    def _split(self, vectors: Tensor) -> Tensor:
        """(B, N, A) -> (B, M, N, A / M)."""
        return vectors.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def memory(self, views: Views) -> GridMemory:
        """Keys and values (B, M, L, A / M) of each head."""
        vectors, grid, mask = views[0]
        return GridMemory(self._split(self.keys(vectors)), self._split(self.values(vectors)), mask, grid)

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        queries = self._split(self.queries(query.hidden))
        scores = queries @ memory.keys.mT / (self.size / self.heads) ** 0.5
        weights = hide_masked(scores, memory.mask).softmax(-1)
        return WeighOutput(HeadMaps(weights.transpose(1, 2)))

    def context(self, maps: HeadMaps, query: Query, memory: GridMemory) -> Tensor:
        weights = maps.heads.transpose(1, 2)  # (B, M, K, L)
        if self.gates is not None:
            weights = weights * self.gates()[:, None, None]
        contexts = weighted_sum(weights, memory.values)  # (B, M, K, A / M)
        return self.output(contexts.transpose(1, 2).flatten(2))

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor | None:
        """The expected number of open gates."""
        return None if self.gates is None else self.gates.expected_open()

    def remove_closed_heads(self) -> dict[str, tuple[int, int]]:
        """Remove the heads whose gate is 0 in evaluation, and multiply the other gates into W_o.

        The context stays the same up to rounding; the summary becomes the mean over the remaining heads. If no head is
        open, one remains, with zeros in W_o.

        Returns:
            as the function `remove_closed_heads`; empty without gates.
        """
        if self.gates is None:
            return {}
        before = self.heads
        kept, count = keep_open_heads(self, self.gates, self.heads, "output")
        self.size, self.heads, self.gates = self.size // self.heads * len(kept), len(kept), None
        self.revise(heads=self.heads, size=self.size, gates=None, output_size=self.output_size)
        return {"": (count, before)}


@torch.no_grad()
def keep_open_heads(attention: nn.Module, gates: HeadGates, heads: int, output: str) -> tuple[list[int], int]:
    """Remove closed heads from the weights of an attention, and multiply the other gates into its output layer.

    Returns:
        the numbers of the heads that are kept, at least one, and the number of open heads.
    """
    values = gates.in_evaluation()
    kept = values.nonzero().flatten().tolist()
    last: nn.Linear = getattr(attention, output)
    last.weight.mul_(values.repeat_interleave(last.in_features // heads))
    keep_heads(attention, kept or [0], heads, output)
    return kept or [0], len(kept)


@torch.no_grad()
def keep_heads(attention: nn.Module, kept: Sequence[int], heads: int, output: str) -> None:
    """Remove the other heads from `queries`, `keys` and `values`, and from the inputs of the layer named `output`."""
    last: nn.Linear = getattr(attention, output)
    numbers = (
        torch.arange(last.in_features, device=last.weight.device).unflatten(0, (heads, -1))[[*kept]].flatten()
    )
    for name in ("queries", "keys", "values"):
        layer: nn.Linear = getattr(attention, name)
        setattr(attention, name, affine(layer.weight[numbers], layer.bias[numbers]))
    setattr(attention, output, affine(last.weight[:, numbers], last.bias))


def affine(weight: Tensor, bias: Tensor) -> nn.Linear:
    """The affine map with these weights (outputs, inputs) and (outputs,)."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


def remove_closed_heads(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Remove closed heads from all attention in a model, in place: multi-head attention in the decoder and
    self-attention among regions.

    Returns:
        for each attention with gates, by its dotted name: the number of open heads, and the number of heads before.

    Raises:
        UserError: no attention in the model has gates.
    """
    counts = {
        ".".join(filter(None, (name, inner))): count
        for name, module in [*model.named_modules()]
        if callable(remove := getattr(module, "remove_closed_heads", None))
        for inner, count in remove().items()
    }
    if not counts:
        raise UserError(
            "no attention of this model has gates on its heads: train one with -c attention/multi_head_gated or "
            "-c attention/self_attention_gated"
        )
    return counts
