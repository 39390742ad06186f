"""What the metrics look at: captions cut into words, with the n-gram counts several of them share."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property

from caption.errors import UserError
from caption.metrics.score import Id
from caption.text.tokenizer import Tokenizer

Words = list[str]
Counts = dict[str, int]
"""How often each n-gram occurs in one sentence. An n-gram is written with spaces between its words, which contain
none: strings, unlike tuples, cost the garbage collector nothing, and there are a million of them."""

LONGEST = 4  # words in the longest n-gram, for BLEU as for CIDEr
KEPT = 50_000
"""Sentences whose counts are kept, which takes some 4 kB for each; those of more are counted anew by every metric."""
NAMED = 3  # culprits an error message names before it counts the rest


def ngram_counts(words: Words) -> list[Counts]:
    """Counts of the 1-grams, 2-grams, ... up to `LONGEST` of one sentence, in this order."""
    counts: list[Counts] = []
    ngrams = words
    for length in range(1, LONGEST + 1):
        counted: Counts = {}
        for ngram in ngrams:
            counted[ngram] = counted.get(ngram, 0) + 1
        counts.append(counted)
        ngrams = [f"{ngram} {word}" for ngram, word in zip(ngrams, words[length:], strict=False)]
    return counts


class Shared:
    """Makes equal words one object: a hundred thousand images have millions of words, but few different ones."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def __call__(self, words: Words) -> Words:
        """The same words."""
        return [self.known.setdefault(word, word) for word in words]


class MissingCandidates(UserError):
    """Some images have no candidate."""


class References:
    """The references of a set of images under one tokenizer; can be scored against any number of times.

    Args:
        texts: what people wrote about each image, at least one sentence each.
        tokenizer: cuts them into words.

    Raises:
        UserError: no image at all, an image without references, a reference that is no text.
    """

    def __init__(self, texts: Mapping[Id, Sequence[str]], tokenizer: Tokenizer) -> None:
        _check_references(texts)
        self.tokenizer = tokenizer
        self.ids = list(texts)
        self.texts = [list(texts[image]) for image in self.ids]
        words = Shared()
        self.words: list[list[Words]] = [[words(tokenizer(text)) for text in group] for group in self.texts]

    @property
    def counts(self) -> Iterable[list[list[Counts]]]:
        """N-gram counts: image, reference, length of the n-gram less one. To be gone through once."""
        if sum(map(len, self.words)) <= KEPT:
            return self._counts
        return ([ngram_counts(words) for words in group] for group in self.words)

    @cached_property
    def _counts(self) -> list[list[list[Counts]]]:
        return [[ngram_counts(words) for words in group] for group in self.words]

    def only(self, images: Container[Id]) -> References:
        """Those of the images that are in `images`, with what was computed for them.

        Raises:
            UserError: none is.
        """
        if not any(image in images for image in self.ids):
            raise UserError(
                "no candidate belongs to an image of the references. Do the files belong together?"
            )
        kept = {image: text for image, text in zip(self.ids, self.texts, strict=True) if image in images}
        return References(kept, self.tokenizer) if len(kept) < len(self.ids) else self

    @property
    def per_image(self) -> str:
        """How many references an image has: "5", or "4-6" where it varies."""
        fewest, most = min(map(len, self.texts)), max(map(len, self.texts))
        return str(fewest) if fewest == most else f"{fewest}-{most}"


class Corpus:
    """Candidates beside their references, image by image in the order of the references.

    Args:
        candidates: one sentence for each image of `references`; may be empty.
        references: what to score them against.
        tokenizer: cuts the candidates into words; as a rule the references' own.

    Raises:
        UserError: candidates without references, references without a candidate, a candidate that is no text.
    """

    def __init__(
        self, candidates: Mapping[Id, str], references: References, tokenizer: Tokenizer | None = None
    ) -> None:
        _check_candidates(candidates, references)
        self.references = references
        self.ids = references.ids
        self.texts = [candidates[image] for image in self.ids]
        self.tokenizer = tokenizer or references.tokenizer
        words = Shared()
        self.words: list[Words] = [words(self.tokenizer(text)) for text in self.texts]

    @property
    def counts(self) -> Iterable[list[Counts]]:
        """N-gram counts: image, length of the n-gram less one. To be gone through once."""
        return self._counts if len(self.words) <= KEPT else map(ngram_counts, self.words)

    @cached_property
    def _counts(self) -> list[list[Counts]]:
        return [ngram_counts(words) for words in self.words]


def named(culprits: Sequence[object]) -> str:
    """The first few, and how many more: "1, 2, 3 and 12 more"."""
    shown = ", ".join(str(culprit) for culprit in culprits[:NAMED])
    return shown if len(culprits) <= NAMED else f"{shown} and {len(culprits) - NAMED} more"


def _check_references(texts: Mapping[Id, Sequence[str]]) -> None:
    if not texts:
        raise UserError("there are no references: give at least one image with its captions.")
    single = [image for image, group in texts.items() if isinstance(group, str)]
    if single:
        raise UserError(
            f"the references of {named(single)} are one text, not a list of texts: put them in a list."
        )
    bare = [image for image, group in texts.items() if not group]
    if bare:
        raise UserError(
            f"{len(bare)} images have no reference: {named(bare)}. Add some or leave the images out."
        )
    odd = [image for image, group in texts.items() if not all(isinstance(text, str) for text in group)]
    if odd:
        raise UserError(f"a reference of {named(odd)} is no text: correct it or leave it out.")


def _check_candidates(candidates: Mapping[Id, str], references: References) -> None:
    known = set(references.ids)
    missing = [image for image in references.ids if image not in candidates]
    extra = [image for image in candidates if image not in known]
    if missing and extra and len(extra) == len(candidates):
        alike = {str(image) for image in missing} & {str(image) for image in extra}
        hint = " One side names images by number, the other by text." if alike else ""
        raise UserError(
            f"no candidate belongs to an image of the references: the candidates name {named(extra)}, the "
            f"references {named(missing)}. Do the two files belong together?{hint}"
        )
    if missing:
        raise MissingCandidates(
            f"{len(missing)} of the {len(known)} images have no candidate: {named(missing)}. Add their captions "
            f"(an empty one counts as such), or take the images out of the references."
        )
    if extra:
        raise UserError(
            f"{len(extra)} candidates have no references: {named(extra)}. Take them out, or add references."
        )
    odd = [image for image, text in candidates.items() if not isinstance(text, str)]
    if odd:
        raise UserError(f"the candidate of {named(odd)} is no text: give one sentence for each image.")
