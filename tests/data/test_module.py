"""The data module: splits, vocabulary, loaders; wrong data is found at construction."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.feature_stores import TRANSFORM, extract, make_images
from torch.utils.data import DataLoader

from caption.core.batch import Batch
from caption.core.errors import DataError, UserError
from caption.core.regions import Regions
from caption.data.module import CaptionData
from caption.data.photos import ImageTransform
from caption.data.readers.base import CaptionReader
from caption.data.shapes import Shapes
from caption.data.splits import CaptionedImage, Splits


def module(reader: CaptionReader, **options: Any) -> CaptionData:
    made: dict[str, Any] = {"transform": ImageTransform(48, "squash"), "batch_size": 8, "min_count": 1}
    return CaptionData(reader, **made | options)


def captions_of(batch: Batch) -> list[list[list[int]]]:
    return [
        [ids[:length].tolist() for ids, length in zip(image, lengths, strict=True) if length]
        for image, lengths in zip(batch.captions.targets, batch.captions.lengths, strict=True)
    ]


class Given(CaptionReader):
    """Captions given in Python."""

    def __init__(self, **splits: list[CaptionedImage]) -> None:
        self.splits = splits

    def read(self) -> Splits:
        return self.splits


def image(number: int, *captions: str) -> CaptionedImage:
    return CaptionedImage(number, Path(f"{number}.png"), captions)


def test_the_training_captions_give_the_vocabulary_within_the_limits():
    data = Given(
        train=[image(1, "a Cat", "a dog"), image(2, "A dog")],
        val=[image(3, "a bird")],
        test=[image(4, "a cow")],
    )
    assert module(data).vocabulary.words[4:] == ("a", "dog", "cat")
    assert module(data, min_count=2).vocabulary.words[4:] == ("a", "dog")
    assert module(data, vocabulary_size=1).vocabulary.words[4:] == ("a",)
    assert module(data, tokenizer="none").vocabulary.words[4:] == ("a", "dog", "A", "Cat")


# -- loaders ---------------------------------------------------------------------------------------------------


def test_a_last_smaller_batch_is_left_out_unless_it_is_the_only_one(reader: Shapes):
    assert len(module(reader, batch_size=16).train_dataloader()) == 2
    (batch,) = module(reader, batch_size=100).train_dataloader()
    assert len(batch.ids) == 40
    (batch,) = module(reader, batch_size=1000, batching="lengths").train_dataloader()
    assert len(batch.ids) == 200


@pytest.mark.parametrize("split", ["val", "test", "predict"])
def test_evaluation_sees_every_image_once_in_order_with_all_captions_and_its_box(reader: Shapes, split: str):
    data = module(reader, captions_per_image=1, batch_size=3, max_words=2, predict_split="val")
    batches = list(getattr(data, f"{split}_dataloader")())
    expected = data.splits["val" if split == "predict" else split]
    assert [i for batch in batches for i in batch.ids] == [image.id for image in expected]
    assert [len(batch.ids) for batch in batches] == [3, 3, 2]
    assert [r for batch in batches for r in batch.references] == [image.captions for image in expected]
    encoded = [[data.vocabulary.encode(text) for text in image.captions] for image in expected]
    assert [captions for batch in batches for captions in captions_of(batch)] == encoded  # not truncated
    assert [tuple(box) for batch in batches for box in batch.boxes] == [(0, 0, 48, 48)] * 8


@pytest.mark.parametrize(("split", "shares"), [("val", [[1, 3], [2, 1]]), ("test", [[4], [4]])])
def test_each_process_has_an_image_even_if_there_are_fewer_images_than_processes(
    monkeypatch: pytest.MonkeyPatch, split: str, shares: list[list[int]]
):
    data = module(Given(train=[image(0, "a")], val=[image(i, "a") for i in (1, 2, 3)], test=[image(4, "a")]))
    for rank in (0, 1):
        monkeypatch.setattr(data, "_processes", lambda rank=rank: (2, rank))
        loader = getattr(data, f"{split}_dataloader")()
        assert [loader.dataset.examples[index][0].id for index in loader.sampler] == shares[rank]


def test_batches_of_near_equal_lengths_have_every_caption_once(reader: Shapes):
    data = module(reader, batching="lengths", batch_size=10)
    batches = list(data.train_dataloader())
    assert [batch.captions.lengths.shape for batch in batches] == [(10, 1)] * 20
    found = sorted(ids for batch in batches for (ids,) in captions_of(batch))
    assert found == sorted(ids for captions in data.training_captions() for ids in captions)
    padding = sum(int((batch.captions.lengths.max() - batch.captions.lengths).sum()) for batch in batches)
    assert padding / sum(int(batch.captions.lengths.sum()) for batch in batches) < 0.05


def contents(loader: Iterable[Batch]) -> list[Any]:
    """The ids and captions of each batch."""
    return [(batch.ids, captions_of(batch)) for batch in loader]


@pytest.mark.parametrize("batching", ["images", "lengths"])
def test_seed_and_epoch_alone_decide_order_and_captions(reader: Shapes, batching: str):
    options = {"batching": batching, "captions_per_image": 1}
    torch.manual_seed(3)
    loader, same = (module(reader, **options).train_dataloader() for _ in range(2))
    torch.manual_seed(4)
    other = module(reader, **options).train_dataloader()
    state = torch.get_rng_state()
    list(loader.batch_sampler)
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn from the global generator
    first = contents(loader)
    assert first == contents(same) != contents(other)
    for each in (loader, same):
        each.sampler.set_epoch(1)
    torch.rand(10)
    second = contents(loader)
    assert second == contents(same) != first
    if batching == "images":
        drawn = [
            {
                image_id: of_image
                for ids, captions in epoch
                for image_id, of_image in zip(ids, captions, strict=True)
            }
            for epoch in (first, second)
        ]
        assert sorted(drawn[0]) == sorted(drawn[1]) == list(range(1, 41))
        assert sum(drawn[0][image_id] != drawn[1][image_id] for image_id in drawn[0]) > 20


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loader_goes_on_behind_the_batches_that_it_has_given(reader: Shapes, workers: int):
    loader, stopped, resumed = (
        module(reader, captions_per_image=2, workers=workers).train_dataloader() for _ in range(3)
    )
    epochs = []
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        epochs.append(contents(loader))
    stopped.sampler.set_epoch(1)
    batches = iter(stopped)
    for _ in range(3):
        next(batches)
    state = stopped.state_dict()
    assert state == {"epoch": 1, "given": 3, "processes": 1, "workers": 1}

    resumed.load_state_dict(state)
    started = iter(resumed)  # Lightning calls iter() before it sets the epoch
    resumed.sampler.set_epoch(1)
    assert contents(started) == epochs[1][3:]
    assert resumed.state_dict() == state | {"given": 5}
    resumed.load_state_dict(state)
    resumed.sampler.set_epoch(2)
    assert contents(resumed) == epochs[2]  # the place is one in another epoch
    resumed.load_state_dict(state | {"processes": 2})
    resumed.sampler.set_epoch(1)
    with pytest.raises(UserError, match=r"inside epoch 2, .* among 2 processes, now among 1 process:"):
        next(iter(resumed))
    resumed.load_state_dict(state | {"processes": 2})
    resumed.sampler.set_epoch(2)  # after the epoch they may change
    assert contents(resumed) == epochs[2]


# -- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loader", ["train", "test"])
@pytest.mark.parametrize("source", ["photos", "features"])
def test_damage_is_one_sentence_from_a_worker_too(tmp_path: Path, source: str, loader: str):
    images = make_images(tmp_path / "photos", 2)
    options: dict[str, Any] = {"transform": TRANSFORM, "batch_size": 2}
    if source == "features":
        extract(images, tmp_path / "store")
        options["features"] = str(tmp_path / "store")
    data = Given(train=images, val=images, test=images)
    loaders = [getattr(module(data, workers=n, **options), f"{loader}_dataloader")() for n in (0, 1)]
    files = [*(tmp_path / "store").glob("*.safetensors")] if source == "features" else [images[1].path]
    files[0].write_bytes(files[0].read_bytes()[:-1000] + bytes(500))
    by_worker, here = (error_of(loaders.pop()) for _ in range(2))
    assert by_worker == here
    assert "damaged" in here
    assert source == "features" or str(files[0]) in here


def error_of(loader: DataLoader[Any]) -> str:
    try:
        list(loader)
    except UserError as error:  # not kept: its traceback holds the loader, whose workers stop when it goes
        return f"{type(error)}: {error}"
    raise AssertionError


def test_numbers_out_of_range_and_a_split_that_is_not_there():
    data = Given(train=[image(1, "a cat")])
    out_of_range = {"batch_size": 10**9, "captions_per_image": 0, "max_words": -15, "workers": 5000}
    for name, number in out_of_range.items():
        with pytest.raises(DataError, match=f"data.{name} is {number}"):
            module(data, **{name: number})
    with pytest.raises(DataError, match=r"'val'.*train"):
        module(data).val_dataloader()


def test_all_views_and_masks_are_moved_in_full_precision(reader: Shapes):
    data = module(reader)
    (batch, *_) = data.val_dataloader()
    fine = Regions(torch.ones(2, 4, 3, dtype=torch.float16), (2, 2))
    coarse = Regions(torch.ones(2, 1, 5, dtype=torch.float16), (1, 1), torch.ones(2, 1, dtype=torch.bool))
    moved = data.transfer_batch_to_device(batch._replace(views=(fine, coarse)), torch.device("cpu"), 0)
    assert [(v.vectors.dtype, v.vectors.shape, v.grid) for v in moved.views] == [
        (torch.float32, (2, 4, 3), (2, 2)),
        (torch.float32, (2, 1, 5), (1, 1)),
    ]
    assert moved.views[0].mask is None
    assert torch.equal(moved.views[1].mask, coarse.mask)
