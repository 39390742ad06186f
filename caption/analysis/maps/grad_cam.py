"""Grad-CAM and Grad-CAM++: region vectors, weighted by how the word depends on each of their features.

The feature maps A^k are the features of the regions that the decoder gets: with an encoder without a refiner, its last
layer. y is log p of the word, as in the section on captions of Selvaraju et al. 2017, at its own step. Class tokens,
which encoders of other people's models append to every region, have no place in the photo and are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caption.analysis.maps.trial import Trial


def grad_cam(trial: Trial) -> Tensor:
    """ReLU(Σ_k w_k A^k) with w_k = 1/L Σ_i ∂y/∂A^k_i (Selvaraju et al. 2017, eqs. 1 and 2)."""
    gradients, features = trial.own_features(trial.gradient()), trial.own_features(trial.vectors)
    return _weighted(gradients.mean(1, keepdim=True), features)


def grad_cam_plus_plus(trial: Trial) -> Tensor:
    """ReLU(Σ_k w_k A^k) with w_k = Σ_i c^k_i ReLU(∂y/∂A^k_i) (Chattopadhay et al. 2018, eqs. 5, 11 and 19).

    c^k_i = g² / (2 g² + Σ_j A^k_j g³), with g = ∂y/∂A^k_i: the paper's second and third derivatives of exp(y), of which
    exp(y) cancels.
    """
    gradients, features = trial.own_features(trial.gradient()), trial.own_features(trial.vectors)
    square, cube = gradients**2, gradients**3
    divisor = 2 * square + features.sum(1, keepdim=True) * cube
    shares = torch.where(divisor != 0, square / divisor.where(divisor != 0, 1.0), 0.0)
    return _weighted((shares * gradients.relu()).sum(1, keepdim=True), features)


def _weighted(weights: Tensor, features: Tensor) -> Tensor:
    """Weights (B', 1, K) of features (B', L, K) -> (B', 1, L)."""
    return (weights * features).sum(-1).relu()[:, None]
