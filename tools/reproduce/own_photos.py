"""A model for a few photos of one kind: the table of docs/results/own-photos.md."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import random
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from caption.data.files import read_text
from caption.data.readers.captions import Findings
from caption.data.readers.flickr import flickr_entries
from caption.models.model_zoo import PHOTO_MODEL, model_file
from caption.runtime.files import make_parents, replacing
from tools.documents import table, write_sections
from tools.reproduce.runs import fit, run, test_checkpoint, trained_seconds

KINDS = {
    "children": r"child|children|boys?|girls?|kids?|baby|toddler",
    "dogs": r"dogs?|pupp(y|ies)",
}
"""Words of a kind; a photo is of the kind if two of its captions have one of them."""
HELD_OUT = 150
"""Photos of a kind on which all models are tested."""
SCORES = {"CIDEr": 3, "BLEU-4": 3, "NLL": 2}
"""With their decimals."""
INSTALLED = "installed"
ORIGINS = {INSTALLED: "as installed", "scratch": "from scratch", "fine-tuned": "fine-tuned"}
BASES = {INSTALLED: "own_photos", "scratch": "flickr8k_soft", "fine-tuned": "own_photos"}
"""The configuration that `caption check --write` changes."""
Captions = Mapping[str, Sequence[str]]
Run = dict[str, Any]


class Draw(NamedTuple):
    """A student's photos: some of a kind, drawn at random."""

    size: int
    number: int

    def photos(self, pool: Sequence[str]) -> list[str]:
        return random.Random(self.number).sample(list(pool), self.size)


def main(options: argparse.Namespace, more: list[str]) -> None:
    """Write a configuration, train and test for each draw that is not published yet; write all that is."""
    published = options.document.with_name("own_photos.json")
    captions = captions_of(options.data, KINDS[options.kind])
    runs = _read(published)
    for number in range(options.draws):
        for size in options.sizes:
            for origin in options.models:
                name = INSTALLED if origin == INSTALLED else f"{origin}, {size}, {number}"
                if name not in runs:
                    scores = measured(origin, Draw(size, number), captions, options, more)
                    runs = _read(published) | {
                        name: scores
                    }  # another of these commands may have written some
                    with replacing(published) as file:
                        file.write((json.dumps(runs, indent=1) + "\n").encode())
    text = report(runs, options, len(captions))
    print(text)
    write_sections(options.document, {"own_photos": text})


def _read(published: Path) -> dict[str, Run]:
    return json.loads(published.read_text(encoding="utf-8")) if published.exists() else {}


def captions_of(data: Path, words: str) -> dict[str, list[str]]:
    """The photos of a kind that the installed model has not learned from, with their captions, in an order that their
    names decide: by BLAKE2b, because splits by fraction follow from SHA-256."""
    tokens = data / "Flickr8k.token.txt"
    learned = set((data / "Flickr_8k.trainImages.txt").read_text(encoding="utf-8").split())
    captions: dict[str, list[str]] = defaultdict(list)
    for entry in flickr_entries(read_text(tokens), f"'{tokens}'", Findings()):
        if entry.file not in learned and (data / "images" / entry.file).is_file():
            captions[entry.file] += entry.captions
    pattern = re.compile(rf"\b({words})\b", re.IGNORECASE)
    of_kind = [name for name, own in captions.items() if sum(bool(pattern.search(each)) for each in own) >= 2]
    return {
        name: captions[name] for name in sorted(of_kind, key=lambda n: hashlib.blake2b(n.encode()).digest())
    }


