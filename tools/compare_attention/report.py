"""The table of docs/results/attention.md, and the numbers behind it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from caption.cli.configs import FAMILIES
from caption.metrics.significance import difference, estimate
from tools.compare_attention.differences import by_seed
from tools.compare_attention.mechanisms import Mechanism, by_family
from tools.compare_attention.runs import Result
from tools.documents import mean_and_deviation
from tools.documents import table as markdown_table
from tools.reproduce.deletion import DRAWS, ERASED

CAPPED = 0.99
"""A largest weight below is told."""
NOT_MEASURED = "not measured yet"
Summaries = dict[str, dict[str, Any]]
"""What the documents say of each mechanism."""

COLUMNS: dict[str, tuple[str, int]] = {
    "NLL": ("NLL", 3),
    "BLEU-4": ("BLEU-4", 3),
    "CIDEr": ("CIDEr", 2),
    "pointing_accuracy": ("pointing", 3),
    "pointing_other_word": ("pointing, other word", 3),
    "attention_entropy": ("entropy", 2),
}
"""Scores by their name in the results: the column's head, and decimals."""


def read_published(path: Path) -> dict[str, Any]:
    """How runs were made ("setting") and their summaries ("mechanisms"), from the JSON beside a document."""
    published: dict[str, Any] = {"setting": "", "mechanisms": {}}
    if path.exists():
        published = json.loads(path.read_text(encoding="utf-8"))
    return published


def published_results(published: Mapping[str, Any]) -> list[Result]:
    """Of each mechanism and seed."""
    summaries: Summaries = published["mechanisms"]
    return [{"mechanism": name, **run} for name, found in summaries.items() for run in found["runs"]]


def summarise(results: Sequence[Result], mechanism: Mechanism) -> dict[str, Any]:
    """One mechanism over its seeds."""
    first, last = results[0], max(results, key=lambda result: result["seed"])
    return {
        "equation": mechanism.equation,
        "source": mechanism.source,
        **{name: first[name] for name in ("regions", "warm_start", "epochs", "parameters")},
        "seconds_per_epoch": last[
            "seconds_per_epoch"
        ],  # of one seed: seeds may have run on different machines
        "faithfulness": faithfulness(results),
        "runs": [{name: part for name, part in run.items() if name != "mechanism"} for run in results],
    }


def faithfulness(results: Sequence[Result]) -> dict[str, Any] | None:
    """The areas of `deletion` over all words of several seeds, and random less attention with its 95 % interval.

    The bootstrap draws images: the words of an image, of all seeds, stay together. None if nothing was measured.
    """
    areas = [result["faithfulness"] for result in results if result["faithfulness"]]
    if not areas:
        return None
    images, attention, random = (
        np.concatenate([np.repeat(area[name], area["words"]) for area in areas])
        for name in ("images", "attention", "random")
    )
    gain = difference(attention, random, images)
    return {
        "attention": estimate(attention, images).mean,
        "random": estimate(random, images).mean,
        "random_less_attention": gain.difference,
        "low": gain.low,
        "high": gain.high,
    }


def describe(summaries: Summaries, command: str, regions: str = "") -> str:
    """How runs were made, in Markdown; `regions` says which ones the mechanisms read."""
    runs = [run for summary in summaries.values() for run in summary["runs"]]
    seeds = sorted({run["seed"] for run in runs})
    numbers = [run["numbers"] for run in runs]
    chance = [scores["pointing_chance"] for scores in numbers if "pointing_chance" in scores]
    even = [scores["attention_entropy_max"] for scores in numbers if "attention_entropy_max" in scores]
    spread = "mean ± standard deviation over the seeds" if len(seeds) > 1 else "one run of each"
    paragraphs = [
        f"Written by `{command}`. {len(summaries)} mechanisms, seeds {', '.join(map(str, seeds))}: {spread}. Each run "
        f"is a `caption fit` of at most {max(summary['epochs'] for summary in summaries.values())} epochs and a "
        "`caption test` of its best model.",
        f"Signature: `{runs[0]['signature']}`.",
    ]
    warm = [f"`{name}`" for name, summary in summaries.items() if summary["warm_start"]]
    paragraphs += [regions] * bool(regions)
    if warm:
        paragraphs.append(f"Trained on from the additive model of the same seed: {', '.join(warm)}.")
    paragraphs.append(
        "Parameters are those of decoder and refiner. Seconds per epoch are of the last seed, validation included. NLL "
        "is in nats per word, under teacher forcing."
    )
    bounds = sorted({f"{value:.2f}" for value in (min(even), max(even))}) if even else []
    of_even = f"Even weights have {' to '.join(bounds)}, by the number of places. " if even else ""
    if chance:
        paragraphs.append(
            "Pointing: how often the maximum of a word's map lies in the box of the object that the word names; chance "
            f"is {statistics.mean(chance):.3f}. Other word: the same with the map of another word of the caption."
        )
    paragraphs.append(f"Entropy is in nats. {of_even}A dash: the model has no map.")
    if _has_caps(summaries):
        paragraphs.append(
            "Cap of α: the largest weight that a region can get at all, where the trained model's scores are bounded "
            f"and it is below {CAPPED}."
        )
    paragraphs.append(
        f"Deletion: the word's mean probability while one region after the other loses its weight, over the words of "
        f"{ERASED} images at most. Lower is faster. The order is that of the weights, or random ({DRAWS} draws). A "
        "difference above 0 says that the words depend on the regions that were looked at. Its interval is a bootstrap "
        "over images."
    )
    return "\n\n".join(paragraphs)


