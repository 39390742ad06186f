"""The checks of every file reader before training, and findings: faults are collected, or the first one raises.

Each fault by itself is in test_reader_laws.py.
"""

import os
from pathlib import Path

import pytest

from caption.core.errors import DataError
from caption.data.findings import Finding, Findings, Kind
from caption.data.readers import base as module
from caption.data.readers.base import Entry, check_splits, image_path, is_list, real_files, stripped
from caption.data.splits import CaptionedImage, Splits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def image(path: Path) -> CaptionedImage:
    return CaptionedImage(path.name, path, ("a dog",))


def collected(splits: Splits) -> list[tuple[str, str]]:
    findings = Findings()
    check_splits(splits, findings)
    return [(finding.kind.label, finding.text) for finding in findings]


def test_files_that_are_missing(folder: Path):
    """Once for each file. Links to nothing and folders are no files."""
    kinds = [kind for kind, _ in collected({split: [image(folder / "z.jpg")] for split in ("train", "val")})]
    assert kinds == ["image in two splits", "missing image"]
    for name, target in (("e", "gone.jpg"), ("f", "a.jpg")):
        (folder / f"{name}.jpg").symlink_to(folder / target)
    (folder / "d.jpg").mkdir()
    found = [text for _, text in collected({"train": [image(folder / f"{name}.jpg") for name in "def"]})]
    assert found == [f"'{folder / name}.jpg'" for name in "de"]
    ((_, text),) = collected({"train": [image(folder / "none" / "a.jpg")]})
    assert f"folder '{folder / 'none'}': No such file or directory" in text


@pytest.mark.parametrize(
    ("caption", "kinds"),
    [
        ("un garÃ§on", [Kind.ENCODING]),
        ("itâ€™s a dog", [Kind.ENCODING]),
        ("Ð¿Ñ€Ð¸Ð²ÐµÑ‚", [Kind.ENCODING]),
        ("çŒ«ãŒã„ã‚‹", [Kind.ENCODING]),
        (r"a dog.\nA cat", [Kind.MARKUP]),
        ("a dog<br/>a cat", [Kind.MARKUP]),
        ("İki kişi<br>", [Kind.MARKUP, Kind.DOTTED]),
        ("a dog\na cat", [Kind.LINES]),
        ("a < b > c, le garçon à “Å”, SEÑOR, привет, 猫, Zoë’s, ελληνικά, שלום, Łódź, iki kişi", []),
    ],
)
def test_odd_captions_are_noted(tmp_path: Path, caption: str, kinds: list[Kind]):
    findings = Findings()
    entry = Entry("line 1", "a.jpg", "a.jpg", [caption])
    assert stripped(entry, findings, tmp_path / "a.jpg") == [caption]
    assert [finding.kind for finding in findings] == kinds
    assert not any(kind.is_fault for kind in kinds)


def test_a_missing_file_that_exists_under_another_spelling_is_named(folder: Path):
    (folder / "photos").mkdir()
    for name in ("photos/0.jpg", "D.JPG", "caf\u00e9.jpg", "my dog.jpg"):
        (folder / name).touch()
    names = {
        "photos\\0.jpg": "photos/0.jpg", "d.jpg": "D.JPG", "cafe\u0301.jpg": "caf\u00e9.jpg",
        "my%20dog.jpg": "my dog.jpg", "D": "D.JPG", "a.png": "a.jpg", "e.jpg": None,
    }  # fmt: skip
    hints = [f" (there is '{other}': write this name)" if other else "" for other in names.values()]
    found = collected({"train": [image(folder / name) for name in names]})
    expected = [f"'{folder / name}'{hint}" for name, hint in zip(names, hints, strict=True)]
    assert [text for _, text in found] == expected


def test_one_listing_per_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Checking each of 123,000 files takes minutes on a network disk."""
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", counted)
    for name in ("stat", "exists", "is_file"):
        monkeypatch.setattr(Path, name, None)
    train = [image(folder / "a.jpg"), image(folder / "b.jpg")]
    check_splits({"train": train, "val": [image(folder / "c.jpg")]}, Findings())
    assert listed == [str(folder)]


def test_two_ways_to_one_file_are_one(folder: Path):
    (folder / "link").symlink_to(folder)
    paths = [folder / "a.jpg", folder / "link" / "a.jpg", folder / "link" / ".." / folder.name / "a.jpg"]
    assert len(set(real_files(paths))) == 1
    assert len(set(real_files([folder / "a.jpg", folder / "b.jpg"]))) == 2
    found = collected({"train": [image(paths[0])], "val": [image(folder / "b.jpg"), image(paths[1])]})
    assert found == [("image in two splits", f"'{paths[1]}' is in the splits 'train' and 'val'")]


def test_a_refusal_names_the_first_few_and_the_remedy_and_passes_notes_over():
    findings = Findings()
    findings.add(Kind.LONG, "long")
    findings.refuse()
    for number in range(5):
        findings.add(Kind.MISSING, f"{number}.jpg")
    findings.add(Kind.EMPTY, "another kind")
    message = "5 missing images in 'x.csv': 0.jpg, 1.jpg, 2.jpg and 2 more. Get the files"
    with pytest.raises(DataError, match=f"^{message}.*`caption check` names all faults"):
        findings.refuse("'x.csv'")
    malformed = Findings([Finding(Kind.MALFORMED, "line 3 is wrong. Correct it.")])  # its text has the remedy
    with pytest.raises(DataError, match=r"^line 3 is wrong\. Correct it\.$"):
        malformed.refuse("'x.csv'")
    with pytest.raises(DataError, match=r"Correct it\. \(2 malformed entries: `caption check`"):
        Findings(malformed * 2).refuse("'x.csv'")


# -- names of images -------------------------------------------------------------------------------------------


def test_names_stay_in_the_folder_of_the_images_or_the_user_names_another(folder: Path):
    (folder / "link").symlink_to(folder.parent)  # made by the user
    inside = ["a.jpg", "./a.jpg", "link/a.jpg", "a..jpg", str(folder / "a.jpg")]
    assert [image_path(folder, name, "line 2") for name in inside] == [folder / name for name in inside]
    for name in ("../a.jpg", "link/../a.jpg", "a/../../a.jpg", "/etc/hostname", f"{folder}2/a.jpg"):
        with pytest.raises(DataError, match=rf"^line 2 .*'{name}'"):
            image_path(folder, name, "line 2")
    assert image_path(Path("/"), "/etc/hostname", "line 2") == Path("/etc/hostname")


def test_a_list_is_recognised_in_linear_time():
    assert is_list("['a dog' , ]")
    assert is_list("['a dog',\n]")
    assert not is_list("['a dog'" + " " * 200_000 + "x")
