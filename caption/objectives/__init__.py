"""Training objectives."""

from caption.objectives.base import Captions, Loss, Objective, word_log_likelihoods
from caption.objectives.baselines import (
    Baseline,
    Critic,
    LeaveOneOut,
    MovingAverage,
    NoBaseline,
    Returns,
    SelfCritical,
)
from caption.objectives.cross_entropy import CrossEntropy
from caption.objectives.guided_attention import GuidedAttention
from caption.objectives.regularizers import doubly_stochastic
from caption.objectives.reinforce import Reinforce
from caption.objectives.scheduled_sampling import ScheduledSampling
from caption.objectives.self_critical import SelfCriticalSequence
from caption.objectives.weighted_sum import WeightedSum

__all__ = [
    "Baseline",
    "Captions",
    "Critic",
    "CrossEntropy",
    "GuidedAttention",
    "LeaveOneOut",
    "Loss",
    "MovingAverage",
    "NoBaseline",
    "Objective",
    "Reinforce",
    "Returns",
    "ScheduledSampling",
    "SelfCritical",
    "SelfCriticalSequence",
    "WeightedSum",
    "doubly_stochastic",
    "word_log_likelihoods",
]
