"""The pictures of the documentation: small files, of our own only."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from caption.runtime.files import MARK, OutputError, is_own
from caption.visualize.figure import new_figure
from caption.visualize.figure_file import save_figure
from tools.small_png import main, small_png

DOCS = Path(__file__).parents[2] / "docs"


def noise(size: tuple[int, int] = (900, 600)) -> Image.Image:
    bands = [Image.effect_noise(size, 60 + band) for band in range(3)]
    return Image.merge("RGB", bands)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", dpi=(150, 150))
    return buffer.getvalue()


def test_a_large_picture_has_fewer_colours_then_fewer_pixels_and_our_mark():
    large = png(noise())
    assert len(large) > 1_000_000
    small = small_png(large)
    assert len(small) <= 400_000
    with Image.open(io.BytesIO(small)) as image:
        assert image.mode == "P"
        assert 0.4 * 900 <= image.width < 900
        assert image.width / image.height == pytest.approx(1.5, abs=0.01)
        assert image.info["Software"] == MARK
        assert image.info["dpi"][0] == pytest.approx(150 * image.width / 900, abs=1)


def test_a_small_picture_stays_as_it_is():
    small = png(noise((60, 40)))
    assert small_png(small) is small


def test_figures_are_replaced_and_files_of_others_stay(tmp_path: Path):
    fig = new_figure((6, 4))
    fig.add_axes((0, 0, 1, 1)).imshow(noise())
    save_figure(fig, tmp_path / "own.png")
    assert main([str(tmp_path / "own.png")]) == 0
    assert (tmp_path / "own.png").stat().st_size <= 400_000
    assert is_own(tmp_path / "own.png")
    other = png(noise())
    (tmp_path / "other.png").write_bytes(other)
    with pytest.raises(OutputError):
        main([str(tmp_path / "other.png")])
    assert (tmp_path / "other.png").read_bytes() == other


def test_the_pictures_of_the_documentation_are_small():
    """But those of docs/results, which tools write as they are."""
    large = {path.name: path.stat().st_size for path in DOCS.glob("*.*") if path.suffix in (".png", ".webp")}
    assert {name: size for name, size in large.items() if size > 400_000} == {}
