"""Scaled dot-product attention: the plain form and the fused kernel are the equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loops import close, softmax, weighted
from torch import Tensor

from caption.attention.scaled_dot_product import Relative, ScaledDotProduct
from caption.kernels.scaled_dot_product import FusedScaledDotProduct

B, M, L, J, D = 2, 3, 4, 5, 2


def random(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def allowed() -> Tensor:
    mask = torch.ones(B, 1, 1, J, dtype=torch.bool)
    mask[0, ..., 1:3] = False
    return mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("fields", [(), ("biases",), ("keys",), ("values",), Relative._fields])
@pytest.mark.parametrize("form", [ScaledDotProduct, FusedScaledDotProduct])
@pytest.mark.parametrize("watched", [False, True])
def test_it_is_the_equation(
    masked: bool, fields: tuple[str, ...], watched: bool, form: type[ScaledDotProduct]
) -> None:
    q, k, v = random(B, M, L, D, seed=0), random(B, M, J, D, seed=1), random(B, M, J, D, seed=2)
    shapes = {"biases": (M, L, J), "keys": (L, J, D), "values": (L, J, D)}
    given = {name: random(*shapes[name], seed=3 + n) for n, name in enumerate(fields)}
    product, seen = form(), []
    if watched:
        product.maps.register_forward_hook(lambda module, args, maps: seen.append(maps))
    z = product(q, k, v, allowed() if masked else None, Relative(**given))
    b, a_k, a_v = (
        (given[name] if name in given else torch.zeros(shape)).detach().numpy()
        for name, shape in shapes.items()
    )
    q, k, v = (x.detach().numpy() for x in (q, k, v))
    for image, m, i in np.ndindex(B, M, L):
        real = allowed()[image].flatten().tolist() if masked else [True] * J
        scores = [q[image, m, i] @ (k[image, m, j] + a_k[i, j]) / D**0.5 + b[m, i, j] for j in range(J)]
        alpha = softmax(scores, real)
        close(z[image, m, i], weighted(alpha, [v[image, m, j] + a_v[i, j] for j in range(J)]))
        if watched:
            close(seen[0][image, m, i], alpha)


@pytest.mark.parametrize("causal", [False, True])
def test_both_forms_have_the_same_gradients(causal: bool) -> None:
    given = [random(B, 2, M, J, D, seed=n) for n in range(3)]  # with a dimension of captions
    biases = None if causal else random(M, J, J, seed=3)
    tensors = [*given, *([] if causal else [biases])]
    gradients = []
    for product in (FusedScaledDotProduct(), ScaledDotProduct()):
        z = product(*given, relative=Relative(biases), causal=causal)
        gradients.append([z, *torch.autograd.grad(z.square().sum(), tensors)])
    for fused, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(fused, plain)
    if causal:
        later = given[2].detach().clone()
        later[..., 3:, :] += 1
        changed = FusedScaledDotProduct()(*given[:2], later, causal=True)
        torch.testing.assert_close(changed[..., :3, :], z[..., :3, :])


def test_a_hook_may_return_other_weights() -> None:
    q, k, v = (random(B, M, L, D, seed=n) for n in range(3))
    one = torch.eye(L, dtype=torch.float64)
    for product in (ScaledDotProduct(), FusedScaledDotProduct()):
        product.maps.register_forward_hook(lambda module, args, maps: one.expand_as(maps))
        torch.testing.assert_close(product(q, k, v), v)
