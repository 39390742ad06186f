"""Is where the model looked the reason for what it said? Deletion and insertion curves."""

from caption.analysis.faithfulness.ablation import Removed, Replaced, mean_region
from caption.analysis.faithfulness.curves import Erasure, erase

__all__ = ["Erasure", "Removed", "Replaced", "erase", "mean_region"]
