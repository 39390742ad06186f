"""Do probabilities fit? Their calibration error, and the regression that makes them fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BINS = 10


class Reliability(NamedTuple):
    """How well the probabilities of P events fit."""

    probabilities: np.ndarray
    """(P,)."""
    outcomes: np.ndarray
    """(P,) bool: which events happened."""

    @property
    def error(self) -> float:
        """Expected calibration error over ten classes of probability (Guo et al. 2017, eq. 3)."""
        predicted, happened, counts = self.bins()
        return float((np.abs(predicted - happened) * counts).sum() / counts.sum())

    def bins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean probability, share that happened and number of events, of the tenths of the range that have any."""
        place = np.minimum((self.probabilities * BINS).astype(int), BINS - 1)
        parts = [place == number for number in range(BINS) if (place == number).any()]
        means = [[column[part].mean() for part in parts] for column in (self.probabilities, self.outcomes)]
        return np.array(means[0]), np.array(means[1]), np.array([part.sum() for part in parts])

    @property
    def nll(self) -> float:
        """Mean −log p, in nats."""
        p = np.clip(self.probabilities, 1e-6, 1 - 1e-6)
        return float(-np.where(self.outcomes, np.log(p), np.log1p(-p)).mean())


def logistic_regression(features: np.ndarray, target: np.ndarray, ridge: float = 1.0) -> np.ndarray:
    """The weights (F + 1,) of logistic regression by Newton's method, with the offset last.

    It minimises −Σ log p + ridge/2 Σ w², with w the weights of the features scaled to a deviation of 1.

    Args:
        features: (N, F).
        target: (N,) bool.
        ridge: of the weights, not of the offset.
    """
    centre, scale = features.mean(0), features.std(0) + 1e-9
    x = np.column_stack(((features - centre) / scale, np.ones(len(features))))
    penalty = np.diag([ridge] * features.shape[1] + [1e-9])
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        gradient = x.T @ (p - target) + penalty @ weights
        weights -= np.linalg.solve((x.T * (p * (1 - p))) @ x + penalty, gradient)
    slopes = weights[:-1] / scale
    return np.append(slopes, weights[-1] - slopes @ centre)
