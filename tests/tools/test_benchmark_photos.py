"""The photo benchmark: both ways to train from images, and the rates for a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from caption.data.batches import CaptionedImages, SingleCaptions
from caption.data.images import ImageTransform, open_image
from caption.encoders import SmallCNN
from caption.text.vocabulary import Vocabulary
from tools.benchmark import core, harness, photos


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CaptionedImages:
    """Four generated photos."""
    monkeypatch.setattr(photos, "SHARED", tmp_path / "nothing")
    monkeypatch.setattr(photos, "IMAGES", 2)
    images, what = photos.photos(4, tmp_path / "photos")
    assert what == "4 generated scenes, JPEG, 500×375"
    words = Vocabulary.build((text for image in images for text in image.captions), min_count=1)
    return CaptionedImages(images, words, ImageTransform(32))


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> Any:
    """With a small encoder."""

    def small(name: str, layer: str) -> SmallCNN:
        torch.manual_seed(0)
        encoder = SmallCNN((4, 6)).eval()
        with torch.no_grad():
            encoder.layers[-2].weight *= 100  # so that images have clearly different regions
        return encoder

    monkeypatch.setattr(photos, "encoder_of", small)
    monkeypatch.setattr(core, "VOCABULARY", 1100)
    return lambda frozen: photos.Forms(torch.device("cpu"), frozen)


def test_generated_photos_differ_and_decode(dataset: CaptionedImages):
    assert len({open_image(image.path).tobytes() for image in dataset.images}) == 4
    assert all(len(image.captions) == 5 for image in dataset.images)
    assert all(8 <= len(text.split()) <= 16 for image in dataset.images for text in image.captions)


def test_both_forms_have_one_loss(dataset: CaptionedImages, forms: Any):
    batch = next(iter(photos.loader(dataset, dataset.collate)))
    assert batch.inputs.shape[:2] == (2, 5)
    made = forms(frozen=True)
    assert made.difference(batch) < 1e-5
    with torch.no_grad():
        made.textbook.to_words.weight *= 1.5
    assert made.difference(batch) > 1e-4


@pytest.mark.parametrize("frozen", [True, False])
def test_a_step_reaches_the_encoder_where_it_is_fine_tuned(
    dataset: CaptionedImages, forms: Any, frozen: bool
):
    made = forms(frozen)
    pairs = photos.loader(SingleCaptions(dataset), dataset.collate)
    for batches, loss, captions in (
        (photos.loader(dataset, dataset.collate), made.loss, 10),
        (pairs, made.textbook_loss, 2),
    ):
        loop = photos.Loop(batches, loss, made)
        loop.step()
        assert loop.captions == captions
        assert 0 < loop.waiting[0] < 1
        assert (next(made.encoder.parameters()).grad is None) == frozen
    assert made.decoder.embed.weight.grad is None  # cleared before the textbook's step
    assert made.textbook.embed.weight.grad is not None


def test_ratios_are_round_by_round():
    assert harness.ratio([1.0, 2.0, 3.0], [2.0, 2.0, 4.0], bold=True) == "**75%** (50% to 100%)"
    assert harness.ratio([1.0], [2.0]) == "50%"
