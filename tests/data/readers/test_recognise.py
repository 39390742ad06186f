"""Recognition of caption files: the reader of a file, and the folder of its images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from caption.data.readers.recognise import ALL, reader_for
from caption.errors import DataError

COCO = {
    "images": [{"id": 1, "file_name": "a.jpg"}],
    "annotations": [{"id": 1, "image_id": 1, "caption": "A dog."}],
}
KARPATHY = {"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "A dog."}]}]}
BOXES = {**COCO, "annotations": [{"id": 1, "image_id": 1, "bbox": [0, 0, 1, 1], "category_id": 1}]}
TOKENS = "a.jpg#0\tA dog.\nb.jpg#0\tA cat.\n"
CSV = "image,caption\na.jpg,A dog.\n"
LINES = '{"image": "a.jpg", "caption": "A dog."}\n{"image": "b.jpg", "caption": "A cat."}\n'


def written(folder: Path, **files: Any) -> Path:
    """Files by name, `__` for a slash and `_dot_` for a dot; contents other than text become JSON, None an empty
    image."""
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.touch()
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def refused(data: Path, images: dict[str, str] | None = None, splits: dict[str, str] | None = None) -> str:
    with pytest.raises(DataError) as caught:
        reader_for(str(data), images or {}, splits or {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "cls"),
    [
        ("captions_dot_json", COCO, "Coco"),
        ("captions_dot_txt", json.dumps(COCO, indent=1), "Coco"),
        ("captions_dot_json", json.dumps(COCO).replace("[{", "[\n{").replace("}]", "}\n]"), "Coco"),
        ("captions_dot_json", KARPATHY, "Karpathy"),
        ("captions_dot_csv", CSV, "Csv"),
        ("captions_dot_txt", CSV.replace(",", "\t"), "Csv"),
        ("captions_dot_csv", "\n" + CSV + '"', "Csv"),
        ("captions_dot_jsonl", LINES, "JsonLines"),
        ("captions_dot_json", LINES, "JsonLines"),
        ("captions_dot_json", '{"image": "a.jpg", "caption": "A dog."}', "JsonLines"),
        ("captions_dot_jsonl", '{"image": "a.jpg", "cap\n' + LINES, "JsonLines"),
        ("captions_dot_csv", "[image],image,caption\n1,a.jpg,A dog.\n", "Csv"),
        ("captions_dot_json", [{"image": "a.jpg", "caption": "A dog."}], "JsonLines"),
    ],
)
def test_content_tells_the_format(name: str, content: Any, cls: str, tmp_path: Path) -> None:
    """The name does not decide, and damage to single lines does not matter."""
    written(tmp_path, **{name: content, "a_dot_jpg": None, "b_dot_jpg": None})
    spec = reader_for(str(tmp_path / name.replace("_dot_", ".")), {}, {})
    assert spec["class_path"] == f"caption.data.readers.{cls}"
    assert spec == reader_for(str(tmp_path), {}, {})  # the folder has no other caption file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        (
            "photo;words\na.jpg;A dog\n",
            "begins with 'photo;words', which is not a known format. It may be COCO",
        ),
        ('{"images": [', "is not JSON"),
        ({"images": [{"id": 1, "file_name": "a.jpg"}]}, "neither 'annotations' nor 'sentences'"),
        ({"a.jpg": "A dog."}, "names no files of images"),
        ([{"image_id": 1, "caption": "A dog."}], "names no files of images"),
        (BOXES, "holds boxes, not captions"),
    ],
)
def test_other_files_are_not_recognised(content: Any, message: str, tmp_path: Path) -> None:
    written(tmp_path, own_dot_json=content)
    assert message in refused(tmp_path / "own.json")


def test_other_files_in_a_folder_are_ignored(tmp_path: Path) -> None:
    others = {"boxes_dot_json": BOXES, "list_dot_json": [1], "notes_dot_txt": "Mine.\n", "empty_dot_txt": ""}
    written(tmp_path, **others, a_dot_jpg=None)
    assert "has no caption file in a known format" in refused(tmp_path)
    written(tmp_path, own_dot_csv=CSV)
    assert reader_for(str(tmp_path), {}, {})["init_args"] == {"file": str(tmp_path / "own.csv")}


def test_damaged_files_are_not_ignored(tmp_path: Path) -> None:
    """Otherwise a split would be missing from the report without a message."""
    written(tmp_path, train_dot_json=COCO, val_dot_json=json.dumps(COCO)[:-9], a_dot_jpg=None)
    assert "val.json' is not JSON" in refused(tmp_path)


def test_a_folder_with_several(tmp_path: Path) -> None:
    written(tmp_path, own_dot_csv=CSV, other_dot_jsonl=LINES)
    message = refused(tmp_path)
    assert "other.jsonl (JSON lines), own.csv (CSV)" in message
    written(tmp_path / "two", own_dot_csv=CSV, other_dot_csv=CSV)
    assert "several caption files" in refused(tmp_path / "two")


# -- COCO ------------------------------------------------------------------------------------------------------


def test_the_names_of_coco_files_tell_their_splits(tmp_path: Path) -> None:
    written(
        tmp_path,
        captions_val2014_dot_json=COCO,
        captions_train2014_dot_json=COCO,
        instances_val2014_dot_json=BOXES,
        images__a_dot_jpg=None,
    )
    spec = reader_for(str(tmp_path), {}, {})
    assert spec["init_args"] == {
        "captions": {split: str(tmp_path / f"captions_{split}2014.json") for split in ("train", "val")},
        "images": dict.fromkeys(("train", "val"), str(tmp_path / "images")),
    }


def test_images_where_coco_has_them(tmp_path: Path) -> None:
    written(
        tmp_path,
        annotations__captions_train2014_dot_json=COCO,
        annotations__captions_val2014_dot_json=COCO,
        train2014__a_dot_jpg=None,
        val2014__a_dot_jpg=None,
    )
    images = reader_for(str(tmp_path / "annotations"), {}, {})["init_args"]["images"]
    assert images == {"train": str(tmp_path / "train2014"), "val": str(tmp_path / "val2014")}
    given = {ALL: "elsewhere", "val": "there"}
    images = reader_for(str(tmp_path / "annotations"), given, {})["init_args"]["images"]
    assert images == {"train": "elsewhere", "val": "there"}


def test_splits_of_coco_files_may_be_given(tmp_path: Path) -> None:
    written(tmp_path, one_dot_json=COCO, two_dot_json=COCO, three_dot_json=COCO)
    assert "do not tell which split is which" in refused(tmp_path)
    one, two = str(tmp_path / "one.json"), str(tmp_path / "two.json")

    def captions(data: Path | str, **splits: str) -> dict[str, str]:
        return reader_for(str(data), {}, splits)["init_args"]["captions"]

    assert captions(tmp_path, test=two, train=one) == {"train": one, "test": two}
    assert captions(one) == {"train": one}
    assert captions(one, val=two) == {"train": one, "val": two}
    assert captions(one, test=one) == {"test": one}
    assert "do not tell" in refused(tmp_path / "one.json", splits={"train": two})


def test_two_coco_files_of_one_split(tmp_path: Path) -> None:
    written(tmp_path, train_a_dot_json=COCO, train_b_dot_json=COCO)
    assert "do not tell which split is which" in refused(tmp_path)


def test_a_name_with_two_splits_tells_none(tmp_path: Path) -> None:
    written(tmp_path, trainval_dot_json=COCO, test_dot_json=COCO)
    assert "do not tell which split is which" in refused(tmp_path)


# -- Flickr ----------------------------------------------------------------------------------------------------


def test_flickrs_lists_are_found_by_name_and_content(tmp_path: Path) -> None:
    written(
        tmp_path,
        own_token_dot_txt=TOKENS,
        train_readme_dot_txt="How to train with it.\n",
        trainImages_dot_txt="a.jpg\n",
        devImages_dot_txt="b.jpg\n",
        Flicker8k_Dataset__a_dot_jpg=None,
    )
    expected = {
        "captions": str(tmp_path / "own_token.txt"),
        "splits": {"train": str(tmp_path / "trainImages.txt"), "val": str(tmp_path / "devImages.txt")},
        "images": str(tmp_path / "Flicker8k_Dataset"),
    }
    for data in (tmp_path, tmp_path / "own_token.txt"):
        spec = reader_for(str(data), {}, {})
        assert (spec["class_path"], spec["init_args"]) == ("caption.data.readers.Flickr", expected)
    given = reader_for(str(tmp_path), {ALL: "photos"}, {"test": "list.txt"})["init_args"]
    assert (given["splits"], given["images"]) == ({"test": "list.txt"}, "photos")


def test_flickr_without_lists_or_with_too_many(tmp_path: Path) -> None:
    written(tmp_path, own_token_dot_txt=TOKENS)
    assert "name them with --splits" in refused(tmp_path)
    written(tmp_path, train1_dot_txt="a.jpg", train2_dot_txt="b.jpg")
    assert "name them with --splits" in refused(tmp_path)


# -- Karpathy, tables ------------------------------------------------------------------------------------------


def test_karpathys_images_may_be_in_subfolders(tmp_path: Path) -> None:
    entry = {"filename": "a.jpg", "filepath": "val2014", "split": "val", "sentences": [{"raw": "A dog."}]}
    written(tmp_path, dataset_coco_dot_json={"images": [entry]}, images__val2014__a_dot_jpg=None)
    data = tmp_path / "dataset_coco.json"
    arguments = {"file": str(data), "images": str(tmp_path / "images")}
    assert reader_for(str(data), {}, {})["init_args"] == arguments
    assert reader_for(str(data), {ALL: "photos"}, {})["init_args"]["images"] == "photos"
    assert "has splits of its own" in refused(data, splits={"train": "x"})
    assert "one folder for data in Karpathy format" in refused(data, {"train": "x"})


@pytest.mark.parametrize(("name", "content"), [("own_dot_csv", CSV), ("own_dot_jsonl", LINES)])
def test_images_of_tables(name: str, content: str, tmp_path: Path) -> None:
    data = written(tmp_path, **{name: content})
    file = str(tmp_path / name.replace("_dot_", "."))
    assert reader_for(str(data), {}, {})["init_args"] == {"file": file}
    written(tmp_path, images__a_dot_jpg=None)
    assert reader_for(str(data), {}, {})["init_args"] == {"file": file, "images": str(tmp_path / "images")}
    written(tmp_path, a_dot_jpg=None)
    assert reader_for(str(data), {}, {})["init_args"] == {"file": file}
    assert reader_for(str(data), {ALL: "photos"}, {"train": "0.5", "val": "0.5"})["init_args"] == {
        "file": file,
        "images": "photos",
        "fractions": {"train": 0.5, "val": 0.5},
    }
    assert "takes fractions" in refused(data, splits={"train": "train.csv"})


def test_most_of_the_images_decide_where_they_are(tmp_path: Path) -> None:
    """The first image may be missing or in another place."""
    written(tmp_path, own_dot_jsonl=LINES + '{"image": "c.jpg", "caption": "A bird."}', a_dot_jpg=None)
    written(tmp_path / "images", b_dot_jpg=None, c_dot_jpg=None)
    assert reader_for(str(tmp_path), {}, {})["init_args"]["images"] == str(tmp_path / "images")
