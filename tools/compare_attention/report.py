"""The table of docs/attention.md, and the numbers behind it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tools.compare_attention.bench import DRAWS, ERASED, Bench, faithfulness
from tools.compare_attention.mechanisms import Mechanism
from tools.compare_attention.published import to_publish
from tools.documents import table as markdown_table

Result = dict[str, Any]

COLUMNS: dict[str, tuple[str, int]] = {
    "NLL": ("NLL", 3),
    "BLEU-4": ("BLEU-4", 3),
    "CIDEr": ("CIDEr", 2),
    "pointing_accuracy": ("pointing", 3),
    "pointing_other_word": ("pointing, other word", 3),
    "attention_entropy": ("entropy", 2),
}
"""Scores by their name in the results: the column's head, and decimals."""


def summary(results: Sequence[Result], mechanism: Mechanism) -> dict[str, Any]:
    """One mechanism over its seeds: what the documents say of it."""
    first = results[0]
    scores = {name: _spread([each["numbers"].get(name) for each in results]) for name in COLUMNS}
    return {
        "equation": mechanism.equation,
        "source": mechanism.source,
        "regions": first["regions"],
        "warm_start": first["warm_start"],
        "epochs": first["epochs"],
        "parameters": first["parameters"],
        # Of one seed only: seeds may have run on different machines.
        "seconds_per_epoch": max(results, key=lambda each: each["seed"])["seconds_per_epoch"],
        "scores": scores,
        "faithfulness": faithfulness(results),
        "runs": [to_publish(each) for each in results],
    }


def table(summaries: Mapping[str, dict[str, Any]], bench: Bench, command: str) -> str:
    """The Markdown of the section: how it was measured, the numbers, the equations."""
    ordered = sorted(summaries.items(), key=lambda entry: entry[1]["scores"]["NLL"]["mean"])
    columns = {
        key: column
        for key, column in COLUMNS.items()
        if any(_has(found, key) for found in summaries.values())
    }
    head = ["mechanism", "regions", "parameters", "s/epoch", *(head for head, _ in columns.values())]
    head += ["deletion, attention", "deletion, random", "random − attention [95 %]"]
    numbers = [_row(name, found, columns) for name, found in ordered]
    equations = [
        [f"`{name}`", *(found[part].replace("|", "\\|") for part in ("equation", "source"))]
        for name, found in ordered
    ]
    return "\n\n".join(
        [
            _setting(summaries, bench, command),
            markdown_table(head, numbers),
            "Their equations, and where they come from:",
            markdown_table(["mechanism", "equation", "source"], equations),
        ]
    )


def _has(found: dict[str, Any], key: str) -> bool:
    return found["scores"][key]["mean"] is not None


def _setting(summaries: Mapping[str, dict[str, Any]], bench: Bench, command: str) -> str:
    runs = [run for found in summaries.values() for run in found["runs"]]
    seeds = sorted({run["seed"] for run in runs})
    numbers = [run["numbers"] for run in runs]
    chance = [each["pointing_chance"] for each in numbers if "pointing_chance" in each]
    even = [each["attention_entropy_max"] for each in numbers if "attention_entropy_max" in each]
    spread = "mean ± standard deviation over the seeds" if len(seeds) > 1 else "one run of each"
    lines = [
        f"Written by `{command}`. {len(summaries)} mechanisms, seeds {', '.join(map(str, seeds))}: {spread}. "
        f"{bench.data_set.setting(bench.budget)}",
        f"Signature: `{runs[0]['signature']}`.",
    ]
    warm = [
        f"`{name}` ({found['epochs']} epochs)" for name, found in summaries.items() if found["warm_start"]
    ]
    if warm:
        lines.append(f"Trained on from the additive model of the same seed: {', '.join(warm)}.")
    lines.append(
        "Parameters are those that are trained. Seconds per epoch are processor time on one thread, with the last "
        "seed. NLL is in nats per word, under teacher forcing."
    )
    bounds = sorted({f"{value:.2f}" for value in (min(even), max(even))}) if even else []
    of_even = f"Even weights have {' to '.join(bounds)}, by the number of places. " if even else ""
    if chance:
        lines.append(
            "Pointing: how often the maximum of a word's map lies in the box of the object that the word names; chance "
            f"is {statistics.mean(chance):.3f}. Other word: the same with the map of another word of the caption."
        )
    lines += [
        f"Entropy is in nats. {of_even}A dash: the model has no map.",
        f"Deletion: the word's mean probability while one region after the other loses its weight, over the words of "
        f"{min(ERASED, bench.budget.test_images)} images. Lower is faster. The order is that of the weights, or random "
        f"({DRAWS} draws). A difference above 0 says that the words depend on the regions that were looked at. Its "
        "interval is a bootstrap over images.",
    ]
    return "\n\n".join(lines)


def _row(name: str, found: dict[str, Any], columns: Mapping[str, tuple[str, int]]) -> list[str]:
    cells = [f"`{name}`", found["regions"], f"{found['parameters']:,}", f"{found['seconds_per_epoch']:.1f}"]
    cells += [_cell(found["scores"][key], digits) for key, (_, digits) in columns.items()]
    areas = found["faithfulness"]
    if areas is None:
        return [*cells, "–", "–", "–"]
    interval = f"{areas['random_less_attention']:.3f} [{areas['low']:.3f}, {areas['high']:.3f}]"
    return [*cells, f"{areas['attention']:.3f}", f"{areas['random']:.3f}", interval.replace("-", "−")]


def _cell(spread: dict[str, Any], digits: int) -> str:
    if spread["mean"] is None:
        return "–"
    deviation = "" if spread["deviation"] is None else f" ± {spread['deviation']:.{digits}f}"
    return f"{spread['mean']:.{digits}f}{deviation}"


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean and standard deviation (n − 1 in the denominator; None for one seed)."""
    there = [value for value in values if value is not None]
    return {
        "mean": statistics.mean(there) if there else None,
        "deviation": statistics.stdev(there) if len(there) > 1 else None,
    }
