"""Flickr8k's token file and split lists."""

from pathlib import Path

import pytest

from caption.data.readers.captions import Findings, Kind
from caption.data.readers.flickr import Flickr
from caption.errors import DataError

FLICKR8K = Path(__file__).resolve().parents[3] / "shared" / "data" / "flickr8k"

TOKENS = (
    "a.jpg#0\tA dog runs .\n"
    "a.jpg#1\t The dog\u2028is  quick . \n"
    "b.jpg#0\tA cat\tsits .\n"
    "c.jpg#0\tIn no split .\n"
    "c.jpg.1#0\tThe odd name of the published file .\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def reader(folder: Path, tokens: str | bytes = TOKENS, **lists: str | bytes) -> Flickr:
    contents = {"tokens.txt": tokens} | {f"{split}.txt": names for split, names in lists.items()}
    for name, content in contents.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return Flickr(
        str(folder / "tokens.txt"), {split: str(folder / f"{split}.txt") for split in lists}, str(folder)
    )


def refused(folder: Path, tokens: str | bytes = TOKENS, **lists: str | bytes) -> str:
    with pytest.raises(DataError) as caught:
        reader(folder, tokens, **lists).read()
    return str(caught.value)


def test_images_and_captions(folder: Path) -> None:
    """Unicode separators do not end a line, and only the first tab ends the name."""
    splits = reader(folder, train="a.jpg\n", test="b.jpg\n").read()
    assert list(splits) == ["train", "test"]
    (image,) = splits["train"]
    assert (image.id, image.path) == ("a.jpg", folder / "a.jpg")
    assert image.captions == ("A dog runs .", "The dog\u2028is  quick .")
    assert splits["test"][0].captions == ("A cat\tsits .",)


def test_windows_line_ends_and_spaces(folder: Path) -> None:
    tokens = b"\xef\xbb\xbf" + TOKENS.replace("\n", "\r\n").encode() + b"\r\n"
    splits = reader(folder, tokens, train=b"\xef\xbb\xbfa.jpg  \r\n\r\nb.jpg").read()
    assert [image.id for image in splits["train"]] == ["a.jpg", "b.jpg"]
    assert splits["train"][0].captions[0] == "A dog runs ."


def test_the_order_is_that_of_the_split_list(folder: Path) -> None:
    splits = reader(folder, train="b.jpg\na.jpg\n").read()
    assert [image.id for image in splits["train"]] == ["b.jpg", "a.jpg"]


def test_a_name_may_hold_the_mark(folder: Path) -> None:
    (folder / "no#1.jpg").touch()
    splits = reader(folder, "no#1.jpg#0\tA dog\n", val="no#1.jpg\n").read()
    assert splits["val"][0].captions == ("A dog",)


@pytest.mark.parametrize(
    "line",
    [
        "image,caption",
        "d.jpg#0 no tab",
        "d.jpg\tno number",
        "d.jpg#x\tno number",
        "#0\tno name",
        "d.jpg#0\t",
        "d.jpg#0\t  ",
    ],
)
def test_a_malformed_line_is_named_by_its_number(folder: Path, line: str) -> None:
    message = refused(folder, f"a.jpg#0\tA dog\n\n{line}\nb.jpg#0\tA cat\n", train="a.jpg")
    assert "line 3 of" in message
    assert "tokens.txt" in message


def test_all_faults_are_found_and_the_rest_is_read(folder: Path) -> None:
    tokens = TOKENS + "d.jpg no tab\na.jpg#2\t \nb.jpg#x\tno number\n"
    findings = Findings()
    splits = reader(folder, tokens, train="a.jpg\nc.jpg", val="b.jpg").survey(findings)
    assert {image.id: len(image.captions) for image in splits["train"]} == {"a.jpg": 2, "c.jpg": 1}
    found = [(finding.kind.label, finding.text) for finding in findings.found]
    assert [kind for kind, _ in found] == ["malformed entry", "empty caption", "malformed entry"]
    assert [text.partition(" of ")[0] for _, text in found] == ["line 6", "line 7", "line 8"]


def test_a_list_that_is_not_there_does_not_hide_the_others(folder: Path) -> None:
    flickr = reader(folder, train="a.jpg", val="b.jpg")
    (folder / "val.txt").unlink()
    findings = Findings()
    assert list(flickr.survey(findings)) == ["train"]
    assert [finding.kind for finding in findings.found] == [Kind.MALFORMED]
    assert "val.txt' does not exist" in findings.found[0].text


def test_an_image_of_a_split_without_captions(folder: Path) -> None:
    message = refused(folder, "a.jpg#0\tA dog\n", train="a.jpg\nb.jpg\n")
    assert "image 'b.jpg' (train)" in message


def test_a_missing_image(folder: Path) -> None:
    (folder / "b.jpg").unlink()
    assert str(folder / "b.jpg") in refused(folder, train="a.jpg", val="b.jpg")


def test_an_image_in_two_splits_or_twice_in_one(folder: Path) -> None:
    assert "'train' and 'val'" in refused(folder, train="a.jpg\nb.jpg", val="a.jpg")
    assert "twice" in refused(folder, train="a.jpg\na.jpg")


def test_empty_and_missing_files(folder: Path) -> None:
    assert "1 empty split in" in refused(folder, train="a.jpg", val="\n")
    assert "no split" in refused(folder)
    (folder / "train.txt").unlink(missing_ok=True)
    with pytest.raises(DataError, match=r"train\.txt' does not exist"):
        Flickr(str(folder / "tokens.txt"), {"train": str(folder / "train.txt")}, str(folder)).read()
    with pytest.raises(DataError, match=r"none\.txt' does not exist"):
        Flickr(str(folder / "none.txt"), {"train": str(folder / "train.txt")}, str(folder)).read()


def test_an_unknown_split(folder: Path) -> None:
    assert "'dev' is not a split" in refused(folder, dev="a.jpg")


def test_the_whole_of_flickr8k() -> None:
    if not FLICKR8K.is_dir():
        pytest.skip("Flickr8k is not in ../shared/data")
    lists = {"train": "train", "val": "dev", "test": "test"}
    splits = Flickr(
        captions=str(FLICKR8K / "Flickr8k.token.txt"),
        splits={split: str(FLICKR8K / f"Flickr_8k.{name}Images.txt") for split, name in lists.items()},
        images=str(FLICKR8K / "images"),
    ).read()
    assert {split: len(images) for split, images in splits.items()} == {
        "train": 6000,
        "val": 1000,
        "test": 1000,
    }
    assert all(len(image.captions) == 5 for images in splits.values() for image in images)
