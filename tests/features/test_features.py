"""The feature store: what is read is what the encoder computed, whatever happened while it was written."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from feature_stores import (
    IMAGE_BYTES,
    REPOSITORY,
    TRANSFORM,
    contents,
    extract,
    make_encoder,
    make_images,
    regions_of,
    sparse_store,
)
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.data.batches import Batch, CaptionedImages
from caption.data.images import ImageTransform, open_image
from caption.data.readers.captions import CaptionedImage
from caption.decoders import LSTMDecoder
from caption.encoders import Regions, SmallCNN
from caption.errors import DataError
from caption.features import files as features_files
from caption.features import journal as features_journal
from caption.features import photos as features_photos
from caption.features.files import Header, shard_path
from caption.features.index import ENTRY, Photo
from caption.features.journal import FeatureJournal, locked
from caption.features.key import feature_key
from caption.features.store import FeatureStore
from caption.objectives import Captions, CrossEntropy
from caption.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[CaptionedImage]:
    return make_images(tmp_path_factory.mktemp("images"), 23)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten images a shard, so that 23 images have three."""
    monkeypatch.setattr(features_files, "SHARD_BYTES", 10 * IMAGE_BYTES)


@pytest.fixture
def folder(images: list[CaptionedImage], tmp_path: Path) -> Path:
    """A finished store."""
    extract(images, tmp_path / "store")
    return tmp_path / "store"


def flip(path: Path, place: int) -> None:
    """Damage one byte; a negative place counts from the end."""
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


# -- reading ------------------------------------------------------------------------------------------------


def test_what_is_read_is_what_the_encoder_computes(images: list[CaptionedImage], folder: Path) -> None:
    store = FeatureStore(folder)
    assert store.grid == (8, 8)
    assert store.region_size == 6
    assert len(store) == 23
    for image in images:
        found = store.read(image.id)
        assert found.dtype == torch.float16
        assert found.shape == (64, 6)
        torch.testing.assert_close(found.float(), regions_of(image, make_encoder()), rtol=1e-3, atol=1e-3)


def test_read_many_and_ids(images: list[CaptionedImage], folder: Path) -> None:
    store = FeatureStore(folder)
    assert store.ids() == [image.id for image in images]
    chosen = [images[i].id for i in (22, 3, 3, 10)]
    found = store.read_many(chosen)
    assert found.shape == (4, 64, 6)
    assert torch.equal(found[2], store.read(3))
    assert store.read_many([]).shape == (0, 64, 6)


def test_what_is_read_is_a_copy(folder: Path) -> None:
    store = FeatureStore(folder)
    first = store.read(1)
    kept = first.clone()
    first.zero_()
    assert torch.equal(store.read(1), kept)


def test_numbers_and_names_are_different_ids(folder: Path) -> None:
    store = FeatureStore(folder)
    assert 1 in store
    assert np.int64(1) in store
    assert "1" not in store
    assert torch.equal(store.read(np.int64(1)), store.read(1))


def test_a_missing_image_is_an_error(folder: Path) -> None:
    store = FeatureStore(folder)
    with pytest.raises(DataError, match=r"1 of 1 images are not in .*'gone\.jpg'.*caption features --config"):
        store.read("gone.jpg")


def test_check_names_what_is_missing(images: list[CaptionedImage], folder: Path) -> None:
    store = FeatureStore(folder)
    store.check(image.id for image in images)
    with pytest.raises(DataError, match=r"4 of 5 images are not .* 100, 101, 102 and 1 more"):
        store.check([1, 100, 101, 102, 103])


def test_shards_are_mapped_when_first_read(folder: Path) -> None:
    store = FeatureStore(folder)
    assert not store._shards
    store.read(15)
    assert list(store._shards) == [1]


