"""A captioner of transformers with a planted register: what it writes, and what the summaries of its heads show."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.tiny_foreign import vit_gpt2
from PIL import Image

import caption
from caption.models.transformers.loading import from_transformers
from tools.tables.planted_sink import REGISTER, SHARE, PlantedSink, concentrated

PHOTOS = [
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)) for seed in range(3)
]


def test_a_planted_register_takes_its_share_and_leaves_the_words():
    captioner = from_transformers(*vit_gpt2())
    before = captioner.describe(PHOTOS)
    even = [list(caption.maps(captioner, PHOTOS, before, name)) for name in ("mean", "concentrated")]
    for layer in range(2):
        captioner.decoder.layers[layer] = PlantedSink([1])
    after = captioner.describe(PHOTOS)
    assert [result.text for result in after] == [result.text for result in before]
    for old, new in zip(before, after, strict=True):
        assert new.word_log_probs == pytest.approx(old.word_log_probs, abs=1e-4)
        for name, maps in new.stepwise.maps.items():
            flat, expected = (
                values.reshape(*values.shape[:2], -1) for values in (maps, old.stepwise.maps[name])
            )
            assert flat[:, 0] == pytest.approx(expected[:, 0], abs=1e-5)
            left = (1 - SHARE) * expected[:, 1]
            left[:, REGISTER] += SHARE
            assert flat[:, 1] == pytest.approx(left, abs=1e-5)
    # A mean of heads weighted by their concentration is led astray; without sinks, the rest keeps its shape.
    drawn = {
        name: list(caption.maps(captioner, PHOTOS, after, name)) for name in ("concentrated", "without-sinks")
    }
    for number, result in enumerate(after):
        assert drawn["concentrated"][number].weights == pytest.approx(result.weights, abs=1e-5)
        before = concentrated(result.stepwise).weights
        assert (before.reshape(len(before), -1).argmax(1) == REGISTER).all()
        without = drawn["without-sinks"][number].weights.reshape(len(result.words), -1)
        assert (
            without[:, REGISTER].max()
            < even[0][number].weights.reshape(len(result.words), -1)[:, REGISTER].max()
        )
