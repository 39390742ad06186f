"""English nouns: their plurals, and the tables of words that come with the package.

The tables are this project's own, to be read and mended: `nouns.tsv` and `imagenet_classes.tsv` (see
`caption.text.nouns`), `coco_words.tsv`, other words for COCO's categories, and `caption_words.tsv`, words of captions
by kind.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

IRREGULAR = {
    "calf": "calves", "child": "children", "goose": "geese", "knife": "knives", "leaf": "leaves", "loaf": "loaves",
    "mouse": "mice", "ox": "oxen", "person": "people", "potato": "potatoes", "scarf": "scarves",
    "volcano": "volcanoes", "wolf": "wolves",
}  # fmt: skip
"""Plurals that no rule gives."""
NO_OTHER_PLURAL = ("plural", "uncountable", "singular and plural")
"""The kinds of nouns that are their own plural, or have none."""


def plural(noun: str) -> str:
    """The plural of a noun, of whose words the last changes: "hot dog" -> "hot dogs"."""
    before, space, last = noun.rpartition(" ")
    return before + space + _plural(last)


def _plural(word: str) -> str:
    if word in IRREGULAR or any(word in words_by_kind()[kind] for kind in NO_OTHER_PLURAL):
        return IRREGULAR.get(word, word)
    if word.endswith("man") and word != "human":
        return f"{word[:-3]}men"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def coco_words(category: str) -> tuple[str, ...]:
    """The words by which captions call the objects of a category of COCO, in the singular and the plural.

    They are its name and the other words of `coco_words.tsv`. That table keeps to words that rarely mean something
    else: "glasses" are mostly worn, so they do not stand for wine glasses. A category that is not COCO's is called by
    its name.
    """
    name = category.lower().replace("_", " ").strip()
    singular = (name, *_coco_table().get(name, ()))
    return tuple(dict.fromkeys(form for word in singular for form in (word, plural(word)) if form))


@cache
def _coco_table() -> dict[str, list[str]]:
    return {row["category"]: row["other words"].split(", ") for row in read_table("coco_words.tsv")}


@cache
def words_by_kind() -> dict[str, frozenset[str]]:
    """Words of captions, by kind.

    Verbs are those that are rarely nouns in captions; those in -ing are not listed. Adjectives are those that may end a
    phrase: "a black and white dog". "function" has all other words that name nothing. Of nouns there are those in
    -ing, those that are seldom said in the singular ("plural"), those that follow no "a" ("uncountable"), and those
    with one form for both numbers.
    """
    return {row["kind"]: frozenset(row["words"].split()) for row in read_table("caption_words.tsv")}


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of an installed table of words, by column."""
    text = (files("caption") / "text" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
