"""Training objectives."""

from caption.core.batch import CaptionBatch
from caption.objectives.base import Loss, Objective, Term, word_log_likelihoods
from caption.objectives.baselines import (
    Baseline,
    Critic,
    GreedyAttentionBaseline,
    LeaveOneOut,
    MovingAverage,
    NoBaseline,
    Rewards,
)
from caption.objectives.cross_entropy import CrossEntropy
from caption.objectives.doubly_stochastic import DoublyStochastic
from caption.objectives.entropy import Entropy
from caption.objectives.guided_attention import GuidedAttention
from caption.objectives.penalties import AttentionPenalty, RefinerPenalty
from caption.objectives.reinforce import Reinforce
from caption.objectives.scheduled_sampling import ScheduledSampling
from caption.objectives.self_critical import SelfCriticalSequence
from caption.objectives.weighted_sum import WeightedSum

__all__ = [
    "AttentionPenalty",
    "Baseline",
    "CaptionBatch",
    "Critic",
    "CrossEntropy",
    "DoublyStochastic",
    "Entropy",
    "GreedyAttentionBaseline",
    "GuidedAttention",
    "LeaveOneOut",
    "Loss",
    "MovingAverage",
    "NoBaseline",
    "Objective",
    "RefinerPenalty",
    "Reinforce",
    "Rewards",
    "ScheduledSampling",
    "SelfCriticalSequence",
    "Term",
    "WeightedSum",
    "word_log_likelihoods",
]
