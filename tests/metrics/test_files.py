"""Caption files in every format, right and wrong."""

from __future__ import annotations

import io
import json
import sys

import pytest

from caption.errors import DataError
from caption.metrics.files import match_images, read_captions

EXPECTED = {1: ["a dog", "the dog"], 2: ["a cat"]}
COCO = {
    "images": [{"id": 1, "file_name": "val/COCO_1.jpg"}, {"id": 2, "file_name": "val/COCO_2.jpg"}],
    "annotations": [
        {"id": 10, "image_id": 1, "caption": "a dog"},
        {"id": 11, "image_id": 2, "caption": "a cat"},
        {"id": 12, "image_id": 1, "caption": "the dog"},
    ],
}
KARPATHY = {
    "images": [
        {"filename": "1.jpg", "split": "test", "sentences": [{"raw": "a dog"}, {"raw": "the dog"}]},
        {"filename": "2.jpg", "split": "train", "sentences": [{"raw": "a cat"}]},
    ]
}


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="captions"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    return write_file


def by_text(captions):
    return {str(image): texts for image, texts in captions.items()}


@pytest.mark.parametrize(
    "content",
    [
        COCO,
        {**COCO, "images": []},
        COCO["annotations"],
        {"1": ["a dog", "the dog"], "2": "a cat"},
        [
            {"image": 1, "text": "a dog"},
            {"image": 2, "caption": "a cat"},
            {"image_id": 1, "caption": "the dog"},
        ],
        '{"image": 1, "captions": ["a dog", "the dog"]}\n\n{"image": 2, "caption": "a cat"}\n',
        "image,caption\n1,a dog\n2,a cat\n1,the dog\n",
        "﻿split, caption, image\r\ntest,a dog,1\r\ntest,a cat,2\r\ntrain,the dog,1\r\n",
        "image\tcaption\n1\ta dog\n1\tthe dog\n2\ta cat\n",
        "1#0\ta dog\n1#1\tthe dog\n2#0\ta cat\n",
    ],
)
def test_formats_are_known_by_their_content(write, content):
    assert by_text(read_captions(write(content)).captions) == by_text(EXPECTED)


def test_karpathy_and_its_splits(write):
    path = write(KARPATHY)
    assert read_captions(path).captions == {"1.jpg": ["a dog", "the dog"], "2.jpg": ["a cat"]}
    assert read_captions(path, "test").captions == {"1.jpg": ["a dog", "the dog"]}
    with pytest.raises(DataError, match="no captions of split 'val'"):
        read_captions(path, "val")


def test_one_line_of_json(write):
    assert read_captions(write('{"image": "x.jpg", "caption": "a dog"}')).captions == {"x.jpg": ["a dog"]}


