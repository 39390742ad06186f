"""Properties of all refiners: declared sizes and grids, masks, gradients, and restoring from a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from helpers.refiner_cases import CASES, case, random_views, views_of
from torch import Tensor
from torch.func import functional_call

from caption import encoders as refiners
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.core.runtime.trust import make
from caption.encoders import (
    LearnedPositions,
    LinearRefiner,
    Refiner,
    Refiners,
    RelativeVectors,
    SelfAttentionRefiner,
    SinusoidalPositions,
)

MIXING = [name for name in CASES if name != "linear"]


@pytest.mark.parametrize("name", CASES)
def test_sizes_and_grids_are_those_it_declares_and_it_is_made_again_from_its_description(name: str):
    refiner, original = case(name), views_of(name, masked=True)
    refined = refiner(original)
    assert tuple(view.vectors.shape[-1] for view in refined) == refiner.region_sizes
    assert [view.grid for view in refined] == refiner.grids([view.grid for view in original])
    for view, before in zip(refined, original, strict=False):
        assert view.vectors.shape[:2] == (2, view.grid[0] * view.grid[1])
        assert view.mask is before.mask
    spec = json.loads(json.dumps(CASES[name].make().spec))
    assert make(spec, Refiner).spec == spec


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_numbers(name: str):
    refiner, original = case(name), views_of(name, masked=True)
    names = [key for key, _ in refiner.named_parameters()]

    def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
        parameters = dict(zip(names, tensors, strict=False))
        views = tuple(
            view._replace(vectors=x) for view, x in zip(original, tensors[len(names) :], strict=True)
        )
        return tuple(view.vectors for view in functional_call(refiner, parameters, (views,)))

    inputs = [*refiner.parameters(), *(view.vectors for view in original)]
    assert torch.autograd.gradcheck(outputs, [x.detach().requires_grad_() for x in inputs], fast_mode=True)


@pytest.mark.parametrize("name", CASES)
def test_regions_stored_in_half_precision_are_taken_and_it_runs_under_autocast(name: str):
    refiner = case(name).float()
    half = tuple(view._replace(vectors=view.vectors.half()) for view in views_of(name, masked=True))
    full = tuple(view._replace(vectors=view.vectors.float().requires_grad_()) for view in half)
    exact = refiner(full)
    for refined, expected in zip(refiner(half), exact, strict=True):
        assert refined.vectors.dtype == torch.float32
        torch.testing.assert_close(refined.vectors, expected.vectors)
    with torch.autocast("cpu", torch.bfloat16):
        refined = refiner(full)
        sum(view.vectors.square().sum() for view in refined).backward()
    for view, expected in zip(refined, exact, strict=True):
        torch.testing.assert_close(view.vectors.float(), expected.vectors.float(), rtol=0.1, atol=0.3)
    leaves = [*refiner.parameters(), *(view.vectors for view in full)]
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


# -- order and masks ------------------------------------------------------------------------------------------------


def permuted(views: Views, order: list[Tensor]) -> Views:
    return tuple(
        view._replace(vectors=view.vectors[:, places]) for view, places in zip(views, order, strict=False)
    )


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_regions_matters_where_positions_do(name: str):
    refiner, original = case(name), views_of(name)
    generator = torch.Generator().manual_seed(1)
    order = [torch.randperm(view.vectors.shape[1], generator=generator) for view in original]
    if name == "meta-embedding of one grid":
        order[1] = order[0]  # the same region of each view
    refined, expected = refiner(permuted(original, order)), permuted(refiner(original), order)
    same = all(
        torch.allclose(one.vectors, other.vectors) for one, other in zip(refined, expected, strict=True)
    )
    assert same == (not CASES[name].ordered)


@pytest.mark.parametrize("name", MIXING)
def test_masked_regions_have_no_effect_unless_there_are_no_others(name: str):
    refiner, original = case(name), views_of(name, masked=True)

    def filled(value: float) -> Views:
        return tuple(
            view._replace(vectors=view.vectors.masked_fill(~view.mask[..., None], value)) for view in original
        )

    expected = refiner(original)
    for refined in (refiner(filled(100.0)), refiner(filled(torch.nan))):
        for one, other in zip(refined, expected, strict=True):
            assert torch.equal(one.vectors, other.vectors)
            assert one.vectors.isfinite().all()
    unmasked = refiner(tuple(view._replace(mask=None) for view in original))
    assert not torch.allclose(unmasked[0].vectors[original[0].mask], expected[0].vectors[original[0].mask])
    original[-1].mask[1] = False
    with pytest.raises(UserError, match="image 1"):
        refiner(original)


@pytest.mark.parametrize("name", ["self-attention", "relative", "squeeze", "cbam", "dual"])
def test_each_view_has_weights_of_its_own(name: str):
    refiner = CASES[name].make()
    refiner.build((6, 6))
    one, other = (
        torch.autograd.grad(view.vectors.square().sum(), [*refiner.parameters()], allow_unused=True)
        for view in refiner(random_views((6, 6), ((3, 4), (2, 2))))
    )
    assert all((first is None) != (second is None) for first, second in zip(one, other, strict=True))


def test_a_chain_applies_its_refiners_in_order():
    first, second = LinearRefiner(5, dropout=0), SelfAttentionRefiner(4, 2, dropout=0)
    chain = Refiners([first, second])
    chain.build((6,))
    original = random_views((6,), ((2, 3),))
    chain.double().eval()
    torch.testing.assert_close(chain(original)[0].vectors, second(first(original))[0].vectors)
    assert chain.region_sizes == (4,)
    assert chain.grids([(2, 3)]) == [(2, 3)]


def case_of(name: str, *sizes: int) -> Callable[[], object]:
    return lambda: CASES[name].make().build(sizes)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Refiners([]), "refiners is an empty list"),
    (case_of("feature pyramid", 6), "takes two views or more"),
    (case_of("cross-attention", 6), "takes two views, but gets 1"),
    (case_of("cross-attention", 6, 6, 6), "two views, but gets 3: .*`layer`.*SeveralEncoders"),
    (
        lambda: refiners.CrossAttentionRefiner(heads=4).build((6, 3)),
        "size 6 .* not divisible by heads 4",
    ),
    (lambda: SelfAttentionRefiner(heads=4).build((6,)), "size 6 of the vectors .* divisible by heads"),
    (lambda: SelfAttentionRefiner(6, 1, 1, SinusoidalPositions()).build((6,)), "a size divisible by 4"),
    (lambda: SelfAttentionRefiner(5, 1, 1, LearnedPositions()).build((6,)), "choose an even size"),
    (lambda: SelfAttentionRefiner(layers=0), "layers 0 of"),
    (lambda: RelativeVectors(0), "distance 0 of"),
    (lambda: LearnedPositions(1, 0), "cols 0 of"),
    (lambda: refiners.CBAMRefiner(kernel=4), "kernel 4 of CBAMRefiner must be an odd number"),
    (lambda: refiners.CBAMRefiner(kernel=-1), "kernel -1 of CBAMRefiner must be an odd number"),
    (lambda: refiners.CBAMRefiner(reduction=0), "reduction 0 of"),
    (lambda: refiners.SqueezeExcitationRefiner(reduction=0), "reduction 0 of"),
    (lambda: refiners.DualAttentionRefiner(reduction=0), "reduction 0 of"),
    (lambda: refiners.TransformerRefiner(inner_size=0), "inner_size 0 of"),
]


@pytest.mark.parametrize(("make_one", "said"), REFUSED)
def test_options_that_do_not_fit_are_named(make_one: Callable[[], object], said: str):
    with pytest.raises(UserError, match=said):
        make_one()
