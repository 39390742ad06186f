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

from caption.core.errors import UserError
from caption.core.runtime.atomic_files import MARK, OutputError, is_own
from caption.visualize import animation_frames, save_animation

WORDS = ["a", "brown", "dog", "runs"]
PHOTO = Image.effect_noise((120, 80), 60).convert("RGB")


@pytest.fixture
def dog():
    return caption_of(WORDS, size=(120, 80), grid=(2, 3))


def differs(one: Image.Image, other: Image.Image) -> tuple[bool, bool]:
    """Whether the photos, and the texts below them, are different."""
    change = np.abs(np.subtract(one, other, dtype=int)).max(axis=2) > 8
    return bool(change[:159].any()), bool(change[161:].any())


def ink(frame: Image.Image) -> np.ndarray:
    """The columns of a frame in which there are letters."""
    return (np.asarray(frame)[162:].min(axis=2) < 200).any(axis=0)


def test_photo_then_every_word_then_the_photo_with_the_whole_sentence(dog):
    frames = list(animation_frames(dog, PHOTO, width=240))
    assert len(frames) == 6
    assert {frame.size for frame in frames} == {frames[0].size}
    assert frames[0].width == 240
    assert all(differs(one, other) == (True, True) for one, other in pairwise(frames))
    assert differs(frames[0], frames[-1]) == (False, True)  # no map on either
    assert np.asarray(frames[0])[162:].min() > 250  # nothing is written yet
    for before, after in pairwise(frames[1:]):  # a word that was written keeps its place
        assert (ink(after)[ink(before)]).mean() > 0.9  # its colour changes, and so do a few edges
    # It stops at the words that are named, and writes the others.
    named = list(animation_frames(dog, PHOTO, words=["dog"], width=240))
    assert len(named) == 3
    assert np.array_equal(named[1], frames[3])


def test_hebrew_is_written_from_the_right():
    words = ["כלב", "חום", "רץ"]
    _, *frames, _ = animation_frames(caption_of(words, size=(120, 80)), PHOTO, width=240)
    leftmost = [int(ink(frame).argmax()) for frame in frames]
    assert leftmost == sorted(leftmost, reverse=True)
    assert len(set(leftmost)) == 3


def test_a_long_sentence_takes_several_lines_and_one_without_words_is_the_photo_twice():
    none, one, several = (
        list(animation_frames(caption_of(words, size=(120, 80)), PHOTO, words=[]))
        for words in ([], WORDS, WORDS * 8)
    )
    assert several[0].height > one[0].height
    assert several[0].width == one[0].width
    assert len(none) == 2
    assert np.array_equal(*none)


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
        moving.seek(3)
        colours = moving.convert("RGB").getcolors(1 << 20)
    assert times == [500] * 5 + [1500]
    assert suffix == ".gif" or len(colours) > 2000  # WebP has true colour
    assert is_own(path)


@pytest.fixture
def fake_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a program of that name."""

    def install(script: str) -> None:
        program = tmp_path / "ffmpeg"
        program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", str(tmp_path))
    return install


@pytest.mark.skipif(os.name != "posix", reason="a script as a program")
def test_ffmpeg_gets_all_frames_as_they_are_and_what_it_refuses_is_said(dog, tmp_path: Path, fake_ffmpeg):
    fake_ffmpeg("sys.stdout.buffer.write(repr(sys.argv).encode() + b'|' + sys.stdin.buffer.read())")
    save_animation(dog, PHOTO, tmp_path / "dog.mp4", width=240, seconds=0.5)
    arguments, raw = (tmp_path / "dog.mp4").read_bytes().split(b"|", 1)
    frames = list(animation_frames(dog, PHOTO, width=240))
    frames += [frames[-1]] * 2  # shown three times as long
    assert raw == b"".join(frame.tobytes() for frame in frames)
    for wanted in ("{}x{}".format(*frames[0].size), "2.0", "yuv420p"):
        assert repr(wanted).encode() in arguments
    assert f"comment={MARK[:31]}".encode() in arguments
    fake_ffmpeg("sys.exit('no encoder for mp4')")
    with pytest.raises(UserError, match="no encoder for mp4"):
        save_animation(dog, PHOTO, tmp_path / "other.mp4")
    assert not (tmp_path / "other.mp4").exists()


def test_another_suffix_and_nonsense_are_refused(dog, tmp_path: Path):
    for name, options, error, said in [
        ("dog.png", {}, OutputError, r"ends in \.gif, \.webp, \.mp4"),
        ("dog.gif", {"width": 10}, ValueError, "must be at least 64 and seconds positive"),
        ("dog.gif", {"seconds": 0}, ValueError, "must be at least 64 and seconds positive"),
    ]:
        with pytest.raises(error, match=said):
            save_animation(dog, PHOTO, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())