def measured(
    origin: str, draw: Draw, captions: Captions, options: argparse.Namespace, more: Sequence[str]
) -> Run:
    """Scores on the photos held out, of the model that the page's commands give for a draw.

    The regions of all photos are stored once, so that the table takes less time; they are those of the commands.
    """
    pool, base = list(captions)[:-HELD_OUT], BASES[origin]
    folder = options.out.resolve() / f"{origin}_{draw.size}_{draw.number}".replace(" ", "_")
    make_parents(folder / "own.csv")
    photos = ["--images", str(options.data.resolve() / "images")]
    store = folder.parent / f"regions_{base}"
    if not (store.parent / f"{base}.done").exists():
        write_table(store.parent / "all.csv", {name: captions[name] for name in captions})
        config = _configuration(store.parent / "all.csv", store.parent / f"{base}.yaml", base, photos)
        encoder = ["--model", PHOTO_MODEL] if origin != "scratch" else []
        run("features", "-c", str(config), *encoder, "--out", str(store))
        with replacing(store.parent / f"{base}.done") as file:
            file.write(b"")
    own = {name: captions[name] for name in draw.photos(pool)}
    write_table(folder / "own.csv", own)
    config = _configuration(folder / "own.csv", folder / "own.yaml", base, photos)
    held_out = {name: captions[name] for name in list(captions)[-HELD_OUT:]}
    write_table(folder / "test.csv", own, held_out)
    common = [
        "-c",
        str(config),
        "--data.features",
        str(store),
        "--trainer.enable_progress_bar",
        "false",
        *more,
    ]
    best, seconds = folder / "run" / "installed.safetensors", 0
    if origin == INSTALLED:
        make_parents(best)
        with replacing(best) as file:  # tests write their logs beside the model
            file.write(Path(model_file(PHOTO_MODEL)).read_bytes())
    else:
        best = fit(folder / "run", common)
        seconds = trained_seconds(folder / "run")
    test = [
        "--data.reader.init_args.file",
        str(folder / "test.csv"),
        "--data.reader.init_args.fractions",
        "null",
    ]
    scores = test_checkpoint(best, folder / "test.json", [*common, *test, "--verbose", "false"])["scores"]
    return {"seconds": seconds, **{name: scores[name] for name in SCORES}}


def _configuration(table: Path, config: Path, base: str, photos: Sequence[str]) -> Path:
    """What `caption check --write` makes of a table."""
    if not config.exists():
        run("check", str(table), *photos, "--base", base, "--write", str(config))
    return config


def write_table(file: Path, *splits: Captions) -> None:
    """A CSV of photos and captions; with two sets of photos, these are for training and testing."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["image", "caption", *(["split"] if len(splits) > 1 else [])])
    for split, captions in zip(("train", "test"), splits, strict=False):
        for name, own in captions.items():
            rows.writerows([name, each, *([split] if len(splits) > 1 else [])] for each in own)
    with replacing(file) as opened:
        opened.write(text.getvalue().encode())


def report(runs: Mapping[str, Run], options: argparse.Namespace, photos: int) -> str:
    """A row for each number of photos and origin: the mean of the draws, and each draw's own score."""
    rows = []
    for size in options.sizes:
        for origin, title in ORIGINS.items():
            draws = [runs[INSTALLED]]
            if origin != INSTALLED:
                draws = [
                    runs[name] for n in range(options.draws) if (name := f"{origin}, {size}, {n}") in runs
                ]
            if not draws or (origin == INSTALLED and size != options.sizes[0]):
                continue
            cells = [_each([each[name] for each in draws], digits) for name, digits in SCORES.items()]
            minutes = (
                "" if origin == INSTALLED else f"{statistics.mean(r['seconds'] for r in draws) / 60:.1f}"
            )
            rows.append(["" if origin == INSTALLED else str(size), title, *cells, minutes])
    command = f"python -m tools.reproduce own --data DATA --draws {options.draws} --kind {options.kind}"
    head = ["photos", "", *SCORES, "minutes"]
    return (
        f"Written by `{command}`: mean of the draws (each; a single number is of one), on {HELD_OUT} other photos of "
        f"{options.kind}, of {photos} that no model has learned from. The minutes are those of `caption fit` with "
        f"stored regions.\n\n{table(head, rows)}"
    )


def _each(values: Sequence[float], digits: int) -> str:
    own = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.mean(values):.{digits}f}" + (f" ({own})" if len(values) > 1 else "")
