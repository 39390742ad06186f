"""Own data as CSV and JSON lines, and the splits of data that has none."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from caption.core.errors import DataError
from caption.data.findings import Findings, Kind
from caption.data.readers.detect import reader_for
from caption.data.readers.tables import Csv, JsonLines
from caption.data.splits import Splits

TABLE = """\
image,caption,split
a.jpg,"A dog, running.",train
a.jpg,"He said ""sit"" and
it sat.",train
b.jpg, A cat. ,val
"""
READ = {
    "train": {"a.jpg": ("A dog, running.", 'He said "sit" and\nit sat.')},
    "val": {"b.jpg": ("A cat.",)},
}
LINES = [
    {"image": "a.jpg", "caption": " A dog.\u2028Sitting. ", "split": "train", "source": "web"},
    {"image": "b.jpg", "captions": ["A cat.", "Une chatte."], "split": "val"},
    {"image": "a.jpg", "caption": ["One dog."], "split": "train"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def csv(folder: Path, text: str, **options: object) -> Csv:
    (folder / "own.csv").write_bytes(text.encode())
    return Csv(str(folder / "own.csv"), **options)  # type: ignore[arg-type]


def json_lines(folder: Path, *lines: object, **options: object) -> JsonLines:
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    (folder / "own.jsonl").write_text("\n".join(texts), encoding="utf-8")
    return JsonLines(str(folder / "own.jsonl"), **options)  # type: ignore[arg-type]


def captions(splits: Splits) -> dict[str, dict[int | str, tuple[str, ...]]]:
    return {split: {image.id: image.captions for image in images} for split, images in splits.items()}


def refused(reader: Csv | JsonLines) -> str:
    with pytest.raises(DataError) as caught:
        reader.read()
    return str(caught.value)


# -- CSV -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n").replace("and\r\n", "and\n"),
        lambda text: text.replace("\n", "\r").replace("and\r", "and\n"),
        lambda text: ",,\n\n" + text.replace("b.jpg", "\n,,\nb.jpg") + " , ,\n",
        lambda text: text.replace("image,caption,split", " Image , CAPTION,Split"),
        lambda text: text.replace("image,caption,split", "file_name,text,split"),
    ],
    ids=["plain", "Windows", "old Macintosh", "blank rows", "spelling of the header", "other usual columns"],
)
def test_variants_of_csv(folder: Path, change: Callable[[str], str]):
    splits = csv(folder, change(TABLE)).read()
    assert captions(splits) == READ
    assert splits["train"][0].path == folder / "a.jpg"  # beside the table


def test_small_tables(folder: Path):
    """Quotes may contain line ends, a quote after a space still quotes, and the delimiter shows in the header."""
    tables = {
        'image,caption\r\na.jpg, "A dog,\r\nrunning."\r\n': ["A dog,\r\nrunning."],
        "image,caption\na.jpg,A dog\n./a.jpg,A cat\n": ["A dog", "A cat"],  # one image
        "image_name| comment_number| comment\na.jpg| 0| A dog .\na.jpg| 1| A cat, sitting .\n": [
            "A dog .",
            "A cat, sitting .",
        ],  # of Flickr30k
        **{f"image{mark}caption\na.jpg{mark}A dog, running.\n": ["A dog, running."] for mark in ";\t|"},
    }
    for text, expected in tables.items():
        assert captions(csv(folder, text).read()) == {"train": {"a.jpg": tuple(expected)}}, text


CSV_FAULTS = [
    ("c.jpg,A cat,sat,val", "has 4 cells, but the header 3"),
    ('c.jpg,"A" cat,val', "is not a row of CSV"),
    ("c.jpg,A cat,dev", "has the split 'dev', which is none of train, val, test"),
    ("c.jpg,A cat,", "has no split, though other entries have one"),
    ("c.jpg, ,val", "(c.jpg)"),
    ("b.jpg,A cat,train", "(b.jpg) is in 'train', but line 5 of"),
]


@pytest.mark.parametrize(("row", "message"), CSV_FAULTS)
def test_a_faulty_row_is_named_and_the_rest_is_read(folder: Path, row: str, message: str):
    """The line number in the file counts blank lines and those within quotes."""
    reader = csv(folder, f"{TABLE}\n{row}\na.jpg,A bird.,train\n")
    assert f"line 7 of '{folder / 'own.csv'}' {message}" in refused(reader)
    findings = Findings()
    assert reader.survey(findings)["train"][0].captions[-1] == "A bird."
    assert any(finding.text.startswith("line 7 of") for finding in findings)


def test_rows_that_a_quote_has_joined_are_not_a_caption(folder: Path):
    """A caption may have several lines, which `caption check` notes."""
    reader = csv(folder, 'image,caption\na.jpg,"A dog\nb.jpg,A cat\nc.jpg,A bird"\nb.jpg,"A cat,\nsitting"\n')
    findings = Findings()
    assert captions(reader.survey(findings)) == {"train": {"b.jpg": ("A cat,\nsitting",)}}
    assert [finding.kind for finding in findings] == [Kind.MALFORMED, Kind.LINES]
    assert findings[0].text.startswith(
        f"line 2 of '{folder / 'own.csv'}' has a cell of 3 lines with '.jpg' in them"
    )
    assert "a quote that is left open has joined rows. Close it" in refused(reader)
    assert "line 5 of" in findings[1].text
    assert "with ',' in them" in refused(csv(folder, 'image,caption\n0,"A dog\n1,A cat"\n'))
    never_closed = refused(csv(folder, 'image,caption\na.jpg,A dog\nb.jpg,"A cat\nc.jpg,A bird\n'))
    assert re.search("line 3 of .* is not a row of CSV", never_closed)


def test_a_list_of_captions_in_one_cell_is_read_or_refused(folder: Path):
    """As the tables of Flickr30k on hubs have it, by JSON or by Python."""
    for texts in (
        ["A dog.", 'He said "sit".'],
        ["A dog\u2019s", 'It\'s "two"'],
        ["Two dogs."],
        ["It's a dog.", "A"],
    ):
        for cell in (json.dumps(texts), repr(texts), repr(tuple(texts))):
            row = f'"{cell.replace(chr(34), chr(34) * 2)}","[0, 1]",test,a.jpg,0\n'
            reader = csv(folder, f"raw,sentids,split,filename,img_id\n{row}")
            assert captions(reader.read()) == {"test": {"a.jpg": tuple(texts)}}
    for cell in (
        "['A dog.' 'A cat.']",
        "[ 'A dog.', 'A cat.' ]",
        "( 'A dog.', 'A cat.')",
        "{'A dog.', 'A cat.'}",
    ):
        assert "a list as one caption" in refused(csv(folder, f'image;caption\na.jpg;"{cell}"\n'))
    assert captions(
        csv(folder, "image,caption\na.jpg,[A] dog ['s]\nb.jpg,('A dog' here')\n").read()
    )  # not a list


def test_files_and_options_that_do_not_fit(folder: Path):
    for text, options, message in [
        ("a.jpg,A dog\n", {}, "begins with 'a.jpg,A dog', but its header must have the columns 'image'"),
        ('"a', {}, "its header must have"),
        (TABLE, {"caption_key": "text"}, "the columns 'image' and 'text'"),
        (TABLE, {"delimiter": "::"}, "the delimiter '::' is not a single character"),
        ("image,caption,caption\na.jpg,A,B\n", {}, "has two columns 'caption'"),
        ("image,caption\n", {}, "there is no split to read in '"),
        ("image_id,caption\n1,A dog\n", {}, "line 2 of"),
        (TABLE, {"fractions": {"train": 1.0}}, "already has splits"),
        ("image,caption\na.jpg,A dog\n", {"fractions": {"train": 0.5, "val": 0.5}}, "1 empty split"),
    ]:
        assert message in refused(csv(folder, text, **options))  # type: ignore[arg-type]


# -- JSON lines ------------------------------------------------------------------------------------------------


def test_lines_become_images(folder: Path):
    assert captions(json_lines(folder, *LINES, "").read()) == {
        "train": {"a.jpg": ("A dog.\u2028Sitting.", "One dog.")},
        "val": {"b.jpg": ("A cat.", "Une chatte.")},
    }
    assert json_lines(folder, LINES).read() == json_lines(folder, *LINES).read()  # a JSON list of the same


def test_columns_keys_and_the_delimiter_may_be_named(folder: Path):
    text = "image:Photo:caption:The text:part\n1:a.jpg:x:A dog.:test\n"
    columns = {"image_key": "photo", "caption_key": "The Text", "split_key": "Part"}
    line = {"file": "a.jpg", "text": ["A dog."], "part": "test", "caption": 3, "split": 7, "image": "b.jpg"}
    keys = {"image_key": "file", "caption_key": "text", "split_key": "part"}
    for reader in (csv(folder, text, **columns, delimiter=":"), json_lines(folder, line, **keys)):
        assert captions(reader.read()) == {"test": {"a.jpg": ("A dog.",)}}


JSON_FAULTS = [
    ('{"image": "c.jpg", "caption": "A', "is not JSON"),
    ('["c.jpg", "A bird."]', "is not a JSON object"),
    ({"image": " ", "caption": "A bird.", "split": "val"}, "names no image"),
    ({"image": True, "caption": "A bird."}, "names no image (found True)"),
    ({"image_id": 3, "caption": "A bird.", "split": "val"}, "names no file of an image"),
    ({"image": "c.jpg", "captions": "x", "caption": None}, "has no caption that is text"),
    ({"image": "c.jpg", "captions": ["x", 3], "split": "val"}, "no caption that is text (found ['x', 3])"),
    ({"image": "c.jpg", "caption": "A bird.", "split": 1}, "has the split 1, which is not text"),
    ({"image": "c.jpg", "captions": ["A bird.", " "], "split": "val"}, "(c.jpg)"),
]


@pytest.mark.parametrize(("line", "message"), JSON_FAULTS)
def test_a_faulty_line_is_named_and_the_rest_is_read(folder: Path, line: object, message: str):
    reader = json_lines(folder, *LINES, "", line, LINES[0])
    fault = refused(reader)
    assert f"line 5 of '{folder / 'own.jsonl'}'" in fault
    assert message in fault
    findings = Findings()
    assert len(reader.survey(findings)["train"][0].captions) == 3
    assert ["line 5 of" in finding.text for finding in findings] == [True]


def test_captions_by_image_and_ids_that_are_names(folder: Path):
    """As pycocoevalcap takes them, and as AI Challenger has them."""
    texts = {"a.jpg": "A dog.", "b.jpg": "A cat."}
    for content in (
        {name: [{"caption": text}] for name, text in texts.items()},
        [{"url": "u", "image_id": name, "caption": [text]} for name, text in texts.items()],
    ):
        (folder / "own.json").write_text(json.dumps(content))
        spec = reader_for(str(folder / "own.json"), {}, {})
        assert spec["class_path"].endswith("JsonLines")
        found = captions(JsonLines(**spec["init_args"]).read())
        assert found == {"train": {name: (text,) for name, text in texts.items()}}
    (image,) = json_lines(folder, {"image_id": 7.0, "image": "a.jpg", "caption": "x"}).read()["train"]
    assert (image.id, image.path) == (7, folder / "a.jpg")


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
def test_a_name_that_is_not_utf8_is_read_from_json_of_this_package(folder: Path):
    name = os.fsdecode(b"caf\xe9.jpg")
    (folder / name).touch()
    line = json.dumps({"image": name, "caption": "A dog."})  # as `describe` writes it
    assert captions(json_lines(folder, line).read()) == {"train": {name: ("A dog.",)}}
    assert "half a character" in refused(json_lines(folder, json.dumps({"image": "a.jpg", "caption": name})))


def test_splits_of_one_image_are_reported_once_each_and_without_splits_all_is_training(folder: Path):
    text = "image,caption,split\na.jpg,A,train\na.jpg,B,val\na.jpg,C,val\na.jpg,D,test\na.jpg,E,train\n"
    findings = Findings()
    assert captions(csv(folder, text).survey(findings)) == {"train": {"a.jpg": ("A", "E")}}
    assert [finding.kind.label for finding in findings] == ["image in two splits"] * 2
    assert all(finding.images == (str(folder / "a.jpg"),) for finding in findings)
    text = "image,caption\na.jpg,A\nb.jpg,B\nc.jpg,C\na.jpg,AA\n"
    expected = {"train": {"a.jpg": ("A", "AA"), "b.jpg": ("B",), "c.jpg": ("C",)}}
    assert captions(csv(folder, text).read()) == expected
    lines = [
        {"image": f"{name[0]}.jpg", "caption": name.upper(), "split": None} for name in ("a", "b", "c", "aa")
    ]
    assert captions(json_lines(folder, *lines).read()) == expected
