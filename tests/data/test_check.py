"""A data set checked from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from caption.data import check as check_module
from caption.data.check import check_data
from caption.data.readers.captions import CaptionedImage, CheckedReader, Findings, Splits
from caption.errors import DataError, UserError


class Given(CheckedReader):
    """Returns the given splits, or raises the given error."""

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
    assert [finding.kind.label for finding in check.faults] == ["missing image"]
    assert [finding.kind.label for finding in check.notes] == [
        "missing evaluation split",
        *["over-long caption"] * 2,
    ]
    assert "'val'" in check.notes[0].text
    assert (check.images, check.examined, check.complete) == (1, 1, True)


def test_an_unreadable_file_is_the_only_finding() -> None:
    """Only this is reported, not the missing training split."""
    check = check_data(Given(DataError("'x.json' is no JSON")))
    assert [finding.text for finding in check.findings] == ["'x.json' is no JSON"]
    assert (check.splits, check.vocabulary, check.words, check.images) == ({}, None, None, 0)


def test_an_unknown_tokenizer_is_the_callers_fault(splits: Splits) -> None:
    with pytest.raises(UserError, match="scissors"):
        check_data(Given(splits), tokenizer="scissors")


def test_progress_counts_images(splits: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, int, list[int]]] = []

    @contextmanager
    def bar(activity: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
        assert show
        shown.append((activity, total, []))
        yield shown[-1][2].append

    monkeypatch.setattr(check_module, "progress_bar", bar)
    check_data(Given(splits), min_count=1, progress=True)
    assert [(activity, total, sum(steps)) for activity, total, steps in shown] == [
        ("counting words", 3, 3),
        ("checking", 3, 3),
    ]
