"""Statistics of a data set's captions."""

from __future__ import annotations

from pathlib import Path

import pytest

from caption.data.check import check_captions
from caption.data.readers.captions import CaptionedImage, Findings


def image(name: str, *captions: str) -> CaptionedImage:
    return CaptionedImage(name, Path("images") / name, captions)


SPLITS = {
    "train": [image("a", "A dog runs.", "A dog."), image("b", "A dog, a cat.")],
    "val": [image("c", "A zebra runs.", "The dog", "A dog")],
}


def test_each_split_in_numbers() -> None:
    """Worked out by hand. Known words, twice or more in training: a (4), dog (3)."""
    findings = Findings()
    summaries, vocabulary = check_captions(SPLITS, findings, "ptb", min_count=2, max_words=50)
    assert findings.found == []
    assert vocabulary is not None
    assert vocabulary.words[4:] == ("a", "dog")
    train, val = summaries["train"], summaries["val"]
    assert (train.images, train.captions, train.fewest_captions, train.most_captions) == (2, 3, 1, 2)
    assert (train.words, train.longest, train.captions_per_image, train.words_per_caption) == (9, 4, 1.5, 3)
    assert train.unknown_rate == pytest.approx(2 / 9)  # runs, cat
    assert (val.images, val.captions, val.words, val.longest) == (1, 3, 7, 3)
    assert val.unknown_rate == pytest.approx(3 / 7)  # zebra, runs, the


def test_captions_that_are_too_long_or_have_no_words() -> None:
    findings = Findings()
    splits = {"train": [image("a", "one two three", "one two three four", "..."), image("b", "")]}
    check_captions(splits, findings, "ptb", min_count=1, max_words=3)
    assert [(finding.kind.label, finding.text, finding.images) for finding in findings.found] == [
        ("over-long caption", "image 'a' (train): 4 words, 'one two three four'", ("images/a",)),
        ("empty caption", "image 'a' (train): '...' has no words", ("images/a",)),
    ]


def test_a_long_caption_is_quoted_in_part() -> None:
    findings = Findings()
    check_captions({"val": [image("a", "word\n" * 60)]}, findings, "ptb", min_count=1, max_words=50)
    assert findings.found[0].text == f"image 'a' (val): 60 words, '{'word ' * 12}…'"


def test_another_tokenizer() -> None:
    summaries, vocabulary = check_captions(SPLITS, Findings(), "none", min_count=1, max_words=50)
    assert vocabulary is not None
    assert "cat." in vocabulary
    assert summaries["train"].longest == 4


def test_no_training_captions_and_too_rare_words() -> None:
    findings = Findings()
    summaries, vocabulary = check_captions({"val": SPLITS["val"]}, findings, "ptb", 1, 50)
    assert (vocabulary, summaries["val"].unknown_rate, findings.found) == (None, None, [])
    summaries, vocabulary = check_captions(SPLITS, findings, "ptb", 10, 50)
    assert (vocabulary, summaries["train"].unknown_rate) == (None, None)
    assert [finding.kind.label for finding in findings.found] == ["empty vocabulary"]


def test_nothing_at_all() -> None:
    summaries, vocabulary = check_captions({"train": []}, Findings(), "ptb", 1, 50)
    assert vocabulary is None
    assert (summaries["train"].captions_per_image, summaries["train"].words_per_caption) == (0, 0)
