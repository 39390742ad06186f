"""A caption word by word: frames, formats, sizes, and what is refused."""

from __future__ import annotations

import os
import stat
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from helpers.captions import caption_of
from PIL import Image

from caption.errors import UserError
from caption.runtime.files import MARK, OutputError, is_own
from caption.visualize import animation_frames, save_animation

WORDS = ["a", "brown", "dog", "runs"]
PHOTO = Image.effect_noise((120, 80), 60).convert("RGB")


@pytest.fixture
def dog():
    return caption_of(WORDS, size=(120, 80), grid=(2, 3))


def differs(one: Image.Image, other: Image.Image, height: int) -> tuple[bool, bool]:
    """Whether the photos, and the texts below them, are different."""
    change = np.abs(np.subtract(one, other, dtype=int)).max(axis=2) > 8
    return bool(change[: height - 1].any()), bool(change[height + 1 :].any())


def test_photo_then_every_word_then_the_photo_with_the_whole_sentence(dog):
    frames = list(animation_frames(dog, PHOTO, width=240))
    assert len(frames) == 6
    assert {frame.size for frame in frames} == {frames[0].size}
    assert frames[0].width == 240
    assert all(differs(one, other, 160) == (True, True) for one, other in pairwise(frames))
    assert differs(frames[0], frames[-1], 160) == (False, True)  # no map on either
    assert np.asarray(frames[0])[162:].min() > 250  # nothing is written yet


def test_a_word_that_was_written_keeps_its_place(dog):
    def ink(frame: Image.Image) -> np.ndarray:
        return (np.asarray(frame)[162:].min(axis=2) < 200).sum(axis=0) > 0

    frames = list(animation_frames(dog, PHOTO, width=240))
    for before, after in pairwise(frames[1:]):
        assert (ink(after)[ink(before)]).mean() > 0.9  # its colour changes, and so do a few edges


def test_a_long_sentence_takes_several_lines():
    one, several = (
        next(animation_frames(caption_of(words, size=(120, 80)), PHOTO)) for words in (WORDS, WORDS * 8)
    )
    assert several.height > one.height
    assert several.width == one.width


def test_it_stops_at_the_words_that_are_named_and_writes_the_others(dog):
    frames = list(animation_frames(dog, PHOTO, words=["dog"], width=240))
    assert len(frames) == 3
    everything = list(animation_frames(dog, PHOTO, width=240))
    assert np.array_equal(frames[1], everything[3])


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_a_file_has_a_frame_for_each_word_and_our_mark(dog, tmp_path: Path, suffix: str):
    path = tmp_path / f"dog{suffix}"
    save_animation(dog, PHOTO, path, width=200, seconds=0.5)
    with Image.open(path) as moving:
        assert moving.n_frames == 6
        assert moving.width == 200
        assert moving.info["loop"] == 0
        times = []
        for number in range(6):
            moving.seek(number)
            moving.load()
            times.append(moving.info["duration"])
    assert times == [500] * 5 + [1500]
    assert is_own(path)


def test_webp_has_true_colour(dog, tmp_path: Path):
    save_animation(dog, PHOTO, tmp_path / "dog.webp", width=240)
    with Image.open(tmp_path / "dog.webp") as moving:
        moving.seek(3)
        assert len(moving.convert("RGB").getcolors(1 << 20)) > 2000


def fake_ffmpeg(folder: Path, script: str) -> None:
    """A program of that name that gives back what it was given."""
    program = folder / "ffmpeg"
    program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.skipif(os.name != "posix", reason="a script as a program")
def test_ffmpeg_gets_all_frames_as_they_are(dog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = "sys.stdout.buffer.write(repr(sys.argv).encode() + b'|' + sys.stdin.buffer.read())"
    fake_ffmpeg(tmp_path, said)
    save_animation(dog, PHOTO, tmp_path / "dog.mp4", width=240, seconds=0.5)
    arguments, raw = (tmp_path / "dog.mp4").read_bytes().split(b"|", 1)
    frames = list(animation_frames(dog, PHOTO, width=240))
    frames += [frames[-1]] * 2  # shown three times as long
    assert raw == b"".join(frame.tobytes() for frame in frames)
    for wanted in ("{}x{}".format(*frames[0].size), "2.0", "yuv420p"):
        assert repr(wanted).encode() in arguments
    assert f"comment={MARK[:31]}".encode() in arguments


@pytest.mark.skipif(os.name != "posix", reason="a script as a program")
def test_what_ffmpeg_refuses_is_said_and_nothing_is_written(
    dog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_ffmpeg(tmp_path, "sys.exit('no encoder for mp4')")
    with pytest.raises(UserError, match="ffmpeg could not write the animation: no encoder for mp4"):
        save_animation(dog, PHOTO, tmp_path / "dog.mp4")
    assert not (tmp_path / "dog.mp4").exists()


def test_another_suffix_and_nonsense_are_refused(dog, tmp_path: Path):
    with pytest.raises(OutputError, match=r"ends in \.gif, \.webp, \.mp4"):
        save_animation(dog, PHOTO, tmp_path / "dog.png")
    for options in ({"width": 10}, {"seconds": 0}):
        with pytest.raises(ValueError, match="must be at least 64 and seconds positive"):
            save_animation(dog, PHOTO, tmp_path / "dog.gif", **options)
    with pytest.raises(ValueError, match="no word 'cat'"):
        save_animation(dog, PHOTO, tmp_path / "dog.gif", words=["cat"])
    assert not list(tmp_path.iterdir())


def test_a_caption_without_words_is_the_photo_twice():
    frames = list(animation_frames(caption_of([], size=(120, 80)), PHOTO))
    assert len(frames) == 2
    assert np.array_equal(*frames)
