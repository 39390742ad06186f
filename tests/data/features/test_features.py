"""The feature store: it returns the encoder's output, even if writing was interrupted."""

from __future__ import annotations

import json
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
    Images,
    contents,
    extract,
    make_encoder,
    make_images,
    read,
    regions_of,
)
from safetensors.numpy import load_file, save_file
from torch import Tensor

from caption.core.errors import DataError, UserError
from caption.core.regions import Regions, Views
from caption.core.runtime.atomic_files import LOCK, creating
from caption.data.features import format as store_format
from caption.data.features.store import FeatureStore
from caption.data.photos import ImageTransform, open_image
from caption.data.splits import CaptionedImage
from caption.encoders import SmallCNN


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    return make_images(tmp_path_factory.mktemp("images"), 23)


@pytest.fixture(scope="module")
def finished(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished store, which no test changes: two batches a file, so that 23 images have three, 8, 8 and 7."""
    folder = tmp_path_factory.mktemp("finished") / "store"
    with mock.patch.object(store_format, "FILE_BYTES", 8 * IMAGE_BYTES):
        extract(images, folder)
    return folder


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_format, "FILE_BYTES", 8 * IMAGE_BYTES)


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A finished store to change."""
    return Path(shutil.copytree(finished, tmp_path / "store"))


def file_path(folder: Path, number: int) -> Path:
    return folder / f"features-{number:05d}.safetensors"


def flip(path: Path, place: int) -> None:
    """Damage one byte; a negative position counts from the end."""
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


# -- reading ------------------------------------------------------------------------------------------------


def test_the_store_returns_the_encoders_output(images: Images, finished: Path):
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
    with pytest.raises(DataError, match=r"4 of 5.*100, 101, 102 and 1 more"):
        store.check([1, 100, 101, 102, 103])
    with pytest.raises(DataError, match=r"'gone\.jpg'"):
        store.read_many(["gone.jpg"])


def test_any_program_can_read_a_file(images: Images, finished: Path):
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


def test_all_views_of_an_image_and_their_masks_are_stored(images: Images, tmp_path: Path):
    torch.manual_seed(0)
    encoder = TwoViews()
    encoder.freeze()
    extract(images, tmp_path / "store", encoder=encoder)
    store = FeatureStore(tmp_path / "store")
    chosen = [images[i] for i in (20, 4, 11)]
    found = store.read_many([image.id for image in chosen])
    with torch.no_grad():
        expected = encoder(torch.stack([TRANSFORM(open_image(image.path)) for image in chosen]))
    for stored, encoded in zip(found, expected, strict=True):
        assert stored.grid == encoded.grid
        torch.testing.assert_close(stored.vectors.float(), encoded.vectors, rtol=1e-3, atol=1e-3)
    assert found[0].mask is None
    assert torch.equal(found[1].mask, expected[1].mask)
    masks = store.read_many(store.ids)[1].mask
    assert masks[:, 3].any()
    assert not masks.all()
    for number, name in enumerate(("view.1", "mask.1")):
        flip_within(file_path(tmp_path / "store", number), name)
        store = FeatureStore(tmp_path / "store")
        with pytest.raises(DataError, match=rf"damaged: {number + 1} image"):
            store.read_many(store.ids)


def flip_within(path: Path, name: str, place: int = 0) -> None:
    """Damage one byte of a tensor."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    start = json.loads(data[8 : 8 + length])[name]["data_offsets"][0]
    flip(path, 8 + length + start + place)


# -- the key ------------------------------------------------------------------------------------------------


def test_another_encoder_or_transform_does_not_match(finished: Path):
    store = FeatureStore(finished)
    store.matches(make_encoder(), TRANSFORM.to_dict())
    for encoder, transform, message in (
        (make_encoder(seed=1), TRANSFORM, r"made with weights '\w+' instead of '\w+'\. Make another store"),
        (SmallCNN(widths=(4, 8)), TRANSFORM, r"encoder widths \[4, 6\] instead of \[4, 8\]"),
        (make_encoder(), ImageTransform(16, "crop"), "transform fit 'squash' instead of 'crop'"),
    ):
        with pytest.raises(DataError, match=message):
            store.matches(encoder, transform.to_dict())


def test_releases_match_in_all_but_the_last_number(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for release in ("7.1.0", "7.1.9", "unknown"):
        monkeypatch.setattr("caption.data.features.key.package_version", lambda release=release: release)
        extract(images[:4], tmp_path)
    monkeypatch.setattr("caption.data.features.key.package_version", lambda: "7.2.0")
    with pytest.raises(DataError, match=r"release '7\.1' instead of '7\.2'"):
        FeatureStore(tmp_path).matches(make_encoder(), TRANSFORM.to_dict())


# -- writing ------------------------------------------------------------------------------------------------


def test_other_photos_with_the_same_ids_do_not_match(images: Images, finished: Path, tmp_path: Path):
    store = FeatureStore(finished)
    paths = {image.id: image.path for image in images}
    store.check_photos(paths)
    store.check_photos(dict.fromkeys(paths, tmp_path / "gone.png"))  # training does not need them
    others = {image.id: image.path for image in make_images(tmp_path / "others", 23)}
    for path in others.values():
        path.write_bytes(path.read_bytes() + b"edited")
    with pytest.raises(DataError, match=r"was made from other photos: .*000\.png.* of 23 compared"):
        store.check_photos(others)


def test_an_id_means_one_image(images: Images, tmp_path: Path):
    extract([images[0], images[0]], tmp_path / "store")
    assert len(FeatureStore(tmp_path / "store")) == 1
    other = CaptionedImage(images[0].id, images[1].path, ("a caption",))
    with pytest.raises(DataError, match=r"000\.png' and .*001\.png'.*'image 0\.png'"):
        extract([images[0], other], tmp_path / "store")


def test_a_store_larger_than_the_disk_is_refused(
    images: Images, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    file_path(folder, 2).unlink()
    before = contents(folder)
    usage = shutil.disk_usage(folder)._replace(free=50)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    said = r"7 images of 8×8×6 numbers take 5.8 kB, but the disk .* 50 bytes left"
    with pytest.raises(UserError, match=said):
        extract(images, folder)
    assert contents(folder) == before


def test_numbers_too_large_for_half_precision_are_an_error(images: Images, tmp_path: Path):
    encoder = make_encoder()
    for parameter in encoder.parameters():
        parameter.data.abs_().mul_(1e3)
    with pytest.raises(DataError, match=r"'image 0\.png'"):
        extract(images, tmp_path / "store", encoder=encoder)
    assert contents(tmp_path / "store") == {}


def test_one_run_at_a_time(images: Images, finished: Path, capsys: pytest.CaptureFixture[str]):
    with futures.ThreadPoolExecutor(1) as beside:
        with FileLock(finished / LOCK):
            second = beside.submit(extract, images, finished)
            while not (said := capsys.readouterr().err):
                time.sleep(0.02)
            assert said == f"waiting for another process, which is writing to {finished}\n"
            assert not second.done()
        assert second.result(timeout=60).present == len(images)


# -- interrupted --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("complete", [0, 2, 3])
def test_it_continues_after_the_last_complete_file(images: Images, folder: Path, complete: int):
    whole = contents(folder)
    for number in range(complete, 3):
        file_path(folder, number).unlink()
    present = min(8 * complete, 23)
    done = extract(images, folder)
    assert (done.present, done.stored) == (present, 23 - present)
    assert contents(folder) == whole


def test_ctrl_c_keeps_encoded_images(images: Images, folder: Path, tmp_path: Path):
    encoder = make_encoder()
    calls = mock.Mock(side_effect=[*[None] * 4, KeyboardInterrupt])  # the blank image, then three batches
    encoder.register_forward_pre_hook(lambda *call: calls())
    with pytest.raises(KeyboardInterrupt):
        extract(images, tmp_path / "stopped", encoder=encoder)
    assert FeatureStore(tmp_path / "stopped").ids == [image.id for image in images[:12]]
    extract(images, tmp_path / "stopped")
    ids = [image.id for image in images]
    assert torch.equal(read(FeatureStore(tmp_path / "stopped"), *ids), read(FeatureStore(folder), *ids))


@pytest.mark.parametrize(("written", "room"), [(0, 0), (2, 5_000)])
def test_a_full_disk_spoils_nothing(images: Images, finished: Path, tmp_path: Path, written: int, room: int):
    """Real writes that fail after a number of files and bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = tmp_path / "full"

    @contextmanager
    def creating_on_a_full_disk(path: Path) -> Iterator[BinaryIO]:
        if len(contents(store)) == written:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            with creating(path) as file:
                yield file
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with (
        mock.patch("caption.data.features.format.creating", creating_on_a_full_disk),
        pytest.raises(DataError, match=r"cannot be written \(.*File too large.*\).*make room"),
    ):
        extract(images, store)
    assert len(contents(store)) == written  # and no partial file
    extract(images, store)
    assert contents(store) == contents(finished)


# -- damaged ------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_a_store(tmp_path: Path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match=r"features-\*\.safetensors"):
            FeatureStore(path)


def save_metadata(path: Path, metadata: dict[str, str] | None) -> None:
    save_file(load_file(path), path, metadata)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: save_metadata(path, None),
        lambda path: save_metadata(path, {"feature_store": '{"format": 1}'}),
        lambda path: save_metadata(path, {"feature_store": "[" * 100_000}),
        lambda path: flip_within(path, "images"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
    ],
)
def test_a_file_that_is_not_of_a_store(images: Images, folder: Path, spoil: Callable[[Path], None]):
    """The message names it, and it stays. When it has been deleted, what is missing is computed anew."""
    spoil(file_path(folder, 1))
    spoiled = contents(folder)
    for attempt in (lambda: FeatureStore(folder), lambda: extract(images, folder)):
        with pytest.raises(DataError, match=r"features-00001\.safetensors'"):
            attempt()
    assert contents(folder) == spoiled
    file_path(folder, 1).unlink()
    done = extract(images, folder)
    assert (done.present, done.stored) == (15, 8)
    store = FeatureStore(folder)
    assert sorted(store.ids, key=str) == sorted((image.id for image in images), key=str)
    read(store, *store.ids)


