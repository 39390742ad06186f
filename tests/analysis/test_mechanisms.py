"""Analyses of mechanisms that are more than one average: heads, a sentinel, signs, two grids, pooling, two attentions.

Each answer is computed a second way: by a step of the decoder whose maps a hook replaces, by masking scores, or by
changing the regions that are read.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from helpers import mechanisms
from helpers.mechanisms import ATTENTIONS, LargestWeighted, TwoAttentions
from helpers.tiny_captioner import WORDS, photo
from torch import Tensor

from caption.analysis.faithfulness import Removed, Replaced, faithfulness_curves, mean_regions
from caption.analysis.faithfulness.interchange import WEIGHTS, interchange
from caption.analysis.faithfulness.permutation import permute, permuted
from caption.analysis.faithfulness.rankings import ORDERS
from caption.analysis.interventions import Erase, Force, Mask, Move, intervene
from caption.analysis.map_arithmetic import sums
from caption.analysis.replay import Maps, Replay, Sentences, Step, sentences
from caption.captioner import Captioner
from caption.tensor_tree import combine, leaves, map_tensors, select_images

PHOTOS = [photo(seed=seed) for seed in range(3)]
AFFINE = ("multi_head", "sentinel", "de_attention", "parent_weighted")
SOFTMAX = ("multi_head", "parent_weighted", "own reading")
every = pytest.mark.parametrize("mechanism", [*AFFINE, "own reading", "two"])


def captioner(mechanism: str) -> Captioner:
    """A captioner with one mechanism, or with two, the second inside a list."""
    two = mechanism == "two"
    decoder = (
        TwoAttentions(ATTENTIONS["de_attention"](), LargestWeighted())
        if two
        else mechanisms.decoder(mechanism)
    )
    # With this seed each says several different words of a caption.
    return mechanisms.captioner(decoder, scale=4.0, end=-6.0, seed=13).float()


def opened(model: Captioner) -> tuple[Replay, Sentences, list[Step]]:
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


def turned(step: Step) -> Maps:
    """Maps that differ from the model's: those of the next image."""
    return select_images(step.maps, (torch.arange(len(step.rows)) + 1) % len(step.rows))


# -- replay ------------------------------------------------------------------------------------------------------


@every
def test_replays_give_the_captions_numbers(mechanism):
    model = captioner(mechanism)
    replay, batch, steps = opened(model)
    assert sum(len(step.rows) for step in steps) == sum(len(caption.words) for caption in batch.captions)
    for step in steps:
        for row, value in zip(step.rows.tolist(), step.log_prob.tolist(), strict=True):
            assert value == pytest.approx(batch.captions[row].word_log_probs[step.number], abs=1e-4)
        assert set(step.maps) == set(model.decoder.attentions)
        assert torch.allclose(replay.rerun(step, step.maps)[:, 0], step.log_probs, atol=1e-5)


@every
def test_any_number_of_other_maps_is_read_as_the_mechanism_would(mechanism):
    replay, _, steps = opened(captioner(mechanism))
    step = steps[1]
    other = turned(step)
    tried = combine(lambda tensors: torch.cat(tensors, 1), [step.maps, other, other])
    actual = replay.rerun(step, tried, at_once=2)
    assert torch.allclose(actual[:, 0], step.log_probs, atol=1e-5)
    assert torch.allclose(actual[:, 1:], stepped(replay, step, other)[:, None].expand(-1, 2, -1), atol=1e-5)
    assert not torch.allclose(actual[:, 1], actual[:, 0], atol=1e-4)


# -- hiding ------------------------------------------------------------------------------------------------------


def block() -> Tensor:
    """(64,) bool: all visible but two of the four by four blocks of four regions, which the coarse grid has as one."""
    visible = torch.ones(8, 8, dtype=torch.bool)
    visible[2:4, 4:6] = visible[6:8, 0:2] = False
    return visible.flatten()


def masked_memory(replay: Replay, step: Step, visible: Tensor) -> Any:
    """The memory of images with some regions absent."""
    coarse = visible.view(4, 2, 4, 2)[:, 0, :, 0].flatten()
    masks = (visible, coarse)[: len(step.views)]
    views = (
        view._replace(mask=mask.expand(len(step.rows), -1))
        for view, mask in zip(step.views, masks, strict=True)
    )
    return step.state.shared._replace(projected=replay.decoder.project(tuple(views)).projected)


@pytest.mark.parametrize("mechanism", SOFTMAX)
def test_removing_is_masking_for_every_softmax(mechanism):
    replay, batch, steps = opened(captioner(mechanism))
    ablate = Removed().prepare(replay, batch)
    for step in steps[:2]:
        actual = replay.rerun(step, ablate(step, block().expand(len(step.rows), 1, -1)))[:, 0]
        expected = stepped(replay, step, shared=masked_memory(replay, step, block()))
        assert torch.allclose(actual, expected, atol=1e-5)
        assert not torch.allclose(actual, step.log_probs, atol=1e-4)


