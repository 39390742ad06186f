"""How long a picture takes: the figure of a caption, and the page of many photos."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from caption.result import Caption
from caption.visualize import contact_sheet, plot_caption, save_figure, save_html, to_html
from tools.benchmark.harness import Setting, seconds, take_turns
from tools.benchmark.photos import generated
from tools.documents import table

PHOTOS, WORDS, GRID, BEAM = 24, 12, (14, 14), 5
SIZE = (1600, 1200)


def pictures(setting: Setting) -> str:
    """The time of each picture, and the size of the page."""
    count = 4 if setting.quick else PHOTOS
    with tempfile.TemporaryDirectory() as folder:
        captions = [make_caption(path) for path in generated(count, Path(folder), SIZE)]
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
    head = ["picture", "time", "range", "first"]
    return f"The page has {size:.0f} kB for each photo.\n\n{table(head, rows)}"


def make_caption(path: Path) -> Caption:
    """A beam of random captions of a photo."""
    generator = np.random.default_rng(0)
    words = [f"word{number}" for number in range(WORDS)]
    box = (0.0, 0.0, float(SIZE[0]), float(SIZE[1]))
    beam = []
    for _ in range(BEAM):
        weights = generator.dirichlet(np.full(GRID[0] * GRID[1], 0.1), WORDS).reshape(WORDS, *GRID)
        log_probs, gates = -generator.random(WORDS), generator.random(WORDS)
        beam.append(Caption(" ".join(words), words, weights, -10.0, log_probs, box, gates=gates, image=path))
    beam[0].alternatives = beam[1:]
    return beam[0]
