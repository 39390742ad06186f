"""The checks of every file reader before training, and findings: faults are collected, or the first one raises."""

import os
from pathlib import Path

import pytest

from caption.data.readers import captions as module
from caption.data.readers.captions import (
    CaptionedImage,
    CheckedReader,
    Finding,
    Findings,
    Kind,
    Refusal,
    Splits,
    check_split_names,
    check_splits,
    real_files,
)
from caption.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def image(path: Path, *captions: str) -> CaptionedImage:
    return CaptionedImage(id=path.name, path=path, captions=captions or ("a dog",))


def refused(splits: Splits) -> str:
    with pytest.raises(DataError) as caught:
        check_splits(splits, Refusal("'captions.json'"))
    return str(caught.value)


def found(splits: Splits) -> list[tuple[str, str]]:
    findings = Findings()
    check_splits(splits, findings)
    return [(finding.kind.label, finding.text) for finding in findings.found]


def test_nothing_is_found_in_good_splits(folder: Path) -> None:
    splits = {"train": [image(folder / "a.jpg", "a dog", "a cat")], "test": [image(folder / "b.jpg")]}
    check_splits(splits, Refusal("x"))
    assert found(splits) == []


def test_no_split_an_unknown_one_and_an_empty_one(folder: Path) -> None:
    assert "train, val, test" in refused({})
    assert "'dev' is not a split" in refused({"dev": [image(folder / "a.jpg")]})
    message = refused({"train": [image(folder / "a.jpg")], "val": []})
    assert "'val'" in message
    assert "empty" in message
    with pytest.raises(DataError, match="'restval'"):
        check_split_names(["train", "restval"])


def test_missing_images_are_named_and_counted(folder: Path) -> None:
    """Missing files are an error: features of empty images would train a model on noise."""
    splits = {"train": [image(folder / f"{name}.jpg") for name in "abvwxyz"]}
    message = refused(splits)
    assert "5 missing images in 'captions.json'" in message
    assert all(str(folder / f"{name}.jpg") in message for name in "vwx")
    assert "and 2 more" in message
    assert [text for _, text in found(splits)] == [f"'{folder / name}.jpg'" for name in "vwxyz"]


def test_a_missing_image_is_reported_once(folder: Path) -> None:
    kinds = [kind for kind, _ in found({split: [image(folder / "z.jpg")] for split in ("train", "val")})]
    assert kinds == ["image in two splits", "missing image"]


def test_a_folder_in_the_place_of_an_image_and_a_dangling_link(folder: Path) -> None:
    (folder / "d.jpg").mkdir()
    (folder / "e.jpg").symlink_to(folder / "gone.jpg")
    (folder / "f.jpg").symlink_to(folder / "a.jpg")
    message = refused({"train": [image(folder / f"{name}.jpg") for name in "def"]})
    assert "2 missing images" in message
    assert "f.jpg" not in message


def test_a_missing_folder(folder: Path) -> None:
    splits = {"train": [image(folder / "none" / "a.jpg"), image(folder / "none" / "b.jpg")]}
    message = refused(splits)
    assert f"folder '{folder / 'none'}': No such file or directory" in message
    assert [kind for kind, _ in found(splits)] == ["missing image", "missing image"]


