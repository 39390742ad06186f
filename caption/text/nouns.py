"""Nouns in everyday English for ImageNet's classes: singular, plural, other words for the same, more general nouns.

`imagenet_classes.tsv` gives each of the thousand classes one noun ("Irish terrier": terrier), `nouns.tsv` the noun that
is more general (terrier: dog: mammal: animal) and other words that people use for it (bicycle: bike). Both were made by
hand from the classes' names and WordNet's hypernyms; they are tables to be read and mended.
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
"""Nouns too general to tell what a thing is."""


class Nouns:
    """The table of nouns.

    Attributes:
        names: the N nouns, sorted.
        class_names: of the C classes, in the classifier's order.
        class_nouns: the noun of each class.
        forms: the words for each noun, itself first, each in the singular and plural.
    """

    def __init__(
        self, classes: Sequence[tuple[str, str]], nouns: Iterable[tuple[str, str, Sequence[str]]]
    ) -> None:
        """The names and nouns of classes; nouns, each with the more general one ("" = none) and other words for it."""
        self.class_names = [name for name, _ in classes]
        self.class_nouns = [noun for _, noun in classes]
        self.more_general = {noun: general for noun, general, _ in nouns}
        self.names = sorted(self.more_general)
        self.forms = {noun: [(word, plural(word)) for word in (noun, *others)] for noun, _, others in nouns}
        self._own_words = {
            noun: frozenset(form for pair in forms for form in pair) for noun, forms in self.forms.items()
        }
        self._below: dict[str, list[str]] = {noun: [] for noun in self.names}
        for noun in self.names:
            for general in self.chain(noun):
                self._below[general].append(noun)
        self._by_word: dict[str, list[str]] = {}
        for noun in self.names:
            for word in self._own_words[noun]:
                self._by_word.setdefault(word, []).append(noun)

    def chain(self, noun: str) -> list[str]:
        """The noun, then more and more general ones: terrier, dog, mammal, animal."""
        chain = [noun]
        while general := self.more_general[chain[-1]]:
            chain.append(general)
        return chain

    def below(self, noun: str) -> list[str]:
        """The noun and all that are less general."""
        return self._below[noun]

    def of_word(self, word: str) -> list[str]:
        """The nouns that a word of a caption may mean, in the singular or plural: "bikes" -> bicycle, mountain bike."""
        return self._by_word.get(word.lower(), [])

    def related(self, one: str, other: str) -> bool:
        """Whether two nouns may name one thing: one is more general, or a word stands for both."""
        return (
            one in self.chain(other)
            or other in self.chain(one)
            or not self._own_words[one].isdisjoint(self._own_words[other])
        )

    def named(self, texts: Iterable[str]) -> set[str]:
        """The nouns that captions name, themselves or by a noun that is less or more general.

        "A terrier runs" names terrier, dog and animal, but not retriever; "a dog runs" names them all.
        """
        tokenize = get_tokenizer("ptb")
        spoken: set[str] = set()
        for words in map(tokenize, texts):
            for span in longest_names(words, self._by_word.__contains__):
                spoken.update(self._by_word[" ".join(words[span])])
        more_general = {general for noun in spoken for general in self.chain(noun)}
        return more_general | {less for noun in spoken - GENERAL for less in self.below(noun)}


@cache
def imagenet_nouns() -> Nouns:
    """The installed table, of the thousand classes of ILSVRC 2012."""
    classes = [(row["class"], row["noun"]) for row in read_table("imagenet_classes.tsv")]
    nouns = [
        (row["noun"], row["more general"], [word for word in row["other words"].split(", ") if word])
        for row in read_table("nouns.tsv")
    ]
    return Nouns(classes, nouns)
