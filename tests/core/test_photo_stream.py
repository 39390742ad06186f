"""A stream of photos gets the captions of its photos one by one, in order, and stops cleanly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo
from PIL import Image, ImageSequence

from caption.captioner import AHEAD, Captioner
from caption.core.errors import ImageError
from caption.data.photos import open_image
from caption.results.caption import Caption
from caption.search import BeamSearch, Greedy


def sizes(count: int) -> list[Image.Image]:
    return [photo(48 + 8 * (seed % 5), 40, seed) for seed in range(count)]


def one_by_one(model: Captioner, photos: list[Image.Image]) -> list[Caption]:
    """The reference for the stream: each photo decoded, encoded and searched alone, in this thread."""
    captions = []
    for each in photos:
        image = open_image(each)
        with torch.no_grad():
            regions = model.encoder(model.transform(image)[None])
        found = model.generate(regions)
        captions += model.captions(found, model.grids(regions), [model.transform.box(*image.size)], [each])
    return captions


def texts(outcomes: list[Caption | ImageError]) -> list[str]:
    return [str(each) for each in outcomes]


@pytest.mark.parametrize(("count", "batch_size"), [(0, 8), (12, 4), (9, 64)])
def test_captions_are_those_of_the_list_in_its_order(count: int, batch_size: int):
    model, photos = captioner(), sizes(count)
    found = list(model.describe_each(photos, batch_size=batch_size))
    expected = one_by_one(model, photos)
    assert len({each.log_prob for each in expected}) == count  # so that captions cannot be confused
    assert texts(found) == texts(expected)
    for caption, other in zip(found, expected, strict=True):
        assert isinstance(caption, Caption)
        assert caption.box == other.box
        assert caption.log_prob == pytest.approx(other.log_prob, abs=1e-5)
        np.testing.assert_allclose(caption.weights, other.weights, atol=1e-5)
        assert caption.image is other.image


def test_errors_keep_the_places_of_their_photos(tmp_path: Path):
    model, good = captioner(), sizes(6)
    bad = tmp_path / "missing.jpg"
    photos = [bad, *good[:3], bad, *good[3:], bad, bad, bad]
    found = list(model.describe_each(photos, batch_size=2))
    faults = [i for i, each in enumerate(found) if isinstance(each, ImageError)]
    assert faults == [0, 4, 8, 9, 10]  # the last batch has none but these
    assert "missing.jpg" in str(found[0])
    assert texts([each for each in found if isinstance(each, Caption)]) == texts(one_by_one(model, good))


@pytest.mark.parametrize("kind", ["animation", "array", "closed file"])
def test_an_iterator_may_change_what_it_has_yielded(tmp_path: Path, kind: str):
    """The frames of an animation are one object, arrays are filled again, and files are closed."""
    model, frames = captioner(), [photo(64, 64, seed) for seed in range(12)]
    frames[0].save(tmp_path / "moving.png", save_all=True, append_images=frames[1:])
    for number, frame in enumerate(frames):
        frame.save(tmp_path / f"{number}.png")

    def photos() -> Iterator[Any]:
        array = np.zeros((64, 64, 3), np.uint8)
        if kind == "animation":
            yield from ImageSequence.Iterator(Image.open(tmp_path / "moving.png"))
        for number, frame in enumerate(frames if kind != "animation" else ()):
            with Image.open(tmp_path / f"{number}.png") as image:
                array[:] = np.asarray(frame)
                yield image if kind == "closed file" else array

    found = list(model.describe_each(photos(), batch_size=2, workers=4))
    for caption, other, frame in zip(found, one_by_one(model, frames), frames, strict=True):
        assert isinstance(caption, Caption)
        assert caption.image is not None
        assert caption.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        np.testing.assert_array_equal(np.asarray(open_image(caption.image)), np.asarray(frame))


def test_another_search_is_used():
    model, photos = captioner(), sizes(4)
    greedy = Greedy(max_length=3)
    assert texts(list(model.describe_each(photos, greedy))) == texts(model.describe(photos, greedy))
    several = next(model.describe_each(photos, BeamSearch(3, 8, candidates=3)))
    assert isinstance(several, Caption)
    assert len(several.alternatives) == 2


def test_photos_are_taken_only_a_few_batches_ahead():
    taken = 0

    def endless() -> Iterator[Image.Image]:
        nonlocal taken
        while True:
            taken += 1
            yield photo(40, 40, taken)

    stream = captioner().describe_each(endless(), batch_size=4)
    for given in range(1, 22):
        next(stream)
        # One batch is being returned, one is searched, and AHEAD + 1 are being decoded.
        assert taken - given <= (AHEAD + 3) * 4
    stream.close()


def test_the_mode_is_put_back_and_no_thread_is_left_even_after_an_error():
    class Broken(Greedy):
        def __call__(self, *args: object, **more: object) -> None:
            raise RuntimeError("broken search")

    model = captioner().train()
    before = threading.active_count()
    stream = model.describe_each(sizes(40), batch_size=4)
    next(stream)
    assert not model.training
    assert threading.active_count() > before
    stream.close()
    assert model.training
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="broken search"):
        list(model.describe_each(sizes(9), Broken(), batch_size=4))
    assert model.training
    assert threading.active_count() == before
