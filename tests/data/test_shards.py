"""Training from WebDataset shards: each sample once an epoch, damage skipped, a restart inside an epoch."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from PIL import Image

pytest.importorskip("webdataset")

from caption.core.errors import DataError, UserError
from caption.data.module import CaptionData
from caption.data.photos import ImageTransform
from caption.data.readers import JsonLines
from caption.data.shards import ShardBatches, ShardIndex, ShardLoader, TrainingShards, loader
from caption.data.shards.writing import write_shards
from caption.data.splits import CaptionedImage

TRAINING, PER_SHARD = 23, 5


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 23 training and 3 validation images, some with several captions."""
    folder = tmp_path_factory.mktemp("source")
    lines = []
    for number in range(TRAINING + 3):
        Image.new("RGB", (48, 48), (number * 9, 255 - number * 9, 0)).save(folder / f"{number}.png")
        captions = [f"a {('red', 'green', 'blue')[k]} square {number % 4}" for k in range(1 + number % 3)]
        split = "train" if number < TRAINING else "val"
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions, "split": split}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture
def shards(source: Path, tmp_path: Path) -> Path:
    write_shards(JsonLines(str(source / "captions.jsonl")).read(), tmp_path / "shards", PER_SHARD)
    return tmp_path / "shards"


def evaluation(shards: Path) -> JsonLines:
    return JsonLines(str(shards / "evaluation.jsonl"), str(shards / "evaluation"))


def make_batches(folder: Path | str, **options: Any) -> ShardBatches:
    index = ShardIndex.read(str(folder))
    buffer, max_damaged = options.pop("shuffle_buffer", 4), options.pop("max_damaged", 0.0)
    source = TrainingShards(str(folder), buffer, max_damaged)
    usual = {"captions_per_image": None, "max_words": None, "batch_size": 4, "seed": 0}
    options = {**usual, "processes": 1, "rank": 0, "workers": 1, **options}
    return ShardBatches(index, source, index.vocabulary(1, "ptb"), ImageTransform(48, "squash"), **options)


def names(batches: Any) -> list[int | str]:
    return [name for batch in batches for name in batch.ids]


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, without its lock and its list of files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".caption")
    }


# -- an epoch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("processes", "workers"), [(1, 3), (3, 2), (2, 4), (23, 1)])
def test_each_sample_comes_once_and_all_processes_make_the_same_number_of_steps(
    shards: Path, monkeypatch: pytest.MonkeyPatch, processes: int, workers: int
):
    seen: Counter[int | str] = Counter()
    for rank in range(processes):
        batches = make_batches(shards, processes=processes, workers=workers, rank=rank, batch_size=2)
        for worker in range(workers):
            monkeypatch.setattr(loader, "get_worker_info", lambda worker=worker: SimpleNamespace(id=worker))
            found = [batch for batch, _ in batches]
            assert len(found) == batches.batches_per_worker
            assert all(1 <= len(batch.ids) <= 2 for batch in found)
            seen.update(names(found))
    assert seen == Counter(f"{number}.png" for number in range(TRAINING))


def test_order_and_drawn_captions_are_others_in_each_epoch_and_the_same_again(shards: Path):
    made = ShardLoader(make_batches(shards, captions_per_image=1, batch_size=TRAINING))
    orders, drawn = [], []
    for epoch in (0, 1, 2, 3, 0):
        made.set_epoch(epoch)
        (batch,) = made
        assert batch.captions.lengths.shape == (TRAINING, 1)
        orders.append(batch.ids)
        drawn.append(dict(zip(batch.ids, batch.captions.targets[:, 0, 1].tolist(), strict=True))["2.png"])
    assert (orders[-1], drawn[-1]) == (orders[0], drawn[0])
    assert orders[1] != orders[0]
    assert sorted(map(str, orders[1])) == sorted(map(str, orders[0]))
    assert len(set(drawn)) > 1
    by_shard = [names(ShardLoader(make_batches(shards, shuffle_buffer=1, epoch=epoch))) for epoch in range(3)]
    assert not by_shard[0] == by_shard[1] == by_shard[2]


