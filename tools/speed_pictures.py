"""How long a picture takes: the figure of a caption, and the page of many photos."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from speed_common import Setting, seconds, table

from caption.result import Caption
from caption.visualize import contact_sheet, plot_caption, save_figure, save_html, to_html

PHOTOS, WORDS, GRID, BEAM = 24, 12, (14, 14), 5
WIDTH, HEIGHT = 1600, 1200


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    photos = 4 if setting.quick else PHOTOS
    with tempfile.TemporaryDirectory() as folder:
        captions = [make_caption(number, Path(folder)) for number in range(photos)]
        page = Path(folder, "page.html")
        first = captions[0]
        rows = [
            [
                "figure, a panel per word, as PNG",
                *timed(lambda: _save(plot_caption, folder, first, _photo(first))),
            ],
            [
                f"contact sheet of {photos} photos, as PNG",
                *timed(lambda: _save(contact_sheet, folder, captions)),
            ],
            [f"page of {photos} photos", *timed(lambda: save_html(to_html(captions), page))],
        ]
        size = page.stat().st_size / photos / 1000
    return [
        "## Pictures",
        "",
        f"JPEGs of {WIDTH}×{HEIGHT} pixels, captions of {WORDS} words on {GRID[0]}×{GRID[1]} regions, {BEAM} captions",
        f"for each photo on the page, which has {size:.0f} kB for each. Photos are read from their files; the models'",
        "work is not in it. Median and range of five, the first one, which loads what it needs, apart.",
        "",
        *table(["picture", "time", "range", "first"], rows),
    ]


def timed(draw: Callable[[], Any]) -> list[str]:
    """Median, range, and the first one."""
    taken = []
    for _ in range(6):
        started = time.perf_counter()
        draw()
        taken.append(time.perf_counter() - started)
    first, *others = taken
    return [
        seconds(statistics.median(others)),
        f"{seconds(min(others))} to {seconds(max(others))}",
        seconds(first),
    ]


def make_caption(number: int, folder: Path) -> Caption:
    """A photo of smooth blobs with some grain, which JPEG finds about as hard as a photo, and a beam of captions."""
    generator = np.random.default_rng(number)
    blobs = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((WIDTH, HEIGHT))
    grain = generator.normal(0, 6, (HEIGHT, WIDTH, 1))
    path = folder / f"{number}.jpg"
    Image.fromarray((np.asarray(blobs) + grain).clip(0, 255).astype(np.uint8)).save(path, quality=90)
    best, *others = [_beam(generator, path) for _ in range(BEAM)]
    best.alternatives = others
    return best


def _beam(generator: np.random.Generator, path: Path) -> Caption:
    weights = generator.dirichlet(np.full(GRID[0] * GRID[1], 0.1), WORDS).reshape(WORDS, *GRID)
    words = [f"word{number}" for number in range(WORDS)]
    log_probs, gates = -generator.random(WORDS), generator.random(WORDS)
    box = (0.0, 0.0, float(WIDTH), float(HEIGHT))
    return Caption(" ".join(words), words, weights, -10.0, log_probs, box, gates=gates, image=path)


def _photo(caption: Caption) -> Path:
    assert isinstance(caption.image, Path)
    return caption.image


def _save(draw: Callable[..., Any], folder: str, *arguments: Any) -> None:
    save_figure(draw(*arguments), Path(folder, "figure.png"))
