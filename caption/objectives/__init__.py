"""Objectives: what training minimises."""

from caption.objectives.base import Loss, Objective, word_log_likelihoods
from caption.objectives.reinforce import Reinforce, entropy
from caption.objectives.soft import CrossEntropy, doubly_stochastic

__all__ = ["CrossEntropy", "Loss", "Objective", "Reinforce", "doubly_stochastic", "entropy", "word_log_likelihoods"]
