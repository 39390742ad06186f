"""Own data as JSON lines."""

import json
from pathlib import Path

import pytest

from caption.data.readers.captions import Findings
from caption.data.readers.tables import JsonLines
from caption.errors import DataError

GOOD = [
    {"image": "a.jpg", "caption": " A dog.\u2028Sitting. ", "split": "train", "source": "web"},
    {"image": "b.jpg", "captions": ["A cat.", "Une chatte."], "split": "val"},
    {"image": "a.jpg", "caption": ["One dog."], "split": "train"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def reader(folder: Path, *lines: object, **options: object) -> JsonLines:
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    (folder / "own.jsonl").write_text("\n".join(texts), encoding="utf-8")
    return JsonLines(str(folder / "own.jsonl"), **options)  # type: ignore[arg-type]


def read(jsonl: JsonLines) -> dict[str, dict[int | str, tuple[str, ...]]]:
    return {split: {i.id: i.captions for i in images} for split, images in jsonl.read().items()}


def test_lines_become_images(folder: Path) -> None:
    """Unicode separators do not end a line."""
    assert read(reader(folder, *GOOD, "")) == {
        "train": {"a.jpg": ("A dog.\u2028Sitting.", "One dog.")},
        "val": {"b.jpg": ("A cat.", "Une chatte.")},
    }


def test_keys_may_have_other_names(folder: Path) -> None:
    lines = [{"file": "a.jpg", "text": ["A dog."], "part": "test", "caption": 3, "split": 7}]
    jsonl = reader(folder, *lines, image_key="file", caption_key="text", split_key="part")
    assert read(jsonl) == {"test": {"a.jpg": ("A dog.",)}}


def test_without_splits_all_is_training_or_divided_by_fractions(folder: Path) -> None:
    lines = [{"image": f"{name}.jpg", "caption": "A dog.", "split": None} for name in "abc"]
    assert list(read(reader(folder, *lines))) == ["train"]
    divided = read(reader(folder, *lines, fractions={"train": 0.4, "val": 0.1, "test": 0.5}))
    assert {split: list(images) for split, images in divided.items()} == {
        "train": ["a.jpg"],
        "val": ["b.jpg"],
        "test": ["c.jpg"],
    }


def test_images_start_from_a_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "d.jpg").touch()
    line = {"image": "d.jpg", "caption": "A dog."}
    splits = reader(folder, line, images=str(tmp_path / "photos")).read()
    assert splits["train"][0].path == tmp_path / "photos" / "d.jpg"


FAULTS = [
    ('{"image": "c.jpg", "caption": "A', "is not JSON"),
    ('["c.jpg", "A bird."]', "is not a JSON object"),
    ({"caption": "A bird."}, "has no valid 'image'"),
    ({"image": " ", "caption": "A bird.", "split": "val"}, "names no image"),
    ({"image": 3, "caption": "A bird."}, "has no valid 'image' (found 3)"),
    ({"image": "c.jpg", "split": "val"}, "has no valid 'caption'"),
    ({"image": "c.jpg", "captions": "x", "caption": None}, "has no valid 'caption'"),
    ({"image": "c.jpg", "captions": ["x", 3], "split": "val"}, "has captions that are not text"),
    ({"image": "c.jpg", "caption": "A bird.", "split": 1}, "has no valid 'split'"),
    ({"image": "c.jpg", "caption": "A bird.", "split": "dev"}, "has the split 'dev'"),
    ({"image": "c.jpg", "caption": "A bird."}, "has no split, though other lines have one"),
    ({"image": "c.jpg", "captions": ["A bird.", " "], "split": "val"}, "(c.jpg)"),
    ({"image": "b.jpg", "caption": "A cat.", "split": "test"}, "is in 'test', but in 'val' on line 2"),
]


@pytest.mark.parametrize(("line", "message"), FAULTS)
def test_a_fault_is_named_by_file_and_line(folder: Path, line: object, message: str) -> None:
    jsonl = reader(folder, *GOOD, "", line, GOOD[0])
    with pytest.raises(DataError) as caught:
        jsonl.read()
    assert f"line 5 of '{folder / 'own.jsonl'}'" in str(caught.value)
    assert message in str(caught.value)
    findings = Findings()
    splits = jsonl.survey(findings)
    assert len(splits["train"][0].captions) == 3  # entries after the fault are read
    assert [finding.text.startswith("line 5 of") for finding in findings.found] == [True]


def test_no_captions_at_all(folder: Path) -> None:
    with pytest.raises(DataError, match="1 image without captions"):
        reader(folder, {"image": "a.jpg", "captions": []}).read()
