"""A weighted sum of objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from caption.core.batch import CaptionBatch
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.objectives.base import Loss, Objective

if TYPE_CHECKING:
    from caption.captioner import Captioner


class WeightedSum(Objective):
    """Σ_j λ_j L_j. Each objective projects the regions and unrolls the decoder itself.

    With a little cross-entropy added to `SelfCriticalSequence`, captions remain sentences while their reward rises
    (Paulus et al. 2018, "A Deep Reinforced Model for Abstractive Summarization", eq. 16). Diagnostics are those of the
    first objective; if several objectives log the same name, the value of the first one is logged.

    Args:
        objectives: L_j, at least one.
        weights: λ_j, one for each.

    Raises:
        UserError: the numbers of weights and objectives differ, or there are none.
    """

    def __init__(self, objectives: list[Objective], weights: list[float]) -> None:
        super().__init__()
        if not objectives or len(objectives) != len(weights):
            raise UserError(
                f"{len(objectives)} objectives need as many weights, at least one, not {len(weights)}"
            )
        self.objectives: Sequence[Objective] = nn.ModuleList(objectives)  # type: ignore[assignment]
        self.weights = weights

    def forward(self, captioner: Captioner, views: Views, captions: CaptionBatch) -> Loss:
        losses = [objective(captioner, views, captions) for objective in self.objectives]
        weighted = [weight * loss.value for weight, loss in zip(self.weights, losses, strict=True)]
        logged: dict[str, Tensor] = {}
        for loss in reversed(losses):
            logged |= loss.logged
        return Loss(sum(weighted[1:], weighted[0]), logged, losses[0].unrolled)
