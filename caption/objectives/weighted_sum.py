"""Several objectives at once."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from caption.decoders.base import Decoder, Memory
from caption.objectives.base import CaptionBatch, Loss, Objective, Source


class WeightedSum(Objective):
    """Σ_j λ_j L_j. Each objective unrolls the decoder itself.

    With a little cross-entropy beside `SelfCriticalSequence`, captions stay sentences while their reward rises (Paulus
    et al. 2018, "A Deep Reinforced Model for Abstractive Summarization", eq. 16). Diagnostics are those of the first
    objective; of numbers with one name, the first objective's is logged.

    Args:
        objectives: L_j, at least one.
        weights: λ_j, one for each.

    Raises:
        ValueError: there are more or fewer weights than objectives, or none.
    """

    def __init__(self, objectives: list[Objective], weights: list[float]) -> None:
        super().__init__()
        if not objectives or len(objectives) != len(weights):
            raise ValueError(
                f"{len(objectives)} objectives need as many weights, at least one, not {len(weights)}"
            )
        self.objectives: Sequence[Objective] = nn.ModuleList(objectives)  # type: ignore[assignment]
        self.weights = weights

    def forward(
        self, decoder: Decoder, memory: Memory, captions: CaptionBatch, source: Source | None = None
    ) -> Loss:
        first, *others = (objective(decoder, memory, captions, source) for objective in self.objectives)
        value, logged = self.weights[0] * first.value, dict(first.logged)
        for weight, loss in zip(self.weights[1:], others, strict=True):
            value = value + weight * loss.value
            logged = loss.logged | logged
        return Loss(value, logged, first.unrolled)
