"""Maps from gradients of a word's log-probability by the regions, at the word's own step.

Hard attention reads its expectation here, so that the gradient is that of the expected context.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caption.analysis.maps.trial import Trial
from caption.core.regions import mean_region

STEPS = 32
"""Points on the path of integrated gradients."""
COPIES = 25
"""Noisy copies of SmoothGrad; its authors found little gain beyond 50."""
NOISE = 0.15
"""Standard deviation of the noise, as a share of the range of the region vectors; 0.1 to 0.2 in the paper."""


def gradient(trial: Trial) -> Tensor:
    """‖∂ log p / ∂ a_i‖: saliency (Simonyan et al. 2014), on regions instead of pixels.

    Where the context is Σ α_i a_i, the gradient through the context is α_i ‖∂ log p / ∂ z‖, which is the order of α
    itself; only the gradient through the scores differs. This map is therefore not independent of attention.
    """
    return trial.gradient().norm(dim=-1)[:, None]


def gradient_times_input(trial: Trial) -> Tensor:
    """a_i · ∂ log p / ∂ a_i: to first order, what the word would lose if the vector were zero."""
    return (trial.gradient() * trial.vectors).sum(-1)[:, None]


def gradient_of_hiding(trial: Trial) -> Tensor:
    """∂ log p / ∂ k_i, where k_i is how much of a region is visible: to first order, the fall when it is hidden.

    Its reference is the vector that takes the place of a hidden region; that of a_i · ∂ log p / ∂ a_i is zero. With
    z = Σ α_i a_i and g = ∂ log p / ∂ z it is α_i g·(a_i − z) for `Removed`, α_i g·(a_i − vector) for `Replaced`. It is
    0 for poolings that only ask which weights are 0, such as the maximum.

    Raises:
        UserError: the model computes without gradients.
    """
    with torch.enable_grad():
        visible = torch.ones_like(trial.step.weights[:, None], requires_grad=True)
        log_prob = trial.log_probs(visible).sum()
        if log_prob.requires_grad:
            (slope,) = torch.autograd.grad(log_prob, [visible], allow_unused=True)
            if slope is not None:
                return slope
    trial.gradient()  # refuses a model in which log p has no gradient by the regions either
    return torch.zeros_like(visible)


def integrated_gradients(trial: Trial) -> Tensor:
    """(a_i − r) · ∫₀¹ ∂ log p(r + x (a − r)) / ∂ a_i dx (Sundararajan et al. 2017, eq. 1), by the midpoint rule.

    The reference r is the mean of the image's regions: what the image shows, but not where. The map sums to log p less
    log p at the reference, up to the error of `STEPS` points.
    """
    reference = mean_region(trial.step.views[0])
    difference = trial.vectors - reference
    points = ((torch.arange(STEPS) + 0.5) / STEPS).to(difference)
    gradients = trial.gradients(reference + points[:, None, None, None] * difference)
    return (difference * gradients.mean(0)).sum(-1)[:, None]


def smooth_grad(trial: Trial) -> Tensor:
    """‖1/n Σ ∂ log p(a + ε) / ∂ a_i‖ with ε ~ N(0, σ²) (Smilkov et al. 2017): `gradient` of n = `COPIES` noisy copies.

    The noise is on the regions, not on the pixels; σ is a share of their range, `NOISE`.
    """
    vectors = trial.vectors
    spread = NOISE * (vectors.amax((1, 2), keepdim=True) - vectors.amin((1, 2), keepdim=True))
    noise = torch.randn((COPIES, *vectors.shape), generator=trial.generator).to(vectors)
    return trial.gradients(vectors + spread * noise).mean(0).norm(dim=-1)[:, None]
