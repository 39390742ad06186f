"""The feature store: it returns the encoder's output, even if writing was interrupted."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import numpy as np
import pytest
import safetensors
import torch
from filelock import FileLock
from helpers.feature_stores import (
    IMAGE_BYTES,
    TRANSFORM,
    contents,
    extract,
    make_encoder,
    make_images,
    read,
    regions_of,
)
from safetensors.numpy import load_file, save_file
from torch import Tensor

from caption.data.decoding import open_image
from caption.data.resize import ImageTransform
from caption.data.splits import CaptionedImage
from caption.encoders import SmallCNN
from caption.errors import DataError, UserError
from caption.features import files
from caption.features.store import FeatureStore
from caption.regions import Regions, Views
from caption.runtime.files import LOCK, OwnFolder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[CaptionedImage]:
    return make_images(tmp_path_factory.mktemp("images"), 23)


@pytest.fixture(scope="module")
def finished(images: list[CaptionedImage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished store, which no test changes: two batches a file, so that 23 images have three, 8, 8 and 7."""
    folder = tmp_path_factory.mktemp("finished") / "store"
    with mock.patch.object(files, "FILE_BYTES", 8 * IMAGE_BYTES):
        extract(images, folder)
    return folder


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_BYTES", 8 * IMAGE_BYTES)


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A finished store to change."""
    return Path(shutil.copytree(finished, tmp_path / "store"))


def verify(folder: Path) -> None:
    """The store holds what was written."""
    assert not FeatureStore(folder).damaged()


def file_path(folder: Path, number: int) -> Path:
    return folder / f"features-{number:05d}.safetensors"


def flip(path: Path, place: int) -> None:
    """Damage one byte; a negative position counts from the end."""
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


# -- reading ------------------------------------------------------------------------------------------------


def test_the_store_returns_the_encoders_output(images: list[CaptionedImage], finished: Path) -> None:
    store = FeatureStore(finished)
    assert store.ids == [image.id for image in images]
    assert len(store) == 23
    (found,) = store.read_many(store.ids)
    assert (found.grid, found.mask, found.vectors.dtype) == ((8, 8), None, torch.float16)
    for image, vectors in zip(images, found.vectors, strict=True):
        expected = regions_of(image, make_encoder())
        torch.testing.assert_close(vectors.float(), expected, rtol=1e-3, atol=1e-3)
    order = [22, 3, 3, 10]
    assert torch.equal(read(store, *(images[i].id for i in order)), found.vectors[order])
    assert read(store).shape == (0, 64, 6)
    assert [image_id in store for image_id in (1, np.int64(1), "1")] == [True, True, False]
    copied = pickle.loads(pickle.dumps(store))  # for a worker process
    assert torch.equal(read(copied, 1), read(store, 1))
    assert len(pickle.dumps(store)) < 300
    assert [image_id in store for image_id in (1, np.int64(1), "1")] == [True, True, False]
    copied = pickle.loads(pickle.dumps(store))  # for a worker process
    assert torch.equal(read(copied, 1), read(store, 1))
    assert len(pickle.dumps(store)) < 300


def test_any_program_can_read_a_file(images: list[CaptionedImage], finished: Path) -> None:
    arrays = load_file(file_path(finished, 1))
    assert {name: (array.dtype.name, array.shape) for name, array in arrays.items()} == {
        "view.0": ("float16", (8, 64, 6)),
        "images": ("uint64", (8, 4)),
        "checksum": ("uint32", (1,)),
    }
    assert np.array_equal(arrays["view.0"][3], read(FeatureStore(finished), images[11].id)[0].numpy())
    with safetensors.safe_open(file_path(finished, 1), "np") as file:
        index = json.loads(file.metadata()["feature_store"])
    assert index["ids"] == [image.id for image in images[8:16]]
    assert index["grids"] == [[8, 8]]
    assert index["key"]["encoder widths"] == [4, 6]


class TwoViews(SmallCNN):
    """Adds a grid of 2×2 means to the CNN's grid; its last region is absent in dark images."""

    def __init__(self) -> None:
        super().__init__(widths=(4, 6))
        self.region_sizes = (6, 12)

    def forward(self, images: Tensor) -> Views:  # type: ignore[override]
        (fine,) = super().forward(images)
        coarse = fine.vectors.unflatten(1, (2, 4, 2, 4)).mean((2, 4)).flatten(1, 2)
        coarse = torch.cat((coarse, coarse), 2)
        mask = torch.ones(len(images), 4, dtype=torch.bool, device=images.device)
        mask[:, 3] = images.float().mean((1, 2, 3)) > 127.5
        return fine, Regions(coarse, (2, 2), mask)