def rewrite(
    path: Path, index: dict[str, Any], tables: Callable[[store_format.Arrays], store_format.Arrays]
) -> None:
    """Change a file with its checksum, as a stranger may."""
    arrays = load_file(path)
    del arrays["checksum"]
    arrays = tables(arrays)
    with safetensors.safe_open(path, "np") as file:
        text = json.dumps(json.loads(file.metadata()["feature_store"]) | index)
    checksum = np.array([store_format._checksum(text, arrays)], "<u4")
    save_file({**arrays, "checksum": checksum}, path, {"feature_store": text})


def changed_table(name: str, change: Callable[[np.ndarray], np.ndarray]) -> tuple[dict[str, Any], Any]:
    return {}, lambda arrays: {**arrays, name: change(arrays.get(name, arrays["images"]))}


@pytest.mark.parametrize(
    ("index", "tables"),
    [
        *(({"ids": ids}, dict) for ids in ([[1]] * 8, [1] * 8, [None, *range(7)])),
        *(({"grids": grids}, dict) for grids in ([[float("inf"), 1]], 7, [], [[1, 2]], [[1, 1]] * 2)),
        ({"key": 3}, dict),
        changed_table("view.0", lambda view: view.astype("f4")),
        changed_table("view.0", lambda view: view[..., 0].copy()),
        changed_table("images", lambda table: table[:, :3].copy()),
        changed_table("mask.0", lambda table: table[:, :2].copy()),
        changed_table("more", lambda table: table[:, :2].copy()),
    ],
)
def test_an_index_or_tables_with_their_checksum_that_are_others(
    folder: Path, index: dict[str, Any], tables: Callable[[store_format.Arrays], store_format.Arrays]
):
    rewrite(file_path(folder, 0), index, tables)
    with pytest.raises(DataError, match=r"features-00000\.safetensors' is damaged"):
        FeatureStore(folder)


