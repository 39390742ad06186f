"""The reader of a caption file by its content, and the folder of its images."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from caption.core.errors import DataError, UserError
from caption.data.findings import Findings
from caption.data.readers.base import CaptionText
from caption.data.readers.coco import split_in_name
from caption.data.readers.detect import ALL, reader_for
from caption.data.readers.tables import JsonLines
from caption.metrics.caption_files import read_captions

COCO = {
    "images": [{"id": 1, "file_name": "a.jpg"}],
    "annotations": [{"id": 1, "image_id": 1, "caption": "A dog."}],
}
KARPATHY = {"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "A dog."}]}]}
BOXES = {**COCO, "annotations": [{"id": 1, "image_id": 1, "bbox": [0, 0, 1, 1], "category_id": 1}]}
TOKENS = "a.jpg#0\tA dog.\nb.jpg#0\tA cat.\n"
CSV = "image,caption\na.jpg,A dog.\n"
LINES = '{"image": "a.jpg", "caption": "A dog."}\n{"image": "b.jpg", "caption": "A cat."}\n'
IMAGE = ""


def written(folder: Path, files: dict[str, Any]) -> Path:
    """Files by name; contents other than text become JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def arguments(data: Path, images: dict[str, str] | None = None, splits: dict[str, str] | None = None) -> Any:
    return reader_for(str(data), images or {}, splits or {})["init_args"]


def refused(data: Path, images: dict[str, str] | None = None, splits: dict[str, str] | None = None) -> str:
    with pytest.raises(DataError) as caught:
        arguments(data, images, splits)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "cls"),
    [
        ("captions.txt", json.dumps(COCO, indent=1), "Coco"),
        ("captions.json", json.dumps(COCO).replace("[{", "[\n{").replace("}]", "}\n]"), "Coco"),
        ("captions.json", KARPATHY, "Karpathy"),
        ("captions.csv", CSV, "Csv"),
        ("captions.txt", CSV.replace(",", "\t"), "Csv"),
        ("captions.csv", "\n" + CSV + '"', "Csv"),
        ("captions.csv", "[image],image,caption\n1,a.jpg,A dog.\n", "Csv"),
        ("captions.jsonl", LINES, "JsonLines"),
        ("metadata.json", LINES.replace("image", "file_name").replace("caption", "text"), "JsonLines"),
        ("captions.json", '{"image": "a.jpg", "caption": "A dog."}', "JsonLines"),
        ("own.jsonl", '{"image": "a.jpg", "captions": ["A dog."], "bbox": [0, 0, 9, 9]}', "JsonLines"),
        ("captions.jsonl", '{"image": "a.jpg", "cap\n' + LINES, "JsonLines"),
        ("captions.json", [{"image": "a.jpg", "caption": "A dog."}], "JsonLines"),
    ],
)
def test_content_tells_the_format(name: str, content: Any, cls: str, tmp_path: Path):
    """The name does not decide, and damage to single lines does not matter. Other files in the folder are ignored."""
    others = {"boxes.json": BOXES, "list.json": [1], "notes.txt": "Mine.\n", "empty.txt": ""}
    others |= {"own.json": {"a": "b"}, "results.json": [{"image_id": 1, "caption": "A dog."}]}
    hidden = {f"._{name}": content, ".own.json": COCO}  # which systems leave beside files
    written(tmp_path, {name: content, "a.jpg": IMAGE, "b.jpg": IMAGE, **others, **hidden})
    spec = reader_for(str(tmp_path / name), {}, {})
    assert spec["class_path"] == f"caption.data.readers.{cls}"
    assert spec == reader_for(str(tmp_path), {}, {})


def test_other_files_have_no_reader(tmp_path: Path):
    for content, message in (
        ("", "is empty"),
        (
            "photo;words\na.jpg;A dog\n",
            "begins with 'photo;words', which does not name the columns image and caption",
        ),
        ("The dog runs.\nIt barks.\n", "begins with 'The dog runs.', which is not a known format. It may be"),
        ('{"images": [', "is not JSON"),
        ({"images": [{"id": 1, "file_name": "a.jpg"}]}, "neither 'annotations' nor 'sentences'"),
        ({"a": "A dog."}, "names no files of images"),
        ([{"image_id": 1, "caption": "A dog."}], "names no files of images"),
        (BOXES, "holds boxes, not captions"),
    ):
        assert message in refused(written(tmp_path, {"own.json": content}) / "own.json")


