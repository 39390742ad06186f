"""Do hops specialise: does the first look at one object, and the next at the other?

Each hop's maps are measured at the words of "a red circle above a blue square", and each hop alone is made even, to see
whether the words need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caption.analysis.map_statistics import divergence
from caption.analysis.replay import Replay, Step
from caption.attention.map_entropy import entropy
from caption.attention.maps import named_maps, with_maps
from caption.captioner import Captioner
from caption.metrics.significance import Estimate, estimate
from caption.visualize.figure_file import NotebookFigure
from tools.documents import table
from tools.questions.bench import Answer, Bench, Sentence, interval, replayed
from tools.questions.zones import ZONES, zones

MECHANISM = "multi_hop"
KINDS = ("colour 1", "shape 1", "relation", "colour 2", "shape 2")
"""The words of a sentence: colour and shape of the object that is named first, the word that decides the relation,
colour and shape of the other."""


class Hops(NamedTuple):
    """What the hops of one model do, by kind of word: N words of H hops."""

    images: np.ndarray
    """(N,) the scene."""
    masses: np.ndarray
    """(N, H, ZONES) the share of each hop's map in each zone."""
    entropies: np.ndarray
    """(N, H) in nats."""
    apart: np.ndarray
    """(N,) Jensen-Shannon divergence in bits between the first and the last hop's map."""
    falls: np.ndarray
    """(N, H + 1) how much log p of the word falls when the map of one hop is even, and of all."""


def ask(bench: Bench, seeds: Sequence[int]) -> Answer:
    """Masses, divergence and falls of the hops of each seed."""
    test = bench.sentences("test")
    measured = {seed: measure(bench.trained(MECHANISM, seed), test) for seed in seeds}
    return Answer(report(measured), draw(measured))


@torch.no_grad()
def measure(captioner: Captioner, given: Sequence[Sentence]) -> dict[str, Hops]:
    """What the hops do, by kind of word."""
    rows: dict[str, list[tuple[np.ndarray, ...]]] = {kind: [] for kind in KINDS}
    for replay, batch in replayed(captioner, given):
        for step in replay.steps(batch):
            kinds = [kind_of(given[batch.first + row], step.number) for row in step.rows.tolist()]
            chosen = [number for number, kind in enumerate(kinds) if kind is not None]
            if not chosen:
                continue
            step = step.take(torch.tensor(chosen))
            sentences = [given[batch.first + row] for row in step.rows.tolist()]
            hops = hops_of(step)
            parts = np.stack([zones(captioner, step.views[0].grid, each) for each in sentences])
            measured = (
                np.array([each.image for each in sentences]),
                np.einsum("nzl,nhl->nhz", parts, hops.numpy()),
                entropy(hops).numpy(),
                divergence(hops[:, 0], hops[:, -1]).numpy(),
                falls(replay, step).numpy(),
            )
            for row, number in enumerate(chosen):
                rows[str(kinds[number])].append(tuple(column[row] for column in measured))
    return {
        kind: Hops(*(np.array(column) for column in zip(*found, strict=True)))
        for kind, found in rows.items()
        if found
    }


def kind_of(sentence: Sentence, step: int) -> str | None:
    """The kind of the word at a step; None for the others."""
    first, second = sentence.subject, sentence.object
    return dict(zip((first - 1, first, sentence.relation, second - 1, second), KINDS, strict=True)).get(step)


def hops_of(step: Step) -> Tensor:
    """(B, H, L) the maps of all hops at a step."""
    (maps,) = step.maps.values()
    return named_maps(maps)["hops"][:, 0].double()


def falls(replay: Replay, step: Step) -> Tensor:
    """(B, H + 1) the fall of log p in nats when one hop reads all regions alike, and when all do."""
    ((name, maps),) = step.maps.items()
    own = named_maps(maps)["hops"]  # (B, 1, H, L)
    count = own.shape[2]
    changed = torch.cat((torch.eye(count, dtype=torch.bool), torch.ones(1, count, dtype=torch.bool)))
    even = torch.where(changed[None, :, :, None], 1 / own.shape[-1], own)
    log_probs = replay.rerun(step, {name: with_maps(maps, {"hops": even})})
    return (step.of_word(step.log_probs[:, None]) - step.of_word(log_probs)).double()


def report(measured: Mapping[int, Mapping[str, Hops]]) -> str:
    """Tables: of each seed and hop the zones by kind of word, and the falls."""
    looks, needs = [], []
    for seed, by_kind in measured.items():
        count = next(iter(by_kind.values())).entropies.shape[1]
        for hop in range(count):
            cells = [
                f"{of.masses[:, hop, 0].mean():.2f} / {of.masses[:, hop, 1].mean():.2f}"
                for of in by_kind.values()
            ]
            spread = np.concatenate([of.entropies[:, hop] for of in by_kind.values()]).mean()
            looks.append([str(seed), str(hop + 1), *cells, f"{spread:.2f}"])
        for hop in range(count + 1):
            cells = [interval(estimate(of.falls[:, hop], of.images)) for of in by_kind.values()]
            needs.append([str(seed), "all" if hop == count else str(hop + 1), *cells])
        cells = [interval(estimate(of.apart, of.images)) for of in by_kind.values()]
        looks.append([str(seed), "divergence of first and last, bits", *cells, ""])
    return "\n\n".join(
        [
            "The share of each hop's map on the object that the sentence names first / second, by word, and its "
            "entropy over all of these words in nats:",
            table(["seed", "hop", *KINDS, "entropy"], looks),
            "The fall of log p of the word, in nats, when one hop reads all regions alike:",
            table(["seed", "even hop", *KINDS], needs),
        ]
    )


def draw(measured: Mapping[int, Mapping[str, Hops]]) -> NotebookFigure:
    """A row for each seed: by kind of word and hop, the zones as a stacked bar; and the falls."""
    figure = NotebookFigure(figsize=(9.6, 0.5 + 2.1 * len(measured)), layout="constrained")
    axes = figure.subplots(len(measured), 2, squeeze=False, width_ratios=(1.5, 1))
    for (looks, needs), (seed, by_kind) in zip(axes, measured.items(), strict=True):
        count = next(iter(by_kind.values())).entropies.shape[1]
        for group, of in enumerate(by_kind.values()):
            for hop in range(count):
                place, bottom = group * (count + 1) + hop, 0.0
                for zone, share in enumerate(of.masses[:, hop].mean(0)):
                    looks.bar(
                        place, share, 0.9, bottom, color=f"C{zone}", label=ZONES[zone] * (place == 0) or None
                    )
                    bottom += share
                looks.text(place, 1.01, str(hop + 1), ha="center", fontsize=7)
        looks.set_xticks(
            [(count - 1) / 2 + group * (count + 1) for group in range(len(by_kind))], labels=list(by_kind)
        )
        looks.set(ylim=(0, 1.12), ylabel=f"share, seed {seed}")
        for hop in range(count + 1):
            of_hop: list[Estimate] = [estimate(of.falls[:, hop], of.images) for of in by_kind.values()]
            needs.plot(
                [each.mean for each in of_hop], "o-", label="all hops" if hop == count else f"hop {hop + 1}"
            )
        needs.set_xticks(range(len(by_kind)), labels=list(by_kind))
        needs.set_ylabel("fall of log p when even")
        for ax in (looks, needs):
            ax.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(ZONES), frameon=False, fontsize=8)
    axes[0, 1].legend(frameon=False, fontsize=7)
    return figure
