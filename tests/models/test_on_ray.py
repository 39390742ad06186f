"""Captioning on Ray: pieces that a restart continues, the captions of `caption describe`, and a killed actor."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.tiny_captioner import photo

pytest.importorskip("pyarrow")

from caption.core.errors import ImageError, UserError
from caption.core.runtime import on_ray
from caption.models.on_ray import (
    Actor,
    Job,
    Piece,
    Progress,
    RemotePhoto,
    caption_photos,
    list_photos,
    prepare,
)

PHOTOS, PER_PIECE = 23, 4
MARK = "CAPTION_RAY_TESTS"
"""An environment variable by which the processes of these tests are known."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Photos in a folder and a subfolder; the fourth is damaged."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "sub").mkdir()
    paths = [folder / ("sub" if number % 2 else "") / f"{number:02d}.png" for number in range(PHOTOS)]
    for number, path in enumerate(paths):
        photo(seed=number).save(path)
    paths[3].write_bytes(b"broken")
    (folder / "notes.txt").touch()
    return sorted(map(str, paths))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two processors on this machine."""
    ray = pytest.importorskip("ray")
    os.environ[MARK] = "tests"
    ray.init(
        num_cpus=2,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
    )
    yield
    ray.shutdown()
    del os.environ[MARK]


def running_actors() -> Iterator[int]:
    """Process ids of the captioners that these tests have started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:  # it has just ended, or is another user's
            continue
        if title.startswith(b"ray::Actor") and f"{MARK}={os.environ[MARK]}".encode() in environment:
            yield int(folder.name)


