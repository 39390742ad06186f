"""The optimizers of the authors' code (github.com/kelvinxu/arctic-captions, optimizers.py), which PyTorch's of the same
names do not give with any options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from caption.core.errors import UserError


class _Arctic(Optimizer):
    """Checks the options and applies one rule to each parameter that has a gradient."""

    def __init__(self, params: ParamsT, decays: tuple[str, ...], **options: float) -> None:
        for name, value in options.items():
            if not (0 <= value < 1 if name in decays else value > 0):
                bounds = "from 0 to below 1" if name in decays else "above 0"
                raise UserError(f"{type(self).__name__} takes {name} {bounds}, not {value}")
        super().__init__(params, dict(options))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters; `closure`, if given, computes the loss and its gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, self.state[parameter], group)
        return loss

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        raise NotImplementedError


class ArcticRMSprop(_Arctic):
    """RMSProp as in Graves 2013 (arXiv 1308.0850), eqs. 38 to 45: centred, with momentum, and ε inside the root.

        n ← ρ n + (1 − ρ) g²        m ← ρ m + (1 − ρ) g
        Δ ← μ Δ − η g / √(n − m² + ε)        θ ← θ + Δ

    `torch.optim.RMSprop` adds ε to the root. Inside it, 1e-4 bounds the step of a parameter with small gradients by
    100 η g, so that it is nearly plain gradient descent with momentum.

    Args:
        params: parameters, or groups of them.
        lr: η.
        decay: ρ, of both averages.
        momentum: μ.
        inner_eps: ε. Not `eps`, which another optimizer's settings would bring along in YAML.

    Raises:
        UserError: `lr` or `inner_eps` is not above 0, or `decay` or `momentum` not from 0 to below 1.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        decay: float = 0.95,
        momentum: float = 0.9,
        inner_eps: float = 1e-4,
    ) -> None:
        super().__init__(
            params, ("decay", "momentum"), lr=lr, decay=decay, momentum=momentum, inner_eps=inner_eps
        )

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        if not state:
            state |= {name: torch.zeros_like(parameter) for name in ("square", "mean", "change")}
        square, mean, change = state["square"], state["mean"], state["change"]
        square.mul_(group["decay"]).addcmul_(gradient, gradient, value=1 - group["decay"])
        mean.mul_(group["decay"]).add_(gradient, alpha=1 - group["decay"])
        variance = torch.addcmul(square, mean, mean, value=-1).clamp_min_(0)  # below 0 by rounding alone
        root = variance.add_(group["inner_eps"]).sqrt_()
        change.mul_(group["momentum"]).addcdiv_(gradient, root, value=-group["lr"])
        parameter.add_(change)


class ArcticAdam(_Arctic):
    """Adam without the correction of its first steps, which the authors' code takes from 1 − β instead of β.

        m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
        θ ← θ − η √(1 − (1 − β₂)^t) / (1 − (1 − β₁)^t) · m / (√v + ε)

    The fraction is 1.11 at t = 1 and soon 1. Averages that start at 0 therefore make early steps longer than in
    `torch.optim.Adam` (Kingma and Ba 2015), which has β in the place of 1 − β: with a constant gradient 3.5 η at
    t = 1, at most 6.6 η at t = 12, 3.2 η at t = 100, and η in the end.

    Args:
        params: parameters, or groups of them.
        lr: η.
        betas: β₁ and β₂. The authors' code has b1 = 0.1 and b2 = 0.001, which are 1 − β.
        eps: ε.

    Raises:
        UserError: `lr` or `eps` is not above 0, or one of the betas not from 0 to below 1.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 2e-4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        first, second = betas
        super().__init__(params, ("beta1", "beta2"), lr=lr, beta1=first, beta2=second, eps=eps)

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        if not state:
            state |= {name: torch.zeros_like(parameter) for name in ("mean", "square")}
            state["step"] = torch.zeros(())
        state["step"] += 1
        first, second, time = group["beta1"], group["beta2"], state["step"].item()
        mean, square = state["mean"], state["square"]
        mean.mul_(first).add_(gradient, alpha=1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        fraction = (1 - (1 - second) ** time) ** 0.5 / (1 - (1 - first) ** time)
        parameter.addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-group["lr"] * fraction)
