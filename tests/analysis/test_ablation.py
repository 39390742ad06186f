"""Ablation regions: the remaining weights and the context."""

from __future__ import annotations

import pytest
import torch
from helpers import planted
from helpers.tiny_captioner import captioner, photo

from caption.analysis.faithfulness.ablation import Ablation, Removed, Replaced, mean_regions
from caption.analysis.replay import Replay, Sentences, Step, sentences
from caption.captioner import Captioner

READ = [0.5, 0.3, 0.2, 0.0, 0.0, 0.0]
KEPT = torch.tensor(
    [[[True] * 6, [False, True, True, True, True, True], [False] * 3 + [True] * 3, [False] * 6]]
)


def first(model: Captioner, photos: list) -> tuple[Replay, Step, Sentences]:
    (batch,) = sentences(model, photos)
    replay = Replay(model.decoder)
    return replay, next(replay.steps(batch)), batch


def readings(ablation: Ablation, scale: float = 1.0) -> list:
    """The weights of a planted map under `KEPT`, by the method of hiding."""
    model = planted.captioner([weight * scale for weight in READ])
    (batch,) = sentences(model, planted.photo(), [planted.caption_of("two")])
    replay = Replay(model.decoder)
    return ablation.prepare(replay, batch)(next(replay.steps(batch)), KEPT)


def test_removed_regions_leave_their_share_to_the_others():
    (reading,) = readings(Removed())
    left = reading.maps["attention"]
    assert left[0, 0].tolist() == pytest.approx(READ)
    assert left[0, 1].tolist() == pytest.approx([0, 0.6, 0.4, 0, 0, 0])
    assert not left[0, 2].any()  # no weight remains
    assert not left[0, 3].any()
    assert left.isfinite().all()


def test_replaced_regions_leave_theirs_to_the_vector():
    kept, hidden, nothing = readings(Replaced())
    read = torch.tensor(READ)
    assert torch.allclose(kept.maps["attention"][0], read * KEPT[0])
    assert torch.allclose(hidden.maps["attention"][0], read * ~KEPT[0])
    assert not nothing.maps["attention"].any()
    assert (kept.sign, hidden.sign, nothing.sign) == (1, 1, -1)


def test_the_image_itself_gives_the_vector_where_none_is_given():
    replay, step, batch = first(captioner(), [photo(), photo(seed=1)])
    (view,) = batch.views
    mask = torch.rand(2, 64, generator=torch.Generator().manual_seed(0)) > 0.4
    for real in (None, mask):
        masked = batch._replace(views=(view._replace(mask=real),))
        memory = Replaced().prepare(replay, masked)(step, torch.ones(2, 1, 64))[1].memory
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
    (mean,) = mean_regions(model, photos, batch_size=2)
    assert model.training
    assert torch.allclose(mean, model.eval().encode(photos)[0].vectors.mean((0, 1)), atol=1e-6)
