"""Analyses of mechanisms that are more than one average: heads, a sentinel, signs, two grids, pooling, two attentions.

Each answer is computed a second way: by a step of the decoder whose maps a hook replaces, by masking scores, or by
changing the regions that are read.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from helpers import mechanisms
from helpers.mechanisms import ATTENTIONS, LargestWeighted, TwoAttentions
from helpers.tiny_captioner import WORDS, photo
from torch import Tensor

from caption.analysis.faithfulness import Removed, Replaced, faithfulness_curves, mean_regions
from caption.analysis.faithfulness.adversary import adversarial_maps
from caption.analysis.faithfulness.curves import ORDERS
from caption.analysis.faithfulness.interchange import WEIGHTS, interchange
from caption.analysis.faithfulness.permutation import permute, permuted, real_regions
from caption.analysis.interventions import Erase, Force, Mask, Move, intervene
from caption.analysis.map_arithmetic import sums
from caption.analysis.maps import maps
from caption.analysis.replay import Maps, Replay, Sentences, Step, sentences, words_alone
from caption.attention.maps import named_maps
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.tensor_tree import combine, leaves, map_tensors, select_images

PHOTOS = [photo(seed=seed) for seed in range(3)]
AFFINE = ("multi_head", "sentinel", "de_attention", "parent_weighted")
SOFTMAX = ("multi_head", "parent_weighted", "own reading")
every = pytest.mark.parametrize("mechanism", [*AFFINE, "own reading", "two"])


@cache
def captioner(mechanism: str) -> Captioner:
    """A captioner with one mechanism, or with two, the second inside a list."""
    if mechanism == "two":
        decoder = TwoAttentions(ATTENTIONS["de_attention"](), LargestWeighted())
    else:
        decoder = mechanisms.decoder(mechanism)
    # With this seed each says several different words of a caption.
    return mechanisms.captioner(decoder, scale=4.0, end=-6.0, seed=13).float()


@cache
def opened(mechanism: str) -> tuple[Replay, Sentences, list[Step]]:
    model = captioner(mechanism)
    (batch,) = sentences(model, PHOTOS)
    replay = Replay(model.decoder)
    return replay, batch, list(replay.steps(batch))


def stepped(replay: Replay, step: Step, maps: Maps | None = None, shared: Any = None) -> Tensor:
    """(B', V) of one step of the decoder itself, with maps that hooks put in the place of its own."""
    state = step.state if shared is None else step.state._replace(shared=shared)
    with ExitStack() as stack, torch.no_grad():
        for name, attention in replay.decoder.attentions.items():
            if maps is not None:
                stack.enter_context(
                    attention.maps.register_forward_hook(lambda *of_hook, given=maps[name]: given)
                )
        return replay.decoder.step(state, step.inputs)[0][:, 0]


# -- replay ------------------------------------------------------------------------------------------------------


@every
def test_any_number_of_other_maps_is_read_as_the_mechanism_would(mechanism):
    replay, _, (_, step, *_) = opened(mechanism)
    other = select_images(step.maps, (torch.arange(len(step.rows)) + 1) % len(step.rows))  # the next image's
    tried = combine(lambda tensors: torch.cat(tensors, 1), [step.maps, other, other])
    actual = replay.rerun(step, tried, at_once=2)
    assert torch.allclose(actual[:, 0], step.log_probs, atol=1e-5)
    assert torch.allclose(actual[:, 1:], stepped(replay, step, other)[:, None].expand(-1, 2, -1), atol=1e-5)
    assert not torch.allclose(actual[:, 1], actual[:, 0], atol=1e-4)


# -- hiding ------------------------------------------------------------------------------------------------------


BLOCK = torch.ones(8, 8, dtype=torch.bool)
BLOCK[2:4, 4:6] = BLOCK[6:8, 0:2] = False
VISIBLE = (BLOCK.flatten(), BLOCK[::2, ::2].flatten())
"""All regions but two blocks of four, on the fine grid and on the coarse one, which has each block as one region."""


def ablated(replay: Replay, batch: Sentences, step: Step, ablation: Removed | Replaced) -> Tensor:
    """(B', V) of the step with the blocks hidden."""
    ablate = ablation.prepare(replay, batch)
    return replay.rerun(step, ablate(step, VISIBLE[0].expand(len(step.rows), 1, -1)))[:, 0]


@pytest.mark.parametrize("mechanism", SOFTMAX)
def test_removing_is_masking_for_every_softmax(mechanism):
    replay, batch, steps = opened(mechanism)
    for step in steps[:2]:
        views = (
            view._replace(mask=visible.expand(len(step.rows), -1))
            for view, visible in zip(step.views, VISIBLE, strict=False)
        )
        masked = step.state.shared._replace(projected=replay.decoder.project(tuple(views)).projected)
        actual = ablated(replay, batch, step, Removed())
        assert torch.allclose(actual, stepped(replay, step, shared=masked), atol=1e-5)
        assert not torch.allclose(actual, step.log_probs, atol=1e-4)


@pytest.mark.parametrize("mechanism", AFFINE)
@pytest.mark.parametrize("given", [True, False])
def test_replacing_is_reading_the_same_maps_from_changed_regions(mechanism, given):
    replay, batch, (_, step, *_) = opened(mechanism)
    vectors = mean_regions(captioner(mechanism), PHOTOS) if given else None
    changed = []
    for number, view in enumerate(step.views):
        blank = view.vectors.mean(1, keepdim=True) if vectors is None else vectors[number]
        changed.append(view._replace(vectors=view.vectors.where(VISIBLE[number][:, None], blank)))
    shared = step.state.shared
    # The decoder's own image vector, if it has one, comes after the memory of the attention.
    projected = (replay.decoder.project(tuple(changed)).projected[0], *shared.projected[1:])
    expected = stepped(replay, step, step.maps, shared._replace(projected=projected))
    actual = ablated(replay, batch, step, Replaced(vectors))
    assert torch.allclose(actual, expected, atol=1e-5)
    assert not torch.allclose(actual, step.log_probs, atol=1e-4)


@every
@pytest.mark.parametrize("ablation", [Removed(), Replaced()])
def test_curves_of_every_order_start_at_the_original_probability(mechanism, ablation):
    model = captioner(mechanism)
    curves = faithfulness_curves(model, PHOTOS[:2], ablation=ablation, counts=[8])
    said = np.concatenate([caption.word_log_probs for caption in model.describe(PHOTOS[:2])])
    order = np.lexsort((np.arange(len(said)), curves.images))
    affine = mechanism in AFFINE or isinstance(ablation, Removed)
    assert curves.orders == tuple(ORDERS)
    for name in ORDERS:
        deletion, insertion = (curves.curve(kind, name, logarithm=True) for kind in ("deletion", "insertion"))
        assert np.isfinite(deletion).all()
        if affine:
            assert deletion[order, 0] == pytest.approx(said, abs=1e-4)
            assert insertion[:, -1] == pytest.approx(deletion[:, 0], abs=1e-4)
            assert insertion[:, 0] == pytest.approx(deletion[:, -1], abs=1e-4)
    if affine:  # occlusion measures single regions, so it is at least as good as chance
        assert curves.area("deletion", "occlusion").mean() < curves.area("deletion", "random").mean()


# -- permutation and interchange ---------------------------------------------------------------------------------


@every
def test_a_permutation_moves_whole_regions_and_keeps_other_maps(mechanism):
    replay, _, (step, *_) = opened(mechanism)
    maps = permuted(replay, step, step.maps, 3, torch.Generator().manual_seed(0))
    totals: dict[int, list[Tensor]] = defaultdict(list)
    for before, after in zip(leaves(step.maps), leaves(maps), strict=True):
        before = before.expand_as(after)
        if after.shape[-1] == 1:  # the sentinel
            assert torch.equal(after, before)
            continue
        assert torch.equal(after.sort(-1).values, before.sort(-1).values)
        assert not torch.equal(after[:, 0], after[:, 1])
        totals[after.shape[-1]].append(torch.stack((before, after)).unsqueeze(3).flatten(3, -2).sum(3))
    # A draw permutes all maps on one grid alike, so also their sum.
    for on_grid in totals.values():
        one, other = sum(on_grid).sort(-1).values
        assert torch.allclose(one, other, atol=1e-6)


@every
def test_words_are_replayed_under_other_maps(mechanism):
    model = captioner(mechanism)
    actual = permute(model, PHOTOS)
    replay, _, steps = opened(mechanism)
    assert actual.words == tuple(model.vocabulary[int(i)] for step in steps for i in step.words)

    def even(weights: Tensor) -> Tensor:
        return weights if weights.shape[-1] == 1 else sums(weights).expand_as(weights) / weights.shape[-1]

    under = [step.of_word(stepped(replay, step, map_tensors(even, step.maps))[:, None]) for step in steps]
    expected = [step.log_prob - log_probs[:, 0] for step, log_probs in zip(steps, under, strict=True)]
    assert actual.falls["uniform"] == pytest.approx(torch.cat(expected).numpy(), abs=1e-4)
    assert all(np.isfinite(values).all() for values in actual.falls.values())
    assert np.abs(actual.falls["other image"]).max() > 1e-6


@every
def test_words_that_interchange_their_maps(mechanism):
    """The lead of the other word equals that of a step with the maps of the other word's step."""
    actual = interchange(captioner(mechanism), PHOTOS, WORDS)
    replay, batch, steps = opened(mechanism)
    expected = []
    for step in steps:
        for entry, (row, own) in enumerate(zip(step.rows.tolist(), step.words.tolist(), strict=True)):
            for other in steps:
                (place,) = (other.rows == row).nonzero(as_tuple=True)
                word = int(batch.words[row, other.number])
                if len(place) and word != own:
                    maps = select_images(other.maps, place)
                    log_probs = stepped(replay, step.take(torch.tensor([entry])), maps)[0]
                    expected.append(float(log_probs[word] - log_probs[own]))
    assert len(expected) > 10
    assert actual.leads[WEIGHTS[1]] == pytest.approx(np.array(expected), abs=1e-4)


# -- interventions -----------------------------------------------------------------------------------------------


@every
def test_attention_is_forced_moved_masked_and_erased(mechanism):
    model = captioner(mechanism)
    place = (20, 0, 40, 20)  # the upper left quarter of what the model sees
    quarter = np.zeros((8, 8), dtype=bool)
    quarter[:4, :4] = True
    plain = model.describe(PHOTOS[0])
    for change in (Force(place, at=1), Mask(place, at=1), Move(right=3, at=1), Erase(place)):
        result = intervene(model, PHOTOS[0], change)
        changed, first = result.changed.weights[1], 0 if isinstance(change, Erase) else 1
        assert result.original.words == plain.words
        assert result.original.weights == pytest.approx(plain.weights, abs=1e-6)
        falls = result.original_log_probs.falls
        assert falls[:first] == pytest.approx(0, abs=1e-5)
        assert abs(falls[first]) > 1e-6
        assert result.changed_log_probs.under.sum() == pytest.approx(result.changed.log_prob, abs=1e-4)
        if isinstance(change, (Mask, Erase)):
            assert not changed[quarter].any()
        if isinstance(change, Force):
            assert not changed[~quarter].any()
            assert (changed[quarter] > 0).all()
        if not isinstance(change, Erase):
            assert result.changed.words[:1] == plain.words[:1]
            assert np.abs(changed).sum() == pytest.approx(np.abs(plain.weights[1]).sum(), rel=1e-5)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_each_level_is_edited_on_its_own_grid():
    model = captioner("parent_weighted")
    seen: list[Any] = []
    handle = model.decoder.attention.register_forward_hook(lambda *of_hook: seen.append(of_hook[2].maps))
    intervene(model, PHOTOS[0], Force((2, 5)))
    handle.remove()
    maps = seen[-1]
    assert maps.fine[0, 0].argmax() == 2 * 8 + 5
    assert maps.coarse[0, 0].argmax() == 1 * 4 + 2
    assert maps.fine[0, 0].max() == maps.coarse[0, 0].max() == 1


# -- coarser grids that a mechanism makes itself ------------------------------------------------------------------

OWN_GRIDS = [
    name
    for name, make in ATTENTIONS.items()
    if (attention := make()).view_count == 1 and set(attention.grids([(8, 8)]).values()) != {(8, 8)}
]
on_own_grids = pytest.mark.parametrize("mechanism", OWN_GRIDS)


def test_several_mechanisms_have_grids_of_their_own():
    assert {"hierarchical", "pyramid_attention_pooled"} <= set(OWN_GRIDS)


@on_own_grids
def test_maps_on_own_grids_are_permuted_and_searched(mechanism):
    model = captioner(mechanism)
    permutation = permute(model, PHOTOS[:2])
    assert all(np.isfinite(values).all() for values in permutation.falls.values())
    assert np.abs(permutation.falls["permuted"]).max() > 1e-6
    assert len(adversarial_maps(model, PHOTOS[:1], steps=2, starts=1).words)


@on_own_grids
def test_a_region_of_an_own_grid_is_real_if_a_part_of_it_is(mechanism):
    _, _, (step, *_) = opened(mechanism)
    mask = torch.zeros(len(step.rows), 8, 8, dtype=torch.bool)
    mask[:, 0, 5] = True
    masked = step._replace(views=(step.views[0]._replace(mask=mask.flatten(1)),))
    for grid in captioner(mechanism).decoder.attentions["attention"].grids([(8, 8)]).values():
        expected = torch.zeros(grid, dtype=torch.bool)
        expected[0, 5 * grid[1] // 8] = True
        assert torch.equal(real_regions(masked, grid)[0], expected.flatten())


@on_own_grids
def test_what_is_erased_gets_no_weight_on_own_grids(mechanism):
    model = captioner(mechanism)
    seen: list[Any] = []
    handle = model.decoder.attention.register_forward_hook(lambda *of_hook: seen.append(of_hook[2].maps))
    intervene(model, PHOTOS[0], Erase((0, 0, 40, 20)), Force((0, 0, 40, 40)))
    handle.remove()
    attention = model.decoder.attention
    for name, grid in attention.grids([(8, 8)]).items():
        of_map = named_maps(seen[-1])[name][0, 0].reshape(-1, *grid)
        erased = grid[0] // 2
        assert not of_map[:, :erased].any()
        assert of_map[:, erased:].any()


@on_own_grids
@pytest.mark.parametrize("method", ["relevance", "attention-x-gradient"])
def test_only_maps_over_the_regions_have_relevance(mechanism, method):
    drawn = maps(captioner(mechanism), PHOTOS[0], method=method)
    assert drawn.weights.shape[1:] == (8, 8)
    assert (drawn.weights > 0).any()


# -- poolings that only ask which weights are 0 -------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism", [name for name in ATTENTIONS if "pool" in name or name == "deep_sets_max"]
)
def test_poolings_have_curves_of_every_order(mechanism):
    model = captioner(mechanism)
    curves = faithfulness_curves(model, PHOTOS[:1], [words_alone(WORDS[:3])], counts=[8])
    assert curves.orders == tuple(ORDERS)
    for name in ORDERS:
        assert np.isfinite(curves.curve("deletion", name, logarithm=True)).all()


def test_where_the_size_of_weights_does_not_matter_hiding_has_no_gradient():
    model = captioner("max_pooling")
    assert not maps(model, PHOTOS[0], method="gradient-of-hiding").weights.any()
    assert maps(captioner("mean_pooling"), PHOTOS[0], method="gradient-of-hiding").weights.any()
    for method in ("attention-x-gradient", "relevance"):
        with pytest.raises(UserError, match=r"as max pooling does: take .* such as occlusion"):
            maps(model, PHOTOS[0], method=method)
