"""Candidates and references for the metrics: tokenized, with the n-gram counts that BLEU and CIDEr share."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from caption.core.errors import UserError, first_few, number_of
from caption.metrics.score import Id
from caption.text.ngrams import Counts, ngram_counts
from caption.text.scripts import unspaced
from caption.text.tokenizer import Tokenizer

MAX_CACHED = 50_000
"""Counts of at most this many sentences are cached, about 4 kB each. With more sentences, every metric counts again."""


class MissingCandidates(UserError):
    """Some images have no candidate."""


class References:
    """The references of a set of images under one tokenizer; any number of candidates can be scored against them.

    Args:
        texts: the reference captions of each image, at least one each.
        tokenizer: splits them into words.

    Raises:
        UserError: no image at all, an image without references, a reference that is not a text or blank,
            references without spaces between words.
    """

    def __init__(self, texts: Mapping[Id, Sequence[str]], tokenizer: Tokenizer) -> None:
        _check_references(texts)
        self.tokenizer = tokenizer
        self._counts: list[list[list[Counts]]] | None = None
        self.ids = list(texts)
        self.texts = [list(texts[image]) for image in self.ids]
        # One object for equal words: a corpus has millions of words, but few different ones.
        self.words = [[list(map(sys.intern, tokenizer(text))) for text in group] for group in self.texts]
        counts = Counter(word for group in self.words for text in group for word in text)
        if (reason := unspaced(counts)) is not None:
            raise UserError(f"the references give no words: {reason}")

    @property
    def counts(self) -> Iterable[list[list[Counts]]]:
        """N-gram counts by image, reference, and length of the n-gram minus one; may be an iterator."""
        if self._counts is None:
            counts = ([ngram_counts(words) for words in group] for group in self.words)
            if sum(map(len, self.words)) > MAX_CACHED:
                return counts
            self._counts = list(counts)
        return self._counts

    def only(self, images: Container[Id]) -> References:
        """The references of those images that are in `images`; a UserError if there are none."""
        if not any(image in images for image in self.ids):
            raise UserError(
                "no candidate belongs to an image of the references. Do the files belong together?"
            )
        kept = {image: text for image, text in zip(self.ids, self.texts, strict=True) if image in images}
        return References(kept, self.tokenizer) if len(kept) < len(self.ids) else self

    @property
    def per_image(self) -> str:
        """How many references an image has: "5", or "4-6" if the number varies."""
        fewest, most = min(map(len, self.texts)), max(map(len, self.texts))
        return str(fewest) if fewest == most else f"{fewest}-{most}"


class Corpus:
    """Candidates and their references, image by image in the order of the references.

    Args:
        candidates: one sentence for each image of `references`; may be empty.
        references: the references to score them against.
        tokenizer: splits the candidates into words; by default the references' tokenizer.

    Raises:
        UserError: candidates without references, references without a candidate, a candidate that is not a text.
    """

    def __init__(
        self, candidates: Mapping[Id, str], references: References, tokenizer: Tokenizer | None = None
    ) -> None:
        _check_candidates(candidates, references)
        self.references = references
        self.ids = references.ids
        self.texts = [candidates[image] for image in self.ids]
        self.tokenizer = tokenizer or references.tokenizer
        self.words = [list(map(sys.intern, self.tokenizer(text))) for text in self.texts]

    @property
    def counts(self) -> Iterator[list[Counts]]:
        """N-gram counts by image and length of the n-gram minus one, counted again each time."""
        return map(ngram_counts, self.words)


def _check_references(texts: Mapping[Id, Sequence[str]]) -> None:
    if not texts:
        raise UserError("there are no references: give at least one image with its captions.")
    if single := [image for image, group in texts.items() if isinstance(group, str)]:
        raise UserError(
            f"the references of {first_few(single)} are one text, not a list of texts: put them in a list."
        )
    if bare := [image for image, group in texts.items() if not group]:
        raise UserError(
            f"{number_of(len(bare), 'image has', 'images have')} no reference: {first_few(bare)}. Add some or leave "
            "the images out."
        )
    if odd := [image for image, group in texts.items() if not all(isinstance(text, str) for text in group)]:
        raise UserError(f"a reference of {first_few(odd)} is not a text: correct it or leave it out.")
    if blank := [image for image, group in texts.items() if not all(map(str.strip, group))]:
        raise UserError(
            f"{len(blank)} images have a blank reference: {first_few(blank)}. Delete it: it lowers scores."
        )


def _check_candidates(candidates: Mapping[Id, str], references: References) -> None:
    images = set(references.ids)
    missing = [image for image in references.ids if image not in candidates]
    extra = [image for image in candidates if image not in images]
    if missing and extra and len(extra) == len(candidates):
        alike = {str(image) for image in missing} & {str(image) for image in extra}
        hint = " One side names images by number, the other by text." if alike else ""
        raise UserError(
            f"no candidate belongs to an image of the references: the candidates name {first_few(extra)}, the "
            f"references {first_few(missing)}. Do the two files belong together?{hint}"
        )
    if missing:
        raise MissingCandidates(
            f"{len(missing)} of {len(images)} images {'has' if len(missing) == 1 else 'have'} no candidate: "
            f"{first_few(missing)}. Add their "
            f"captions (an empty one counts as such), or take the images out of the references."
        )
    if extra:
        raise UserError(
            f"{number_of(len(extra), 'candidate has', 'candidates have')} no references: {first_few(extra)}. Take them "
            "out, or add references."
        )
    if odd := [image for image, text in candidates.items() if not isinstance(text, str)]:
        raise UserError(f"the candidate of {first_few(odd)} is not a text: give one sentence for each image.")
