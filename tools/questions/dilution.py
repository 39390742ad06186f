"""Do weights dilute as regions become many, and which mechanisms suffer least?

The number of regions grows from 49 to 1,024 while the picture stays: the encoder keeps its weights and receptive
fields and is applied at more places (`SmallCNN.stride`). Models are trained on 64 regions, tested on all grids as they
are, and on the finer ones again after some training there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from caption.attention.map_entropy import entropy
from caption.captioner import Captioner
from caption.data.resize import ImageTransform
from caption.encoders import SmallCNN
from caption.metrics.significance import estimate
from caption.visualize.figure_file import NotebookFigure
from tools.documents import table
from tools.questions.bench import BASE, FROZEN, SIDE, Answer, Bench, Sentence, covered, interval, replayed
from tools.reproduce.runs import CONFIGS

MECHANISMS = ("additive", "scaled_dot", "activated_general", "sparsemax", "local_predicted")
STRIDES = {256: 4, 1024: 2}
"""Of the encoder, by the number of regions; 49 come from a smaller picture."""
REGIONS = (49, 64, *STRIDES)
SMALL = 56
"""Side of the picture whose regions are 49."""
MORE = (
    "--trainer.max_epochs=1",
    "--trainer.limit_train_batches=80",
    "--model.scheduler.init_args.T_max=1",
    "--model.optimizer.init_args.lr=5.0e-4",
    "--data.captions_per_image=1",
)
"""The further training on a finer grid: 80 batches of 25 captions."""
SENTENCES = 300


class Spread(NamedTuple):
    """The maps of one model on one grid at the words that name an object: means over N words, with intervals."""

    images: np.ndarray
    mass: np.ndarray
    """(N,) the share of the weights in the object's box."""
    hit: np.ndarray
    """(N,) whether the most attended cell lies there, by its larger part."""
    in_use: np.ndarray
    """(N,) exp(H[α]) / L: the share of the regions over which the weights spread."""
    largest: np.ndarray
    """(N,) the largest weight."""
    nll: np.ndarray
    """(N,) −log p of the word, in nats."""


def ask(bench: Bench, seeds: Sequence[int]) -> Answer:
    """Every mechanism on every grid, as trained on 64 regions and after more training."""
    test = bench.sentences("test", SENTENCES // 2)
    found: dict[tuple[str, bool, int], Spread] = {}
    for name in MECHANISMS:
        captioner = bench.trained(name, seeds[0])
        for regions in REGIONS:
            found[name, False, regions] = measure(on_grid(captioner, regions), test)
        for regions, stride in STRIDES.items():
            folder = f"{name}-{seeds[0]}"
            start = ["--model.warm_start", str(bench.folder / folder / "best.ckpt")]
            configs = ["-c", str(BASE), "-c", str(CONFIGS / "attention" / f"{name}.yaml")]
            finer = [f"--model.encoder.init_args.stride={stride}", *FROZEN, *MORE]
            further = bench.fitted(f"{folder}-{regions}", [*configs, *start, *finer], seeds[0])
            found[name, True, regions] = measure(further, test)
    return Answer(report(found), draw(found))


def on_grid(captioner: Captioner, regions: int) -> Captioner:
    """The model with so many regions: a finer encoder with the same weights, or a smaller picture."""
    encoder = captioner.encoder
    transform = captioner.transform
    if regions in STRIDES:
        encoder = SmallCNN(**{**captioner.encoder.spec["init_args"], "stride": STRIDES[regions]}).eval()
        encoder.load_state_dict(captioner.encoder.state_dict())
    elif regions != (SIDE // 8) ** 2:
        transform = ImageTransform(SMALL, "squash")
    other = Captioner.__new__(Captioner)
    other.__dict__.update(captioner.__dict__)
    other._modules = {**captioner._modules, "encoder": encoder}
    other.transform = transform
    return other


@torch.no_grad()
def measure(captioner: Captioner, given: Sequence[Sentence]) -> Spread:
    """The maps at the words that name objects."""
    rows: list[tuple[float, ...]] = []
    for replay, batch in replayed(captioner, given):
        for step in replay.steps(batch):
            sentences = [given[batch.first + row] for row in step.rows.tolist()]
            naming = [n for n, each in enumerate(sentences) if step.number in (each.subject, each.object)]
            if not naming:
                continue
            step, sentences = step.take(torch.tensor(naming)), [sentences[n] for n in naming]
            grid = step.views[0].grid
            boxes = np.stack([covered(captioner, grid, [each.box(step.number)]) for each in sentences])
            weights = step.weights.double()
            shares = (weights / weights.sum(-1, keepdim=True)).numpy()
            rows += zip(
                [each.image for each in sentences],
                (shares * boxes).sum(-1),
                boxes[np.arange(len(boxes)), shares.argmax(-1)] > 0.5,
                entropy(torch.from_numpy(shares)).exp().numpy() / shares.shape[1],
                shares.max(-1),
                -step.of_word(step.log_probs[:, None])[:, 0].double().numpy(),
                strict=True,
            )
    return Spread(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))


COLUMNS = {
    "mass": ("mass in the box", 2, 1),
    "hit": ("pointing, %", 0, 100),
    "in_use": ("regions in use, %", 1, 100),
    "largest": ("largest weight", 3, 1),
    "nll": ("NLL of the shape", 2, 1),
}
"""Measures: head of the column, decimals, factor."""


def report(found: Mapping[tuple[str, bool, int], Spread]) -> str:
    """A row for each mechanism and grid."""
    rows = []
    for (name, further, regions), spread in found.items():
        cells = [
            interval(estimate(getattr(spread, measure), spread.images), digits, times)
            for measure, (_, digits, times) in COLUMNS.items()
        ]
        rows.append([f"`{name}`", f"{regions:,}", "trained further" if further else "as it is", *cells])
    return f"Shapes named in {SENTENCES} sentences of the test split; trained on 64 regions.\n\n" + table(
        ["mechanism", "regions", "", *(head for head, _, _ in COLUMNS.values())], rows
    )


def draw(found: Mapping[tuple[str, bool, int], Spread]) -> NotebookFigure:
    """A panel for each measure: solid lines as trained on 64 regions, dashed ones after more training."""
    shown = ("mass", "in_use", "largest", "nll")
    figure = NotebookFigure(figsize=(10.4, 2.9), layout="constrained")
    names = list(dict.fromkeys(name for name, _, _ in found))
    for ax, measure in zip(figure.subplots(1, len(shown)), shown, strict=True):
        for number, name in enumerate(names):
            for further, style in ((False, "o-"), (True, "s--")):
                points = {
                    regions: getattr(spread, measure).mean()
                    for (of, after, regions), spread in found.items()
                    if of == name and (after == further or regions == 64)
                }
                ax.plot(
                    list(points), list(points.values()), style, color=f"C{number}", markersize=4,
                    label=name if not further else None,
                )  # fmt: skip
        head, _, _ = COLUMNS[measure]
        ax.set(xscale="log", xlabel="regions", title=head.replace(", %", ""))
        ax.set_xticks(REGIONS, labels=[str(each) for each in REGIONS])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
        if measure in ("in_use", "largest"):
            ax.set_yscale("log")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names), frameon=False, fontsize=8)
    return figure
