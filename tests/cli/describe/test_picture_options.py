"""What a picture of `caption describe` shows: words, rows, sizes, a file for each word, animations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import Cli, Ran, check_refused
from helpers.tiny_captioner import captioner, photo
from PIL import Image

import caption.visualize
from caption.cli.describe.outputs import STYLES, path_of_word
from caption.visualize.styles import STYLE_NAMES

pytestmark = pytest.mark.slow


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "x.png", tmp_path / "y.png"]
    for seed, path in enumerate(paths):
        photo(80, 40, seed).save(path)
    return paths


@pytest.fixture
def describe(cli: Cli, model: Path) -> Callable[..., Ran]:
    return lambda *args: cli("describe", "--model", model, *args)


@pytest.fixture
def words(photos: list[Path]) -> list[str]:
    """Of the first photo's caption."""
    return captioner().describe(photos[0]).words


def test_pictures_are_as_large_as_asked_for(describe, photos, tmp_path):
    paths = [tmp_path / "figure.png", tmp_path / "sheet.png"]
    pictures = ("--heatmap", paths[0], "--contact-sheet", paths[1])
    assert describe(photos[0], *pictures, "--width", 700).code == 0
    for path in paths:
        with Image.open(path) as picture:
            assert (picture.mode, picture.width) == ("RGBA", 700)  # no palette
    assert describe(photos[0], *pictures).code == 0
    # Pixels on an inch: the files of sheets stay small with many photos.
    assert [round(Image.open(path).info["dpi"][0]) for path in paths] == [150, 100]


def test_a_terminal_is_told_what_was_written(describe, photos, tmp_path, monkeypatch: pytest.MonkeyPatch):
    page, arrays = tmp_path / "page.html", tmp_path / "arrays"
    options = ("--html", page, "--attention", arrays)
    assert "wrote" not in describe(*photos, *options).err  # not in logs
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    (tmp_path / "z.png").write_bytes(b"broken")
    ran = describe(photos[0], tmp_path / "z.png", *options)
    assert f"wrote {arrays / 'x.npz'}, {page}\n" in ran.err
    assert "wrote" not in describe(photos[0]).err
    words = ("--heatmap", tmp_path / "words", "--per-word", "--width", 64)
    assert f"wrote {tmp_path / 'words' / 'x-01-'}" in describe(photos[0], *words).err


def test_a_map_of_another_method_takes_the_place_of_the_attention(describe, photos, tmp_path):
    ran = describe(photos[0], "--map", "gradcam", "--attention", tmp_path / "maps.npz")
    assert (ran.code, ran.err) == (0, "")
    expected = caption.maps(captioner(), str(photos[0]), method="gradcam")
    with np.load(tmp_path / "maps.npz") as arrays:
        assert arrays["weights"] == pytest.approx(expected.weights, abs=1e-5)


def test_a_map_that_the_model_cannot_give_is_refused_before_a_caption_is_printed(describe, photos, tmp_path):
    ran = describe(photos[0], "--map", "rollout", "--heatmap", tmp_path / "map.png")
    check_refused(ran, "without a refiner does not show")
    assert ran.out == ""


def test_options_reach_the_figure(describe, photos, tmp_path, words, monkeypatch: pytest.MonkeyPatch):
    seen: list[dict[str, Any]] = []
    for name in ("plot_caption", "contact_sheet", "to_html"):
        draw = getattr(caption.visualize, name)

        def recording(*args: Any, draw: Any = draw, **options: Any) -> Any:
            seen.append(options)
            return draw(*args, **options)

        monkeypatch.setattr(caption.visualize, name, recording)
    style = {"style": "cells", "smooth": False, "cmap": "viridis", "opacity": 0.2}
    looks = ("--style", "cells", "--no-smooth", "--cmap", "viridis", "--opacity", 0.2)
    options = ("--words", f"{words[0]}, nothing", "--rows", 2, "--no-title", "--no-legend", "--own-scale")
    assert describe(photos[0], "--heatmap", tmp_path / "a.png", *options, *looks).code == 0
    pages = ("--contact-sheet", tmp_path / "b.png", "--html", tmp_path / "c.html")
    assert describe(photos[0], *pages, "--words", 2, "--no-legend").code == 0
    assert describe(photos[0], *pages, *looks).code == 0
    assert seen == [
        {"words": [words[0]], "rows": 2, "title": False, "legend": False, "own_scale": True, **style},
        {"names": ["x.png"], "words": 2, "legend": False},
        {},
        {"names": ["x.png"], **style},
        style,
    ]
    assert STYLES == STYLE_NAMES


