"""Caption files in every format, right and wrong."""

from __future__ import annotations

import json
from itertools import count

import pytest

from caption.core.errors import DataError
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
def read(tmp_path):
    """Reads captions from a file with this text, or of this JSON."""
    numbers = count()

    def read_from_file(content, split=None):
        path = tmp_path / f"captions {next(numbers)}"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return read_captions(str(path), split)

    return read_from_file


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
def test_what_only_scoring_reads(read, content):
    """Captions without files of images. The formats of readers are in tests/data/readers."""
    assert {int(image): texts for image, texts in read(content).captions.items()} == EXPECTED


def test_splits(read):
    """Standard input is in tests/cli/test_cli_score.py."""
    text = "image,caption,split\n1.jpg,a dog,test\n1.jpg,the dog,test\n2.jpg,a cat,train\n"
    assert read(text).captions == {"1.jpg": ["a dog", "the dog"], "2.jpg": ["a cat"]}
    assert read(text, "test").captions == {"1.jpg": ["a dog", "the dog"]}
    with pytest.raises(DataError, match="no captions of split 'val'"):
        read(text, "val")


IDS_BY_SPLIT = [
    {"image_id": 0, "image": "a.jpg", "caption": "a dog", "split": "train"},
    {"image_id": 0, "image": "c.jpg", "caption": "a cat", "split": "test"},
]


def test_ids_that_start_again_in_each_split(read):
    with pytest.raises(
        DataError, match=r"image 0 .*is both 'a\.jpg' and 'c\.jpg': name one split with --split"
    ):
        read(IDS_BY_SPLIT)
    file = read(IDS_BY_SPLIT, "train")
    assert (file.captions, file.files) == ({0: ["a dog"]}, {0: "a.jpg"})


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
def test_errors_name_the_place(read, content, message):
    """Other faults of the formats are in tests/data."""
    with pytest.raises(DataError, match=message):
        read(content)


SPELLINGS = ("1", "COCO_1.jpg", "COCO_1", "photos/COCO_1.png", "val/COCO_1.jpg")
FIRST_TWO = {**COCO, "annotations": COCO["annotations"][:2]}
SIMILAR = [{"image": 1, "caption": "x"}, {"image": "1.jpg", "caption": "y"}]


@pytest.mark.parametrize(
    ("candidates", "references", "expected"),
    [
        *(({name: "x"}, COCO, {1: "x"}) for name in SPELLINGS),
        ([{"image": 1, "caption": "x"}], COCO, {1: "x"}),
        # Candidates may name a file beside their id.
        (FIRST_TWO, {"COCO_1.jpg": "x", "COCO_2": "y"}, {"COCO_1.jpg": "a dog", "COCO_2": "a cat"}),
        # A name that means two images means none, but its own name comes first.
        ({"1.jpg": "z", "b/1.jpg": "w"}, {"a/1.jpg": "x", "b/1.jpg": "y"}, {"1.jpg": "z", "b/1.jpg": "w"}),
        ({"1": "z"}, SIMILAR, {1: "z"}),
        ({"1.jpg": "z"}, {"1.jpg": "x", "2.jpg": []}, {"1.jpg": "z"}),
        # macOS writes accents of file names as characters of their own.
        ({"cafe\u0301.jpg": "z"}, {"caf\u00e9.jpg": "x"}, {"caf\u00e9.jpg": "z"}),
    ],
)
def test_images_are_matched_by_their_names(read, candidates, references, expected):
    assert match_images(read(candidates), read(references)) == expected


@pytest.mark.parametrize(
    "name", ["val2017/000000000001.jpg", "COCO_val2014_000000000001.jpg", "000000000001"]
)
def test_the_file_of_one_of_cocos_photos_means_its_id(read, name):
    """COCO's results, and the references that `caption test` writes, name no files."""
    by_id, by_file = read([{"image_id": 1, "caption": "x"}]), read({name: ["y"]})
    assert captions_of(by_id, [name, "val2017/000000000010.jpg"]) == {name: ["x"]}
    assert match_images(by_file, by_id) == {1: "y"}
    assert match_images(by_id, by_file) == {name: "x"}


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([{"image": 1, "caption": "x"}, {"image": 1, "caption": "y"}], r"several captions in .*: 1"),
        (SIMILAR, "two captions for image 1"),
        ({"1.jpg": "z", "2.jpg": "w"}, "1 image has no caption in '.*': 2.jpg"),
    ],
)
def test_one_caption_for_each_image_that_has_references(read, candidates, message):
    with pytest.raises(DataError, match=message):
        match_images(read(candidates), read({"1": ["x"], "2.jpg": []}))


def test_the_file_decides_where_ids_and_files_disagree(read):
    """Two programs number the same images differently."""
    references = read(
        [{"image_id": i, "image": f"{name}.jpg", "caption": name} for i, name in enumerate("abc")]
    )
    shifted = [
        {"image_id": i, "image": f"photos/{name}.jpg", "caption": name} for i, name in enumerate("cab")
    ]
    assert match_images(read(shifted), references) == {0: "a", 1: "b", 2: "c"}
    with pytest.raises(DataError, match=r"image 0 is 'x\.jpg' in .*, but 'a\.jpg' in .*belong together"):
        match_images(read([{"image_id": 0, "image": "x.jpg", "caption": "a"}]), references)


FOLDERS = "image,caption,split\ntrain/0.png,a dog,train\ntest/0.png,a cat,test\n"


def test_images_of_one_name_in_several_folders(read):
    """The longest common end of two paths decides."""
    file = read(FOLDERS, "test")
    assert captions_of(file, ["/data/train/0.png", "/data/test/0.png"]) == {"/data/test/0.png": ["a cat"]}
    assert match_images(read({"data/test/0.png": "x"}), file) == {"test/0.png": "x"}
    assert match_images(read({"train/0.png": "x"}), file) == {"train/0.png": "x"}  # without references
    nested = read({"a.jpg": "A", "sub/a.jpg": "B"})
    photos = ["photos/a.jpg", "photos/sub/a.jpg"]
    assert captions_of(nested, photos) == {photos[0]: ["A"], photos[1]: ["B"]}
    assert match_images(read(dict.fromkeys(photos, "x")), nested) == {"a.jpg": "x", "sub/a.jpg": "x"}
    by_id = [{"image_id": i, "image": name, "caption": name} for i, name in enumerate(("a.jpg", "sub/a.jpg"))]
    assert match_images(read(dict(zip(photos, "xy", strict=True))), read(by_id)) == {0: "x", 1: "y"}


def test_two_photos_of_one_image_are_refused(read):
    with pytest.raises(DataError, match=r"'x/a\.jpg' and 'y/a\.jpg' are both image a\.jpg of"):
        captions_of(read({"a.jpg": "A"}), ["x/a.jpg", "y/a.jpg"])
