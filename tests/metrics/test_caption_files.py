"""Caption files in every format, right and wrong."""

from __future__ import annotations

import json

import pytest

from caption.errors import DataError
from caption.metrics.caption_files import captions_of, match_images, read_captions

EXPECTED = {1: ["a dog", "the dog"], 2: ["a cat"]}
COCO = {
    "images": [{"id": 1, "file_name": "val/COCO_1.jpg"}, {"id": 2, "file_name": "val/COCO_2.jpg"}],
    "annotations": [
        {"id": 10, "image_id": 1, "caption": "a dog"},
        {"id": 11, "image_id": 2, "caption": "a cat"},
        {"id": 12, "image_id": 1, "caption": "the dog"},
    ],
}


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="captions"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    return write_file


@pytest.mark.parametrize(
    "content",
    [
        COCO,
        {**COCO, "images": []},
        {"annotations": COCO["annotations"], "images": [{"id": 1}, {"id": 2}]},
        COCO["annotations"],
        {"1": ["a dog", "the dog"], "2": "a cat"},
        [
            {"image": 1, "text": "a dog"},
            {"image": 2, "caption": "a cat"},
            {"image_id": 1, "caption": "the dog"},
        ],
        '{"image": 1, "captions": ["a dog", "the dog"]}\n\n{"image": 2, "caption": "a cat"}\n',
        "split, caption, image\ntest,a dog,1\ntest,a cat,2\ntrain,the dog,1\n",
        "image_id;id;sentences\n1;10;a dog\n1;11;the dog\n2;12;a cat\n",
    ],
)
def test_what_only_scoring_reads(write, content):
    """Captions without files of images. The formats of readers are in tests/data/readers."""
    captions = read_captions(write(content)).captions
    assert {int(image): texts for image, texts in captions.items()} == EXPECTED


def test_splits(write):
    """Standard input is in tests/cli/test_cli_score.py."""
    path = write("image,caption,split\n1.jpg,a dog,test\n1.jpg,the dog,test\n2.jpg,a cat,train\n")
    assert read_captions(path).captions == {"1.jpg": ["a dog", "the dog"], "2.jpg": ["a cat"]}
    assert read_captions(path, "test").captions == {"1.jpg": ["a dog", "the dog"]}
    with pytest.raises(DataError, match="no captions of split 'val'"):
        read_captions(path, "val")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "no captions"),
        ('[{"caption": "a"}]', "entry 0 .* names no image"),
        ('{"1": 5}', "image 1 .* has no caption"),
        ('{"1": "<start> a dog <end>"}', "image 1 .* with the mark '<start>' of another program"),
        ('{"1": "' + "dog " * 5_001 + '"}', "image 1 .* has a caption of 20,004 characters"),
    ],
)
def test_errors_name_the_place(write, content, message):
    """Other faults of the formats are in tests/data."""
    with pytest.raises(DataError, match=message):
        read_captions(write(content))


@pytest.mark.parametrize("name", [1, "1", "COCO_1.jpg", "COCO_1", "photos/COCO_1.png", "val/COCO_1.jpg"])
def test_an_image_may_be_named_in_several_ways(write, name):
    references = read_captions(write(COCO, "r"))
    candidates = read_captions(write([{"image": name, "caption": "x"}], "c"))
    assert match_images(candidates, references) == {1: "x"}


@pytest.mark.parametrize(
    "name", ["val2017/000000000001.jpg", "COCO_val2014_000000000001.jpg", "000000000001"]
)
def test_the_file_of_one_of_cocos_photos_means_its_id(write, name):
    """COCO's results, and the references that `caption test` writes, name no files."""
    by_id = read_captions(write([{"image_id": 1, "caption": "x"}], "ids"))
    assert captions_of(by_id, [name, "val2017/000000000010.jpg"]) == {name: ["x"]}
    by_file = read_captions(write({name: ["y"]}, "files"))
    assert match_images(by_file, by_id) == {1: "y"}
    assert match_images(by_id, by_file) == {name: "x"}


def test_candidates_may_name_a_file_beside_their_id(write):
    """The references name files, the candidates are COCO's own ids with the names of files."""
    references = read_captions(write({"COCO_1.jpg": ["x"], "COCO_2": ["y"]}, "r"))
    one_each = {**COCO, "annotations": COCO["annotations"][:2]}
    candidates = read_captions(write(one_each, "c"))
    assert match_images(candidates, references) == {"COCO_1.jpg": "a dog", "COCO_2": "a cat"}


def test_names_that_mean_two_images_mean_none(write):
    references = read_captions(write({"a/1.jpg": ["x"], "b/1.jpg": ["y"]}, "r"))
    candidates = read_captions(write({"1.jpg": "z", "b/1.jpg": "w"}, "c"))
    assert match_images(candidates, references) == {"1.jpg": "z", "b/1.jpg": "w"}
    references = read_captions(write([{"image": 1, "caption": "x"}, {"image": "1.jpg", "caption": "y"}], "r"))
    # Its own name comes first.
    assert match_images(read_captions(write({"1": "z"}, "c")), references) == {1: "z"}


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([{"image": 1, "caption": "x"}, {"image": 1, "caption": "y"}], r"several captions in .*: 1"),
        ([{"image": 1, "caption": "x"}, {"image": "1.jpg", "caption": "y"}], "two captions for image 1"),
        ({"1.jpg": "z", "2.jpg": "w"}, r"1 images have no caption in '.*r.*': 2.jpg"),
    ],
)
def test_one_caption_for_each_image_that_has_references(write, candidates, message):
    references = read_captions(write({"1": ["x"], "2.jpg": []}, "r"))
    with pytest.raises(DataError, match=message):
        match_images(read_captions(write(candidates, "c")), references)
    assert match_images(read_captions(write({"1.jpg": "z"}, "d")), references) == {"1": "z"}
