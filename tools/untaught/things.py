"""Eight things whose names leave the captions, and F1 of naming them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from caption.data.files import read_text
from caption.runtime.files import make_parents, replacing


class Thing(NamedTuple):
    """What is not taught."""

    words: str
    """Words that name it."""
    related: str = ""
    """Further words whose captions leave, because they nearly name it."""


THINGS = {
    "basketball": Thing("basketball basketballs"),
    "bicycle": Thing(
        "bicycle bicycles bike bikes",
        "bicycler bicyclers bicycling bicyclist bicyclists biker bikers biking cycle cycles cycling cyclist cyclists",
    ),
    "boat": Thing(
        "boat boats canoe canoes gondola gondolas kayak kayaks lifeboat lifeboats motorboat motorboats raft rafts "
        "rowboat rowboats sailboat sailboats speedboat speedboats",
        "boater boaters boating canoeing canoer canoers kayaker kayakers kayaking rafters rafting sailing",
    ),
    "couch": Thing("couch couches sofa sofas", "futon loveseat"),
    "guitar": Thing("guitar guitars", "guitarist guitarists"),
    "horse": Thing("horse horses ponies pony", "horseback"),
    "soccer": Thing("soccer"),
    "tennis": Thing("tennis"),
}
"""Eight things that ImageNet has classes of, among those that the captions of at least six photos of the dev split name
twice or more often, and that are things, not places, clothes or people. The test split had no say in it."""
SPLITS = {"train": "train", "val": "dev", "test": "test"}
"""Splits, as they are called in the names of Flickr8k's lists."""


def words_of(text: str) -> set[str]:
    """The words of a caption, in small letters."""
    return set(re.findall(r"[a-z]+", text.lower()))


def named(text: str) -> set[str]:
    """The things that a caption names."""
    words = words_of(text)
    return {name for name, thing in THINGS.items() if words & {*thing.words.split()}}


def is_taught(text: str) -> bool:
    """Whether a caption stays in the training."""
    words = words_of(text)
    return not any(words & {*thing.words.split(), *thing.related.split()} for thing in THINGS.values())


def write_data(data: Path, out: Path) -> None:
    """Flickr8k without the captions that name a thing, and without photos that then have none; test stays as it is."""
    lists = {split: read_text(data / f"Flickr_8k.{name}Images.txt").split() for split, name in SPLITS.items()}
    split_of = {photo: split for split, photos in lists.items() for photo in photos}
    lines, left = [], set()
    for line in read_text(data / "Flickr8k.token.txt").splitlines():
        key, _, text = line.partition("\t")
        photo = key.rpartition("#")[0]
        split = split_of.get(photo)
        if split == "test" or (split and is_taught(text)):
            lines.append(f"{line}\n")
            left.add(photo)
    make_parents(out / "captions.txt")
    files = {"captions": "".join(lines)} | {
        split: "".join(f"{photo}\n" for photo in photos if photo in left) for split, photos in lists.items()
    }
    for name, text in files.items():
        with replacing(out / f"{name}.txt") as file:
            file.write(text.encode())


class Naming(NamedTuple):
    """How often a thing is named."""

    right: int
    """Photos whose captions and references both name it."""
    said: int
    there: int
    """Photos whose references name it."""

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.said + self.there) if self.said + self.there else 0.0


def naming(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> dict[str, Naming]:
    """Of each thing; a photo has it if one of its references names it (Hendricks et al. 2016, section 4)."""
    said = {photo: named(text) for photo, text in captions.items()}
    there = {photo: named(" ".join(references[photo])) for photo in captions}
    return {
        name: Naming(
            sum(name in said[photo] and name in there[photo] for photo in captions),
            sum(name in things for things in said.values()),
            sum(name in things for things in there.values()),
        )
        for name in THINGS
    }
