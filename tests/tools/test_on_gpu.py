"""`tools/on_gpu.sh`: calls of limited time, what is left and what comes back. Its commands are stubs."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "on_gpu.sh"
STUB = """\
#!/usr/bin/env bash
echo "$(basename "$0") $*" >> "$CALLS"
[[ -n ${BROKEN:-} && "$*" == *"$BROKEN"* ]] && echo "error: a reason" && exit 1
exit 0
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a stub of Python."""
    (tmp_path / "stubs").mkdir()
    stub = tmp_path / "stubs" / "python"
    stub.write_text(STUB)
    stub.chmod(0o755)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    return tmp_path


def run(place: Path, *arguments: str, **env: str) -> tuple[int, str, list[str]]:
    """Exit code, output, and the commands that were called."""
    calls = place / "calls"
    calls.write_text("")
    path = f"{place / 'stubs'}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", SCRIPT, *arguments],
        cwd=place,
        env={**os.environ, "PATH": path, "CALLS": str(calls), "DEVICE": "cpu", "JOBS": "1", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr, calls.read_text().splitlines()


def test_steps_come_in_order_and_once(place: Path):
    code, output, calls = run(place, "out")
    assert code == 0, output
    assert [call.split("--only ")[-1].split()[0] for call in calls[1:]] == [
        *("forms", "parts", "training", "search", "photos")
    ]
    assert "data/flickr8k is missing" in output
    code, _, calls = run(place, "out")
    assert code == 0
    assert calls == []


def test_trainings_of_ten_seeds(place: Path):
    (place / "data" / "flickr8k").mkdir(parents=True)
    (place / "data" / "flickr8k" / "Flickr8k.token.txt").touch()
    code, output, calls = run(place, "out", ONLY="controls")
    assert code == 0, output
    trained = [call for call in calls if "controls_on_flickr8k" in call]
    assert len(trained) == len(set(trained)) == 40
    assert [call.split("--model.graphs ")[1].split()[0] for call in calls if "caption fit" in call] == [
        *("false", "true")
    ]


def test_no_step_begins_that_the_limit_would_end_and_the_next_call_goes_on(place: Path):
    code, output, calls = run(place, "out", LIMIT="100", ONLY="forms parts")
    assert code == 3
    assert [call.split("--only ")[-1].split()[0] for call in calls] == ["parts"]
    assert "call this again" in output
    code, _, calls = run(place, "out", LIMIT="200", ONLY="forms parts")
    assert code == 0
    assert [call.split("--only ")[-1].split()[0] for call in calls] == ["forms"]


def test_a_failure_is_named_and_does_not_stop_the_others(place: Path):
    code, output, calls = run(place, "out", ONLY="forms parts", BROKEN="--only forms")
    assert code == 1
    assert "benchmark_forms failed; see out/benchmark_forms.log: error: a reason" in output
    assert len(calls) == 2
    code, _, calls = run(place, "out", ONLY="forms parts")
    assert (code, calls) == (1, [])  # what failed is not repeated
    (place / "out" / "benchmark_forms.failed").unlink()
    code, _, calls = run(place, "out", ONLY="forms parts")
    assert (code, len(calls)) == (0, 1)


def test_numbers_and_models_come_back_in_small_files(place: Path):
    (place / "out").mkdir()
    (place / "out" / "photos_0.safetensors").write_bytes(os.urandom(17 << 20))
    code, output, _ = run(place, "out", "back", ONLY="forms")
    assert code == 0, output
    found = sorted(path.name for path in (place / "back").iterdir())
    assert found == ["photos_0.0", "photos_0.1", "results.tar.gz"]
    parts = b"".join((place / "back" / name).read_bytes() for name in found[:2])
    assert parts == (place / "out" / "photos_0.safetensors").read_bytes()
    with tarfile.open(place / "back" / "results.tar.gz") as archive:
        assert "out/benchmark_forms.done" in archive.getnames()
    # Elsewhere, the finished steps are not repeated, and what was brought is not brought again.
    (place / "there").mkdir()
    _, _, calls = run(place, "out", "again", ONLY="forms", EARLIER="back/results.tar.gz")
    assert calls == []
    assert [path.name for path in (place / "again").iterdir()] == ["results.tar.gz"]


def test_photos_come_in_parts(place: Path):
    archive = place / "flickr8k.tar"
    with tarfile.open(archive, "w") as opened:
        opened.add(SCRIPT, "images/photo.jpg")
    whole = archive.read_bytes()
    for number, part in enumerate((whole[:1000], whole[1000:])):
        (place / f"part.{number}").write_bytes(part)
        code, output, calls = run(place, "out", PART=f"part.{number}", PARTS="2")
        assert code == 0, output
        assert calls == []
    assert (place / "data/flickr8k/images/photo.jpg").read_bytes() == SCRIPT.read_bytes()


def test_the_model_for_photos_goes_on_from_a_model_with_three_seeds(place: Path):
    (place / "tools").symlink_to(SCRIPT.parent)
    for file in ("flickr8k/Flickr8k.token.txt", "coco/captions.json"):
        (place / "data" / file).parent.mkdir(parents=True)
        (place / "data" / file).touch()
    code, output, calls = run(place, "out", ONLY="photos", PHOTOS_FROM="mean.ckpt")
    assert code == 0, output
    fits = [call for call in calls if call.startswith("python -m caption fit")]
    assert len(fits) == 9
    for seed in "012":
        first, second, third = [call for call in fits if f"--seed_everything {seed}" in call]
        assert "--model.warm_start mean.ckpt" in first
        assert f"--model.warm_start out/photos/everyday_{seed}/last.ckpt" in second
        assert f"--trainer.default_root_dir out/photos/sensible_{seed}" in second
        assert f"--model.warm_start out/photos/sensible_{seed}/best.ckpt" in third
    assert sum(call.startswith("python -m caption export") for call in calls) == 3
    assert sum(call.startswith("python -m caption test") for call in calls) == 3
    _, _, calls = run(place, "out", ONLY="photos", PHOTOS_FROM="mean.ckpt")
    assert calls == []
