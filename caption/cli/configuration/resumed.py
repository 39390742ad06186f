"""Options that a resumed training keeps: what its checkpoint was trained with, whatever the configuration says now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from caption.core.errors import CheckpointError
from caption.data.photos import ImageTransform

SECTIONS = ("encoder", "refiner", "decoder", "objective")
"""Of the section model: what has weights, or baselines, that are restored."""
WORDS = ("min_count", "vocabulary_size", "tokenizer")
"""Of the section data: what the vocabulary was made with, which is restored."""
BATCHES = ("batch_size", "captions_per_image", "batching")
"""Of the section data: the place inside an epoch is counted in these batches."""


def kept_options(options: Mapping[str, Any]) -> dict[str, str]:
    """The options that a resumed training keeps, and those that it keeps inside an epoch, as JSON by their names.

    Args:
        options: of `caption fit`, in plain types.
    """
    model, data = options["model"], options["data"]
    kept = {"seed_everything": options.get("seed_everything")}
    kept |= {f"model.{name}": model.get(name) for name in SECTIONS}
    kept |= {f"data.{name}": data.get(name) for name in (*WORDS, "transform", *BATCHES)}
    return {name: json.dumps(value) for each in kept for name, value in _leaves(each, kept[each])}


def recorded_options(contents: Mapping[str, Any], now: dict[str, str]) -> dict[str, str]:
    """The options with which a training goes on: those that its checkpoint records, or `now` if it records none.

    Args:
        contents: of the checkpoint. After a whole epoch, `BATCHES` are free: they are those of now.
        now: `kept_options` of the configuration.
    """
    recorded = contents.get("options")
    if not isinstance(recorded, Mapping):
        return now
    free = [] if inside_epoch(contents) else [f"data.{name}" for name in BATCHES]
    kept = {str(name): str(value) for name, value in recorded.items()}
    return kept | {name: now[name] for name in free}


def changed_options(recorded: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The options that differ, by name: both values. Of a part that is another class, only the class.

    Args:
        recorded: `recorded_options` of the checkpoint.
        now: `kept_options` of the configuration.
    """
    changed: dict[str, tuple[str, str]] = {}
    for name in sorted({*recorded, *now}, key=lambda name: (not name.endswith("class_path"), name)):
        before, after = (each.get(name, "null") for each in (recorded, now))
        within = [other.removesuffix("class_path") for other in changed if other.endswith("class_path")]
        if before != after and not any(map(name.startswith, within)):
            changed[name] = before[:200], after
    return changed


def restored_options(changed: Mapping[str, tuple[str, str]], contents: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the record of a resumed training true: the seed, and the section data, of its checkpoint.

    Raises:
        CheckpointError: the options that the checkpoint records are malformed.
    """
    try:
        data = {
            name: json.loads(changed[f"data.{name}"][0])
            for name in (*WORDS, *BATCHES)
            if f"data.{name}" in changed
        }
        seed = {name: json.loads(changed[name][0]) for name in ("seed_everything",) if name in changed}
    except ValueError as error:
        raise CheckpointError("the options that the checkpoint records are malformed") from error
    if any(name.startswith("data.transform") for name in changed):
        data["transform"] = ImageTransform.from_dict(contents["captioner"]["transform"]).to_dict()
    return seed | ({"data": data} if data else {})


def inside_epoch(contents: Mapping[str, Any]) -> bool:
    """Whether a training checkpoint was written inside an epoch."""
    try:
        progress = contents["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        return progress["current"]["ready"] > 0 and not progress["is_last_batch"]
    except (KeyError, TypeError):  # refused when it is restored
        return False


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, entry in value.items():
            yield from _leaves(f"{name}.{key}", entry)
    else:
        yield name, value