def test_a_folder_with_none_several_or_damaged_files(tmp_path: Path):
    """A damaged file is not ignored: otherwise a split would be missing from the report without a message."""
    for number, (files, message) in enumerate(
        (
            ({"boxes.json": BOXES}, "has no caption file in a known format"),
            ({"own.csv": CSV, "other.jsonl": LINES}, "other.jsonl (JSON lines), own.csv (CSV)"),
            ({"own.csv": CSV, "other.csv": CSV}, "several caption files"),
            ({"train.json": COCO, "val.json": json.dumps(COCO)[:-9]}, "val.json' is not JSON"),
        )
    ):
        assert message in refused(written(tmp_path / str(number), files))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_for_each_split_is_read_after_the_line_that_joins_them(tmp_path: Path, suffix: str):
    row = json.dumps({"file_name": "a.jpg", "text": "A dog, Tom's."})
    table = 'file_name,text\na.jpg,"A dog, Tom\'s."\n' if suffix == "csv" else f"{row}\n"
    splits = {"train": "train", "validation": "val"}
    files = {f"{split}/metadata.{suffix}": table for split in splits}
    stub = "class read_table:\n    def __init__(self, path): pass\n    def to_pylist(self): return "
    folder = written(tmp_path / "my photos", {**files, "pyarrow/parquet.py": f"{stub}[{row}]\n"})
    command = refused(folder).partition("the file that it writes: ")[2]
    subprocess.run(command.replace("python", sys.executable), shell=True, check=True)
    text = CaptionText((folder / "captions.jsonl").read_text(), "")
    assert [(entry.file, entry.split, entry.captions) for entry in JsonLines.entries(text, Findings())] == [
        (f"{folder}/a.jpg", split, ["A dog, Tom's."]) for folder, split in splits.items()
    ]


class ParquetFile:
    """As much of pyarrow's class as is used, over a file whose rows are JSON behind the mark."""

    def __init__(self, file: IO[bytes]) -> None:
        self.rows = json.loads(file.read()[4:])

    def iter_batches(self, size: int) -> Iterator[Any]:
        for start in range(0, len(self.rows), size):
            rows = [{**row, "picture": b"pixels"} for row in self.rows[start : start + size]]
            yield SimpleNamespace(num_rows=len(rows), to_pylist=lambda rows=rows: rows)


def test_a_parquet_table_is_read_as_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [{"file_name": f"{number}.jpg", "text": f"Un café, {number}."} for number in range(120)]
    files = {f"{number}.jpg": IMAGE for number in range(120)}
    folder = written(tmp_path / "photos", {**files, "metadata.parquet": f"PAR1{json.dumps(rows)}"})
    path = folder / "metadata.parquet"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        UserError, match=r"metadata.parquet' needs the package pyarrow.*: run pip install pyarrow"
    ):
        reader_for(str(path), {}, {})
    monkeypatch.setitem(
        sys.modules, "pyarrow", SimpleNamespace(parquet=SimpleNamespace(ParquetFile=ParquetFile))
    )
    for data in (folder, path):
        spec = reader_for(str(data), {}, {})
        assert spec["class_path"] == "caption.data.readers.JsonLines"
        images = JsonLines(**spec["init_args"]).read()["train"]
        assert {image.path.name: list(image.captions) for image in images} == {
            row["file_name"]: [row["text"]] for row in rows
        }
    assert read_captions(str(path)).captions == {row["file_name"]: [row["text"]] for row in rows}
    path.write_bytes(path.read_bytes()[:40])
    assert "is a damaged Parquet table: JSONDecodeError" in refused(path)


# -- COCO ------------------------------------------------------------------------------------------------------


def test_the_names_of_coco_files_tell_their_splits_and_the_folders_of_their_images(tmp_path: Path):
    files = {f"captions_{split}2014.json": COCO for split in ("val", "train")}
    folder = written(tmp_path / "one", {**files, "images/a.jpg": IMAGE})
    assert arguments(folder) == {
        "captions": {split: str(folder / f"captions_{split}2014.json") for split in ("train", "val")},
        "images": dict.fromkeys(("train", "val"), str(folder / "images")),
    }
    folder = written(tmp_path / "two", {"train2014/a.jpg": IMAGE, "val2014/a.jpg": IMAGE})
    annotations = written(folder / "annotations", files)
    images = {"train": str(folder / "train2014"), "val": str(folder / "val2014")}
    assert arguments(annotations)["images"] == images
    chosen = arguments(annotations, {ALL: "elsewhere", "val": "there"})["images"]
    assert chosen == {"train": "elsewhere", "val": "there"}
    assert "a folder for test, but the captions are those of train and val" in refused(
        annotations, {"test": "there"}
    )
    one = annotations / "captions_train2014.json"
    halves = {"train": "0.5", "val": "0.5"}
    assert arguments(one, {"train": "there"}, halves)["images"] == "there"
    assert arguments(annotations / "captions_val2014.json", {}, halves)["images"] == images["val"]
    plain = written(tmp_path / "three", {"images/a.jpg": IMAGE})
    written(plain / "annotations", {"captions.json": COCO})
    assert arguments(plain / "annotations" / "captions.json", {}, halves)["images"] == str(plain / "images")


def test_splits_of_coco_files_may_be_given(tmp_path: Path):
    written(tmp_path, dict.fromkeys(("one.json", "two.json", "three.json"), COCO))
    assert "do not tell which split is which" in refused(tmp_path)
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert arguments(tmp_path, splits={"test": str(two), "train": str(one)})["captions"] == {
        "train": str(one),
        "test": str(two),
    }
    assert arguments(one)["captions"] == {"train": str(one)}
    assert arguments(one, splits={"val": str(two)})["captions"] == {"train": str(one), "val": str(two)}
    assert arguments(one, splits={"test": str(one)})["captions"] == {"test": str(one)}
    assert "do not tell" in refused(one, splits={"train": str(two)})
    for number, names in enumerate([("train_a.json", "train_b.json"), ("trainval.json", "test.json")]):
        folder = written(tmp_path / str(number), dict.fromkeys(names, COCO))
        assert "do not tell which split is which" in refused(folder)


