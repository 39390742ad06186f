"""Objectives: what training minimises."""

from caption.objectives.base import Loss, Objective, word_log_likelihoods
from caption.objectives.regularizers import doubly_stochastic, entropy
from caption.objectives.reinforce import Reinforce
from caption.objectives.soft import CrossEntropy

__all__ = [
    "CrossEntropy",
    "Loss",
    "Objective",
    "Reinforce",
    "doubly_stochastic",
    "entropy",
    "word_log_likelihoods",
]