def test_one_listing_per_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking each of 123,000 files takes minutes on a network disk."""
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", counted)
    monkeypatch.setattr(Path, "stat", None)
    monkeypatch.setattr(Path, "exists", None)
    monkeypatch.setattr(Path, "is_file", None)
    splits = {
        "train": [image(folder / "a.jpg"), image(folder / "b.jpg")],
        "val": [image(folder / "c.jpg")],
    }
    check_splits(splits, Refusal("x"))
    assert listed == [str(folder)]


def test_an_image_in_two_splits(folder: Path) -> None:
    splits = {"train": [image(folder / "a.jpg")], "test": [image(folder / "b.jpg"), image(folder / "a.jpg")]}
    message = refused(splits)
    assert str(folder / "a.jpg") in message
    assert "'train' and 'test'" in message
    assert [kind for kind, _ in found(splits)] == ["image in two splits"]


def test_an_image_in_two_splits_by_two_ways_to_its_folder(folder: Path) -> None:
    (folder / "link").symlink_to(folder)
    message = refused({"train": [image(folder / "a.jpg")], "val": [image(folder / "link" / "a.jpg")]})
    assert "'train' and 'val'" in message


def test_two_ways_to_one_file_are_one(folder: Path) -> None:
    (folder / "link").symlink_to(folder)
    paths = [folder / "a.jpg", folder / "link" / "a.jpg", folder / "link" / ".." / folder.name / "a.jpg"]
    assert len(set(real_files(paths))) == 1
    assert len(set(real_files([folder / "a.jpg", folder / "b.jpg"]))) == 2


def test_ids_may_repeat_between_splits_but_not_within_one(folder: Path) -> None:
    first, second = (CaptionedImage(0, folder / name, ("a dog",)) for name in ("a.jpg", "b.jpg"))
    assert found({"train": [first], "val": [second]}) == []
    message = refused({"train": [first, second]})
    assert "1 id of two images" in message
    assert "image 0 (train) is both" in message


def test_one_file_under_two_ids_of_one_split(folder: Path) -> None:
    splits = {"train": [CaptionedImage(number, folder / "a.jpg", ("a dog",)) for number in (1, 2)]}
    assert "a.jpg' stands twice in split 'train'" in refused(splits)
    assert [kind for kind, _ in found(splits)] == ["image listed twice"]


def test_images_without_captions_are_named(folder: Path) -> None:
    bare = CaptionedImage("b.jpg", folder / "b.jpg", ())
    splits = {"train": [image(folder / "a.jpg"), bare]}
    assert "1 image without captions in 'captions.json': image 'b.jpg' (train)" in refused(splits)
    assert found(splits) == [("image without captions", "image 'b.jpg' (train)")]


def test_blank_captions_are_named(folder: Path) -> None:
    message = refused({"train": [image(folder / "a.jpg", "a dog", "")]})
    assert "empty caption" in message
    assert "a.jpg" in message


class Given(CheckedReader):
    """A reader of given entries, of which the second is malformed."""

    source = "'given'"

    def __init__(self, splits: Splits) -> None:
        self.splits = splits

    def collect(self, findings: Findings) -> Splits:
        with findings.skipping():
            raise DataError("entry 2 is malformed")
        return self.splits


def test_one_way_of_reading_refuses_or_goes_on(folder: Path) -> None:
    reader = Given({"train": [image(folder / "a.jpg"), image(folder / "z.jpg")]})
    with pytest.raises(DataError, match=r"^entry 2 is malformed$"):
        reader.read()
    findings = Findings()
    assert reader.survey(findings) is reader.splits
    assert [finding.kind for finding in findings.found] == [Kind.MALFORMED, Kind.MISSING]


# -- findings --------------------------------------------------------------------------------------------------


def missing(count: int) -> list[Finding]:
    return [Finding(Kind.MISSING, f"{number}.jpg") for number in range(count)]


def test_everything_is_collected_in_order() -> None:
    findings = Findings()
    findings.report([*missing(2), Finding(Kind.LONG, "long")])
    with findings.skipping():
        raise DataError("line 3 is wrong")
    findings.report([Finding(Kind.BARE, "bare")])
    assert [finding.text for finding in findings.found] == [
        "0.jpg",
        "1.jpg",
        "long",
        "line 3 is wrong",
        "bare",
    ]
    assert findings.of(Kind.MALFORMED) == [Finding(Kind.MALFORMED, "line 3 is wrong")]
    with pytest.raises(ZeroDivisionError), findings.skipping():
        _ = 1 / 0
    assert len(findings.found) == 5


def test_a_refusal_names_the_first_few_and_the_remedy() -> None:
    with pytest.raises(DataError) as caught:
        Refusal("'x.csv'").report(missing(5))
    message = str(caught.value)
    assert message.startswith("5 missing images in 'x.csv': 0.jpg, 1.jpg, 2.jpg and 2 more. Get the files")
    assert "caption check" in message
    with pytest.raises(DataError, match=r"^1 missing image: 0\.jpg\. "):
        Refusal("").report(missing(1))


def test_a_refusal_passes_notes_over() -> None:
    refusal = Refusal("x")
    refusal.report([Finding(Kind.LONG, "long")])
    refusal.report([])
    assert refusal.found == []


def test_faults_come_before_notes() -> None:
    severities = [kind.is_fault for kind in Kind]
    assert severities == sorted(severities, reverse=True)
    assert len({kind.label for kind in Kind}) == len(Kind)
