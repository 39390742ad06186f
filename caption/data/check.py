"""Checking a data set before training on it: all faults and oddities, and its numbers."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from caption.core.errors import STOPS, DataError, ImageError, first_few, number_of
from caption.core.runtime.prefetch import prefetch
from caption.core.runtime.progress import progress_bar
from caption.data.findings import Finding, Findings, Kind
from caption.data.photos import decoded
from caption.data.readers.base import CaptionReader, real_files
from caption.data.splits import SPLIT_NAMES, CaptionedImage, Splits
from caption.data.text_files import short_repr
from caption.text.ngrams import alike
from caption.text.tokenizer import get_tokenizer
from caption.text.vocabulary import SPECIAL_TOKENS, Vocabulary

MANY = 0.1
"""A split is reported if a larger share of its words is unknown."""
DARK = 16
"""An image whose pixels are all below this value, such as a 12-bit image in a 16-bit file, is reported."""
AHEAD = 64
"""Number of images that are decoded ahead."""


@dataclass(frozen=True)
class Limits:
    """How training counts words: see `caption.data.module.CaptionData`."""

    tokenizer: str = "ptb"
    min_count: int = 5
    vocabulary_size: int | None = None
    max_words: int = 50
    """A caption with more words is over-long."""


@dataclass
class SplitSummary:
    """One split in numbers."""

    images: int
    captions_of_images: list[int]
    """The number of captions of each image."""
    words_of_captions: list[int]
    """The number of words of each caption, by the tokenizer."""
    unknown_rate: float | None = None
    """Share of the words that are not in the training vocabulary, in 0...1; None without a vocabulary."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types: numbers, their means and extremes."""
        captions, words = self.captions_of_images, self.words_of_captions
        return {
            "images": self.images,
            "captions": sum(captions),
            "captions_per_image": {
                "fewest": min(captions, default=0),
                "mean": sum(captions) / max(1, self.images),
                "most": max(captions, default=0),
            },
            "words": sum(words),
            "words_per_caption": {"mean": sum(words) / max(1, len(words)), "most": max(words, default=0)},
            "unknown_rate": self.unknown_rate,
        }


@dataclass
class Check:
    """The result of `check_data`."""

    findings: Findings
    """Faults and notes, in the order in which they are found."""
    splits: dict[str, SplitSummary]
    """Each split in numbers. Unreadable captions and entries are not counted; missing images are."""
    vocabulary: Vocabulary | None
    """Of the training captions; None if they give none."""
    images: int
    """Number of image files that exist, each counted once."""
    examined: int
    """Number of those that were decoded and compared: all, unless the check was stopped."""
    stop: BaseException | None = None
    """KeyboardInterrupt or `Stopped`, if a signal stopped the check."""
    base_vocabulary: Vocabulary | None = None
    """The words of the model that training starts from; `vocabulary` has them, too."""

    @property
    def faults(self) -> list[Finding]:
        """The findings that make training on the data wrong."""
        return [finding for finding in self.findings if finding.kind.is_fault]

    @property
    def notes(self) -> list[Finding]:
        """The other findings."""
        return [finding for finding in self.findings if not finding.kind.is_fault]

    @property
    def words(self) -> int | None:
        """Size of the vocabulary without the special tokens."""
        return None if self.vocabulary is None else len(self.vocabulary) - len(SPECIAL_TOKENS)


def check_data(
    reader: CaptionReader,
    limits: Limits | None = None,
    base_vocabulary: Vocabulary | None = None,
) -> Check:
    """Read a data set, decode all its images, and count its words.

    Duplicates are different files with the same pixels, upright and in RGB: copies of a file, or one picture in two
    lossless encodings. A picture saved again as JPEG has other pixels and is not found.

    Stop signals such as Ctrl-C end the examination of images; the result then holds the findings so far.

    Args:
        reader: of the data.
        limits: how words are counted; None = the defaults.
        base_vocabulary: the words of the model that training starts from, which are kept; None = a new model.

    Raises:
        UserError: there is no such tokenizer, or `base_vocabulary` has a different one.
    """
    findings = Findings()
    splits: Splits = {}
    with findings:
        splits = reader.survey(findings)
    if splits:
        if "train" not in splits:
            findings.add(Kind.NO_TRAINING, f"only {', '.join(splits)}")
        for split in SPLIT_NAMES[1:]:
            if split not in splits:
                findings.add(Kind.NO_EVALUATION, f"'{split}'")
    summaries, vocabulary = check_captions(splits, findings, limits or Limits(), base_vocabulary)
    examined = check_images(splits, findings)
    return Check(findings, summaries, vocabulary, *examined, base_vocabulary)