def test_pickles_as_its_path(folder: Path) -> None:
    store = FeatureStore(folder)
    store.read(1)
    pickled = pickle.dumps(store)
    assert len(pickled) < 300
    copy = pickle.loads(pickled)
    assert not copy._shards
    assert torch.equal(copy.read(1), store.read(1))


@pytest.mark.slow
def test_spawned_workers_open_it_themselves(images: list[CaptionedImage], folder: Path) -> None:
    store = FeatureStore(folder)
    words = Vocabulary.build([text for image in images for text in image.captions], min_count=1)
    dataset = CaptionedImages(images, words, TRANSFORM, store=store)
    loader = DataLoader(
        dataset, 6, collate_fn=dataset.collate, num_workers=2, multiprocessing_context="spawn"
    )
    batches = list(loader)
    assert [image_id for batch in batches for image_id in batch.ids] == [image.id for image in images]
    found = torch.cat([batch.regions.vectors for batch in batches])
    assert torch.equal(found, store.read_many([image.id for image in images]))


# -- the key ------------------------------------------------------------------------------------------------


def test_the_key_says_what_made_it(folder: Path) -> None:
    key = FeatureStore(folder).key
    assert key["encoder"]["class_path"] == "caption.encoders.SmallCNN"
    assert key["encoder"]["init_args"] == {"widths": [4, 6]}
    assert key["transform"] == {"size": 16, "fit": "squash"}
    assert len(key["weights"]) == 64
    assert "version" in key


def test_matches(folder: Path) -> None:
    FeatureStore(folder).matches(make_encoder(), TRANSFORM)


def test_other_weights_do_not_match(folder: Path) -> None:
    with pytest.raises(DataError, match=r"made with other weights in the encoder\. Make another store"):
        FeatureStore(folder).matches(make_encoder(seed=1), TRANSFORM)


def test_another_encoder_does_not_match(folder: Path) -> None:
    with pytest.raises(DataError, match=r"encoder widths \[4, 6\] instead of \[4, 8\]"):
        FeatureStore(folder).matches(SmallCNN(widths=(4, 8)), TRANSFORM)


def test_another_transform_does_not_match(folder: Path) -> None:
    with pytest.raises(DataError, match="transform fit 'squash' instead of 'crop'"):
        FeatureStore(folder).matches(make_encoder(), ImageTransform(16, "crop"))


@pytest.mark.parametrize(("other", "fits"), [("7.1.9", True), ("7.2.0", False), ("unknown", True)])
def test_releases_match_in_all_but_the_last_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch, other: str, fits: bool
) -> None:
    header = json.loads((folder / "store.json").read_text())
    header["key"]["version"] = "7.1.0"
    (folder / "store.json").write_text(json.dumps(header))
    monkeypatch.setattr("caption.features.key._version", lambda: other)
    if fits:
        FeatureStore(folder).matches(make_encoder(), TRANSFORM)
    else:
        with pytest.raises(DataError, match=r"version 7\.1\.0 of this package instead of 7\.2\.0"):
            FeatureStore(folder).matches(make_encoder(), TRANSFORM)


def test_the_path_of_the_weights_is_not_in_the_key() -> None:
    class Named(SmallCNN):
        def __init__(self, weights: str) -> None:
            super().__init__(widths=(4, 6))

    keys = []
    for path in ("here.pth", "there.pth"):
        torch.manual_seed(0)
        keys.append(feature_key(Named(path), TRANSFORM))
    assert keys[0] == keys[1]


def test_an_existing_store_is_not_continued_with_another_encoder(
    images: list[CaptionedImage], folder: Path
) -> None:
    before = contents(folder)
    with pytest.raises(DataError, match="other weights"):
        extract(images, folder, encoder=make_encoder(seed=1))
    assert contents(folder) == before


# -- writing ------------------------------------------------------------------------------------------------


def test_nothing_is_done_twice(
    images: list[CaptionedImage], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)
    opened: list[Path] = []
    monkeypatch.setattr(features_photos, "open_image", opened.append)
    done = extract(images, folder)
    assert (done.stored, done.present, done.failed, opened) == (0, 23, [], [])
    assert contents(folder) == before


