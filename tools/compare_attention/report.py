"""The table of docs/attention.md, and the numbers behind it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tools.compare_attention.bench import DRAWS, ERASED, SHARED, Budget, faithfulness
from tools.compare_attention.mechanisms import Mechanism
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
        "seconds_per_epoch": statistics.median(each["seconds_per_epoch"] for each in results),
        "scores": scores,
        "faithfulness": faithfulness(results),
        "runs": [
            {name: each[name] for name in ("seed", "seconds_per_epoch", "numbers", "signature")}
            for each in results
        ],
    }


def table(summaries: Mapping[str, dict[str, Any]], budget: Budget, command: str) -> str:
    """The Markdown of the section: how it was measured, the numbers, the equations."""
    ordered = sorted(summaries.items(), key=lambda entry: entry[1]["scores"]["NLL"]["mean"])
    head = ["mechanism", "regions", "parameters", "s/epoch", *(head for head, _ in COLUMNS.values())]
    head += ["deletion, attention", "deletion, random", "random − attention [95 %]"]
    numbers = [_row(name, found, budget) for name, found in ordered]
    equations = [
        [f"`{name}`", *(found[part].replace("|", "\\|") for part in ("equation", "source"))]
        for name, found in ordered
    ]
    return "\n\n".join(
        [
            _setting(summaries, budget, command),
            markdown_table(head, numbers),
            "Their equations, and where they come from:",
            markdown_table(["mechanism", "equation", "source"], equations),
        ]
    )


def _setting(summaries: Mapping[str, dict[str, Any]], budget: Budget, command: str) -> str:
    runs = [run for found in summaries.values() for run in found["runs"]]
    seeds = sorted({run["seed"] for run in runs})
    chance = [run["numbers"]["pointing_chance"] for run in runs if "pointing_chance" in run["numbers"]]
    even = [
        run["numbers"]["attention_entropy_max"] for run in runs if "attention_entropy_max" in run["numbers"]
    ]
    lines = [
        f"Written by `{command}`. {len(summaries)} mechanisms, seeds {', '.join(map(str, seeds))}: mean ± standard "
        f"deviation over the seeds. Training: {budget.epochs} epochs over {budget.scenes} scenes of Shapes; scores: "
        f"{budget.test_scenes} test scenes, `{runs[0]['signature']}`."
    ]
    if budget.shared_encoder:
        lines.append(
            f'Regions "shared": all mechanisms read the regions of one frozen encoder, that of the installed model '
            f"`{SHARED}`, which was trained together with additive attention. Refiners are trained on top of the same "
            'regions. "shared and own": a second encoder is trained with the mechanism.'
        )
    else:
        lines.append("Every mechanism is trained with an encoder of its own, from pixels.")
    warm = [
        f"`{name}` ({found['epochs']} epochs)" for name, found in summaries.items() if found["warm_start"]
    ]
    if warm:
        lines.append(f"Trained on from the additive model of the same seed: {', '.join(warm)}.")
    of_chance = f"{statistics.mean(chance):.3f}" if chance else "–"
    of_even = f"{max(even):.2f}" if even else "–"
    lines += [
        "Parameters are those that are trained. Seconds per epoch are processor time on one thread. NLL is in nats per "
        "word, under teacher forcing.",
        f"Pointing: how often the maximum of a word's map lies in the box of the object that the word names; chance is "
        f"{of_chance}. Other word: the same with the map of another word of the caption. Entropy is in nats; even "
        f"weights have {of_even}. A dash: the model has no map.",
        f"Deletion: the word's mean probability while one region after the other loses its weight, over the words of "
        f"{min(ERASED, budget.test_scenes)} scenes. Lower is faster. The order is that of the weights, or random "
        f"({DRAWS} draws). A difference above 0 says that the words depend on the regions that were looked at. Its "
        "interval is a bootstrap over scenes.",
    ]
    return "\n\n".join(lines)


def _row(name: str, found: dict[str, Any], budget: Budget) -> list[str]:
    cells = [f"`{name}`", found["regions"], f"{found['parameters']:,}", f"{found['seconds_per_epoch']:.1f}"]
    cells += [_cell(found["scores"][key], digits) for key, (_, digits) in COLUMNS.items()]
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
