"""The authors' optimizers, against their update rules in NumPy, with the names of optimizers.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from caption.core.errors import UserError
from caption.training.arctic_optimizers import ArcticAdam, ArcticRMSprop

STEPS = 40


def rmsprop(parameter: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    running_grads, running_grads2, updir = (np.zeros_like(parameter) for _ in range(3))
    for grad in gradients:
        running_grads = 0.95 * running_grads + 0.05 * grad
        running_grads2 = 0.95 * running_grads2 + 0.05 * grad**2
        updir = 0.9 * updir - 1e-4 * grad / np.sqrt(running_grads2 - running_grads**2 + 1e-4)
        parameter = parameter + updir
    return parameter


def adam(parameter: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    m, v = np.zeros_like(parameter), np.zeros_like(parameter)
    b1, b2 = 0.1, 0.001
    for i, grad in enumerate(gradients):
        fix1, fix2 = 1 - b1 ** (i + 1), 1 - b2 ** (i + 1)
        m = b1 * grad + (1 - b1) * m
        v = b2 * grad**2 + (1 - b2) * v
        parameter = parameter - 0.0002 * (np.sqrt(fix2) / fix1) * m / (np.sqrt(v) + 1e-8)
    return parameter


RULES = {ArcticRMSprop: rmsprop, ArcticAdam: adam}
OPTIMIZERS = pytest.mark.parametrize("optimizer", RULES)


def gradients() -> np.ndarray:
    """Of very different sizes, so that ε decides in one column and the averages in another."""
    drawn = np.random.default_rng(0).normal(0.3, 1, (STEPS, 3, 4))
    return drawn * np.array([1e-5, 1e-2, 1, 30])


def step(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, values: np.ndarray) -> None:
    for gradient in values:
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()


@OPTIMIZERS
def test_its_defaults_are_the_authors_rule_which_goes_on_from_its_state(optimizer):
    parameter = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
    before = parameter.detach().numpy().copy()
    first = optimizer([parameter])
    step(first, parameter, gradients()[:15])
    second = optimizer([parameter])
    second.load_state_dict(first.state_dict())
    step(second, parameter, gradients()[15:])
    moved = RULES[optimizer](before, gradients()) - before
    np.testing.assert_allclose(parameter.detach().numpy() - before, moved, rtol=1e-9)


@OPTIMIZERS
def test_each_group_has_its_rate_and_what_has_no_gradient_stays(optimizer):
    one, other, still = (nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(3))
    made = optimizer([{"params": [one, still]}, {"params": [other], "lr": 0.5}], lr=0.25)
    one.grad = other.grad = torch.ones(2, dtype=torch.float64)
    assert made.step(lambda: 7.0) == 7.0
    torch.testing.assert_close(other - 1, 2 * (one - 1))
    assert still.tolist() == [1, 1]


def test_equal_large_gradients_leave_the_root_defined():
    """In single precision n − m² may come out below −ε."""
    parameter = nn.Parameter(torch.zeros(10_000))
    optimizer = ArcticRMSprop([parameter])
    for _ in range(600):
        parameter.grad = torch.linspace(50, 5000, 10_000)
        optimizer.step()
    assert parameter.isfinite().all()


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        (ArcticRMSprop, {"lr": 0.0}, "ArcticRMSprop takes lr above 0, not 0.0"),
        (ArcticRMSprop, {"inner_eps": -1e-4}, "inner_eps above 0"),
        (ArcticAdam, {"betas": (0.9, 1.5)}, "ArcticAdam takes beta2 from 0 to below 1, not 1.5"),
    ],
)
def test_options_out_of_bounds(optimizer, options, message):
    with pytest.raises(UserError, match=message):
        optimizer([nn.Parameter(torch.zeros(1))], **options)
