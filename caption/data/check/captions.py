"""What the captions of a data set are like: how many, how long, and how many of their words training would know."""

from __future__ import annotations

from dataclasses import dataclass

from caption.data.readers.captions import CaptionedImage, Splits
from caption.data.readers.captions_checks import named
from caption.data.readers.findings import EMPTY, LONG, NO_WORDS, Finding, Findings
from caption.errors import DataError
from caption.text.tokenizer import Tokenizer, get_tokenizer
from caption.text.vocabulary import Vocabulary

QUOTED = 60  # characters of a caption that a message quotes


@dataclass
class SplitSummary:
    """One split in numbers."""

    images: int = 0
    captions: int = 0
    fewest_captions: int = 0
    """Of an image."""
    most_captions: int = 0
    """Of an image."""
    words: int = 0
    """Of all captions, as the tokenizer cuts them."""
    longest: int = 0
    """Words of the longest caption."""
    unknown_rate: float | None = None
    """Share of the words that the training vocabulary does not know, in 0...1; None without a vocabulary."""

    @property
    def captions_per_image(self) -> float:
        """The mean; 0 without images."""
        return self.captions / self.images if self.images else 0.0

    @property
    def words_per_caption(self) -> float:
        """The mean; 0 without captions."""
        return self.words / self.captions if self.captions else 0.0


def check_captions(
    splits: Splits, findings: Findings, tokenizer: str, min_count: int, max_words: int
) -> tuple[dict[str, SplitSummary], Vocabulary | None]:
    """Report captions without a word and over-long ones; count.

    Args:
        splits: images with captions.
        findings: takes what is found.
        tokenizer: name of the tokenizer.
        min_count: how often a word must occur in the training captions to be known.
        max_words: a caption of more words is over-long.

    Returns:
        each split in numbers, and the vocabulary of the training split; None where there is none.
    """
    cut = get_tokenizer(tokenizer)
    summaries = {split: _summary(split, images, findings, cut, max_words) for split, images in splits.items()}
    vocabulary = _vocabulary(splits, findings, tokenizer, min_count)
    if vocabulary is not None:
        for split, images in splits.items():
            captions = (caption for image in images for caption in image.captions)
            summaries[split].unknown_rate = vocabulary.unknown_rate(captions)
    return summaries, vocabulary


def _summary(
    split: str, images: list[CaptionedImage], findings: Findings, cut: Tokenizer, max_words: int
) -> SplitSummary:
    summary = SplitSummary(images=len(images))
    counts = [len(image.captions) for image in images]
    summary.captions = sum(counts)
    summary.fewest_captions, summary.most_captions = min(counts, default=0), max(counts, default=0)
    empty, long = [], []
    for image in images:
        for caption in image.captions:
            words = len(cut(caption))
            summary.words += words
            summary.longest = max(summary.longest, words)
            where, paths = f"{named(image, split)}", (str(image.path),)
            if not words and caption:  # a blank one was found in reading
                empty.append(Finding(EMPTY, f"{where}: {_quoted(caption)} has no words", paths))
            if words > max_words:
                long.append(Finding(LONG, f"{where}: {words} words, {_quoted(caption)}", paths))
    findings.report(empty)
    findings.report(long)
    return summary


def _quoted(caption: str) -> str:
    text = " ".join(caption.split())
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}…")


def _vocabulary(splits: Splits, findings: Findings, tokenizer: str, min_count: int) -> Vocabulary | None:
    if not splits.get("train"):
        return None
    captions = (caption for image in splits["train"] for caption in image.captions)
    try:
        return Vocabulary.build(captions, min_count, tokenizer)
    except DataError as error:
        findings.report([Finding(NO_WORDS, str(error))])
        return None