def test_files_of_two_stores_are_not_mixed(images: Images, folder: Path, tmp_path: Path):
    """Of another encoder, or with regions of another size."""
    index, smaller = changed_table("view.0", lambda view: view[..., 1:].copy())
    rewrite(file_path(folder, 0), index, smaller)
    with pytest.raises(DataError, match="different encoders"):
        FeatureStore(folder)
    extract(images[:1], tmp_path / "other", encoder=make_encoder(seed=1))
    shutil.copy(file_path(tmp_path / "other", 0), file_path(folder, 0))
    with pytest.raises(DataError, match="different encoders"):
        FeatureStore(folder)
    for number in (1, 2):
        rewrite(file_path(folder, number), index, smaller)
    file_path(folder, 0).unlink()
    with pytest.raises(DataError, match=r"regions of the sizes \[\d+\] instead of"):
        FeatureStore(folder).matches(make_encoder(), TRANSFORM.to_dict())


def test_no_flipped_byte_goes_unnoticed(images: Images, tmp_path: Path):
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


def test_damaged_regions_are_found_when_read(images: Images, folder: Path):
    store = FeatureStore(folder)
    spoil_region(folder, 13)
    read(store, images[12].id)
    with pytest.raises(DataError, match=r"13\..*features-00001\.safetensors"):
        read(store, 13)


def spoil_region(folder: Path, number: int) -> None:
    """Damage one byte of an image's regions."""
    flip_within(file_path(folder, number // 8), "view.0", number % 8 * IMAGE_BYTES + 5)