# -- Flickr ----------------------------------------------------------------------------------------------------


def test_flickrs_lists_are_found_by_name_and_content(tmp_path: Path):
    lists = {"trainImages.txt": "a.jpg\n", "devImages.txt": "b.jpg\n", "train_readme.txt": "How to train.\n"}
    written(tmp_path, {"own_token.txt": TOKENS, **lists, "Flicker8k_Dataset/a.jpg": IMAGE})
    named = {"train": str(tmp_path / "trainImages.txt"), "val": str(tmp_path / "devImages.txt")}
    images = str(tmp_path / "Flicker8k_Dataset")
    for data in (tmp_path, tmp_path / "own_token.txt"):
        assert reader_for(str(data), {}, {}) == {
            "class_path": "caption.data.readers.Flickr",
            "init_args": {"captions": str(tmp_path / "own_token.txt"), "splits": named, "images": images},
        }
    chosen = arguments(tmp_path, {ALL: "photos"}, {"test": "list.txt"})
    assert (chosen["splits"], chosen["images"]) == ({"test": "list.txt"}, "photos")
    without = written(tmp_path / "without", {"own_token.txt": TOKENS})
    assert "name them with --splits" in refused(without)
    written(without, {"train1.txt": "a.jpg", "train2.txt": "b.jpg"})  # too many
    assert "name them with --splits" in refused(without)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("latest.json", None),
        ("festival.json", None),
        ("device.json", None),
        ("captions_trainval2014.json", None),
        ("captionsTrain.json", "train"),
        ("captions_val2017.json", "val"),
        ("Flickr_8k.devImages.txt", "val"),
        ("testImages.txt", "test"),
        ("train_and_test.json", None),
    ],
)
def test_splits_in_names_start_a_word(name: str, split: str | None):
    assert split_in_name(Path(name)) == split


# -- Karpathy, tables, fractions -------------------------------------------------------------------------------


def test_karpathys_images_may_be_in_subfolders(tmp_path: Path):
    entry = {"filename": "a.jpg", "filepath": "val2014", "split": "val", "sentences": [{"raw": "A dog."}]}
    written(tmp_path, {"dataset_coco.json": {"images": [entry]}, "images/val2014/a.jpg": IMAGE})
    data = tmp_path / "dataset_coco.json"
    assert arguments(data) == {"captions": str(data), "images": str(tmp_path / "images")}
    assert arguments(data, {ALL: "photos"})["images"] == "photos"
    assert "has splits of its own" in refused(data, splits={"train": "x"})
    assert "one folder for data in Karpathy format" in refused(data, {"train": "x"})


def test_most_of_the_images_of_a_table_decide_where_they_are(tmp_path: Path):
    """The first image may be missing or in another place."""
    data = written(tmp_path, {"own.jsonl": LINES + '{"image": "c.jpg", "caption": "A bird."}'})
    file, beside, below = str(tmp_path / "own.jsonl"), str(tmp_path), str(tmp_path / "images")
    for found, folder in (({}, beside), ({"a.jpg": IMAGE}, beside), ({"images/b.jpg": IMAGE}, beside)):
        written(tmp_path, found)
        assert arguments(data) == {"captions": file, "images": folder}
    written(tmp_path, {"images/c.jpg": IMAGE})
    assert arguments(data) == {"captions": file, "images": below}


@pytest.mark.parametrize(
    ("name", "content", "cls"),
    [("coco.json", COCO, "Coco"), ("tokens.txt", TOKENS, "Flickr"), ("own.csv", CSV, "Csv")],
)
def test_fractions_divide_any_data_without_splits(name: str, content: Any, cls: str, tmp_path: Path):
    data = written(tmp_path, {name: content, "a.jpg": IMAGE}) / name
    chosen = arguments(data, {ALL: "photos"}, {"train": "0.5", "val": "0.5"})
    no_lists = {"splits": None} if cls == "Flickr" else {}
    assert chosen == {
        "captions": str(data), "images": "photos", "fractions": {"train": 0.5, "val": 0.5}, **no_lists
    }  # fmt: skip
    assert "takes fractions" in refused(data, splits={"train": "0.5", "val": "other.txt"})


def test_fractions_and_files_that_do_not_fit(tmp_path: Path):
    assert "takes fractions" in refused(
        written(tmp_path / "1", {"own.csv": CSV}), splits={"train": "train.csv"}
    )
    assert "leave out --splits" in refused(
        written(tmp_path / "2", {"k.json": KARPATHY}), splits={"train": "1"}
    )
    several = written(tmp_path / "3", {"captions_train.json": COCO, "captions_val.json": COCO})
    assert "divides one file" in refused(several, splits={"train": "0.5", "val": "0.5"})