def test_a_batch_has_the_captions_and_pixels_of_its_images(shards: Path, source: Path):
    data = CaptionData(JsonLines(str(source / "captions.jsonl")), min_count=1)
    expected = {image.id: image.captions for image in data.splits["train"]}
    batch = next(iter(ShardLoader(make_batches(shards))))
    assert batch.references == [expected[name] for name in batch.ids]
    for name, pixels, targets, lengths in zip(
        batch.ids, batch.images, batch.captions.targets, batch.captions.lengths, strict=True
    ):
        number = int(str(name).removesuffix(".png"))
        assert pixels[:, 0, 0].tolist() == [number * 9, 255 - number * 9, 0]
        words = [" ".join(data.vocabulary.decode(ids)) for ids in targets[lengths > 0]]
        assert words == list(expected[name])


@pytest.mark.parametrize(("given", "workers"), [(0, 0), (1, 0), (6, 0), (3, 2)])
def test_a_restart_goes_on_behind_the_batches_that_were_given(shards: Path, given: int, workers: int):
    whole, stopped, again = (
        ShardLoader(make_batches(shards, workers=max(workers, 1), captions_per_image=1), num_workers=workers)
        for _ in range(3)
    )
    for each in (whole, stopped):
        each.set_epoch(3)
    every, running = list(whole), iter(stopped)
    for _ in range(given):
        next(running)
    again.load_state_dict(stopped.state_dict())
    again.set_epoch(3)
    rest = list(again)
    assert len(rest) == len(every) - given
    for mine, theirs in zip(rest, every[given:], strict=True):
        assert mine.ids == theirs.ids
        assert mine.captions.targets.equal(theirs.captions.targets)
    again.set_epoch(4)
    assert len(list(again)) == len(every)


def test_a_restart_with_other_workers_is_refused(shards: Path):
    stopped, again = (ShardLoader(make_batches(shards, workers=workers)) for workers in (1, 2))
    next(iter(stopped))
    again.load_state_dict(stopped.state_dict())
    with pytest.raises(UserError, match=r"among 1 process with data.workers 1, now .* data.workers 2"):
        next(iter(again))


# -- damage ----------------------------------------------------------------------------------------------------


def some_shard(folder: Path, number: int = 1) -> Path:
    return min(folder.glob(f"train-{number:06d}-*.tar"))


def flip(path: Path, marker: bytes, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(marker) + offset] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


