"""Hiding regions: the remaining weights and the context."""

from __future__ import annotations

import pytest
import torch
from helpers import planted
from helpers.tiny_captioner import captioner, photo

from caption.analysis.faithfulness.ablation import Hiding, Removed, Replaced, mean_region
from caption.analysis.replay import Moment, Replay, Sentences, sentences
from caption.captioner import Captioner
from caption.tensor_tree import State

READ = [0.5, 0.3, 0.2, 0.0, 0.0, 0.0]
KEPT = torch.tensor(
    [[[True] * 6, [False, True, True, True, True, True], [False] * 3 + [True] * 3, [False] * 6]]
)


def first(model: Captioner, photos: list) -> tuple[Replay, Moment, Sentences]:
    (batch,) = sentences(model, photos)
    replay = Replay(model.decoder)
    return replay, next(replay.moments(batch)), batch


def terms(hide: Hiding, scale: float = 1.0) -> list:
    """The weights of a planted map under `KEPT`, by the method of hiding."""
    model = planted.captioner([weight * scale for weight in READ])
    (batch,) = sentences(model, planted.photo(), [planted.told("two")])
    replay = Replay(model.decoder)
    return hide.prepare(replay, batch)(next(replay.moments(batch)), KEPT)


def test_removed_regions_leave_their_share_to_the_others():
    (term,) = terms(Removed())
    left = term.maps["attention"]
    assert left[0, 0].tolist() == pytest.approx(READ)
    assert left[0, 1].tolist() == pytest.approx([0, 0.6, 0.4, 0, 0, 0])
    assert not left[0, 2].any()  # no weight remains
    assert not left[0, 3].any()
    assert left.isfinite().all()


def test_the_total_weight_is_unchanged():
    """A mechanism with a sentinel, for instance, gives the regions less than 1."""
    (term,) = terms(Removed(), scale=0.5)
    assert term.maps["attention"][0, 1].sum() == pytest.approx(0.5)


def test_replaced_regions_leave_theirs_to_the_vector():
    kept, hidden, nothing = terms(Replaced())
    read = torch.tensor(READ)
    assert torch.allclose(kept.maps["attention"][0], read * KEPT[0])
    assert torch.allclose(hidden.maps["attention"][0], read * ~KEPT[0])
    assert not nothing.maps["attention"].any()
    assert (kept.sign, hidden.sign, nothing.sign) == (1, 1, -1)


def test_removing_is_masking_the_memory():
    """For a softmax, renormalised remaining weights equal those of attention without the hidden region."""
    model = captioner()
    (batch,) = sentences(model, [photo(), photo(seed=1)])
    kept = torch.rand(2, 1, 64, generator=torch.Generator().manual_seed(0)) > 0.4
    replay = Replay(model.decoder)
    hide = Removed().prepare(replay, batch)
    for moment in replay.moments(batch):
        (view,) = moment.views
        memory = replay.decoder.project((view._replace(mask=kept[moment.rows, 0]),))
        with torch.no_grad():
            expected, _ = replay.decoder.step(State(memory, moment.state.carried, None), moment.fed)
        found = replay.say(moment, hide(moment, kept[moment.rows]))
        assert torch.allclose(found, expected, atol=1e-5)
    assert moment.step >= 2


def test_replacing_is_another_vector_in_the_average():
    model = captioner()
    blank = torch.linspace(-1, 1, model.encoder.region_sizes[0])
    replay, moment, batch = first(model, [photo()])
    kept = torch.ones(1, 1, 64, dtype=torch.bool)
    kept[..., 10:30] = False
    changed = batch.views[0].vectors.clone()
    changed[:, 10:30] = blank
    (projected,) = moment.state.shared.projected
    memory = moment.state.shared._replace(projected=(projected._replace(values=changed),))
    with torch.no_grad():
        expected, _ = replay.decoder.step(State(memory, moment.state.carried, None), moment.fed)
    hide = Replaced(blank).prepare(replay, batch)
    found = replay.say(moment, hide(moment, kept))
    assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(found[:, 0], moment.log_probs, atol=1e-3)
    # Without hidden regions, nothing changes.
    assert torch.allclose(replay.say(moment, hide(moment, kept | True))[:, 0], moment.log_probs, atol=1e-5)


def test_the_image_itself_gives_the_vector_where_none_is_given():
    replay, moment, batch = first(captioner(), [photo(), photo(seed=1)])
    (view,) = batch.views
    mask = torch.rand(2, 64, generator=torch.Generator().manual_seed(0)) > 0.4
    for real in (None, mask):
        masked = batch._replace(views=(view._replace(mask=real),))
        memory = Replaced().prepare(replay, masked)(moment, torch.ones(2, 1, 64))[1].memory
        for image in range(2):
            mean = view.vectors[image, mask[image] if real is not None else slice(None)].mean(0)
            assert torch.allclose(memory.views[0].vectors[image], mean.expand(64, -1), atol=1e-6)
        assert memory.views[0].mask is real or torch.equal(memory.views[0].mask, mask)


def test_vectors_of_another_length_or_number_are_refused():
    replay, _, batch = first(captioner(), [photo()])
    with pytest.raises(ValueError, match=r"replaced by \(6,\) numbers, not \(5,\)"):
        Replaced(torch.zeros(5)).prepare(replay, batch)
    with pytest.raises(ValueError, match="1 views, so one vector for each is needed, not 2"):
        Replaced([torch.zeros(6), torch.zeros(6)]).prepare(replay, batch)


def test_the_mean_region_is_over_all_regions_of_all_photos():
    model = captioner().train()
    photos = [photo(seed=seed) for seed in range(3)]
    (mean,) = mean_region(model, photos, batch_size=2)
    assert model.training
    assert torch.allclose(mean, model.eval().encode(photos)[0].vectors.mean((0, 1)), atol=1e-6)
