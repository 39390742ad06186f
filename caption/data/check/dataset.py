"""A data set, checked before anything is trained on it: all that is wrong, all that is odd, and its numbers."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass

from caption.data.check.captions import SplitSummary, check_captions
from caption.data.check.images import ImageCheck
from caption.data.readers.captions import SPLIT_NAMES, CaptionReader, Splits
from caption.data.readers.findings import NO_EVALUATION, NO_TRAINING, Finding, Findings
from caption.progress import progress_bar
from caption.text.vocabulary import SPECIAL_TOKENS, Vocabulary

MIN_COUNT = 5
MAX_WORDS = 50


@dataclass
class Check:
    """What `check_data` found."""

    findings: list[Finding]
    """Faults and notes, those of a kind in the order of the data."""
    splits: dict[str, SplitSummary]
    """Each split in numbers. Captions and entries that could not be read do not count; missing images do."""
    vocabulary: Vocabulary | None
    """Of the training captions; None where they give none."""
    images: int
    """Image files that are there, each counted once."""
    examined: int
    """Those among them that were decoded and compared: all, unless it was stopped."""

    @property
    def faults(self) -> list[Finding]:
        """What makes training on the data wrong."""
        return [finding for finding in self.findings if finding.kind.is_fault]

    @property
    def notes(self) -> list[Finding]:
        """What is worth knowing, and wrong perhaps only in the eyes of some."""
        return [finding for finding in self.findings if not finding.kind.is_fault]

    @property
    def complete(self) -> bool:
        """Whether all images were examined."""
        return self.examined == self.images

    @property
    def words(self) -> int | None:
        """Size of the vocabulary without the special tokens."""
        return None if self.vocabulary is None else len(self.vocabulary) - len(SPECIAL_TOKENS)


def check_data(
    reader: CaptionReader,
    tokenizer: str = "ptb",
    min_count: int = MIN_COUNT,
    max_words: int = MAX_WORDS,
    workers: int | None = None,
    progress: bool = False,
) -> Check:
    """Read a data set, decode all its images, and count its words.

    Duplicates are images in different files with the same pixels, upright and in RGB: the same file twice, or one
    picture in two lossless encodings. An image saved anew as JPEG has other pixels and is not found.

    Ctrl-C while images are examined ends that part; the result then holds what was found until then.

    Args:
        reader: of the data.
        tokenizer: what cuts captions into words.
        min_count: how often a word must occur in the training captions to be in the vocabulary.
        max_words: a caption of more words is over-long.
        workers: threads that decode; None = one per processor, 16 at most.
        progress: whether to say on stderr what is going on, with a progress bar for the images.

    Raises:
        UserError: there is no such tokenizer.
    """
    findings = Findings()
    splits: Splits = {}
    with findings.skipping():
        splits = reader.survey(findings)
    if splits:
        _check_splits(splits, findings)
    if progress:
        captions = sum(len(image.captions) for images in splits.values() for image in images)
        print(f"counting the words of {captions:,} captions", file=sys.stderr)
    summaries, vocabulary = check_captions(splits, findings, tokenizer, min_count, max_words)
    images = ImageCheck(splits, findings, workers)
    bar = progress_bar("checking", len(images.files)) if progress and images.files else nullcontext(_silent)
    try:
        with bar as advance:
            images.run(advance)
    except KeyboardInterrupt:
        pass  # the result says how far it came
    images.report_duplicates()
    return Check(findings.found, summaries, vocabulary, len(images.files), images.done)


def _check_splits(splits: Splits, findings: Findings) -> None:
    if "train" not in splits:
        findings.report([Finding(NO_TRAINING, f"only {', '.join(splits)}")])
    absent = [split for split in SPLIT_NAMES[1:] if split not in splits]
    findings.report([Finding(NO_EVALUATION, f"'{split}'") for split in absent])


def _silent(images: int) -> None:
    """In place of the progress bar."""
