"""Training objectives."""

from caption.objectives.base import CaptionBatch, Loss, Objective, word_log_likelihoods
from caption.objectives.baselines import (
    Baseline,
    Critic,
    LeaveOneOut,
    MovingAverage,
    NoBaseline,
    Rewards,
    SelfCritical,
)
from caption.objectives.cross_entropy import CrossEntropy
from caption.objectives.guided_attention import GuidedAttention
from caption.objectives.reinforce import Reinforce
from caption.objectives.scheduled_sampling import ScheduledSampling
from caption.objectives.self_critical import SelfCriticalSequence
from caption.objectives.terms import AttentionPenalty, DoublyStochastic, Entropy, Term
from caption.objectives.weighted_sum import WeightedSum

__all__ = [
    "AttentionPenalty",
    "Baseline",
    "CaptionBatch",
    "Critic",
    "CrossEntropy",
    "DoublyStochastic",
    "Entropy",
    "GuidedAttention",
    "LeaveOneOut",
    "Loss",
    "MovingAverage",
    "NoBaseline",
    "Objective",
    "Reinforce",
    "Rewards",
    "ScheduledSampling",
    "SelfCritical",
    "SelfCriticalSequence",
    "Term",
    "WeightedSum",
    "word_log_likelihoods",
]