def check_captions(
    splits: Splits, findings: Findings, limits: Limits, base_vocabulary: Vocabulary | None = None
) -> tuple[dict[str, SplitSummary], Vocabulary | None]:
    """Report captions without words, over-long captions and words that a model will not know, and count words. For the
    arguments see `check_data`.

    Returns:
        each split in numbers; and the vocabulary of training, the words of the training split and of `base_vocabulary`,
        or None if there is no training split.
    """
    tokenize = get_tokenizer(limits.tokenizer)
    summaries = {}
    words_of: dict[str, Counter[str]] = {}
    with progress_bar("counting words", sum(map(len, splits.values()))) as advance:
        for split, images in splits.items():
            counts = words_of[split] = Counter()
            lengths = []
            for image, times in Counter(images).items():  # several times in an epoch: `Combined.repeats`
                for caption in image.captions:
                    words = tokenize(caption)
                    counts.update(words * times)
                    lengths += [len(words)] * times
                    where = image.within(split)
                    if not words and caption:  # blank ones are reported in reading
                        findings.add(Kind.EMPTY, f"{where}: {short_repr(caption)} has no words", image.path)
                    if len(words) > limits.max_words:
                        text = f"{where}: {len(words)} words, {short_repr(caption)}"
                        findings.add(Kind.LONG, text, image.path)
                advance(times)
            if split != "train" and images and alike([*map(tokenize, image.captions)] for image in images):
                findings.add(
                    Kind.ALIKE, f"'{split}': the same captions for {number_of(len(images), 'image')}"
                )
            summaries[split] = SplitSummary(len(images), [len(image.captions) for image in images], lengths)
    if not splits.get("train"):
        return summaries, None
    try:
        vocabulary = Vocabulary.from_counts(
            words_of["train"], limits.min_count, limits.tokenizer, limits.vocabulary_size
        )
    except DataError as error:
        findings.add(Kind.NO_WORDS, str(error))
        return summaries, None
    if base_vocabulary is not None:
        vocabulary = base_vocabulary.widened(vocabulary)
        new, examples = _unknown(base_vocabulary, words_of["train"])
        if new > MANY:
            text = f"{100 * new:.0f} % of the training words are new to it, such as {examples}"
            findings.add(Kind.NEW_WORDS, text)
    for split, counts in words_of.items():
        rate, examples = _unknown(vocabulary, counts)
        summaries[split].unknown_rate = rate
        if rate > MANY:
            text = f"'{split}': {100 * rate:.0f} % of the words will be unknown, such as {examples}"
            findings.add(Kind.UNKNOWN, text)
    return summaries, vocabulary


def _unknown(vocabulary: Vocabulary, counts: Counter[str]) -> tuple[float, str]:
    """The share of words that are not in a vocabulary (0 without words), and the most frequent ones of these."""
    # Special tokens in a text are unknown words.
    unknown = {word: count for word, count in counts.items() if vocabulary[word] < len(SPECIAL_TOKENS)}
    examples = first_few(repr(word) for word, _ in Counter(unknown).most_common())
    return sum(unknown.values()) / max(1, counts.total()), examples


def fingerprint(path: Path) -> tuple[bytes, int]:
    """A hash of width, height and upright RGB pixels of an image file, and the largest value of its pixels.

    Raises:
        ImageError: see `caption.data.photos.open_image`.
    """
    pixels = hashlib.blake2b(digest_size=16)
    with decoded(path) as (image, *_):
        values = image.tobytes()
    pixels.update(values)
    pixels.update(repr(image.size).encode())
    return pixels.digest(), int(np.frombuffer(values, np.uint8).max())


def check_images(splits: Splits, findings: Findings) -> tuple[int, int, BaseException | None]:
    """Decode and compare all images, except those that `findings` already reports as missing.

    Returns:
        the number of different files; the number of files examined; and the exception of a stop signal such as Ctrl-C,
        or None.
    """
    missing = {path for finding in findings.of_kind(Kind.MISSING) for path in finding.images}
    # The first entry of each file, with its split.
    files: dict[tuple[str, str], tuple[CaptionedImage, str]] = {}
    for split, images in splits.items():
        for image, identity in zip(images, real_files(image.path for image in images), strict=True):
            if str(image.path) not in missing:
                files.setdefault(identity, (image, split))
    examined = 0
    by_pixels: dict[bytes, list[tuple[CaptionedImage, str]]] = {}
    outcomes = prefetch(lambda file: fingerprint(file[0].path), files.values(), AHEAD)
    stop = None
    try:
        with closing(outcomes), warnings.catch_warnings(), progress_bar("checking", len(files)) as advance:
            warnings.simplefilter("ignore")  # Pillow's, about oddities of files that it can decode
            for (image, split), outcome in outcomes:
                if isinstance(outcome, ImageError):
                    findings.add(Kind.UNDECODABLE, f"{image.within(split)}: {outcome}", image.path)
                else:
                    digest, brightest = outcome
                    by_pixels.setdefault(digest, []).append((image, split))
                    if brightest < DARK:
                        text = f"{image.within(split)}: no pixel is brighter than {brightest} of 255"
                        findings.add(Kind.BLACK, text, image.path)
                examined += 1
                advance(1)
    except STOPS as error:
        stop = error
    for copies in by_pixels.values():
        if len(copies) > 1:
            kind = Kind.LEAKAGE if len({split for _, split in copies}) > 1 else Kind.DUPLICATE
            names = " = ".join(image.within(split) for image, split in copies)
            findings.add(kind, f"{names}: the same pixels", *(image.path for image, _ in copies))
    return len(files), examined, stop
