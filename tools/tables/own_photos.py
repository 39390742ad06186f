"""Photos of children, of which a model learns from a few: what docs/results/own-photos.md compares."""

from __future__ import annotations

import csv
import hashlib
import io
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from caption.cli.main import main as caption
from caption.core.errors import UserError
from caption.core.runtime.files import make_parents, replacing
from caption.data.findings import Findings
from caption.data.readers import Flickr
from caption.data.readers.base import CaptionText
from caption.data.text_files import read_text

CHILDREN = re.compile(r"\b(child|children|boys?|girls?|kids?|baby|toddler)\b", re.IGNORECASE)
"""A photo shows children if two of its captions have one of these words."""
HELD_OUT = 150
"""Photos on which all models are tested."""
Captions = Mapping[str, Sequence[str]]


def own_photos(base: str, size: int, draw: int, data: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Arguments for training on some photos, by the command of docs/own-data.md, and for tests on those held out."""
    captions = captions_of_children(data)
    names = [*captions]
    drawn = {name: captions[name] for name in random.Random(draw).sample(names[:-HELD_OUT], size)}
    table, tested, config = (folder / name for name in ("own.csv", "test.csv", "own.yaml"))
    make_parents(table)
    write_table(table, {"": drawn})
    write_table(tested, {"train": drawn, "test": {name: captions[name] for name in names[-HELD_OUT:]}})
    if not config.exists():
        images = str(data.resolve() / "images")
        if caption(["check", str(table), "--images", images, "--base", base, "--write", str(config)]):
            raise UserError(f"caption check finds no photos for {table}")
    reader = "--data.reader.init_args"
    return ["-c", str(config)], [f"{reader}.captions={tested.resolve()}", f"{reader}.fractions=null"]


def captions_of_children(data: Path) -> dict[str, list[str]]:
    """By photo, without those that the installed model has learned from, in an order that their names decide: by
    BLAKE2b, because splits by fraction follow from SHA-256."""
    tokens = data / "Flickr8k.token.txt"
    learned = set((data / "Flickr_8k.trainImages.txt").read_text(encoding="utf-8").split())
    captions: dict[str, list[str]] = defaultdict(list)
    for entry in Flickr.entries(CaptionText(read_text(tokens), f"'{tokens}'"), Findings()):
        if entry.file not in learned and (data / "images" / entry.file).is_file():
            captions[entry.file] += entry.captions
    shown = [name for name, own in captions.items() if sum(bool(CHILDREN.search(each)) for each in own) >= 2]
    return {
        name: captions[name] for name in sorted(shown, key=lambda n: hashlib.blake2b(n.encode()).digest())
    }


def write_table(file: Path, splits: Mapping[str, Captions]) -> None:
    """A CSV of photos and captions; with named splits, these are a column."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["image", "caption", *["split"] * (len(splits) > 1)])
    for split, captions in splits.items():
        for name, own in captions.items():
            rows.writerows([name, each, *[split] * (len(splits) > 1)] for each in own)
    with replacing(file) as opened:
        opened.write(text.getvalue().encode())