def test_all_views_of_an_image_and_their_masks_are_stored(
    images: list[CaptionedImage], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    encoder = TwoViews()
    encoder.freeze()
    extract(images, tmp_path / "store", encoder=encoder)
    store = FeatureStore(tmp_path / "store")
    verify(store.folder)
    chosen = [images[i] for i in (20, 4, 11)]
    found = store.read_many([image.id for image in chosen])
    with torch.no_grad():
        expected = encoder(torch.stack([TRANSFORM(open_image(image.path)) for image in chosen]))
    assert expected[1].mask is not None
    for stored, encoded in zip(found, expected, strict=True):
        assert stored.grid == encoded.grid
        torch.testing.assert_close(stored.vectors.float(), encoded.vectors, rtol=1e-3, atol=1e-3)
        assert (stored.mask is None) == (encoded.mask is None)
    assert torch.equal(found[1].mask, expected[1].mask)
    masks = store.read_many([image.id for image in images])[1].mask
    assert masks is not None
    assert masks[:, 3].any()
    assert not masks.all()

    flip_within(file_path(tmp_path / "store", 0), "view.1")
    assert len(FeatureStore(tmp_path / "store").damaged()) == 1
    assert extract(images, tmp_path / "store", encoder=encoder, verify=True).dropped == 1
    flip_within(file_path(tmp_path / "store", 1), "mask.1")
    assert len(FeatureStore(tmp_path / "store").damaged()) == 1


def flip_within(path: Path, name: str, place: int = 0) -> None:
    """Damage one byte of a tensor."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    start = json.loads(data[8 : 8 + length])[name]["data_offsets"][0]
    flip(path, 8 + length + start + place)


def test_check_names_missing_images(images: list[CaptionedImage], finished: Path) -> None:
    store = FeatureStore(finished)
    store.check([image.id for image in images])
    with pytest.raises(DataError, match=r"4 of 5 images are not .* 100, 101, 102 and 1 more"):
        store.check([1, 100, 101, 102, 103])
    with pytest.raises(DataError, match=r"1 of 1 images are not in .*'gone\.jpg'.*caption features --config"):
        store.read_many(["gone.jpg"])


# -- the key ------------------------------------------------------------------------------------------------


OTHERS = [
    (make_encoder(seed=1), TRANSFORM, r"made with weights '\w+' instead of '\w+'\. Make another store"),
    (SmallCNN(widths=(4, 8)), TRANSFORM, r"encoder widths \[4, 6\] instead of \[4, 8\]"),
    (make_encoder(), ImageTransform(16, "crop"), "transform fit 'squash' instead of 'crop'"),
]


@pytest.mark.parametrize(("encoder", "transform", "message"), OTHERS)
def test_another_encoder_or_transform_does_not_match(
    finished: Path, encoder: SmallCNN, transform: ImageTransform, message: str
) -> None:
    FeatureStore(finished).matches(make_encoder(), TRANSFORM.to_dict())
    with pytest.raises(DataError, match=message):
        FeatureStore(finished).matches(encoder, transform.to_dict())


@pytest.mark.parametrize(("other", "fits"), [("7.1.9", True), ("7.2.0", False), ("unknown", True)])
def test_releases_match_in_all_but_the_last_number(
    images: list[CaptionedImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, fits: bool
) -> None:
    monkeypatch.setattr("caption.features.key.package_version", lambda: "7.1.0")
    extract(images[:4], tmp_path)
    monkeypatch.setattr("caption.features.key.package_version", lambda: other)
    if fits:
        assert extract(images[:4], tmp_path).present == 4
    else:
        with pytest.raises(DataError, match=r"release '7\.1' instead of '7\.2'"):
            FeatureStore(tmp_path).matches(make_encoder(), TRANSFORM.to_dict())


# -- writing ------------------------------------------------------------------------------------------------


def test_nothing_is_done_twice(
    images: list[CaptionedImage], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)
    opened: list[Path] = []
    monkeypatch.setattr(ImageTransform, "read", lambda transform, path: opened.append(path))
    done = extract(images, folder)
    assert (done.stored, done.present, done.failed, opened) == (0, 23, [], [])
    assert contents(folder) == before


def test_an_id_means_one_image(images: list[CaptionedImage], tmp_path: Path) -> None:
    extract([images[0], images[0]], tmp_path / "store")
    assert len(FeatureStore(tmp_path / "store")) == 1
    other = CaptionedImage(images[0].id, images[1].path, ("a caption",))
    with pytest.raises(DataError, match=r"000\.png' and .*001\.png' have the same id 'image 0\.png'"):
        extract([images[0], other], tmp_path / "store")


def test_it_refuses_a_store_larger_than_the_disk(
    images: list[CaptionedImage], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged images stay as they are then."""
    spoil_region(folder, 3)
    before = contents(folder)
    usage = shutil.disk_usage(tmp_path)._replace(free=5000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        UserError, match=r"23 images of 8×8×6 numbers take 19.1 kB, but the disk .* 5.0 kB left"
    ):
        extract(images, tmp_path / "empty")
    assert contents(tmp_path / "empty") == {}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0))
    with pytest.raises(UserError, match="0 bytes left"):
        extract(images, folder, verify=True)
    assert contents(folder) == before


