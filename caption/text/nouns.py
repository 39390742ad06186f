"""Everyday English nouns for ImageNet's classes: singular, plural, synonyms, and more general nouns.

`imagenet_classes.tsv` has a noun for each of the thousand classes ("Irish terrier": terrier), `nouns.tsv` the next more
general noun (terrier: dog: mammal: animal) and synonyms (bicycle: bike). Both were written by hand from the classes'
names and WordNet's hypernyms, and can be corrected by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from caption.text.english import plural, read_table
from caption.text.mentions import longest_names
from caption.text.tokenizer import get_tokenizer

GENERAL = frozenset(
    [
        "amphibian", "animal", "building", "clothing", "drink", "electronics", "flower", "food", "fruit", "furniture",
        "insect", "instrument", "mammal", "mollusc", "person", "reptile", "shellfish", "shore", "tool", "vegetable",
        "vehicle", "weapon",
    ]
)  # fmt: skip
"""Nouns that are too general to identify a thing."""


class Nouns:
    """The table of nouns.

    Attributes:
        names: the N nouns, sorted.
        class_names: names of the C classes, in the classifier's order.
        class_nouns: the noun of each class.
        forms: for each noun, the singular and plural of itself and of its synonyms.
    """

    def __init__(
        self, classes: Sequence[tuple[str, str]], nouns: Iterable[tuple[str, str, Sequence[str]]]
    ) -> None:
        """The names and nouns of classes; nouns, each with the next more general noun ("" = none) and its synonyms."""
        self.class_names = [name for name, _ in classes]
        self.class_nouns = [noun for _, noun in classes]
        self.more_general = {noun: general for noun, general, _ in nouns}
        self.names = sorted(self.more_general)
        self.forms = {
            noun: [(word, plural(word)) for word in (noun, *synonyms)] for noun, _, synonyms in nouns
        }
        self._words = {
            noun: frozenset(form for pair in forms for form in pair) for noun, forms in self.forms.items()
        }
        self._below: dict[str, list[str]] = {noun: [] for noun in self.names}
        for noun in self.names:
            for general in self.chain(noun):
                self._below[general].append(noun)
        self._by_word: dict[str, list[str]] = {}
        for noun in self.names:
            for word in self._words[noun]:
                self._by_word.setdefault(word, []).append(noun)

    def chain(self, noun: str) -> list[str]:
        """The noun and its more and more general nouns: terrier, dog, mammal, animal."""
        chain = [noun]
        while general := self.more_general[chain[-1]]:
            chain.append(general)
        return chain

    def below(self, noun: str) -> list[str]:
        """The noun and all less general nouns."""
        return self._below[noun]

    def of_word(self, word: str) -> list[str]:
        """The nouns that a word of a caption may mean, in the singular or plural: "bikes" -> bicycle, mountain bike."""
        return self._by_word.get(word.lower(), [])

    def related(self, first: str, second: str) -> bool:
        """Whether two nouns may name the same thing: one is more general than the other, or they share a word."""
        return (
            first in self.chain(second)
            or second in self.chain(first)
            or not self._words[first].isdisjoint(self._words[second])
        )

    def mentioned_in(self, captions: Iterable[str]) -> set[str]:
        """The nouns that captions mention, directly or through a more or less general noun.

        "A terrier runs" mentions terrier, dog and animal, but not retriever; "a dog runs" mentions all of them.
        """
        tokenize = get_tokenizer("ptb")
        nouns: set[str] = set()
        for words in map(tokenize, captions):
            for span in longest_names(words, self._by_word.__contains__):
                nouns.update(self._by_word[" ".join(words[span])])
        more_general = {general for noun in nouns for general in self.chain(noun)}
        return more_general | {less for noun in nouns - GENERAL for less in self.below(noun)}


@cache
def imagenet_nouns() -> Nouns:
    """The installed table for the thousand classes of ILSVRC 2012."""
    classes = [(row["class"], row["noun"]) for row in read_table("imagenet_classes.tsv")]
    nouns = [
        (row["noun"], row["more general"], [word for word in row["other words"].split(", ") if word])
        for row in read_table("nouns.tsv")
    ]
    return Nouns(classes, nouns)
