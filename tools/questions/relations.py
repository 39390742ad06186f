"""Where should "left of" look: at one of the objects, at both, at the space between?

Three answers: where trained models look at the word that decides the relation; what becomes of the word when they are
made to look elsewhere; and how well it can be read from each place by a network that is trained for that place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from caption.analysis.map_arithmetic import resampled, with_map_dims, with_sum_of
from caption.analysis.replay import Replay, Step
from caption.captioner import Captioner
from caption.metrics.significance import estimate
from caption.models.model_zoo import load
from caption.visualize.figure_file import NotebookFigure
from tools.documents import table
from tools.questions.bench import SIDE, Answer, Bench, Sentence, bars, interval, replayed
from tools.questions.probes import Probed, probe
from tools.questions.zones import PLACES, ZONES, at_relations, even_on, zones

INSTALLED = {"soft (installed)": "shapes", "hard (installed)": "shapes-hard"}
TRAINED = ("additive", "multi_head", "transformer")
CHOICES = ("above", "below", "to")
"""The words that may decide a relation; "to" begins "to the left of" and "to the right of"."""
TRAINING = 1500
"""Scenes from whose sentences the probes learn."""
CELLS = 24
"""Cells of the drawing in each direction, across a window four times as wide as the objects are apart."""


class Looked(NamedTuple):
    """What one model does at the deciding words of N sentences."""

    images: np.ndarray
    """(N,) the scene of each sentence."""
    masses: np.ndarray
    """(N, ZONES) the share of the map in each zone."""
    areas: np.ndarray
    """(N, ZONES) the share of even weights."""
    log_probs: np.ndarray
    """(N, PLACES) log p of the word, with the weights on each place."""
    right: np.ndarray
    """(N, PLACES) whether it is the likeliest of `CHOICES`."""
    picture: np.ndarray
    """(CELLS, CELLS) the mean map in the frame of the two objects."""


def ask(bench: Bench, seeds: Sequence[int]) -> Answer:
    """Where the models look, where they should, and the figure."""
    models = {name: load(model) for name, model in INSTALLED.items()}
    models |= {name: bench.trained(name, seeds[0]) for name in TRAINED}
    test = bench.sentences("test")
    looked = {name: look(captioner, test) for name, captioner in models.items()}
    probed = probe(models["soft (installed)"], bench.sentences("train", TRAINING), test)
    return Answer(report(looked, probed), draw(looked, probed))


@torch.no_grad()
def look(captioner: Captioner, given: Sequence[Sentence]) -> Looked:
    """Where a model looks at the deciding words, and what becomes of them when it looks elsewhere."""
    choices = torch.tensor([captioner.vocabulary[word] for word in CHOICES])
    rows: list[tuple[Any, ...]] = []
    pictures: list[np.ndarray] = []
    for replay, batch in replayed(captioner, given):
        for step in replay.steps(batch):
            step, of_step = at_relations(step, given[batch.first :])
            if not of_step:
                continue
            grid = step.views[0].grid
            parts = np.stack([zones(captioner, grid, each) for each in of_step])
            weights = step.weights.double().numpy()
            weights = weights / weights.sum(-1, keepdims=True)
            log_probs = rerun_at(replay, step, torch.from_numpy(parts))
            likeliest = choices[log_probs[..., choices].argmax(-1)]
            rows += zip(
                [each.image for each in of_step], (parts @ weights[..., None])[..., 0], parts.mean(-1),
                step.of_word(log_probs).double().numpy(), (likeliest == step.words[:, None]).numpy(), strict=True,
            )  # fmt: skip
            pictures += [
                framed(each, map_.reshape(grid)) for each, map_ in zip(of_step, weights, strict=True)
            ]
    columns = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    known = np.isfinite(pictures).sum(0)
    return Looked(*columns, np.nansum(pictures, 0) / np.maximum(known, 1))


def rerun_at(replay: Replay, step: Step, parts: Tensor) -> Tensor:
    """(B, PLACES, V) the step with its own map, then with even weights on each place; parts (B, ZONES, L)."""
    grid = step.views[0].grid
    places = even_on(parts).float()

    def put(map_: Tensor, other: tuple[int, int]) -> Tensor:
        wide = map_.expand(-1, places.shape[1], *map_.shape[2:])
        return with_sum_of(wide, with_map_dims(resampled(places, grid, other), wide).expand_as(wide))

    return torch.cat((step.log_probs[:, None], replay.rerun(step, replay.over_grids(put, step))), 1)


def framed(sentence: Sentence, map_: np.ndarray) -> np.ndarray:
    """(CELLS, CELLS) a map (rows, cols) in the frame whose first object is at (0, 0) and whose second is at (1, 0).

    The window reaches from -1.5 to 2.5 and from -2 to 2. Each of its cells has the weight of the scene's cell below it,
    relative to even weights; NaN beside the scene.
    """
    (x0, y0), (x1, y1) = (
        ((left + right) / 2, (top + bottom) / 2)
        for left, top, right, bottom in (sentence.box(sentence.subject), sentence.box(sentence.object))
    )
    ticks = (np.arange(CELLS) + 0.5) / CELLS * 4
    along, across = np.meshgrid(ticks - 1.5, ticks - 2)
    x = x0 + along * (x1 - x0) - across * (y1 - y0)
    y = y0 + along * (y1 - y0) + across * (x1 - x0)
    rows, cols = map_.shape
    row, col = (np.floor(place / SIDE * count).astype(int) for place, count in ((y, rows), (x, cols)))
    inside = (row >= 0) & (row < rows) & (col >= 0) & (col < cols)
    return np.where(inside, map_.size * map_[row.clip(0, rows - 1), col.clip(0, cols - 1)], np.nan)


def report(looked: Mapping[str, Looked], probed: Probed) -> str:
    """The tables."""
    first = next(iter(looked.values()))
    masses = [
        [name, *(interval(estimate(of.masses[:, zone], of.images)) for zone in range(len(ZONES)))]
        for name, of in looked.items()
    ]
    areas = [f"{share:.2f}" for share in first.areas.mean(0)]
    forced = [
        [
            name,
            *(
                f"{estimate(of.log_probs[:, place], of.images).mean:.2f} ({100 * of.right[:, place].mean():.0f} %)"
                for place in range(len(PLACES))
            ),
        ]
        for name, of in looked.items()
    ]
    return "\n\n".join(
        [
            f"{len(first.images)} sentences of {len(set(first.images))} test scenes. Where the weights lie at the word "
            "that decides the relation:",
            table(["model", *ZONES], [*masses, ["area of the scene", *areas]]),
            "Made to look at one place at this word: mean log p of the right word in nats, and how often it comes "
            f"first of {', '.join(CHOICES)}:",
            table(["model", *PLACES], forced),
            "Read from the mean of the regions of a place by a network that is trained for it: how often it is "
            f"right, in %. The most frequent word has {100 * probed.most_frequent:.0f} %.",
            table(
                ["place", "the place alone", "with h[t-1]"],
                [
                    [place, *(interval(each, 1, 100) for each in (alone, remembering))]
                    for place, (alone, remembering) in probed.right.items()
                ],
            ),
        ]
    )


def draw(looked: Mapping[str, Looked], probed: Probed) -> NotebookFigure:
    """Mean maps in the objects' frame; below, masses by zone, log p by place, and probes by place."""
    figure = NotebookFigure(figsize=(2.1 * len(looked), 5.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.35))
    for ax, (name, of) in zip(above.subplots(1, len(looked)), looked.items(), strict=True):
        shown = ax.imshow(of.picture, extent=(-1.5, 2.5, 2, -2), cmap="magma", vmin=0)
        for number, place in enumerate((0, 1), 1):
            ax.plot(place, 0, "o", markersize=9, markerfacecolor="none", markeredgecolor="cyan")
            ax.text(place, 0.75, str(number), color="cyan", ha="center", fontsize=8)
        ax.set_title(name, fontsize=9)
        ax.set(xticks=[], yticks=[])
        above.colorbar(shown, ax=ax, shrink=0.7)
    masses, forced, probes = below.subplots(1, 3)
    areas = {"area": next(iter(looked.values())).areas.mean(0)}
    bars(masses, {name: of.masses.mean(0) for name, of in looked.items()} | areas, ZONES)
    masses.set_ylabel("share of the weights")
    masses.legend(frameon=False, fontsize=7)
    bars(forced, {name: of.log_probs.mean(0) for name, of in looked.items()}, PLACES)
    forced.set_ylabel("log p of the relation, nats")
    found = zip(*([each.mean for each in pair] for pair in probed.right.values()), strict=True)
    bars(probes, dict(zip(("the place alone", "with h[t-1]"), found, strict=True)), tuple(probed.right))
    probes.axhline(probed.most_frequent, color="0.5", linewidth=0.8)
    probes.set(ylabel="right, read by a network", ylim=(0, 1.3))
    probes.legend(frameon=False, fontsize=7)
    return figure
