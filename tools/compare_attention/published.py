"""The runs in the JSON beside the document, which need not be repeated in a fresh clone without checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from tools.compare_attention.data_sets import Budget

Result = dict[str, Any]


def read_published(path: Path, budget: Budget) -> dict[tuple[str, int], Result]:
    """The results in the JSON of a document, by mechanism and seed.

    Empty if the file does not exist, or if its runs had another budget.
    """
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["budget"] != asdict(budget):
        return {}
    return {
        (name, run["seed"]): {
            **run,
            "mechanism": name,
            "budget": content["budget"],
            "faithfulness": _by_word(run["faithfulness"]),
        }
        for name, found in content["mechanisms"].items()
        for run in found["runs"]
    }


def to_publish(result: Mapping[str, Any]) -> Result:
    """What the document keeps of a run: of the words of an image the mean, which is all that the bootstrap uses."""
    kept = {name: value for name, value in result.items() if name not in ("mechanism", "budget")}
    return {**kept, "faithfulness": _by_image(result["faithfulness"])}


def _by_image(areas: Mapping[str, Sequence[float]] | None) -> dict[str, list[float]] | None:
    if areas is None:
        return None
    images = areas["images"]
    numbers = sorted(range(len(images)), key=lambda number: images[number])
    groups = {image: list(group) for image, group in groupby(numbers, key=lambda number: images[number])}
    means = {
        name: [
            round(sum(areas[name][number] for number in group) / len(group), 5) for group in groups.values()
        ]
        for name in ("attention", "random")
    }
    return {"images": list(groups), "words": [len(group) for group in groups.values()], **means}


def _by_word(areas: Mapping[str, Sequence[float]] | None) -> dict[str, list[float]] | None:
    """Every word of an image has the image's mean."""
    if areas is None:
        return None
    names = ("images", "attention", "random")
    return {
        name: [
            value for value, words in zip(areas[name], areas["words"], strict=True) for _ in range(int(words))
        ]
        for name in names
    }