def test_a_caption_without_the_words_is_named_and_the_others_are_drawn(describe, photos, tmp_path, words):
    options = ("--heatmap", tmp_path / "maps", "--words")
    assert describe(photos[0], *options, f"nothing,{words[0]}").code == 0
    drawn = [path.name for path in (tmp_path / "maps").glob("*.png")]
    ran = describe(*photos, *options, "nothing,less")
    assert (drawn, ran.code, len(ran.out.splitlines())) == (["x.png"], 1, 2)
    assert f"the caption of {photos[0]} has no word 'nothing', 'less': there is no picture of it" in ran.err


@pytest.mark.nightly
def test_every_word_has_a_file(describe, photos, tmp_path, words):
    assert describe(*photos, "--heatmap", tmp_path / "words", "--per-word").code == 0
    names = sorted(path.name for path in (tmp_path / "words").iterdir())
    spoken = [(path.stem, enumerate(captioner().describe(path).words, start=1)) for path in photos]
    expected = [f"{stem}-{number:02d}-{word}.png" for stem, said in spoken for number, word in said]
    assert names == sorted(expected)
    with Image.open(tmp_path / "words" / expected[0]) as picture:
        assert picture.size == (640, 320)  # the photo's aspect ratio, and nothing else
    one = tmp_path / "one" / "x.jpg"
    assert describe(photos[0], "--heatmap", one, "--per-word", "--words", words[0], "--width", 300).code == 0
    (first, *_) = sorted(one.parent.iterdir())
    assert first.name == f"x-01-{words[0]}.jpg"
    with Image.open(first) as picture:
        assert picture.size == (300, 150)


def test_a_words_file_replaces_neither_photos_nor_files_of_others(describe, photos, tmp_path, words):
    name = f"x-01-{words[0]}.png"
    for content, said in ((photos[0].read_bytes(), "would overwrite"), (b"mine", "did not write")):
        folder = tmp_path / said.replace(" ", "")
        folder.mkdir()
        (folder / name).write_bytes(content)
        inputs = [photos[0], folder / name] if said == "would overwrite" else [photos[0]]
        ran = describe(*inputs, "--heatmap", folder, "--per-word")
        assert ran.code == 2
        assert said in ran.err
        assert (folder / name).read_bytes() == content


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("../../x", "beach-03-x.png"),
        ("/etc/passwd", "beach-03-etc-passwd.png"),
        ("…", "beach-03.png"),
        ("Straße", "beach-03-Straße.png"),
        ("a" * 300, f"beach-03-{'a' * 40}.png"),
    ],
)
def test_a_word_names_no_path(word: str, name: str):
    assert path_of_word(Path("out/beach.png"), 2, word) == Path("out") / name


def test_an_animation_has_a_frame_for_each_word(describe, photos, tmp_path, words):
    assert describe(photos[0], "--heatmap", tmp_path / "x.gif", "--width", 200).code == 0
    with Image.open(tmp_path / "x.gif") as moving:
        assert (moving.n_frames, moving.width) == (len(words) + 2, 200)


def test_ffmpeg_is_looked_for_before_anything_is_done(describe, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = describe(photos[0], "--heatmap", tmp_path / "x.mp4")
    check_refused(ran, ".mp4 files are written by ffmpeg, which is not installed")
