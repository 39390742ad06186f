"""Reliability of probabilities: their calibration error, its figure, and the regression that calibrates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from caption.visualize.layout import new_figure

BINS = 10


class Reliability(NamedTuple):
    """The probabilities and outcomes of P events."""

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


def plot_reliability(reliabilities: Mapping[str, Reliability]) -> Figure:
    """Draw the share of nouns that people name against the lens's probability (after Guo et al. 2017, figure 1).

    There is a line for each reliability. A dot is a tenth of the range of probabilities, at its mean; its area is the
    number of nouns. On the diagonal the probabilities are right.

    Raises:
        ValueError: no words were read.
    """
    if not any(len(reliability.outcomes) for reliability in reliabilities.values()):
        raise ValueError("no words were read: there is no reliability to draw")
    fig = new_figure((4.4, 4.0))
    fig.set_layout_engine("constrained")
    ax = fig.add_subplot()
    ax.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for number, (name, reliability) in enumerate(reliabilities.items()):
        predicted, shares, counts = reliability.bins()
        label = f"{name}, calibration error {reliability.error:.2f}"
        ax.plot(predicted, shares, color=f"C{number}", label=label, linewidth=1.5)
        ax.scatter(
            predicted, shares, s=200 * counts / counts.max(), color=f"C{number}", alpha=0.5, linewidth=0
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that people name", aspect="equal")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return fig
