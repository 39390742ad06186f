"""The options that a resumed training keeps from its checkpoint, whatever the configuration says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from caption.core.errors import CheckpointError
from caption.data.photos import ImageTransform

SECTIONS = ("encoder", "refiner", "decoder", "objective")
"""Entries of the section model: parts whose weights, or baselines, are restored."""
WORDS = ("min_count", "vocabulary_size", "tokenizer")
"""Entries of the section data that determine the vocabulary, which is restored."""
BATCHES = ("batch_size", "captions_per_image", "batching")
"""Entries of the section data that determine the batches, in which the place inside an epoch is counted."""


def kept_options(options: Mapping[str, Any]) -> dict[str, str]:
    """The options that a resumed training keeps, and those that it keeps inside an epoch, as JSON by their names.

    Args:
        options: of `caption fit`, in plain types.
    """
    model, data = options["model"], options["data"]
    kept = {"seed_everything": options.get("seed_everything")}
    kept |= {f"model.{name}": model.get(name) for name in SECTIONS}
    kept |= {f"data.{name}": data.get(name) for name in (*WORDS, "transform", *BATCHES)}
    return {name: json.dumps(value) for entry in kept.items() for name, value in _leaves(*entry)}


def recorded_options(contents: Mapping[str, Any], now: dict[str, str]) -> dict[str, str]:
    """The options of a resumed training: those that its checkpoint records, or `now` if it records none.

    Args:
        contents: of the checkpoint. After a whole epoch, `BATCHES` may change: they are those of `now`.
        now: `kept_options` of the configuration.
    """
    recorded = contents.get("options")
    if not isinstance(recorded, Mapping):
        return now
    free = [] if inside_epoch(contents) else [f"data.{name}" for name in BATCHES]
    kept = {str(name): str(value) for name, value in recorded.items()}
    return kept | {name: now[name] for name in free}


def changed_options(recorded: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Both values of the options that differ, by name. If a part has another class, only the class is listed.

    Args:
        recorded: `recorded_options` of the checkpoint.
        now: `kept_options` of the configuration.
    """
    changed: dict[str, tuple[str, str]] = {}
    for name in sorted({*recorded, *now}, key=lambda name: (not name.endswith("class_path"), name)):
        before, after = recorded.get(name, "null"), now.get(name, "null")
        classes = [option.removesuffix("class_path") for option in changed if option.endswith("class_path")]
        if before != after and not any(map(name.startswith, classes)):
            changed[name] = before[:200], after
    return changed


def restored_options(changed: Mapping[str, tuple[str, str]], contents: Mapping[str, Any]) -> dict[str, Any]:
    """The changed options that a resumed training records as in its checkpoint: the seed, and entries of section data.

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
