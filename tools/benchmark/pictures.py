"""How long a picture takes: the figure of a caption, and the page of many photos."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from caption.result import Caption
from caption.visualize import contact_sheet, plot_caption, save_figure, save_html, to_html
from tools.benchmark.harness import Setting, seconds, take_turns
from tools.documents import table

PHOTOS, WORDS, GRID, BEAM = 24, 12, (14, 14), 5
WIDTH, HEIGHT = 1600, 1200


def pictures(setting: Setting) -> str:
    """The time of each picture, and the size of the page."""
    count = 4 if setting.quick else PHOTOS
    with tempfile.TemporaryDirectory() as folder:
        captions = [make_caption(number, Path(folder)) for number in range(count)]
        first, png, page = captions[0], Path(folder, "figure.png"), Path(folder, "page.html")
        draws: dict[str, Callable[[], Any]] = {
            "figure, a panel per word, as PNG": lambda: save_figure(plot_caption(first, first.image), png),
            f"contact sheet of {count} photos, as PNG": lambda: save_figure(contact_sheet(captions), png),
            f"page of {count} photos": lambda: save_html(to_html(captions), page),
        }
        times = take_turns(draws, setting, rounds=5)
        rows = []
        for name, taken in times.seconds.items():
            between = f"{seconds(min(taken))} to {seconds(max(taken))}"
            rows.append([name, seconds(times.median(name)), between, seconds(times.first[name])])
        size = page.stat().st_size / count / 1000
    return (
        f"The page has {size:.0f} kB for each photo.\n\n{table(['picture', 'time', 'range', 'first'], rows)}"
    )


def make_caption(number: int, folder: Path) -> Caption:
    """A beam of captions of a photo: smooth blobs with some grain, about as hard for JPEG as a photo."""
    generator = np.random.default_rng(number)
    blobs = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((WIDTH, HEIGHT))
    grain = generator.normal(0, 6, (HEIGHT, WIDTH, 1))
    path = folder / f"{number}.jpg"
    Image.fromarray((np.asarray(blobs) + grain).clip(0, 255).astype(np.uint8)).save(path, quality=90)
    best, *best.alternatives = [_caption(generator, path) for _ in range(BEAM)]
    return best


def _caption(generator: np.random.Generator, path: Path) -> Caption:
    weights = generator.dirichlet(np.full(GRID[0] * GRID[1], 0.1), WORDS).reshape(WORDS, *GRID)
    words = [f"word{number}" for number in range(WORDS)]
    log_probs, gates = -generator.random(WORDS), generator.random(WORDS)
    box = (0.0, 0.0, float(WIDTH), float(HEIGHT))
    return Caption(" ".join(words), words, weights, -10.0, log_probs, box, gates=gates, image=path)
