"""Do words depend on the regions that the model looked at? Deletion and insertion curves."""

from caption.analysis.faithfulness.ablation import Removed, Replaced, mean_region
from caption.analysis.faithfulness.curves import Erasure, erase

__all__ = ["Erasure", "Removed", "Replaced", "erase", "mean_region"]