@pytest.mark.parametrize("mechanism", AFFINE)
@pytest.mark.parametrize("given", [True, False])
def test_replacing_is_reading_the_same_maps_from_changed_regions(mechanism, given):
    model = captioner(mechanism)
    replay, batch, steps = opened(model)
    vectors = mean_regions(model, PHOTOS) if given else None
    ablate = Replaced(vectors).prepare(replay, batch)
    step = steps[1]
    visible = (block(), block().view(4, 2, 4, 2)[:, 0, :, 0].flatten())
    changed = []
    for number, view in enumerate(step.views):
        blank = view.vectors.mean(1, keepdim=True) if vectors is None else vectors[number]
        changed.append(view._replace(vectors=view.vectors.where(visible[number][:, None], blank)))
    shared = step.state.shared
    # The decoder's own image vector, if it has one, comes after the memory of the attention.
    projected = (replay.decoder.project(tuple(changed)).projected[0], *shared.projected[1:])
    expected = stepped(replay, step, step.maps, shared._replace(projected=projected))
    actual = replay.rerun(step, ablate(step, block().expand(len(step.rows), 1, -1)))[:, 0]
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
    replay, _, steps = opened(captioner(mechanism))
    step = steps[0]
    maps = permuted(replay, step, step.maps, 3, torch.Generator().manual_seed(0))
    for before, after in zip(leaves(step.maps), leaves(maps), strict=True):
        before = before.expand_as(after)
        if after.shape[-1] == 1:  # the sentinel
            assert torch.equal(after, before)
            continue
        assert torch.equal(after.sort(-1).values, before.sort(-1).values)
        assert not torch.equal(after[:, 0], after[:, 1])
        # A draw permutes all heads alike, so also their sum.
        one, other = (maps.flatten(2, -2).sum(2) if maps.dim() > 3 else maps for maps in (before, after))
        assert torch.equal(one.sort(-1).values, other.sort(-1).values)


@every
def test_words_are_replayed_under_other_maps(mechanism):
    model = captioner(mechanism)
    actual = permute(model, PHOTOS)
    replay, _, steps = opened(model)
    assert actual.words == tuple(word for m in steps for word in [model.vocabulary[int(i)] for i in m.words])
    expected = []
    for step in steps:
        even = map_tensors(
            lambda tensor: (
                tensor if tensor.shape[-1] == 1 else (sums(tensor) / tensor.shape[-1]).expand_as(tensor)
            ),
            step.maps,
        )
        under = step.of_word(stepped(replay, step, even)[:, None])
        expected += (step.of_word(step.log_probs[:, None]) - under)[:, 0].tolist()
    assert actual.falls["uniform"] == pytest.approx(np.array(expected), abs=1e-4)
    assert all(np.isfinite(values).all() for values in actual.falls.values())
    assert np.abs(actual.falls["other image"]).max() > 1e-6


@every
def test_words_that_interchange_their_maps(mechanism):
    """The lead of the other word equals that of a step with the maps of the other word's step."""
    model = captioner(mechanism)
    actual = interchange(model, PHOTOS, WORDS)
    assert len(actual) > 10
    replay, batch, steps = opened(model)
    expected: dict[str, list[float]] = {name: [] for name in WEIGHTS[:2]}
    for step in steps:
        for entry, row in enumerate(step.rows.tolist()):
            own = int(step.words[entry])
            for other in steps:
                if row not in other.rows.tolist() or int(batch.words[row, other.number]) == own:
                    continue
                place = torch.tensor([other.rows.tolist().index(row)])
                word = int(batch.words[row, other.number])
                alone = step.take(torch.tensor([entry]))
                under = {WEIGHTS[0]: step.log_probs[[entry]]}
                under[WEIGHTS[1]] = stepped(replay, alone, select_images(other.maps, place))
                for name, log_probs in under.items():
                    expected[name].append(float(log_probs[0, word] - log_probs[0, own]))
    for name, leads in expected.items():
        assert actual.leads[name] == pytest.approx(np.array(leads), abs=1e-4)


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
        assert result.original.words == plain.words
        assert result.original.weights == pytest.approx(plain.weights, abs=1e-6)
        falls = result.original_log_probs.falls
        first = 0 if isinstance(change, Erase) else 1
        assert falls[:first] == pytest.approx(0, abs=1e-5)
        assert abs(falls[first]) > 1e-6
        assert np.isfinite(result.changed_log_probs.under).all()
        assert result.changed_log_probs.under.sum() == pytest.approx(result.changed.log_prob, abs=1e-4)
        if isinstance(change, (Mask, Erase)):
            assert not result.changed.weights[1][quarter].any()
        if isinstance(change, Force):
            assert not result.changed.weights[1][~quarter].any()
            assert (result.changed.weights[1][quarter] > 0).all()
        if not isinstance(change, Erase):
            total = np.abs(result.changed.weights[1]).sum()
            assert result.changed.words[:1] == plain.words[:1]
            assert total == pytest.approx(np.abs(plain.weights[1]).sum(), rel=1e-5)


def test_each_level_is_edited_on_its_own_grid():
    model = captioner("parent_weighted")
    seen: list[Any] = []
    attention = model.decoder.attention
    attention.register_forward_hook(lambda *of_hook: seen.append(of_hook[2].maps))
    intervene(model, PHOTOS[0], Force((2, 5)))
    maps = seen[-1]
    assert maps.fine[0, 0].argmax() == 2 * 8 + 5
    assert maps.coarse[0, 0].argmax() == 1 * 4 + 2
    assert maps.fine[0, 0].max() == maps.coarse[0, 0].max() == 1


def test_the_captioner_is_the_same_afterwards():
    model = captioner("two").train()
    before = [parameter.clone() for parameter in model.parameters()]
    parts = [id(part) for part in model.modules()]
    intervene(model, PHOTOS[0], Erase((0, 0)), Force((3, 4), at=1))
    faithfulness_curves(model, PHOTOS[:1], counts=[8])
    assert model.training
    assert [id(part) for part in model.modules()] == parts
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
