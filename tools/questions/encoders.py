"""Do the weights of two encoders say which one mattered?

Meta-embeddings weigh two encoders at each region. What the weights say is compared with what happens when an encoder is
deleted, that is, when each of its regions is replaced by its mean region. Cross-attention has no weight between its two
encoders, since those over the second one's regions sum to one; there the share of the second in the vectors' length
takes the place of the weight.

Both encoders are frozen, so that it is known what they can tell: a good one has the weights of the installed model
`shapes`, a poor one has four channels and random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from caption.analysis.agreement import rank_correlation
from caption.analysis.module_copy import with_parts
from caption.analysis.replay import Replay
from caption.captioner import Captioner
from caption.encoders import CrossAttentionRefiner, MetaEmbeddingRefiner, SeveralEncoders, SmallCNN
from caption.metrics.significance import Estimate, estimate
from caption.models.model_zoo import load
from caption.regions import Views
from caption.visualize.figure_file import NotebookFigure
from tools.documents import table
from tools.questions.bench import ENCODER, SHORT, Answer, Bench, Sentence, bars, interval, replayed
from tools.questions.hops import KINDS, kind_of

GOOD, POOR = (32, 64, 128, 128), (4, 4, 4, 4)
"""Widths of the encoders."""
MODELS: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "meta_embedding, good and good": ("meta_embedding", (GOOD, GOOD)),
    "meta_embedding, good and poor": ("meta_embedding", (GOOD, POOR)),
    "meta_embedding, poor and good": ("meta_embedding", (POOR, GOOD)),
    "cross_attention, good and poor": ("cross_attention", (GOOD, POOR)),
    "cross_attention, poor and good": ("cross_attention", (POOR, GOOD)),
}
"""The mechanism and the two encoders, by name."""
SHORTER = ("--trainer.limit_train_batches=80",)


class Encoders(NamedTuple):
    """What weights and deletions say at N words of a model with two encoders."""

    images: np.ndarray
    """(N,) the scene."""
    kinds: np.ndarray
    """(N,) of the words, see `KINDS`."""
    shares: np.ndarray
    """(N,) the share of the second encoder in what the word reads."""
    falls: np.ndarray
    """(N, 2) the fall of log p in nats when an encoder is deleted."""


def ask(bench: Bench, seeds: Sequence[int]) -> Answer:
    """Shares and falls of each model."""
    test = bench.sentences("test")
    found = {}
    for name, (mechanism, widths) in MODELS.items():
        encoder = pair_of_encoders(widths, seeds[0])
        folder = name.replace(", ", "-").replace(" ", "_")
        further = [*SHORT, *SHORTER]
        found[name] = measure(bench.trained(mechanism, seeds[0], further, encoder, folder), test)
    return Answer(report(found), draw(found))


def pair_of_encoders(widths: Sequence[Sequence[int]], seed: int) -> SeveralEncoders:
    """Encoders of these widths; good ones have the weights of the installed model."""
    torch.manual_seed(seed)
    encoders = [SmallCNN(list(each)) for each in widths]
    for encoder, each in zip(encoders, widths, strict=True):
        if each == GOOD:
            encoder.load_state_dict(load(ENCODER).encoder.state_dict())
    return SeveralEncoders([*encoders])


@torch.no_grad()
def measure(captioner: Captioner, given: Sequence[Sentence]) -> Encoders:
    """Shares and falls at the words of `KINDS`."""
    assert captioner.refiner is not None
    unrefined = with_parts(captioner, {"refiner": None})
    means = mean_regions(unrefined, given)
    rows: list[tuple[Any, ...]] = []
    for _, batch in replayed(unrefined, given):
        replay = Replay(captioner.decoder)
        with second_share(captioner) as shares:
            refined = captioner.refine(batch.views)
        changed = [refined, *(captioner.refine(deleted(batch.views, means, view)) for view in range(2))]
        of_region = shares[0]
        steps = zip(*(replay.steps(batch._replace(views=views)) for views in changed), strict=True)
        for step, *others in steps:
            log_p = [of.of_word(of.log_probs[:, None])[:, 0] for of in (step, *others)]
            for place, row in enumerate(step.rows.tolist()):
                sentence = given[batch.first + row]
                if (kind := kind_of(sentence, step.number)) is None:
                    continue
                read = float((step.weights[place] * of_region[row]).sum() / step.weights[place].sum())
                falls = [float(log_p[0][place] - log_p[1 + view][place]) for view in range(2)]
                rows.append((sentence.image, kind, read, falls))
    images, kinds, read, falls = zip(*rows, strict=True)
    return Encoders(np.array(images), np.array(kinds), np.array(read), np.array(falls))


def mean_regions(unrefined: Captioner, given: Sequence[Sentence]) -> list[Tensor]:
    """(D,) the mean region of each encoder over the scenes."""
    sums: list[Any] = [0.0, 0.0]
    count = 0
    for _, batch in replayed(unrefined, given):
        sums = [total + view.vectors.mean(1).sum(0) for total, view in zip(sums, batch.views, strict=True)]
        count += len(batch.words)
    return [total / count for total in sums]


def deleted(views: Views, means: Sequence[Tensor], number: int) -> Views:
    """Views in which one has its mean region everywhere."""
    return tuple(
        view._replace(vectors=means[n].expand_as(view.vectors)) if n == number else view
        for n, view in enumerate(views)
    )


@contextmanager
def second_share(captioner: Captioner) -> Iterator[list[Tensor]]:
    """Within it, refining adds the share of the second encoder at each region, (B, L), to the list.

    Of meta-embeddings its weight; of cross-attention ‖what is read from it‖ / (that + ‖the first's vector‖).
    """
    refiner, shares = captioner.refiner, []
    hooks: list[tuple[torch.nn.Module, Callable[..., None]]] = []
    if isinstance(refiner, MetaEmbeddingRefiner):
        hooks = [(refiner.shares, lambda module, args, weights: shares.append(weights[..., 1]))]
    elif isinstance(refiner, CrossAttentionRefiner):
        own: list[Tensor] = []

        def read(module: torch.nn.Module, args: Any, vectors: Tensor) -> None:
            lengths = vectors.norm(dim=-1), own[-1].norm(dim=-1)
            shares.append(lengths[0] / (lengths[0] + lengths[1]))

        first, *_ = refiner.layers.attend
        hooks = [(refiner.enter, lambda module, args, vectors: own.append(vectors)), (first, read)]
    with ExitStack() as stack:
        for module, hook in hooks:
            stack.enter_context(module.register_forward_hook(hook))
        yield shares


def correlation(found: Encoders) -> Estimate:
    """Spearman's rank correlation of the second encoder's share and of how much more its deletion costs, with the 95 %
    interval over draws of scenes."""
    gains = found.falls[:, 1] - found.falls[:, 0]
    generator = np.random.default_rng(0)
    by_image = [np.flatnonzero(found.images == image) for image in np.unique(found.images)]

    def of(rows: np.ndarray) -> float:
        return float(rank_correlation(found.shares[None, rows], gains[None, rows])[0])

    draws = [
        of(np.concatenate([by_image[n] for n in generator.integers(0, len(by_image), len(by_image))]))
        for _ in range(200)
    ]
    low, high = np.quantile(draws, (0.025, 0.975))
    return Estimate(of(np.arange(len(gains))), float(low), float(high))


def report(found: Mapping[str, Encoders]) -> str:
    """A row for each model and kind of word."""
    rows = []
    for name, of in found.items():
        for kind in (None, *KINDS):
            chosen = of.kinds == kind if kind else np.ones(len(of.kinds), dtype=bool)
            images = of.images[chosen]
            cells = [interval(estimate(values[chosen], images)) for values in (of.shares, *of.falls.T)]
            rows.append([name, kind or "all", *cells, "" if kind else interval(correlation(of))])
    head = ["model", "words", "share of the second", "fall without the first", "fall without the second"]
    return (
        "The share of the second encoder in what a word reads; the fall of log p, in nats, when an encoder is deleted; "
        "and the rank correlation, over words, of that share with the difference of the two falls:\n\n"
        + table([*head, "correlation"], rows)
    )


def draw(found: Mapping[str, Encoders]) -> NotebookFigure:
    """A panel for each model: the shares by kind of word, and each encoder's part of the falls."""
    figure = NotebookFigure(figsize=(2.4 * len(found), 2.9), layout="constrained")
    for ax, (name, of) in zip(figure.subplots(1, len(found), sharey=True), found.items(), strict=True):
        share, part = [], []
        for kind in KINDS:
            chosen = of.kinds == kind
            falls = of.falls[chosen].mean(0).clip(min=0)
            share.append(of.shares[chosen].mean())
            part.append(falls[1] / max(falls.sum(), 1e-9))
        bars(ax, {"its share of the weights": share, "its share of the falls": part}, KINDS)
        ax.set_title(name.replace(", ", ",\n"), fontsize=9)
        ax.set_ylim(0, 1.05)
        ax.axhline(0.5, color="0.6", linewidth=0.8)
    figure.axes[0].set_ylabel("of the second encoder")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure
