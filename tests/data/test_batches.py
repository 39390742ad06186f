"""Batches: their tensors, padding, drawn captions, and batches of similar length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from caption.data.batches import Batch, CaptionedImages, collate
from caption.data.order import POOL, similar_lengths
from caption.data.resize import ImageTransform
from caption.data.splits import CaptionedImage
from caption.errors import ImageError
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


@pytest.fixture
def batch(images: list[CaptionedImage]) -> Batch:
    dataset = CaptionedImages(images, WORDS, TRANSFORM)
    return collate([dataset[i] for i in range(3)])


# -- contents of a batch ---------------------------------------------------------------------------------------


def test_inputs_begin_with_the_start_targets_close_with_the_end_and_lengths_include_it(batch: Batch):
    a, red, circle = (WORDS[word] for word in ("a", "red", "circle"))
    assert batch.inputs[0, 0].tolist() == [START, a, red, circle, PAD, PAD, PAD, PAD]
    assert batch.targets[0, 0].tolist() == [a, red, circle, END, PAD, PAD, PAD, PAD]
    assert batch.targets[2, 1, :4].tolist() == [a, UNKNOWN, WORDS["square"], END]
    assert batch.lengths.tolist() == [[4, 8, 0], [3, 0, 0], [3, 4, 4]]
    assert batch.inputs.shape == batch.targets.shape == (3, 3, 8)
    padding = torch.arange(8) >= batch.lengths[..., None]
    assert (batch.inputs[padding] == PAD).all()
    assert (batch.targets[padding] == PAD).all()
    later = ~padding[..., 1:]
    assert torch.equal(batch.inputs[..., 1:][later], batch.targets[..., :-1][later])


def test_images_references_ids_and_boxes_are_those_of_the_images(batch: Batch):
    assert batch.images is not None
    assert (batch.images.shape, batch.images.dtype) == ((3, 3, 16, 16), torch.uint8)
    assert [int(image.float().mean()) for image in batch.images] == [0, 50, 100]
    assert batch.ids == ["image 0", "image 1", "image 2"]
    assert batch.references == CAPTIONS  # as written, with the unknown word
    assert [tuple(box) for box in batch.boxes] == [(5, 0, 25, 20), (5.5, 0, 25.5, 20), (6, 0, 26, 20)]
    assert batch.views is None


def test_a_damaged_image_is_an_error_and_no_other_image_takes_its_place(images, tmp_path):
    (tmp_path / "damaged.png").write_bytes(images[0].path.read_bytes()[:45])
    damaged = CaptionedImage("damaged", tmp_path / "damaged.png", ("a circle",))
    with pytest.raises(ImageError, match=r"damaged\.png"):
        CaptionedImages([damaged], WORDS, TRANSFORM)[0]


# -- drawn captions --------------------------------------------------------------------------------------------


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
    counts = {
        caption: sum(caption in captions for captions in drawn) for caption in {c for d in drawn for c in d}
    }
    assert len(counts) == 3
    assert min(counts.values()) > 25  # 40 are expected
    assert len(set(drawn)) == 6  # in every order


def test_long_captions_are_cut_and_still_end(images):
    dataset = CaptionedImages(images, WORDS, TRANSFORM, max_words=2)
    a, red = WORDS["a"], WORDS["red"]
    assert dataset[0].captions[0] == [a, red, END]
    assert dataset[1].captions[0] == [a, WORDS["square"], END]  # exactly the maximal length
    assert collate([dataset[0]]).references == [CAPTIONS[0]]  # references are not truncated


# -- single captions of near-equal length ----------------------------------------------------------------------


LENGTHS = torch.randint(3, 25, (1003,), generator=torch.Generator().manual_seed(0)).tolist()


def batches(drop_last: bool = False) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(LENGTHS), generator=generator).tolist()
    return list(similar_lengths(order, LENGTHS, 8, drop_last, generator))


def test_every_caption_comes_once_among_others_of_its_length():
    assert len(LENGTHS) > POOL * 8
    found = batches()
    assert sorted(index for batch in found for index in batch) == list(range(1003))
    assert sorted(map(len, found)) == [3] + [8] * 125
    spreads = [max(lengths) - min(lengths) for batch in found if (lengths := [LENGTHS[i] for i in batch])]
    assert sum(spreads) / len(spreads) < 1


def test_length_is_not_tied_to_the_time_in_the_epoch():
    means = [np.mean([LENGTHS[i] for i in batch]) for batch in batches()]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.3
