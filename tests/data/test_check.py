"""A data set checked from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from caption.data.check.dataset import check_data
from caption.data.readers.captions import CaptionedImage, Splits
from caption.data.readers.captions_checks import CheckedReader
from caption.data.readers.findings import Findings
from caption.errors import DataError, UserError


class Given(CheckedReader):
    """What it is given, or the error that it is given."""

    source = "'given'"

    def __init__(self, splits: Splits | DataError) -> None:
        self.splits = splits

    def collect(self, findings: Findings) -> Splits:
        if isinstance(self.splits, DataError):
            raise self.splits
        return self.splits


@pytest.fixture
def splits(tmp_path: Path) -> Splits:
    found: Splits = {}
    for number, split in enumerate(("train", "val", "test")):
        path = tmp_path / f"{split}.png"
        Image.new("RGB", (4, 3), (number, 0, 0)).save(path)
        found[split] = [CaptionedImage(0, path, ("a dog", "a dog runs"))]
    return found


def test_a_sound_data_set(splits: Splits, capsys: pytest.CaptureFixture[str]) -> None:
    check = check_data(Given(splits), min_count=2)
    assert (check.findings, check.faults, check.notes, check.complete) == ([], [], [], True)
    assert (check.images, check.examined, check.words) == (3, 3, 2)
    assert list(check.splits) == ["train", "val", "test"]
    assert capsys.readouterr() == ("", "")


def test_faults_and_notes(splits: Splits) -> None:
    splits["train"][0].path.unlink()
    del splits["val"]
    check = check_data(Given(splits), min_count=1, max_words=2)
    assert [finding.kind.name for finding in check.faults] == ["missing image"]
    assert [finding.kind.name for finding in check.notes] == [
        "missing evaluation split",
        *["over-long caption"] * 2,
    ]
    assert "'val'" in check.notes[0].text
    assert (check.images, check.examined, check.complete) == (1, 1, True)


def test_what_cannot_be_read_at_all() -> None:
    """Nothing more is said than that: of course there is no training split then."""
    check = check_data(Given(DataError("'x.json' is no JSON")))
    assert [finding.text for finding in check.findings] == ["'x.json' is no JSON"]
    assert (check.splits, check.vocabulary, check.words, check.images) == ({}, None, None, 0)


def test_an_unknown_tokenizer_is_the_callers_fault(splits: Splits) -> None:
    with pytest.raises(UserError, match="scissors"):
        check_data(Given(splits), tokenizer="scissors")


def test_progress_is_told_on_stderr(splits: Splits, capsys: pytest.CaptureFixture[str]) -> None:
    check_data(Given(splits), min_count=1, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "6 captions" in err