def tables(published: Mapping[str, Any], mechanisms: Mapping[str, Mechanism]) -> str:
    """The Markdown of a section: how the runs were made, and the numbers of each mechanism, measured or not."""
    return f"{published['setting']}\n\n{_numbers(published['mechanisms'], mechanisms)}"


def equations(mechanisms: Mapping[str, Mechanism]) -> str:
    """The equation and the source of each mechanism as a table, families together."""
    rows = []
    for kin, members in by_family(mechanisms, mechanisms).items():
        rows.append([f"**{kin}**", FAMILIES.get(kin, ""), ""])
        for name in members:
            parts = mechanisms[name].equation, mechanisms[name].source
            rows.append([f"`{name}`", *(part.replace("|", "\\|") for part in parts)])
    return markdown_table(["mechanism", "equation", "source"], rows)


def _numbers(summaries: Summaries, mechanisms: Mapping[str, Mechanism]) -> str:
    ordered = sorted(summaries, key=lambda name: statistics.mean(by_seed(summaries[name], "NLL")))
    columns = {
        key: column
        for key, column in COLUMNS.items()
        if any(by_seed(summary, key) for summary in summaries.values())
    }
    head = ["mechanism", "regions", "parameters", "s/epoch", *(head for head, _ in columns.values())]
    capped = _has_caps(summaries)
    head += ["cap of α"] * capped
    head += ["deletion, attention", "deletion, random", "random − attention [95 %]"]
    rows = []
    for kin, members in by_family([*ordered, *mechanisms], mechanisms).items():
        rows.append([f"**{kin or 'others'}**"])
        for name in members:
            measured = name in summaries
            rows.append(
                _row(name, summaries[name], columns, capped) if measured else [f"`{name}`", NOT_MEASURED]
            )
    return markdown_table(head, [row + [""] * (len(head) - len(row)) for row in rows])


def _has_caps(summaries: Summaries) -> bool:
    return any(cap_of(summary) < CAPPED for summary in summaries.values())


def cap_of(summary: dict[str, Any]) -> float:
    """The largest weight that there can be, of any seed; 1 where runs did not note it."""
    return max(run.get("largest_weight", 1.0) for run in summary["runs"])


def _row(
    name: str, summary: dict[str, Any], columns: Mapping[str, tuple[str, int]], capped: bool
) -> list[str]:
    cells = [f"`{name}`", summary["regions"]]
    cells += [f"{summary['parameters']:,}", f"{summary['seconds_per_epoch']:.1f}"]
    cells += [mean_and_deviation(by_seed(summary, key), digits) for key, (_, digits) in columns.items()]
    cap = cap_of(summary)
    cells += [f"{cap:.3f}" if cap < CAPPED else ""] * capped
    areas = summary["faithfulness"]
    if areas is None:
        return [*cells, "–", "–", "–"]
    interval = f"{areas['random_less_attention']:.3f} [{areas['low']:.3f}, {areas['high']:.3f}]"
    return [*cells, f"{areas['attention']:.3f}", f"{areas['random']:.3f}", interval.replace("-", "−")]
