"""What would the model say if it looked elsewhere? Captions under edited attention."""

from caption.analysis.interventions.encoded_photo import NO_EDITS, EditedCaption, Edits, EncodedPhoto
from caption.analysis.interventions.forced_attention import Erase, Force, Mask, Move
from caption.analysis.interventions.forced_step import ForcedStep, force_everywhere
from caption.analysis.interventions.intervene import Intervention, compare, intervene
from caption.analysis.interventions.log_probs import LogProbs

__all__ = [
    "NO_EDITS",
    "EditedCaption",
    "Edits",
    "EncodedPhoto",
    "Erase",
    "Force",
    "ForcedStep",
    "Intervention",
    "LogProbs",
    "Mask",
    "Move",
    "compare",
    "force_everywhere",
    "intervene",
]