DAMAGE = {
    "an image": (lambda path: flip(path, b"IDAT", 6), 1, "not those that were written"),
    "a description": (lambda path: flip(path, b'"captions"', 2), 1, "has no valid id, captions"),
    "the end cut off": (lambda path: os.truncate(path, 2100), PER_SHARD - 1, "unexpected end|ends before"),
    "no shard": (lambda path: path.unlink(), PER_SHARD, "does not exist"),
    "not a tar file": (
        lambda path: path.write_bytes(b"<html>404</html>" * 99),
        PER_SHARD,
        "opened|end|header",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_samples_are_named_counted_and_skipped(shards: Path, name: str):
    damage, lost, reason = DAMAGE[name]
    path = some_shard(shards)
    damage(path)
    made = ShardLoader(make_batches(shards, max_damaged=0.5))
    with pytest.warns(UserWarning, match="damaged") as warned:
        found = names(made)
    assert len(set(found)) == TRAINING - lost
    messages = [str(warning.message) for warning in warned]
    assert len(messages) == lost + 1
    assert all(path.name in message for message in messages[:-1])
    assert f"{lost} of {TRAINING} training samples were damaged" in messages[-1]
    with (
        pytest.raises(DataError, match=rf"{path.name}.*({reason})"),
        pytest.warns(UserWarning, match="damaged"),
    ):
        list(ShardLoader(make_batches(shards)))


def test_a_worker_says_the_same_of_damage(shards: Path):
    some_shard(shards).write_bytes(b"x")
    for workers in (0, 1):
        with pytest.warns(UserWarning, match="damaged"), pytest.raises(DataError, match=r"\A.*max_dam.*\Z"):
            list(ShardLoader(make_batches(shards, max_damaged=0.1), num_workers=workers))


def test_the_number_of_steps_does_not_change_with_damage(shards: Path):
    """Other processes wait for each step."""
    made = ShardLoader(make_batches(shards, max_damaged=1.0, batch_size=1))
    some_shard(shards).unlink()
    with pytest.warns(UserWarning, match="damaged"):
        assert len(list(made)) == len(made)
    for path in shards.glob("*.tar"):
        path.unlink()
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(DataError, match="caption shards"):
        next(iter(made))


def test_wrong_requests_are_refused(source: Path, shards: Path, tmp_path: Path):
    with pytest.raises(DataError, match="too few for 24 processes"):
        ShardLoader(make_batches(shards, processes=24))
    with pytest.raises(DataError, match=r"shards\.json.*caption shards"):
        ShardIndex.read(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="whitespace"):
        ShardIndex.read(str(shards)).vocabulary(1, "whitespace")
    with pytest.raises(DataError, match="max_damaged"):
        TrainingShards("x", max_damaged=2)
    with pytest.raises(DataError, match=r"leave out data\.features"):
        CaptionData(evaluation(shards), batching="lengths", shards=TrainingShards(str(shards)))
    with pytest.raises(DataError, match="no training split"):
        write_shards({"val": []}, tmp_path / "none")
    with pytest.raises(DataError, match=r"training images alone.*fractions"):
        write_shards({"train": JsonLines(str(source / "captions.jsonl")).read()["train"]}, tmp_path / "none")


def test_only_images_are_published(source: Path, tmp_path: Path):
    """Whoever wrote the captions, or linked a file into the folder of the images, decides what is copied."""
    splits = JsonLines(str(source / "captions.jsonl")).read()
    key = tmp_path / "0.png"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    for split in splits:
        changed = {**splits, split: [replace(splits[split][0], path=key), *splits[split][1:]]}
        with pytest.raises(DataError, match=f"'{key}' is not an image"):
            write_shards(changed, tmp_path / split, PER_SHARD)
        assert not any(b"PRIVATE" in content for content in contents(tmp_path / split).values())


# -- writing and reading ---------------------------------------------------------------------------------------


HOSTILE_NAMES = [
    *("pipe:touch {canary}", "x.tar; touch {canary} #", "$(touch {canary})", "../other.tar", "/etc/passwd"),
    *("-", "a/b.tar", "s3://bucket/x.tar", "", "a\nb", "é.tar"),
]


@pytest.mark.parametrize("url", ["{}", "pipe:cat {}/shards.json"])
def test_the_name_of_a_shard_is_a_name_and_nothing_else(url: str, shards: Path, tmp_path: Path):
    canary = tmp_path / "canary"
    index = json.loads((shards / "shards.json").read_text())
    for name in HOSTILE_NAMES:
        index["shards"][0]["name"] = name.format(canary=canary)
        (shards / "shards.json").write_text(json.dumps(index))
        with pytest.raises(DataError, match=r"shards\.json.*is not the name of a shard"):
            list(ShardLoader(make_batches(url.format(shards), max_damaged=1.0)))
    assert not canary.exists()


def test_numbers_are_those_that_an_index_can_have(shards: Path):
    path = shards / "shards.json"
    index = json.loads(path.read_text())
    (first, *others), words = index["shards"], {"red": 1}
    samples = [{"shards": [first | {"samples": n}, *others]} for n in (-15, 0, 10**10, True, 2.5, "5", None)]
    for change in (*samples, *({"words": words | {"red": count}} for count in ("5", 1.5, None, [1]))):
        path.write_text(json.dumps(index | change))
        with pytest.raises(DataError, match=r"shards\.json.*(samples|counts of words)"):
            ShardIndex.read(str(shards))


def test_a_shard_that_would_unpack_to_any_size_is_damaged(shards: Path, tmp_path: Path):
    whole, sparse = some_shard(shards, 0), some_shard(shards)
    whole.write_bytes(gzip.compress(whole.read_bytes()))
    header = tarfile.TarInfo("000001000000.png")
    keys = {"major": "1", "minor": "0", "realsize": str(10**12)}
    header.pax_headers = {f"GNU.sparse.{key}": value for key, value in keys.items()}
    header.size = 512
    with tarfile.open(sparse, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(header, io.BytesIO(b"1\n0\n1\n".ljust(512, b"\0")))
    with pytest.warns(UserWarning, match="damaged") as warned:
        list(ShardLoader(make_batches(shards, max_damaged=1.0, batch_size=20)))
    told = "\n".join(str(warning.message) for warning in warned)
    assert f"{sparse.name}, sample 0: '000001000000.png' is a sparse file" in told
    assert f"{whole.name}, sample 0: " in told


def test_the_shards_have_the_vocabulary_and_the_other_splits_of_the_data(shards: Path, source: Path):
    original = CaptionData(JsonLines(str(source / "captions.jsonl")), min_count=2)
    data = CaptionData(evaluation(shards), min_count=2, shards=TrainingShards(str(shards)))
    assert data.vocabulary == original.vocabulary
    assert set(data.splits) == {"val"}
    for mine, theirs in zip(data.splits["val"], original.splits["val"], strict=True):
        assert (mine.id, mine.captions) == (theirs.id, theirs.captions)
        assert mine.path.read_bytes() == theirs.path.read_bytes()


def test_a_stopped_writer_goes_on_with_the_shards_that_are_whole(source: Path, shards: Path):
    splits = JsonLines(str(source / "captions.jsonl")).read()
    before = contents(shards)
    time = some_shard(shards, 0).stat().st_mtime_ns
    some_shard(shards).unlink()
    (shards / "shards.json").unlink()
    write_shards(splits, shards, PER_SHARD)
    assert contents(shards) == before
    assert some_shard(shards, 0).stat().st_mtime_ns == time


def test_changed_photos_replace_copies_of_equal_size(tmp_path: Path):
    images = []
    for number in range(4):
        path = tmp_path / f"{number}.bmp"
        Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(path)
        images.append(CaptionedImage(path.name, path, ("a square",)))
    for first in (1, 2):
        write_shards({"train": images[:1], "val": images[first : first + 2]}, tmp_path / "shards")
        for image in evaluation(tmp_path / "shards").read()["val"]:
            assert image.path.read_bytes() == (tmp_path / str(image.id)).read_bytes()


def test_other_captions_make_other_shards_which_are_read_through_urls_too(source: Path, shards: Path):
    splits = JsonLines(str(source / "captions.jsonl")).read()
    splits["train"] = [replace(image, captions=("new",)) for image in splits["train"]]
    index = write_shards(splits, shards, PER_SHARD)
    assert dict(index.words) == {"new": TRAINING}
    for url in (shards, f"file:{shards}/shards.json", f"pipe:cat {shards}/shards.json"):
        batch = next(iter(ShardLoader(make_batches(url, batch_size=TRAINING))))
        assert batch.references == [("new",)] * TRAINING


@pytest.mark.nightly
def test_the_command_prints_the_section_that_trains(source: Path, tiny: Path, tmp_path: Path, cli: Any):
    config = yaml.safe_load(tiny.read_text())
    arguments = {"captions": str(source / "captions.jsonl")}
    config["data"]["reader"] = {"class_path": "caption.data.readers.JsonLines", "init_args": arguments}
    config["data"]["features"] = "runs/features"  # of the files, which shards do not use
    tiny.write_text(yaml.safe_dump(config))
    ran = cli("shards", "-c", tiny, "--out", tmp_path / "made", "--samples", 6)
    assert ran.code == 0, ran.err
    assert f"{TRAINING} samples in 4 shards" in ran.err
    config["data"] |= yaml.safe_load(ran.out)["data"]
    config["trainer"] |= {"max_epochs": 1, "logger": False}
    tiny.write_text(yaml.safe_dump(config))
    trained = cli("fit", "-c", tiny)
    assert trained.code == 0, trained.err
    assert (tmp_path / "run" / "best.ckpt").exists()
    some = some_shard(tmp_path / "made")
    os.truncate(some, 3000)
    failed = cli("fit", "-c", tiny, "--trainer.default_root_dir", tmp_path / "second")
    assert failed.code == 2
    assert some.name in failed.err
    assert "Traceback" not in failed.err