def test_quoted_csv(write):
    assert read_captions(write('image,caption\n1,"a dog, a cat"\n')).captions == {"1": ["a dog, a cat"]}


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"1": "a dog"}')))
    file = read_captions("-")
    assert file.name == "standard input"
    assert file.captions == {"1": ["a dog"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[]", "no captions"),
        ("[1]", "entry 1 .* not an object"),
        ('[{"caption": "a"}]', "entry 1 .* names no image"),
        ('[{"image_id": null, "caption": "a"}]', "names no image"),
        ('[{"image_id": 1}]', "entry 1 .* has no caption"),
        ('[{"image_id": 1, "caption": 5}]', "has no caption"),
        ('{"1": 5}', "image 1 .* has no caption"),
        ('{"annotations": {}}', "not a list"),
        ('{"images": [5], "annotations": []}', "'images' .* not a list of objects"),
        ('{"images": [{"filename": "x"}]}', "image 1 .* lacks"),
        ('[{"image_id": 1,', "not JSON.* line 1"),
        ('{"image": 1, "caption": "a"}\n{"image": 2\n', "line 2 .* not JSON"),
        ("picture,words\n1,a\n", "must name 'image' and 'caption', but it names picture, words"),
        ("image,caption\n1\n", "line 2 .* has 1 cells, but the header 2"),
        ("1#0\ta dog\nbroken\n", "line 2 .*NAME#NUMBER"),
        (
            "image,caption\na,b\nb.jpg,a cat, sitting on a red mat\n",
            "line 3 .* has 3 cells, but the header 2",
        ),
        (
            'image,caption\na.jpg,"a cat\nb.jpg,a dog\n',
            "line 2 .* is not a row of CSV: unexpected end of data",
        ),
        ('image,caption\na.jpg,"a cat\nb.jpg,a dog\nc.jpg,"a bird"\n', "line 2 .* is not a row of CSV"),
        ("image,caption,caption\na,b,c\n", "two columns 'caption'"),
        ("image,caption\na," + "b" * 140_000, "line 2 .* is not a row of CSV: field larger than field limit"),
        ('{"a.jpg": "one", "b.jpg": "x", "a.jpg": "two"}', "the key 'a.jpg' stands twice in one object"),
        ('{"image": "a", "caption": "x"}\n{"image": "b", "image": "c", "caption": "y"}', "line 2 .* twice"),
        ('{"images": [{"id": 1, "file_name": ["x"]}], "annotations": []}', "image 1 .* 'file_name' .'x'."),
        ('{"images": [{"id": [1], "file_name": "x"}], "annotations": []}', "image 1 .* 'id' .1."),
        ('[{"image_id": [1], "caption": "x"}]', "entry 1 .* names no image"),
        ('[{"image_id": ' + "9" * 5000 + ', "caption": "x"}]', "too many digits"),
        ("[" * 100_000, "nested too deeply"),
        ('{"1": "' + "dog " * 5_001 + '"}', "image 1 .* has a caption of 20,004 characters"),
    ],
)
def test_errors_name_the_place(write, content, message):
    with pytest.raises(DataError, match=message):
        read_captions(write(content))


def test_line_ends_and_separators_of_any_kind(write):
    """Only line ends end a line: Unicode has other separators, which may stand inside a caption."""
    text = "a red\u2028dog\x85 runs"
    expected = {"1": [text], "2": ["b"]}
    for end in ("\n", "\r\n", "\r"):
        assert read_captions(write(f"image,caption{end}1,{text}{end}2,b{end}", "csv")).captions == expected
    lines = "".join(
        json.dumps({"image": image, "caption": each}, ensure_ascii=False) + "\r\n"
        for image, (each,) in expected.items()
    )
    assert read_captions(write(lines, "jsonl")).captions == expected
    assert read_captions(write(f"1#0\t{text}\r\n2#0\tb\r\n", "token")).captions == expected


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_any_usual_delimiter_and_case_of_the_header(write, delimiter):
    table = f"Image {delimiter} caption\n1{delimiter}a dog\n{delimiter}\n"
    assert read_captions(write(table)).captions == {"1": ["a dog"]}


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_captions(str(tmp_path / "none.json"))
    with pytest.raises(DataError, match="is a folder"):
        read_captions(str(tmp_path))
    (tmp_path / "latin").write_bytes(b'{"1": "caf\xe9"}')
    with pytest.raises(DataError, match="not UTF-8"):
        read_captions(str(tmp_path / "latin"))


@pytest.mark.parametrize("name", [1, "1", "COCO_1.jpg", "COCO_1", "photos/COCO_1.png", "val/COCO_1.jpg"])
def test_an_image_may_be_named_in_several_ways(write, name):
    references = read_captions(write(COCO, "r"))
    candidates = read_captions(write([{"image": name, "caption": "x"}], "c"))
    assert match_images(candidates, references) == {1: "x"}


def test_names_that_mean_two_images_mean_none(write):
    references = read_captions(write({"a/1.jpg": ["x"], "b/1.jpg": ["y"]}, "r"))
    candidates = read_captions(write({"1.jpg": "z", "b/1.jpg": "w"}, "c"))
    assert match_images(candidates, references) == {"1.jpg": "z", "b/1.jpg": "w"}


def test_one_caption_for_each_image(write):
    references = read_captions(write(COCO, "r"))
    twice = read_captions(write([{"image": 1, "caption": "x"}, {"image": 1, "caption": "y"}], "c"))
    with pytest.raises(DataError, match=r"several captions in .*: 1"):
        match_images(twice, references)
    aliases = read_captions(
        write([{"image": 1, "caption": "x"}, {"image": "COCO_1.jpg", "caption": "y"}], "d")
    )
    with pytest.raises(DataError, match="two captions for image 1"):
        match_images(aliases, references)
