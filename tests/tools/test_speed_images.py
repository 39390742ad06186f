"""Both ways to train from images, and the folder's rates, are what `tools/benchmark.py` says they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from caption.data.batches import CaptionedImages, SingleCaptions
from caption.data.images import ImageTransform, open_image
from caption.encoders import SmallCNN
from caption.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def tools() -> Iterator[Any]:
    """The modules."""
    folder = str(Path(__file__).parents[2] / "tools")
    sys.path.insert(0, folder)
    try:
        import benchmark_photos
        import speed_common
        import speed_folder
        import speed_images

        yield SimpleNamespace(
            photos=benchmark_photos, common=speed_common, folder=speed_folder, images=speed_images
        )
    finally:
        sys.path.remove(folder)


@pytest.fixture
def dataset(tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CaptionedImages:
    """Four generated photos."""
    monkeypatch.setattr(tools.photos, "SHARED", tmp_path / "nothing")
    monkeypatch.setattr(tools.images, "IMAGES", 2)
    images, what = tools.photos.photos(4, tmp_path / "photos")
    assert what == "4 generated scenes, JPEG, 500×375"
    words = Vocabulary.build((text for image in images for text in image.captions), min_count=1)
    return CaptionedImages(images, words, ImageTransform(32))


@pytest.fixture
def forms(tools: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With a small encoder."""

    def small(name: str, layer: str) -> SmallCNN:
        torch.manual_seed(0)
        encoder = SmallCNN((4, 6)).eval()
        with torch.no_grad():
            encoder.layers[-2].weight *= 100  # so that one image's regions cannot pass for another's
        return encoder

    monkeypatch.setattr(tools.images, "encoder_of", small)
    monkeypatch.setattr(tools.common, "VOCABULARY", 50)
    return lambda frozen: tools.images.Forms(torch.device("cpu"), frozen)


def test_generated_photos_differ_and_decode(dataset: CaptionedImages):
    assert len({open_image(image.path).tobytes() for image in dataset.images}) == 4
    assert all(len(image.captions) == 5 for image in dataset.images)
    assert all(8 <= len(text.split()) <= 16 for image in dataset.images for text in image.captions)


def test_both_forms_have_one_loss(tools: Any, dataset: CaptionedImages, forms: Any):
    batch = next(iter(tools.images.loader(dataset, dataset.collate, 0)))
    assert batch.inputs.shape[:2] == (2, 5)
    made = forms(frozen=True)
    assert made.difference(batch) < 1e-5
    with torch.no_grad():
        made.textbook.to_words.weight *= 1.5
    assert made.difference(batch) > 1e-4


@pytest.mark.parametrize("frozen", [True, False])
def test_a_step_reaches_the_encoder_where_it_is_fine_tuned(
    tools: Any, dataset: CaptionedImages, forms: Any, frozen: bool
):
    made = forms(frozen)
    pairs = tools.images.loader(SingleCaptions(dataset), dataset.collate, 0)
    for batches, loss, captions in (
        (tools.images.loader(dataset, dataset.collate, 0), made.loss, 10),
        (pairs, made.textbook_loss, 2),
    ):
        loop = tools.images.Loop(batches, loss, made)
        loop.step()
        assert loop.captions == captions
        assert 0 < loop.waiting[0] < 1
        assert (next(made.encoder.parameters()).grad is None) == frozen
    assert made.decoder.embed.weight.grad is None  # forgotten before the textbook's step
    assert made.textbook.embed.weight.grad is not None


def test_rates_and_ratios(tools: Any):
    times = {"alone": [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)], "stream": [(2.0, 4.0), (2.0, 2.5), (4.0, 8.0)]}
    assert tools.folder.rate(times["alone"], 100) == "50.0"
    assert tools.folder.ratio(times, "alone", "stream", 0) == "75% (50% to 100%)"
    assert tools.folder.ratio(times, "alone", "stream", 1) == "50% (25% to 80%)"
