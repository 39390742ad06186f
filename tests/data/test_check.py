"""A data set checked from Python: its captions counted, its images decoded and compared.

Each fault by itself, in each format, is in readers/test_reader_laws.py; the report is in cli/test_cli_check.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from caption.data.check import Limits, check_captions, check_images, fingerprint
from caption.data.findings import Findings, Kind
from caption.data.photos import ORIENTATION_TAG
from caption.data.splits import CaptionedImage, Splits
from caption.text.vocabulary import Vocabulary

# -- captions --------------------------------------------------------------------------------------------------


def image(name: str, *captions: str) -> CaptionedImage:
    return CaptionedImage(name, Path("images") / name, captions)


CAPTIONED = {
    "train": [image("a", "A dog runs.", "A dog."), image("b", "A dog, a cat.")],
    "val": [image("c", "A zebra runs.", "The dog"), image("d", "A dog")],
}


def test_each_split_in_numbers():
    """Worked out by hand. Known words, twice or more in training: a (4), dog (3)."""
    findings = Findings()
    summaries, vocabulary = check_captions(CAPTIONED, findings, Limits("ptb", 2))
    assert [(finding.kind, finding.text) for finding in findings] == [
        (Kind.UNKNOWN, "'train': 22 % of the words will be unknown, such as 'runs', 'cat'"),
        (Kind.UNKNOWN, "'val': 43 % of the words will be unknown, such as 'zebra', 'runs', 'the'"),
    ]
    assert vocabulary.words[4:] == ("a", "dog")
    train, val = summaries["train"], summaries["val"]
    numbers = train.to_dict()
    assert numbers.pop("unknown_rate") == pytest.approx(2 / 9)  # runs, cat
    of_images, of_captions = {"fewest": 1, "mean": 1.5, "most": 2}, {"mean": 3.0, "most": 4}
    assert list(numbers.values()) == [2, 3, of_images, 9, of_captions]
    assert (val.images, val.captions_of_images, val.words_of_captions) == (2, [2, 1], [3, 2, 2])
    assert val.unknown_rate == pytest.approx(3 / 7)  # zebra, runs, the
    known = Vocabulary(["zebra", "the"])
    findings = Findings()
    summaries, vocabulary = check_captions(CAPTIONED, findings, Limits("ptb", 2), known)
    assert vocabulary.words[4:] == ("zebra", "the", "a", "dog")
    assert summaries["val"].unknown_rate == pytest.approx(1 / 7)
    (finding,) = findings.of_kind(Kind.NEW_WORDS)
    assert finding.text == "100 % of the training words are new to it, such as 'a', 'dog', 'runs' and 1 more"
    _, vocabulary = check_captions(CAPTIONED, findings, Limits("none", 1))
    _, small = check_captions(CAPTIONED, Findings(), Limits("none", 1, 2))
    assert small.words == vocabulary.words[:6]
    assert "cat." in vocabulary


def test_a_split_whose_images_have_the_same_captions_is_noted():
    findings = Findings()
    alike = {
        "train": CAPTIONED["train"],
        "val": [image("a", "a dog"), image("b", "A dog.")],
        "test": [image("c", "x")],
    }
    check_captions(alike, findings, Limits("ptb", 1))
    assert [finding.text for finding in findings.of_kind(Kind.ALIKE)] == [
        "'val': the same captions for 2 images",
        "'test': the same captions for 1 image",
    ]


# -- images ----------------------------------------------------------------------------------------------------

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 8, 3), dtype=np.uint8)


def photo(path: Path, pixels: np.ndarray = PIXELS, **options: object) -> Path:
    Image.fromarray(pixels).save(path, **options)
    return path


def captioned(*paths: Path) -> list[CaptionedImage]:
    return [CaptionedImage(path.name, path, ("a dog",)) for path in paths]


def examined(splits: Splits) -> Findings:
    findings = Findings()
    files, done, _ = check_images(splits, findings)
    assert done == files
    return findings


def texts(findings: Findings) -> list[tuple[str, str]]:
    return [(finding.kind.label, finding.text) for finding in findings]


def test_fingerprints(tmp_path: Path):
    png = fingerprint(photo(tmp_path / "a.png"))
    turned = Image.Exif()
    turned[ORIENTATION_TAG] = 3  # upside down
    assert fingerprint(photo(tmp_path / "b.png", PIXELS[::-1, ::-1], exif=turned)) == png
    assert fingerprint(photo(tmp_path / "c.png", PIXELS ^ np.uint8(1))) != png
    assert fingerprint(photo(tmp_path / "d.png", PIXELS.reshape(8, 5, 3))) != png


def test_12_bits_in_a_file_of_16_are_noted(tmp_path: Path):
    values = PIXELS[..., 0].astype(np.uint16)
    paths = [photo(tmp_path / f"{scale}.png", values * scale) for scale in (16, 256)]
    assert texts(examined({"train": captioned(*paths)})) == [
        ("black image", "image '16.png' (train): no pixel is brighter than 15 of 255")
    ]


def test_copies_across_splits_are_faults_and_within_one_notes(tmp_path: Path):
    first, link = photo(tmp_path / "a.png"), tmp_path / "link.png"
    link.symlink_to(first)
    splits = {
        "train": captioned(first, photo(tmp_path / "b.png", 255 - PIXELS), link),
        "val": captioned(photo(tmp_path / "c.bmp")),
        "test": captioned(*(photo(tmp_path / f"{n}.png", PIXELS // 2) for n in "de")),
    }
    copies = "image 'a.png' (train) = image 'link.png' (train) = image 'c.bmp' (val): the same pixels"
    findings = examined(splits)
    assert texts(findings) == [
        ("duplicate across splits", copies),
        ("duplicate within a split", "image 'd.png' (test) = image 'e.png' (test): the same pixels"),
    ]
    assert findings[0].images == tuple(str(tmp_path / n) for n in ("a.png", "link.png", "c.bmp"))


def test_a_file_named_twice_is_not_a_duplicate_and_read_once(tmp_path: Path):
    """An image in two splits is found while reading."""
    (tmp_path / "link").symlink_to(tmp_path)
    path = photo(tmp_path / "a.png")
    splits = {"train": captioned(path, path), "test": captioned(tmp_path / "link" / "a.png")}
    assert not examined(splits)
    assert check_images(splits, Findings()) == (1, 1, None)


@pytest.mark.filterwarnings("error")
def test_pillow_warnings_are_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)  # 40 pixels: a warning, below twice as many
    assert not examined({"train": captioned(photo(tmp_path / "a.png"))})
