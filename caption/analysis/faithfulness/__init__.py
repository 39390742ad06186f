"""Do words depend on the regions that the model looked at? Deletion and insertion curves."""

from caption.analysis.ablation import Removed, Replaced, mean_regions
from caption.analysis.faithfulness.curves import FaithfulnessCurves, faithfulness_curves

__all__ = ["FaithfulnessCurves", "Removed", "Replaced", "faithfulness_curves", "mean_regions"]
