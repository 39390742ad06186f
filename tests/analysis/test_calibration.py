"""The temperature that calibrates a model, found again where it was planted."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
import torch
from helpers.tiny_captioner import captioner, photo

from caption.analysis.calibration import calibrate, divide_logits
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.search import Sampling

PHOTOS = [photo(seed=seed) for seed in range(4)]


@pytest.fixture(scope="module")
def model() -> Captioner:
    made = captioner()
    with torch.no_grad():
        made.decoder.readout.to_words.bias[[0, 1, 3]] = -30.0  # never sampled
        made.decoder.readout.to_words.bias[2] = 1.5  # so that captions end
    return made


@pytest.fixture(scope="module")
def sampled(model: Captioner) -> Sequence[Sequence[str]]:
    """Captions drawn from the model itself."""
    torch.manual_seed(0)
    found = model.describe(list(PHOTOS), Sampling(samples=150, max_length=60))
    assert all(each.finished for caption in found for each in caption.alternatives)
    return [[each.text for each in (caption, *caption.alternatives)] for caption in found]


@pytest.mark.parametrize("planted", [1.0, 1.5, 0.7])
def test_the_planted_temperature_is_found(model: Captioner, sampled, planted: float):
    planted_model = deepcopy(model)
    divide_logits(planted_model, 1 / planted)
    found = calibrate(planted_model, PHOTOS, sampled, batch_size=3)
    assert found.temperature == pytest.approx(planted, rel=0.12)
    assert found.nll_after <= found.nll
    assert found.error_after < 0.06
    if planted != 1:
        assert found.nll_after < found.nll
        assert found.error > found.error_after
    divide_logits(planted_model, found.temperature)
    assert calibrate(planted_model, PHOTOS, sampled).nll == pytest.approx(found.nll_after, abs=1e-4)


def test_absent_captions_do_not_count(model: Captioner):
    texts = [["a dog runs", "a cat"], ["a dog"]]
    found = calibrate(model, PHOTOS[:2], texts)
    assert found.words == 4 + 3 + 3
    alone = [calibrate(model, PHOTOS[:1], texts[:1]), calibrate(model, PHOTOS[1:2], texts[1:])]
    assert found.nll * 10 == pytest.approx(alone[0].nll * 7 + alone[1].nll * 3, rel=1e-4)


def test_mistakes_are_named(model: Captioner):
    with pytest.raises(UserError, match="there are none"):
        calibrate(model, [], [])
    with pytest.raises(UserError, match="above 0, not 0"):
        divide_logits(model, 0)
    tied = captioner()
    tied.decoder.readout.to_words.weight = tied.decoder.embed.weight
    with pytest.raises(UserError, match="ShowAttendAndTellDecoder cannot be divided"):
        divide_logits(tied, 2)