def entries(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("captions-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def run_all(photos: list[str], job: Job, **options: Any) -> tuple[int, int, int]:
    """Numbers of photos, of those that failed, and of pieces."""
    done = list(caption_photos(photos, job, per_piece=PER_PIECE, **options))
    failed, pieces = sum(each.failed for each in done), sum(each.pieces for each in done)
    return sum(each.photos for each in done), failed, pieces


@pytest.mark.nightly
def test_two_actors_write_what_the_plain_command_prints(
    cluster: None, photos: list[str], model: Path, tmp_path: Path, cli: Any
):
    assert run_all(photos, Job(str(model), str(tmp_path / "out")), actors=2) == (PHOTOS, 1, 6)
    plain = cli("describe", *photos, "--model", model, "--format", "jsonl")
    expected = {entry["image"]: entry for entry in map(json.loads, plain.out.splitlines())}
    found = entries(tmp_path / "out")
    assert [entry["image"] for entry in found] == photos
    for entry in found:
        if "error" in entry:
            assert "03.png" in entry["error"]
        else:
            assert entry["words"] == expected[entry["image"]]["words"]
            assert entry["log_prob"] == pytest.approx(expected[entry["image"]]["log_prob"], abs=1e-4)


@pytest.mark.nightly
def test_a_killed_actor_loses_nothing_and_a_restart_does_only_what_is_missing(
    cluster: None, photos: list[str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = Job(str(model), str(tmp_path))
    stream = caption_photos(photos, job, actors=1, per_piece=PER_PIECE)
    done = [next(stream), next(stream)]
    for process in running_actors():
        os.kill(process, signal.SIGKILL)
    done += stream
    assert sum(each.photos for each in done) == PHOTOS
    assert [entry["image"] for entry in entries(tmp_path)] == photos
    kept = tmp_path / "captions-000000.jsonl"
    time = kept.stat().st_mtime_ns
    (tmp_path / "captions-000002.jsonl").unlink()
    again = list(caption_photos(photos, job, per_piece=PER_PIECE))
    assert [each.photos for each in again] == [PHOTOS - PER_PIECE, PER_PIECE]
    assert [entry["image"] for entry in entries(tmp_path)] == photos
    assert kept.stat().st_mtime_ns == time


@pytest.mark.nightly
def test_a_piece_that_kills_its_actors_is_named_and_the_others_are_not_lost(
    cluster: None, photos: list[str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deadly, tries = photos[2 * PER_PIECE + 1], tmp_path / "tries"
    job = Job(str(model), str(tmp_path / "out"))

    class Mortal(Actor):
        """A local class, which Ray sends to other processes by value."""

        def caption(self, piece: Piece) -> Progress:
            if deadly in piece.photos:
                with tries.open("a") as file:
                    file.write("x")
                os.kill(os.getpid(), signal.SIGKILL)
            return super().caption(piece)

    with monkeypatch.context() as patch:
        patch.setattr(on_ray, "Actor", Mortal)
        with pytest.raises(UserError, match=rf"captions-000002\.jsonl.*{photos[8]}"):
            run_all(photos, job, actors=1)
    assert tries.read_text() == "x" * on_ray.ATTEMPTS
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("captions-*.jsonl")}
    assert {file.name for file in kept} >= {"captions-000000.jsonl", "captions-000001.jsonl"}
    assert run_all(photos, job)[0] == PHOTOS
    assert [entry["image"] for entry in entries(tmp_path / "out")] == photos
    assert all(file.stat().st_mtime_ns == time for file, time in kept.items())


# -- without a cluster -----------------------------------------------------------------------------------------


def caption_here(photos: list[str], job: Job) -> None:
    """What one actor does, in this process."""
    prepare(job, photos, PER_PIECE)
    actor = Actor(job)
    for piece in on_ray.in_pieces(photos, job, PER_PIECE):
        actor.caption(piece)


def test_photos_behind_urls_have_the_same_captions(photos: list[str], model: Path, tmp_path: Path):
    """A bucket is read through the same calls as file://."""
    folder = Path(photos[0]).parent
    urls = list_photos(f"file://{folder}", frozenset({".png"}))
    assert urls == [f"file://{photo}" for photo in photos]
    gone = f"file://{folder}/gone.png"
    caption_here(photos, Job(str(model), str(tmp_path / "paths")))
    caption_here([*urls, gone], Job(str(model), f"file://{tmp_path}/urls"))
    by_path, by_url = entries(tmp_path / "paths"), entries(tmp_path / "urls")
    assert [entry.get("words") for entry in by_url[:-1]] == [entry.get("words") for entry in by_path]
    assert by_url[-1]["image"] == gone
    assert "gone.png" in by_url[-1]["error"]
    with pytest.raises(ImageError, match="gone"):
        RemotePhoto(gone).read()
    with pytest.raises(UserError, match="cannot be listed"):
        list_photos(f"file://{folder}/nowhere", frozenset({".png"}))


def test_parquet_has_the_main_columns(photos: list[str], model: Path, tmp_path: Path):
    from pyarrow import parquet

    caption_here(photos, Job(str(model), str(tmp_path / "lines")))
    caption_here(photos, Job(str(model), str(tmp_path / "table"), "parquet", {"beam_size": 1}))
    tables = map(parquet.read_table, sorted((tmp_path / "table").glob("*.parquet")))
    rows = [row for table in tables for row in table.to_pylist()]
    assert [row["image"] for row in rows] == photos
    assert sum(row["error"] is not None for row in rows) == 1
    assert all(row["text"] == " ".join(row["words"]) for row in rows if row["text"])
    of_beams = [line.get("log_prob") for line in entries(tmp_path / "lines")]
    assert [row["log_prob"] for row in rows] != of_beams  # beam 1, not 3


def test_a_folder_of_another_job_is_refused(photos: list[str], model: Path, tmp_path: Path):
    out = str(tmp_path / "out")
    job = Job(str(model), out)
    for _ in range(2):
        prepare(job, photos, PER_PIECE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    for other, given, per_piece, said in (
        (job, photos[1:], PER_PIECE, "another photos"),
        (job, photos, PER_PIECE + 1, "another per_piece"),
        (Job("shapes", out), photos, PER_PIECE, "another model"),
        (Job(str(model), out, search={"beam_size": 2}), photos, PER_PIECE, "another search"),
        (Job(str(model), str(tmp_path / "mine")), photos, PER_PIECE, "has other files"),
    ):
        with pytest.raises(UserError, match=said):
            prepare(other, given, per_piece)
    for content in ("[]", "5", "[" * 100_000, "x"):
        (tmp_path / "out" / on_ray.JOB).write_text(content)
        with pytest.raises(UserError, match="captions cannot be written to"):
            prepare(job, photos, PER_PIECE)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_files_that_are_there_stay(model: Path, photos: list[str], tmp_path: Path, scheme: str):
    out, theirs = tmp_path / "out", tmp_path / "theirs"
    job = Job(str(model), f"{scheme}{out}")
    prepare(job, photos, PER_PIECE)
    names = [f"captions-{number:06d}.jsonl" for number in range(3)]
    (out / names[0]).write_text("mine")
    (out / names[1]).symlink_to(theirs)
    (out / f".{names[2]}.{os.getpid()}.partial").symlink_to(theirs)
    for name in names:
        on_ray.write_whole(job.out, name, b"ours")
    assert [(out / name).read_text() for name in (names[0], names[2])] == ["mine", "ours"]
    assert not theirs.exists()
    with pytest.raises(UserError, match="there is no folder"):
        prepare(Job(str(model), f"{scheme}{tmp_path}/no/such"), photos, PER_PIECE)


def test_the_command_reads_folders_lists_and_urls_and_has_defaults(
    photos: list[str], model: Path, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
):
    seen: list[tuple[list[str], Job, tuple[Any, ...]]] = []

    def captioned(given: list[str], job: Job, *options: Any) -> Iterator[Progress]:
        seen.append((given, job, options))
        yield Progress(len(given), 1)

    monkeypatch.setattr(on_ray, "caption_photos", captioned)
    folder = Path(photos[0]).parent
    (tmp_path / "list.txt").write_text(f"{photos[0]}\n\nfile://{folder}/sub\n")
    ray = ["--engine", "ray", "--out", tmp_path / "out"]
    common = [*ray, "--model", model, "--format", "parquet", "--beam-size", 2, "--per-file", 50]
    ran = cli("describe", folder, *common)
    assert ran.code == 1
    assert f"{PHOTOS} photos" in ran.err
    assert cli("describe", "--list", tmp_path / "list.txt", *common).code == 1
    subfolder = [f"file://{name}" for name in photos if "/sub/" in name]
    assert [given for given, *_ in seen] == [photos, [photos[0], *subfolder]]
    for _, job, options in seen:
        assert (job.form, job.search, options) == ("parquet", {"beam_size": 2}, (None, 50))
    nothing = cli("describe", *common)
    assert nothing.code == 2
    assert "no photos" in nothing.err
    cli("describe", *photos, *ray)
    assert (seen[-1][1].model, seen[-1][1].device) == ("photos", "auto")


@pytest.mark.parametrize(
    ("resources", "said"), [({"CPU": 4, "GPU": 2}, "2 GPUs"), ({"CPU": 4}, "4 processors")]
)
def test_too_many_actors_are_refused(resources: dict[str, int], said: str, monkeypatch: pytest.MonkeyPatch):
    ray = SimpleNamespace(cluster_resources=lambda: resources)
    monkeypatch.setattr(on_ray, "connected", lambda: ray)
    job = Job("photos", "out", device="auto")
    with pytest.raises(UserError, match=f"the cluster has {said}, too few for 9"):
        next(on_ray._run([Piece(str(number), []) for number in range(9)], job, 9))
