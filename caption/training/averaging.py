"""A callback that validates and saves a moving average of the weights."""

from __future__ import annotations

# isort: split
from pytorch_lightning.callbacks import WeightAveraging
from torch.optim.swa_utils import get_ema_multi_avg_fn


class AveragedWeights(WeightAveraging):
    """w̄ ← decay · w̄ + (1 − decay) · w after every batch; w̄ is validated, saved and left at the end of training.

    Lightning's `EMAWeightAveraging` computes the same in a form whose rounding changes frozen weights, after which a
    store of precomputed regions no longer belongs to the encoder. Here weights that do not change keep every bit.

    Args:
        decay: 0 to 1; 0.999 forgets in about a thousand batches.

    Raises:
        ValueError: `decay` is outside this range.
    """

    def __init__(self, decay: float = 0.999) -> None:
        super().__init__(multi_avg_fn=get_ema_multi_avg_fn(decay))
