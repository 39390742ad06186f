"""Checking a data set before training on it: all faults and oddities, and its numbers."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from caption.data.decoding import decoded
from caption.data.readers.captions import (
    SPLIT_NAMES,
    CaptionedImage,
    CaptionReader,
    Finding,
    Findings,
    Kind,
    Splits,
    real_files,
)
from caption.errors import STOPS, DataError, ImageError, first_few
from caption.runtime.prefetch import prefetch
from caption.runtime.progress import progress_bar
from caption.text.tokenizer import get_tokenizer
from caption.text.vocabulary import SPECIAL_TOKENS, Vocabulary

MIN_COUNT = 5
MAX_WORDS = 50
MANY = 0.1
"""Share of unknown words from which a split is reported."""
QUOTED = 60
"""Characters of a caption that a message quotes."""
AHEAD = 64
"""Images that are being decoded, or wait to be reported."""


@dataclass
class SplitSummary:
    """One split in numbers."""

    images: int = 0
    captions: int = 0
    fewest_captions: int = 0  # of an image
    most_captions: int = 0  # of an image
    words: int = 0
    """Of all captions, by the tokenizer."""
    longest: int = 0
    """Words of the longest caption."""
    unknown_rate: float | None = None
    """Share of the words that are not in the training vocabulary, in 0...1; None without a vocabulary."""

    @property
    def captions_per_image(self) -> float:
        """The mean; 0 without images."""
        return self.captions / self.images if self.images else 0.0

    @property
    def words_per_caption(self) -> float:
        """The mean; 0 without captions."""
        return self.words / self.captions if self.captions else 0.0


@dataclass
class Check:
    """The result of `check_data`."""

    findings: list[Finding]
    """Faults and notes; those of one kind are in the order of the data."""
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
    known: Vocabulary | None = None
    """Words of the model that training starts from; they are in `vocabulary`, too."""

    @property
    def faults(self) -> list[Finding]:
        """The findings that make training on the data wrong."""
        return [finding for finding in self.findings if finding.kind.is_fault]

    @property
    def notes(self) -> list[Finding]:
        """The other findings."""
        return [finding for finding in self.findings if not finding.kind.is_fault]

    @property
    def complete(self) -> bool:
        """Whether all images were examined."""
        return self.stop is None

    @property
    def words(self) -> int | None:
        """Size of the vocabulary without the special tokens."""
        return None if self.vocabulary is None else len(self.vocabulary) - len(SPECIAL_TOKENS)

    @property
    def new_words(self) -> int | None:
        """How many of them the model that training starts from does not have; None if it starts from none."""
        if self.vocabulary is None or self.known is None:
            return None
        return len(self.vocabulary) - len(self.known)


def check_data(
    reader: CaptionReader,
    tokenizer: str = "ptb",
    min_count: int = MIN_COUNT,
    vocabulary_size: int | None = None,
    max_words: int = MAX_WORDS,
    workers: int | None = None,
    known: Vocabulary | None = None,
) -> Check:
    """Read a data set, decode all its images, and count its words.

    Duplicates are different files with the same pixels, upright and in RGB: copies of a file, or one picture in two
    lossless encodings. A picture saved again as JPEG has other pixels and is not found.

    Stop signals such as Ctrl-C end the examination of images; the result then holds the findings so far.

    Args:
        reader: of the data.
        tokenizer: name of the tokenizer that splits captions into words.
        min_count: how often a word must occur in the training captions to be in the vocabulary.
        vocabulary_size: only so many of the most frequent words are in it; None = all.
        max_words: a caption with more words is over-long.
        workers: threads that decode; None = one per processor, at most 16.
        known: words of the model that training starts from, which are kept; None = it starts from no model.

    Raises:
        UserError: there is no such tokenizer, or `known` has another one.
    """
    findings = Findings()
    splits: Splits = {}
    with findings.skipping():
        splits = reader.survey(findings)
    if splits:
        if "train" not in splits:
            findings.add(Kind.NO_TRAINING, f"only {', '.join(splits)}")
        for split in SPLIT_NAMES[1:]:
            if split not in splits:
                findings.add(Kind.NO_EVALUATION, f"'{split}'")
    summaries, vocabulary = check_captions(
        splits, findings, tokenizer, min_count, max_words, vocabulary_size, known
    )
    examined = check_images(splits, findings, workers)
    return Check(findings.collected, summaries, vocabulary, *examined, known)


def check_captions(
    splits: Splits,
    findings: Findings,
    tokenizer: str,
    min_count: int,
    max_words: int,
    vocabulary_size: int | None = None,
    known: Vocabulary | None = None,
) -> tuple[dict[str, SplitSummary], Vocabulary | None]:
    """Report captions without a word and over-long ones, and words that a model will not know; and count. For the
    arguments see `check_data`.

    Returns:
        each split in numbers, and the vocabulary of training: the words of the training split, and those that are
        `known`; None if there is no such split.
    """
    tokenize = get_tokenizer(tokenizer)
    summaries = {}
    with progress_bar("counting words", sum(map(len, splits.values()))) as advance:
        for split, images in splits.items():
            summary = summaries[split] = SplitSummary(images=len(images))
            counts = [len(image.captions) for image in images]
            summary.captions = sum(counts)
            summary.fewest_captions, summary.most_captions = min(counts, default=0), max(counts, default=0)
            for image in images:
                for caption in image.captions:
                    words = len(tokenize(caption))
                    summary.words += words
                    summary.longest = max(summary.longest, words)
                    where = image.within(split)
                    if not words and caption:  # blank ones are reported in reading
                        findings.add(Kind.EMPTY, f"{where}: {_quoted(caption)} has no words", image.path)
                    if words > max_words:
                        findings.add(Kind.LONG, f"{where}: {words} words, {_quoted(caption)}", image.path)
                advance(1)
    if not splits.get("train"):
        return summaries, None
    try:
        vocabulary = Vocabulary.build(_captions(splits["train"]), min_count, tokenizer, vocabulary_size)
    except DataError as error:
        findings.add(Kind.NO_WORDS, str(error))
        return summaries, None
    if known is not None:
        vocabulary = known.widened(vocabulary)
        if (new := known.unknown_rate(_captions(splits["train"]))) > MANY:
            examples = first_few(_unknown(known, splits["train"]))
            findings.add(
                Kind.NEW_WORDS, f"{100 * new:.0f} % of the training words are new to it, such as {examples}"
            )
    for split, images in splits.items():
        rate = summaries[split].unknown_rate = vocabulary.unknown_rate(_captions(images))
        if rate > MANY:
            examples = first_few(_unknown(vocabulary, images))
            findings.add(
                Kind.UNKNOWN,
                f"'{split}': {100 * rate:.0f} % of the words will be unknown, such as {examples}",
            )
    return summaries, vocabulary


def _unknown(vocabulary: Vocabulary, images: Sequence[CaptionedImage]) -> list[str]:
    """The words of captions that are not in a vocabulary, by falling frequency."""
    counts = Counter(word for caption in _captions(images) for word in vocabulary.tokenizer(caption))
    return [repr(word) for word, _ in counts.most_common() if word not in vocabulary]


def _captions(images: Sequence[CaptionedImage]) -> Iterator[str]:
    return (caption for image in images for caption in image.captions)


def _quoted(caption: str) -> str:
    text = " ".join(caption.split())
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}…")


def fingerprint(path: Path) -> bytes:
    """A hash of width, height and upright RGB pixels of an image file.

    Raises:
        ImageError: see `caption.data.decoding.open_image`.
    """
    pixels = hashlib.blake2b(digest_size=16)
    with decoded(path) as (image, *_):
        pixels.update(image.tobytes())
    pixels.update(repr(image.size).encode())
    return pixels.digest()


def check_images(
    splits: Splits, findings: Findings, workers: int | None = None
) -> tuple[int, int, BaseException | None]:
    """Decode and compare all images, without those that `findings` already has as missing.

    Returns:
        the number of files, each counted once however often it is named; of those that were examined; and what stopped
        the examination: Ctrl-C or another signal.
    """
    missing = {path for finding in findings.of(Kind.MISSING) for path in finding.images}
    files: dict[
        tuple[str, str], tuple[CaptionedImage, str]
    ] = {}  # the first entry of each file, with its split
    for split, images in splits.items():
        for image, identity in zip(images, real_files(image.path for image in images), strict=True):
            if str(image.path) not in missing:
                files.setdefault(identity, (image, split))
    examined = 0
    by_pixels: dict[bytes, list[tuple[CaptionedImage, str]]] = {}
    outcomes = prefetch(lambda file: fingerprint(file[0].path), files.values(), AHEAD, workers)
    stop = None
    try:
        with closing(outcomes), warnings.catch_warnings(), progress_bar("checking", len(files)) as advance:
            warnings.simplefilter("ignore")  # of Pillow, about oddities of files that it can decode
            for (image, split), outcome in outcomes:
                if isinstance(outcome, ImageError):
                    findings.add(Kind.UNDECODABLE, f"{image.within(split)}: {outcome}", image.path)
                else:
                    by_pixels.setdefault(outcome, []).append((image, split))
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