def test_numbers_too_large_for_half_precision_are_an_error(
    images: list[CaptionedImage], tmp_path: Path
) -> None:
    encoder = make_encoder()
    for parameter in encoder.parameters():
        parameter.data.abs_().mul_(1e3)
    with pytest.raises(DataError, match=r"image 'image 0\.png' are not finite numbers, or too large"):
        extract(images, tmp_path / "store", encoder=encoder)
    assert contents(tmp_path / "store") == {}


def test_one_run_at_a_time(
    images: list[CaptionedImage], finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with futures.ThreadPoolExecutor(1) as beside:
        with FileLock(finished / LOCK):
            second = beside.submit(extract, images, finished)
            while not (said := capsys.readouterr().err):
                time.sleep(0.02)
            assert said == f"waiting for another process, which is writing to {finished}\n"
            assert not second.done()
        assert second.result(timeout=60).present == len(images)


# -- interrupted --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("complete", [0, 2])
def test_it_continues_after_the_last_complete_file(
    images: list[CaptionedImage], folder: Path, complete: int
) -> None:
    whole = contents(folder)
    for number in range(complete, 3):
        file_path(folder, number).unlink()
    if complete:
        assert len(FeatureStore(folder)) == 8 * complete
    done = extract(images, folder)
    assert (done.present, done.stored) == (8 * complete, 23 - 8 * complete)
    assert contents(folder) == whole


def test_ctrl_c_keeps_encoded_images(images: list[CaptionedImage], folder: Path, tmp_path: Path) -> None:
    calls = 0

    def interrupt(*call: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:  # the blank image, then three batches
            raise KeyboardInterrupt

    encoder = make_encoder()
    encoder.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        extract(images, tmp_path / "stopped", encoder=encoder)
    assert FeatureStore(tmp_path / "stopped").ids == [image.id for image in images[:12]]
    extract(images, tmp_path / "stopped")
    ids = [image.id for image in images]
    assert torch.equal(read(FeatureStore(tmp_path / "stopped"), *ids), read(FeatureStore(folder), *ids))


@pytest.mark.parametrize(("written", "room"), [(0, 0), (2, 5_000)])
def test_a_full_disk_spoils_nothing(
    images: list[CaptionedImage],
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: int,
    room: int,
) -> None:
    """Real writes that fail after a number of files and bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    write = OwnFolder.write

    @contextmanager
    def write_on_a_full_disk(own: OwnFolder, name: str) -> Iterator[BinaryIO]:
        if len(contents(tmp_path / "full")) == written:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            with write(own, name) as file:
                yield file
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(OwnFolder, "write", write_on_a_full_disk)
    with pytest.raises(DataError, match=r"cannot be written \(.*File too large.*\).*make room"):
        extract(images, tmp_path / "full")
    monkeypatch.setattr(OwnFolder, "write", write)
    assert len(contents(tmp_path / "full")) == written  # and no partial file
    if written:
        verify(tmp_path / "full")
    extract(images, tmp_path / "full")
    assert contents(tmp_path / "full") == contents(finished)


# -- damaged ------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    for number in range(2):
        file_path(tmp_path / "damaged", number).write_bytes(b"something else")
    with pytest.raises(DataError, match="move it away"):
        FeatureStore(tmp_path / "damaged", skip_damaged=True)
    (tmp_path / "others").mkdir()
    file_path(tmp_path / "others", 0).write_bytes(b"something else")
    with pytest.raises(DataError, match="did not write it there: move it away"):
        FeatureStore(tmp_path / "others", skip_damaged=True)
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match=r"is not a feature store: it has no features-\*\.safetensors"):
            FeatureStore(path)


@pytest.mark.parametrize(
    "spoil",
    [
        *(
            lambda path, metadata=metadata: save_file(load_file(path), path, metadata)
            for metadata in (
                None,
                {"format": "pt"},
                {"feature_store": '{"format": 1}'},
                {"feature_store": "[3]"},
                {"feature_store": "[" * 100_000},
            )
        ),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\x02" + bytes(7) + b"{}"),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
    ],
)
def test_a_file_that_is_not_of_a_store(
    images: list[CaptionedImage], folder: Path, spoil: Callable[[Path], None]
) -> None:
    """The message names it. With --verify, and other files that identify the store, it is replaced."""
    spoil(file_path(folder, 1))
    spoiled = file_path(folder, 1).read_bytes()
    for attempt in (lambda: FeatureStore(folder), lambda: extract(images, folder)):
        with pytest.raises(
            DataError, match=r"features-00001.safetensors' is damaged, or not of a feature store .*--verify"
        ):
            attempt()
    done = extract(images, folder, verify=True)
    assert (done.unreadable, done.dropped, done.present, done.stored) == (1, 0, 15, 8)
    assert (folder / "features-00001.safetensors.damaged-1").read_bytes() == spoiled
    verify(folder)
    for path in folder.glob("features-*.safetensors"):
        path.write_bytes(b"something else")
    with pytest.raises(DataError, match="that can be read"):
        extract(images, folder, verify=True)
    assert all(path.read_bytes() == b"something else" for path in folder.glob("features-*.safetensors"))


def rewrite(path: Path, index: dict[str, Any], tables: Callable[[files.Arrays], files.Arrays]) -> None:
    """Change a file with its checksum, as a stranger may."""
    arrays = load_file(path)
    del arrays["checksum"]
    arrays = tables(arrays)
    with safetensors.safe_open(path, "np") as file:
        text = json.dumps(json.loads(file.metadata()["feature_store"]) | index)
    checksum = np.array([files._checksum(text, arrays)], "<u4")
    save_file({**arrays, "checksum": checksum}, path, {"feature_store": text})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("view.0", lambda view: view.astype("f4")), ("view.0", lambda view: view[..., 0].copy()),
        ("images", lambda table: table[:, :3].copy()), ("mask.0", lambda table: table[:, :2].copy()),
        ("more", lambda table: table[:, :2].copy()),
    ],
)  # fmt: skip
def test_tables_with_their_checksum_that_are_others(folder: Path, name: str, change: Any) -> None:
    rewrite(file_path(folder, 0), {}, lambda all_: {**all_, name: change(all_.get(name, all_["images"]))})
    with pytest.raises(DataError, match=r"features-00000\.safetensors' is damaged"):
        FeatureStore(folder)


def test_regions_with_their_checksum_that_are_of_another_size(folder: Path) -> None:
    def smaller(arrays: files.Arrays) -> files.Arrays:
        return {**arrays, "view.0": arrays["view.0"][..., 1:].copy()}

    rewrite(file_path(folder, 0), {}, smaller)
    with pytest.raises(DataError, match="different encoders"):
        FeatureStore(folder)
    for number in (1, 2):
        rewrite(file_path(folder, number), {}, smaller)
    with pytest.raises(DataError, match=r"regions of the sizes \[\d+\] instead of"):
        FeatureStore(folder).matches(make_encoder(), TRANSFORM.to_dict())


@pytest.mark.parametrize(
    "change",
    [
        {"ids": [[1]] * 8}, {"ids": [1] * 8}, {"ids": [None, *range(7)]}, {"key": 3},
        {"grids": [[float("inf"), 1]]}, {"grids": 7}, {"grids": []}, {"grids": [[1, 2]]}, {"grids": [[1, 1]] * 2},
    ],
)  # fmt: skip
def test_an_index_with_its_checksum_that_says_something_else(folder: Path, change: dict[str, Any]) -> None:
    rewrite(file_path(folder, 0), change, lambda arrays: arrays)
    with pytest.raises(DataError, match=r"features-00000\.safetensors' is damaged"):
        FeatureStore(folder)


@pytest.mark.parametrize("kind", ["file", "lost link"])
def test_a_file_of_others_is_named_and_stays(images: list[CaptionedImage], folder: Path, kind: str) -> None:
    theirs = folder.parent / "mine"
    if kind != "lost link":
        theirs.write_bytes(b"mine")
    if kind == "file":
        shutil.copy(theirs, file_path(folder, 7))
    else:
        file_path(folder, 7).symlink_to(theirs)
    before = {path.name: path.exists() and path.read_bytes() for path in folder.iterdir()}
    for options in ({}, {"verify": True}):
        with pytest.raises(DataError, match=r"features-00007\.safetensors' "):
            extract(images, folder, **options)
        assert {path.name: path.exists() and path.read_bytes() for path in folder.iterdir()} == before
    assert kind == "lost link" or theirs.read_bytes() == b"mine"


def test_files_of_two_stores_are_not_mixed(
    images: list[CaptionedImage], folder: Path, tmp_path: Path
) -> None:
    extract(images[:1], tmp_path / "other", encoder=make_encoder(seed=1))
    shutil.copy(file_path(tmp_path / "other", 0), folder)
    with pytest.raises(DataError, match="made with different encoders or transforms"):
        FeatureStore(folder)


def test_no_flipped_byte_goes_unnoticed(images: list[CaptionedImage], tmp_path: Path) -> None:
    """A third of the bytes of the header and the tables, and some of the regions."""
    extract(images[:4], tmp_path / "store")
    path = file_path(tmp_path / "store", 0)
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    ends = {name: entry["data_offsets"] for name, entry in json.loads(whole[8:length]).items() if "." in name}
    start, end = (length + place for place in ends["view.0"])
    for place in (*range(0, start, 3), *range(start, end, 97), *range(end, len(whole), 3)):
        flip(path, place)
        with pytest.raises(DataError, match="damaged"):
            read(FeatureStore(tmp_path / "store"), *(image.id for image in images[:4]))
        path.write_bytes(whole)
    verify(tmp_path / "store")


def test_damaged_regions_are_found_when_read(images: list[CaptionedImage], folder: Path) -> None:
    store = FeatureStore(folder)
    spoil_region(folder, 13)
    read(store, images[12].id)
    with pytest.raises(DataError, match=r"1 images are not as they were written: 13\. Give .* --verify"):
        read(store, 13)
    assert store.damaged() == {13}


def spoil_region(folder: Path, number: int) -> None:
    """Damage one byte of an image's regions."""
    flip_within(file_path(folder, number // 8), "view.0", number % 8 * IMAGE_BYTES + 5)


@pytest.mark.parametrize(
    ("spoil", "images_lost", "files_lost"),
    [
        (lambda folder: [spoil_region(folder, number) for number in (0, 22)], 2, 0),
        (lambda folder: [spoil_region(folder, number) for number in range(8, 16)], 8, 0),
        (lambda folder: flip_within(file_path(folder, 0), "images"), 8, 1),
        (lambda folder: os.truncate(file_path(folder, 1), 1000), 8, 1),
    ],
)
def test_verifying_extracts_damaged_images_again(
    images: list[CaptionedImage],
    folder: Path,
    spoil: Callable[[Path], object],
    images_lost: int,
    files_lost: int,
) -> None:
    before = read(FeatureStore(folder), *(image.id for image in images))
    spoil(folder)
    done = extract(images, folder, verify=True)
    assert (done.stored, done.present) == (images_lost, 23 - images_lost)
    assert (done.dropped, done.unreadable) == (0 if files_lost else images_lost, files_lost)
    store = FeatureStore(folder)
    verify(folder)
    # An image's last bits may depend on the rest of its batch.
    after = read(store, *(image.id for image in images))
    torch.testing.assert_close(after.float(), before.float(), rtol=1e-3, atol=1e-3)
    assert sorted(store.ids, key=str) == sorted((image.id for image in images), key=str)
