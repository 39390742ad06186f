"""Photos of noise with captions, and a configuration that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from helpers.tiny_captioner import photo


def write_captioned(folder: Path, splits: Sequence[str], texts: Callable[[int], Sequence[str]]) -> None:
    """Write config.yaml, captions.jsonl, and 0.png, 1.png, ... of these splits, with the captions `texts(number)`."""
    lines = []
    for number, split in enumerate(splits):
        photo(64, 64, seed=number).save(folder / f"{number}.png")
        about = {"image": f"{number}.png", "split": split}
        lines += [json.dumps(about | {"caption": text}) for text in texts(number)]
    (folder / "captions.jsonl").write_text("\n".join(lines))
    arguments = {"captions": str(folder / "captions.jsonl")}
    reader = {"class_path": "caption.data.readers.JsonLines", "init_args": arguments}
    (folder / "config.yaml").write_text(json.dumps({"data": {"reader": reader}}))
