"""English nouns: their plurals, and the tables of words that come with the package.

The tables were written for this project and can be corrected by hand: `nouns.tsv` and `imagenet_classes.tsv` (see
`caption.text.nouns`), `coco_words.tsv`, synonyms of COCO's categories, and `caption_words.tsv`, words of captions by
kind.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

IRREGULAR = {
    "calf": "calves", "child": "children", "goose": "geese", "knife": "knives", "leaf": "leaves", "loaf": "loaves",
    "mouse": "mice", "ox": "oxen", "person": "people", "potato": "potatoes", "scarf": "scarves",
    "volcano": "volcanoes", "wife": "wives", "wolf": "wolves",
}  # fmt: skip
"""Irregular plurals."""
NO_OTHER_PLURAL = ("plural", "uncountable", "singular and plural")
"""The kinds of nouns that equal their plural, or have none."""


def plural(noun: str) -> str:
    """The plural of a noun; only its last word changes: "hot dog" -> "hot dogs"."""
    before, space, last = noun.rpartition(" ")
    return before + space + _plural(last)


def _plural(word: str) -> str:
    if word in IRREGULAR or any(word in words_by_kind()[kind] for kind in NO_OTHER_PLURAL):
        return IRREGULAR.get(word, word)
    if word.endswith("man") and word not in ("human", "doberman"):
        return f"{word[:-3]}men"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def coco_words(category: str) -> tuple[str, ...]:
    """The words for the objects of a COCO category in captions, in the singular and the plural.

    They are its name and its synonyms in `coco_words.tsv`. The table contains only words that rarely have another
    meaning: "glasses" are mostly worn, so it is not a word for wine glasses. A category that COCO does not have is only
    called by its name.
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

    The verbs are those that are rarely nouns in captions, without those in -ing. The adjectives are those that may end
    a phrase: "a black and white dog". "function" contains all other words that do not name a thing. The kinds of nouns
    are nouns in -ing, nouns that are rarely used in the singular ("plural"), nouns that do not follow "a"
    ("uncountable"), nouns with the same singular and plural, words for persons beside those of COCO's category
    ("person"), and places ("place"), both in the singular. The determiners are also function words.
    """
    return {row["kind"]: frozenset(row["words"].split()) for row in read_table("caption_words.tsv")}


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of an installed table of words, by column."""
    text = (files("caption") / "text" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