def test_images_are_added(images: list[CaptionedImage], folder: Path, tmp_path: Path) -> None:
    extract(images[:12], tmp_path / "grown")
    done = extract(images, tmp_path / "grown")
    assert (done.stored, done.present) == (11, 12)
    assert contents(tmp_path / "grown") == contents(folder)


def test_undecodable_images_are_named_and_left_out(images: list[CaptionedImage], tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(b"\xff\xd8 no more than a beginning")
    broken = CaptionedImage("broken", path, ("a caption",))
    mixed = [*images[:6], broken, *images[6:]]
    done = extract(mixed, tmp_path / "store")
    assert done.stored == 23
    assert [(image.id, type(error).__name__) for image, error in done.failed] == [("broken", "ImageError")]
    store = FeatureStore(tmp_path / "store")
    assert "broken" not in store
    store.check(image.id for image in images)

    shutil.copy(images[0].path, path)
    assert extract(mixed, tmp_path / "store").stored == 1
    assert torch.equal(FeatureStore(tmp_path / "store").read("broken"), store.read(images[0].id))


def test_an_id_means_one_image(images: list[CaptionedImage], tmp_path: Path) -> None:
    extract([images[0], images[0]], tmp_path / "store")
    assert len(FeatureStore(tmp_path / "store")) == 1
    other = CaptionedImage(images[0].id, images[1].path, ("a caption",))
    with pytest.raises(DataError, match=r"000\.png' and .*001\.png' have the same id 'image 0\.png'"):
        extract([images[0], other], tmp_path / "store")


def test_it_refuses_what_the_disk_cannot_hold(
    images: list[CaptionedImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=5000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        DataError, match=r"23 images of 8×8×6 numbers take 19.5 kB, but the disk .* 5 kB left"
    ):
        extract(images, tmp_path / "store")
    assert not (tmp_path / "store" / "store.json").exists()


def test_size_and_progress_go_to_stderr(
    images: list[CaptionedImage], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extract(images, tmp_path / "store", progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert "23 images of 8×8×6 numbers take 19.5 kB" in said.err


def test_numbers_too_large_for_half_precision_are_an_error(
    images: list[CaptionedImage], tmp_path: Path
) -> None:
    encoder = make_encoder()
    for parameter in encoder.parameters():
        parameter.data.abs_().mul_(1e3)
    with pytest.raises(DataError, match=r"image 'image 0\.png' are not finite numbers, or too large"):
        extract(images, tmp_path / "store", encoder=encoder)
    assert len(FeatureStore(tmp_path / "store")) == 0


def test_one_run_at_a_time(images: list[CaptionedImage], folder: Path) -> None:
    with locked(folder), pytest.raises(DataError, match="another run is adding"):
        extract(images, folder)
    extract(images, folder)


def test_a_folder_that_cannot_be_made(images: list[CaptionedImage], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be made into a folder"):
        extract(images, tmp_path / "file")


class Watched(SmallCNN):
    """An encoder that has something done before each batch."""

    def __init__(self, before: Callable[[Tensor], None]) -> None:
        super().__init__(widths=(4, 6))
        self.before = before

    @property
    def spec(self) -> dict[str, Any]:
        return make_encoder().spec

    def features(self, images: Tensor) -> Tensor:
        self.before(images)
        return super().features(images)


def watched(before: Callable[[Tensor], None]) -> Watched:
    encoder = Watched(before)
    encoder.load_state_dict(make_encoder().state_dict())
    encoder.freeze()
    return encoder


def test_batches_are_always_full(images: list[CaptionedImage], tmp_path: Path) -> None:
    sizes: list[int] = []
    extract(images, tmp_path / "store", encoder=watched(lambda batch: sizes.append(len(batch))))
    assert sizes[1:] == [4] * 6  # the first is the blank image that measures the grid


def test_decoding_overlaps_encoding(
    images: list[CaptionedImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = threading.Semaphore(0)

    def counted(path: Path) -> Image.Image:
        image = open_image(path)
        decoded.release()
        return image

    calls = 0

    def wait_for_the_next_batch(batch: Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:  # after the blank image
            wanted = 8 if calls == 2 else min(4, len(images) - 4 * (calls - 1))
            assert all(decoded.acquire(timeout=60) for _ in range(wanted))

    monkeypatch.setattr(features_photos, "open_image", counted)
    # Were a batch decoded only when the last one has been encoded, this would wait in vain.
    extract(images, tmp_path / "store", encoder=watched(wait_for_the_next_batch))
    assert calls == 7


def test_the_encoder_can_learn_afterwards(images: list[CaptionedImage], tmp_path: Path) -> None:
    encoder = make_encoder()
    encoder.freeze(False)
    encoder.train()
    statistics = {name: value.clone() for name, value in encoder.named_buffers()}
    extract(images, tmp_path / "store", encoder=encoder)
    assert encoder.training
    assert all(torch.equal(value, statistics[name]) for name, value in encoder.named_buffers())
    encoder(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)).vectors.sum().backward()


# -- interrupted --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [0, 1, 9, 10, 11, 20, 22])
@pytest.mark.parametrize("torn", [0, 13])
def test_it_resumes_from_whatever_a_kill_left(
    images: list[CaptionedImage], folder: Path, entries: int, torn: int
) -> None:
    """Entries are what counts; behind them there may be anything."""
    whole = contents(folder)
    index = whole["index.bin"][: entries * ENTRY.itemsize + torn]
    (folder / "index.bin").write_bytes(index)
    with open(folder / "ids.txt", "r+b") as file:  # part of the next line
        file.truncate(len(b"".join(whole["ids.txt"].splitlines(True)[:entries])) + torn)
    rest = folder / f"shard-{entries // 10:05d}.f16"
    rest.write_bytes(rest.read_bytes()[: entries % 10 * IMAGE_BYTES] + b"garbage" * torn)
    assert len(FeatureStore(folder)) == entries
    done = extract(images, folder)
    assert (done.present, done.stored) == (entries, 23 - entries)
    assert contents(folder) == whole


def test_a_last_shard_that_cannot_be_opened(
    images: list[CaptionedImage], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = features_journal._opened

    def refused(path: Path) -> FileIO:
        if path.name == "shard-00002.f16":
            raise OSError(28, "No space left on device")
        return opened(path)

    monkeypatch.setattr(features_journal, "_opened", refused)
    with pytest.raises(DataError, match="No space left on device"):
        extract(images, tmp_path / "refused")
    monkeypatch.setattr(features_journal, "_opened", opened)
    assert len(FeatureStore(tmp_path / "refused")) == 20
    extract(images, tmp_path / "refused")
    assert contents(tmp_path / "refused") == contents(folder)


def test_a_full_shard_has_no_empty_one_behind_it(images: list[CaptionedImage], tmp_path: Path) -> None:
    for _ in range(2):
        extract(images[:10], tmp_path / "store")
        assert sorted(path.name for path in (tmp_path / "store").glob("shard*")) == ["shard-00000.f16"]


def test_zeros_that_a_power_cut_left_are_no_entries(images: list[CaptionedImage], folder: Path) -> None:
    whole = contents(folder)
    (folder / "index.bin").write_bytes(whole["index.bin"][: 15 * ENTRY.itemsize] + bytes(8 * ENTRY.itemsize))
    assert len(FeatureStore(folder)) == 15
    extract(images, folder)
    assert contents(folder) == whole


def test_ctrl_c_keeps_what_was_encoded(images: list[CaptionedImage], folder: Path, tmp_path: Path) -> None:
    calls = 0

    def interrupt(batch: Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:  # the blank image, then three batches
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(images, tmp_path / "stopped", encoder=watched(interrupt))
    assert FeatureStore(tmp_path / "stopped").ids() == [image.id for image in images[:12]]
    extract(images, tmp_path / "stopped")
    assert contents(tmp_path / "stopped") == contents(folder)


@pytest.mark.parametrize("room", [0, 5_000, 13_000, 17_800, 18_000])
def test_a_full_disk_spoils_nothing(
    images: list[CaptionedImage], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    left = room

    class Full(FileIO):
        def write(self, data: Any) -> int:
            nonlocal left
            if left == 0 and len(data):
                raise OSError(28, "No space left on device")
            written = super().write(data[: left or None])
            left -= written
            return written

    monkeypatch.setattr(features_journal, "FileIO", Full)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\).*make room"):
        extract(images, tmp_path / "full")
    monkeypatch.undo()
    FeatureStore(tmp_path / "full").verify()
    monkeypatch.setattr(features_files, "SHARD_BYTES", 10 * IMAGE_BYTES)
    extract(images, tmp_path / "full")
    assert contents(tmp_path / "full") == contents(folder)


KILLED = """
import sys, time
from pathlib import Path
import torch
from caption.data import features_files, features_journal
from caption.data.readers.captions import CaptionedImage
from caption.features.writer import write_features
from caption.data.images import ImageTransform
from caption.encoders import SmallCNN

folder, store, pause = sys.argv[1:]
features_files.SHARD_BYTES = 10 * 768
features_journal.COMMIT_SECONDS = 0.0


class Slow(SmallCNN):
    def features(self, images):
        time.sleep(float(pause))
        return super().features(images)


torch.manual_seed(0)
encoder = Slow(widths=(4, 6))
encoder.freeze()
images = [CaptionedImage(path.name, path, ("a caption",)) for path in sorted(Path(folder).glob("*.png"))]
done = write_features(encoder, ImageTransform(16, "squash"), images, store, batch_size=2, progress=False)
print(done.stored, done.present)
"""


def in_a_process(images: Path, store: Path, pause: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", KILLED, str(images), str(store), str(pause)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


def entries_in(store: Path) -> int:
    index = store / "index.bin"
    return index.stat().st_size // ENTRY.itemsize if index.exists() else 0


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path) -> None:
    """Real kills of real processes; in the end every byte is as if nothing had happened."""
    make_images(tmp_path / "images", 60)
    whole = in_a_process(tmp_path / "images", tmp_path / "whole", 0)
    assert whole.communicate()[0].split() == ["60", "0"], whole.communicate()[1]

    store = tmp_path / "killed"
    survived = [0]
    for further in (7, 12):
        goal = survived[-1] + further
        process = in_a_process(tmp_path / "images", store, 0.3)
        deadline = time.monotonic() + 120
        while entries_in(store) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        survived.append(len(FeatureStore(store)))
        FeatureStore(store).verify()
        assert goal <= survived[-1] < 60

    last = in_a_process(tmp_path / "images", store, 0)
    assert last.communicate()[0].split() == [str(60 - survived[-1]), str(survived[-1])]
    assert contents(store) == contents(tmp_path / "whole")


# -- damaged ------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match=r"is no feature store: it has no store\.json"):
            FeatureStore(path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 1}', '{"format": 99}', '"format"'])
def test_a_damaged_header(folder: Path, text: str) -> None:
    (folder / "store.json").write_text(text)
    with pytest.raises(DataError, match="Delete the folder"):
        FeatureStore(folder)


def test_a_lost_index(folder: Path) -> None:
    (folder / "index.bin").unlink()
    with pytest.raises(DataError, match=r"damaged: it has no index\.bin.*Delete the folder"):
        FeatureStore(folder)


def test_shards_without_a_header_are_not_overwritten(images: list[CaptionedImage], folder: Path) -> None:
    (folder / "store.json").unlink()
    with pytest.raises(DataError, match="holds shards of features, but no"):
        extract(images, folder)


def test_damaged_regions_are_found_when_read(images: list[CaptionedImage], folder: Path) -> None:
    store = FeatureStore(folder)
    flip(shard_path(folder, 1), 3 * IMAGE_BYTES + 5)  # of the 14th image
    store.read(images[12].id)
    with pytest.raises(DataError, match=r"1 images are not as they were written: 13\. Run .* --verify"):
        store.read(13)
    with pytest.raises(DataError, match=r"1 images are not as they were written: 13\. Run .* --verify"):
        store.verify()


def spoil_regions(folder: Path) -> None:
    flip(shard_path(folder, 0), 0)
    flip(shard_path(folder, 2), -1)


def spoil_entries(folder: Path) -> None:
    flip(folder / "index.bin", 5 * ENTRY.itemsize + 3)


def spoil_ids(folder: Path) -> None:
    flip(folder / "ids.txt", 4)


def cut_ids(folder: Path) -> None:
    (folder / "ids.txt").write_bytes((folder / "ids.txt").read_bytes()[:-20])


def lose_ids(folder: Path) -> None:
    (folder / "ids.txt").unlink()


def cut_shard(folder: Path) -> None:
    shard_path(folder, 1).write_bytes(shard_path(folder, 1).read_bytes()[: 2 * IMAGE_BYTES + 7])


def lose_shard(folder: Path) -> None:
    shard_path(folder, 0).unlink()


def lose_last_shard(folder: Path) -> None:
    shard_path(folder, 2).unlink()


@pytest.mark.parametrize("spoil", [spoil_entries, cut_ids, lose_ids, cut_shard, lose_shard, lose_last_shard])
def test_damage_seen_at_opening(
    images: list[CaptionedImage], folder: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(folder)
    with pytest.raises(DataError, match=r"feature store .* is damaged: .*--verify"):
        FeatureStore(folder)
    with pytest.raises(DataError, match=r"feature store .* is damaged: .*--verify"):
        extract(images, folder)


@pytest.mark.parametrize(
    ("spoil", "lost"),
    [
        (spoil_regions, 2),
        (spoil_entries, 1),
        (spoil_ids, 1),
        (cut_ids, 3),
        (lose_ids, 23),
        (cut_shard, 8),
        (lose_shard, 10),
        (lose_last_shard, 3),
    ],
)
def test_verifying_extracts_damaged_images_anew(
    images: list[CaptionedImage], folder: Path, spoil: Callable[[Path], None], lost: int
) -> None:
    before = FeatureStore(folder).read_many([image.id for image in images])
    spoil(folder)
    done = extract(images, folder, verify=True)
    assert (done.stored, done.present) == (lost, 23 - lost)
    store = FeatureStore(folder)
    store.verify()
    # In other company, within a batch, an image's last bits may differ.
    after = store.read_many([image.id for image in images])
    torch.testing.assert_close(after.float(), before.float(), rtol=1e-3, atol=1e-3)
    assert sorted(store.ids(), key=str) == sorted((image.id for image in images), key=str)


def test_verifying_changes_nothing_in_a_sound_store(images: list[CaptionedImage], folder: Path) -> None:
    before = contents(folder)
    assert extract(images, folder, verify=True).dropped == 0
    assert contents(folder) == before


# -- size and speed -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store that says it has a million images of 7×7×1280 numbers, with holes for regions."""
    folder = tmp_path_factory.mktemp("million")
    try:
        sparse_store(folder, 1_000_000)
    except OSError as error:
        pytest.skip(f"this file system has no sparse files of that size: {error}")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_million_images_open_within_a_second(
    million: Path, record_property: Callable[[str, object], None]
) -> None:
    seconds = []
    for _ in range(3):
        start = time.process_time()  # by the clock it depends on what else the machine does
        store = FeatureStore(million)
        seconds.append(time.process_time() - start)
    record_property("seconds_to_open_a_million", min(seconds))
    print(f"opening a million images: {min(seconds):.3f} s of processor time")
    assert min(seconds) < 1
    assert len(store) == 1_000_000
    assert 999_999 in store
    assert 1_000_000 not in store
    start = time.perf_counter()
    store.check(range(0, 1_000_000, 10))
    print(f"checking 100,000 ids: {time.perf_counter() - start:.2f} s")


@pytest.mark.slow
def test_random_reading(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Recorded, and asserted only to be far above what training can use."""
    header = Header({}, (7, 7), 1280, 2139)
    regions = np.random.default_rng(0).standard_normal((64, *header.shape)).astype(np.float16)
    with FeatureJournal(tmp_path, header) as journal:
        for start in range(0, 2048, 64):
            journal.add(range(start, start + 64), [Photo(224, 224, 1)] * 64, regions)
    order = np.random.default_rng(1).permutation(2048).tolist()
    store = FeatureStore(tmp_path)
    for name in ("first", "again"):  # the first time, checksums are compared
        begin = time.perf_counter()
        for start in range(0, 2048, 64):
            store.read_many(order[start : start + 64])
        rate = 2048 / (time.perf_counter() - begin)
        record_property(f"images_per_second_{name}", rate)
        print(f"reading at random, {name}: {rate:,.0f} images/s")
    assert rate > 500


def test_no_lightning_and_no_matplotlib() -> None:
    code = (
        "import sys, caption.features.writer; print({'pytorch_lightning', 'matplotlib'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert found.stdout.strip() == "set()", found.stderr


# -- training -----------------------------------------------------------------------------------------------


def losses(captioner: Captioner, batch: Batch, regions: Regions) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient in the attention's first weight."""
    captioner.zero_grad()
    captions = Captions(batch.inputs, batch.targets, batch.lengths)
    loss = CrossEntropy()(captioner.decoder, captioner.project(regions), captions).value
    loss.backward()
    gradient = next(value for name, value in captioner.named_parameters() if "attention" in name).grad
    assert gradient is not None
    return loss.detach(), gradient.clone()


def test_training_from_the_store_and_from_images_gives_the_same_losses(
    images: list[CaptionedImage], folder: Path
) -> None:
    words = Vocabulary.build([text for image in images for text in image.captions], min_count=1)
    encoder = make_encoder()
    attention = ScoredAttention(AdditiveScore(size=8), Softmax())
    captioner = Captioner(
        encoder, LSTMDecoder(attention, embedding_size=8, hidden_size=8), words, TRANSFORM
    ).eval()
    from_images = CaptionedImages(images, words, TRANSFORM)
    from_store = CaptionedImages(images, words, TRANSFORM, store=FeatureStore(folder))
    for start in range(0, 20, 4):
        chosen = range(start, start + 4)
        batch = from_images.collate([from_images[i] for i in chosen])
        stored = from_store.collate([from_store[i] for i in chosen])
        assert stored.images is None
        assert stored.regions is not None
        encoded = encoder(batch.images)
        assert stored.regions.grid == encoded.grid
        regions = stored.regions._replace(vectors=stored.regions.vectors.float())
        loss, gradient = losses(captioner, stored, regions)
        # With the encoder's numbers rounded to half precision and laid out as they are stored (sums depend on the
        # order in memory), all is equal to the last bit;
        rounded = encoded._replace(vectors=encoded.vectors.half().float().contiguous())
        exact = losses(captioner, batch, rounded)
        assert torch.equal(loss, exact[0])
        assert torch.equal(gradient, exact[1])
        # without the rounding, it is as near as half precision is.
        near = losses(captioner, batch, encoded)
        torch.testing.assert_close(loss, near[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(gradient, near[1], rtol=1e-2, atol=1e-4)
