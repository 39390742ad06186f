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
