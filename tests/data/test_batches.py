"""Batches: their tensors, padding, drawn captions, and batches of similar length."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from caption.data.batches import CaptionedImages, collate
from caption.data.order import POOL, similar_lengths
from caption.data.photos import ImageTransform
from caption.data.splits import CaptionedImage
from caption.text.vocabulary import END, PAD, START, UNKNOWN, Vocabulary

WORDS = Vocabulary(["a", "red", "blue", "circle", "square", "beside"])
TRANSFORM = ImageTransform(16, "crop")
CAPTIONS = [
    ("A red circle.", "a blue square beside a red circle"),
    ("a square",),
    ("a circle", "a purple square", "a red square"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[CaptionedImage]:
    folder = tmp_path_factory.mktemp("images")
    made = []
    for i, captions in enumerate(CAPTIONS):
        pixels = np.full((20, 30 + i, 3), 50 * i, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
        made.append(CaptionedImage(id=f"image {i}", path=folder / f"{i}.png", captions=captions))
    return made


def test_a_batch_has_the_pixels_captions_ids_and_boxes_of_its_images(images: list[CaptionedImage]):
    """Inputs begin with the start, targets close with the end, and lengths include it."""
    dataset = CaptionedImages(images, WORDS, TRANSFORM)
    batch = collate([dataset[i] for i in range(3)])
    a, red, circle = (WORDS[word] for word in ("a", "red", "circle"))
    assert batch.captions.words[0, 0].tolist() == [START, a, red, circle, PAD, PAD, PAD, PAD]
    assert batch.captions.targets[0, 0].tolist() == [a, red, circle, END, PAD, PAD, PAD, PAD]
    assert batch.captions.targets[2, 1, :4].tolist() == [a, UNKNOWN, WORDS["square"], END]
    assert batch.captions.lengths.tolist() == [[4, 8, 0], [3, 0, 0], [3, 4, 4]]
    padding = torch.arange(8) >= batch.captions.lengths[..., None]
    assert (batch.captions.words[padding] == PAD).all()
    assert (batch.captions.targets[padding] == PAD).all()
    later = ~padding[..., 1:]
    assert torch.equal(batch.captions.words[..., 1:][later], batch.captions.targets[..., :-1][later])
    assert batch.images is not None
    assert (batch.images.shape, batch.images.dtype) == ((3, 3, 16, 16), torch.uint8)
    assert [int(image.float().mean()) for image in batch.images] == [0, 50, 100]
    assert batch.ids == ["image 0", "image 1", "image 2"]
    assert batch.references == CAPTIONS  # as written, with the unknown word
    assert [tuple(box) for box in batch.boxes] == [(5, 0, 25, 20), (5.5, 0, 25.5, 20), (6, 0, 26, 20)]


def test_small_images_are_decoded_once_and_large_ones_each_time(images, monkeypatch: pytest.MonkeyPatch):
    decoded: list[Path] = []
    read = ImageTransform.read
    monkeypatch.setattr(
        ImageTransform, "read", lambda self, path: (decoded.append(path), read(self, path))[1]
    )
    for most, times in ((3 * 8 * 8 * len(images), 1), (3 * 8 * 8 * len(images) - 1, 2)):
        monkeypatch.setattr("caption.data.batches.MOST_KEPT", most)
        examples = CaptionedImages(images, WORDS, ImageTransform(8, "squash"))
        first, again = examples[0, 1], examples[0, 1]
        assert torch.equal(first.pixels, again.pixels)
        assert first.box == again.box
        assert decoded == [images[0].path] * times
        decoded.clear()


def test_captions_are_drawn_without_repeating_one_and_all_get_their_turn(images):
    dataset = CaptionedImages(images, WORDS, TRANSFORM, per_image=2)
    torch.manual_seed(0)
    drawn = [tuple(tuple(ids) for ids in dataset[2].captions) for _ in range(60)]
    assert all(len(set(captions)) == 2 for captions in drawn)
    counts = Counter(caption for captions in drawn for caption in captions)
    assert len(counts) == 3
    assert min(counts.values()) > 25  # 40 are expected
    assert len(set(drawn)) == 6  # in every order


def test_long_captions_are_cut_and_still_end(images):
    dataset = CaptionedImages(images, WORDS, TRANSFORM, max_words=2)
    a, red = WORDS["a"], WORDS["red"]
    assert dataset[0].captions[0] == [a, red, END]
    assert dataset[1].captions[0] == [a, WORDS["square"], END]  # exactly the maximal length
    assert collate([dataset[0]]).references == [CAPTIONS[0]]  # references are not truncated


def test_every_caption_comes_once_among_others_of_its_length_at_any_time():
    """Batches of single captions: their length is not tied to the time in the epoch."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 25, (1003,), generator=generator).tolist()
    assert len(lengths) > POOL * 8
    order = torch.randperm(len(lengths), generator=generator).tolist()
    found = list(similar_lengths(order, lengths, 8, False, generator))
    assert sorted(index for batch in found for index in batch) == list(range(1003))
    assert sorted(map(len, found)) == [3] + [8] * 125
    by_batch = [[lengths[index] for index in batch] for batch in found]
    assert np.mean([max(batch) - min(batch) for batch in by_batch]) < 1
    means = [np.mean(batch) for batch in by_batch]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.3
