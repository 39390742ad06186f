"""What every reader checks before anything is trained."""

import json
import os
from pathlib import Path

import jsonargparse
import pytest

from caption.data import captions as module
from caption.data.captions import (
    CaptionedImage,
    CaptionReader,
    Splits,
    check_split_names,
    checked,
    entries,
    enumerated,
    field,
    located,
    read_json,
    read_text,
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
        checked(splits, "'captions.json'")
    return str(caught.value)


def test_good_splits_come_back_as_they_are(folder: Path) -> None:
    splits = {"train": [image(folder / "a.jpg", "a dog", "a cat")], "test": [image(folder / "b.jpg")]}
    assert checked(splits, "x") is splits


def test_no_split_an_unknown_one_and_an_empty_one(folder: Path) -> None:
    assert "train, val, test" in refused({})
    assert "'dev' is no split" in refused({"dev": [image(folder / "a.jpg")]})
    message = refused({"train": [image(folder / "a.jpg")], "val": []})
    assert "'val'" in message
    assert "empty" in message
    with pytest.raises(DataError, match="'restval'"):
        check_split_names(["train", "restval"])


def test_missing_images_are_named_and_counted(folder: Path) -> None:
    """They are an error: features of nothing would train a model on noise."""
    images = [image(folder / f"{name}.jpg") for name in "abvwxyz"]
    message = refused({"train": images})
    assert "5 of the 7 images" in message
    assert all(str(folder / f"{name}.jpg") in message for name in "vwx")
    assert "and 2 more" in message
    assert "captions.json" in message


def test_a_folder_in_the_place_of_an_image_and_a_dangling_link(folder: Path) -> None:
    (folder / "d.jpg").mkdir()
    (folder / "e.jpg").symlink_to(folder / "gone.jpg")
    (folder / "f.jpg").symlink_to(folder / "a.jpg")
    message = refused({"train": [image(folder / f"{name}.jpg") for name in "def"]})
    assert "2 of the 3 images" in message
    assert "f.jpg" not in message


def test_a_missing_folder(folder: Path) -> None:
    message = refused({"train": [image(folder / "none" / "a.jpg")]})
    assert str(folder / "none") in message
    assert "1 images" in message


def test_one_listing_per_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at each of 123,000 files takes minutes on a network disk."""
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", counted)
    monkeypatch.setattr(Path, "stat", None)
    monkeypatch.setattr(Path, "exists", None)
    monkeypatch.setattr(Path, "is_file", None)
    checked(
        {"train": [image(folder / "a.jpg"), image(folder / "b.jpg")], "val": [image(folder / "c.jpg")]}, "x"
    )
    assert listed == [str(folder)]


def test_images_in_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    checked({"train": [image(Path("a.jpg"))]}, "x")
    assert "z.jpg" in refused({"train": [image(Path("z.jpg"))]})


def test_an_image_in_two_splits(folder: Path) -> None:
    message = refused(
        {"train": [image(folder / "a.jpg")], "test": [image(folder / "b.jpg"), image(folder / "a.jpg")]}
    )
    assert str(folder / "a.jpg") in message
    assert "'train' and 'test'" in message


def test_an_image_in_two_splits_by_two_ways_to_its_folder(folder: Path) -> None:
    (folder / "link").symlink_to(folder)
    message = refused({"train": [image(folder / "a.jpg")], "val": [image(folder / "link" / "a.jpg")]})
    assert "'train' and 'val'" in message


def test_ids_may_start_anew_in_every_split_but_not_within_one(folder: Path) -> None:
    first, second = (CaptionedImage(0, folder / name, ("a dog",)) for name in ("a.jpg", "b.jpg"))
    checked({"train": [first], "val": [second]}, "x")
    assert "image 0 stands twice in split 'train'" in refused({"train": [first, second]})


def test_one_file_under_two_ids_of_one_split(folder: Path) -> None:
    twice = [CaptionedImage(number, folder / "a.jpg", ("a dog",)) for number in (1, 2)]
    message = refused({"train": twice})
    assert "a.jpg" in message
    assert "twice in split 'train'" in message


def test_images_without_captions_are_named(folder: Path) -> None:
    bare = CaptionedImage("b.jpg", folder / "b.jpg", ())
    message = refused({"train": [image(folder / "a.jpg"), bare]})
    assert "1 of the 2 images of split 'train' have no caption" in message
    assert "b.jpg" in message


def test_blank_captions_are_named(folder: Path) -> None:
    message = refused({"train": [image(folder / "a.jpg", "a dog", "")]})
    assert "blank" in message
    assert "a.jpg" in message


def test_enumeration() -> None:
    assert enumerated(["a"]) == "a"
    assert enumerated(["a", "b", "c"]) == "a, b, c"
    assert enumerated(list("abcdefg")) == "a, b, c and 4 more"


def test_home_folder_and_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert located("~/images") == tmp_path / "images"
    assert located("images") == Path("images")


def test_text_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt' does not exist"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_text(tmp_path)
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.txt' is no UTF-8 text \(byte 3\)"):
        read_text(tmp_path / "latin.txt")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9\r\n")
    assert read_text(tmp_path / "windows.txt") == "café\r\n"


def test_json_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "captions.json"
    file.write_text('{"images": [\n{"id": 1,}\n]}')
    with pytest.raises(DataError, match=r"captions\.json' is no JSON: .* in line 2"):
        read_json(file)
    file.write_text("[1, 2]")
    with pytest.raises(DataError, match="holds a JSON list, not an object"):
        read_json(file)


@pytest.mark.parametrize("data", [{}, {"images": None}, {"images": {"a": 1}}, {"images": [1]}])
def test_lists_that_are_none(data: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"'f\.json' has no list of objects called 'images'"):
        entries(data, "images", "'f.json'")


def test_fields_of_the_wrong_type() -> None:
    assert field({"id": 3}, "id", int, "entry 0") == 3
    for entry in ({}, {"id": "3"}, {"id": None}):
        with pytest.raises(DataError, match="entry 0 has no valid 'id'"):
            field(entry, "id", int, "entry 0")


@pytest.mark.parametrize(
    ("reader", "arguments"),
    [
        ("coco.Coco", {"captions": {"train": "t.json"}, "images": {"train": "images"}}),
        ("karpathy.Karpathy", {"file": "dataset.json", "images": "images", "restval": False}),
        ("flickr.Flickr", {"captions": "token.txt", "splits": {"train": "t.txt"}, "images": "images"}),
    ],
)
def test_a_configuration_file_can_name_a_reader(reader: str, arguments: dict[str, object]) -> None:
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--reader", type=CaptionReader)
    text = json.dumps({"reader": {"class_path": f"caption.data.{reader}", "init_args": arguments}})
    config = parser.parse_string(text)  # JSON is YAML
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # its name before 4.49
    assert vars(instantiate(config).reader) == arguments
