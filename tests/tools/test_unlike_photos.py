"""Photos unlike Flickr8k: the list, where its photos are found, and what counts as right."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from caption.errors import UserError
from caption.lens_reading import LensReading, Seen
from caption.result import Caption
from caption.text.nouns import imagenet_nouns
from tools import unlike_photos as tool

CAT = tool.Photo("cats", Path("cat.png"), "CC0-1.0", "a cat", ("cat", "kitten"), ("mammal", "animal", "pet"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a cat sits", "right"),
        ("two Kittens sit", "right"),
        ("a siamese cat", "right"),
        ("an animal in the catalogue", "nearly"),
        ("a dog and a hot dog", "wrong"),
        ("a cougar", "wrong"),
        ("a catalogue", "wrong"),
        ("", "wrong"),
    ],
)
def test_what_is_right(text: str, expected: str) -> None:
    assert tool.verdict(text, CAT, imagenet_nouns()) == expected


def test_a_kind_of_the_thing_is_right() -> None:
    dog = CAT._replace(right=("dog",), nearly=())
    assert tool.verdict("two terriers", dog, imagenet_nouns()) == "right"
    assert tool.verdict("a cat eats hot dogs", dog, imagenet_nouns()) == "wrong"


def test_the_list_names_each_photo_once_with_its_author_and_licence() -> None:
    with tool.LIST.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) == len({row["sha256"] for row in rows}) == 33
    assert all(all(row.values()) and len(row) == 8 for row in rows)
    assert sum(row["licence"] in tool.FREE for row in rows) == 20


def write_list(folder: Path, monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    fields = ["package", "path", "sha256", "author", "licence", "shows", "right", "nearly"]
    row = ["cats", "usr/cat.png", digest, "A. Author", "CC0-1.0", "a cat", "cat, kitten", "animal"]
    (folder / "list.tsv").write_text("\t".join(fields) + "\n" + "\t".join(row) + "\n")
    monkeypatch.setattr(tool, "LIST", folder / "list.tsv")


def test_photos_are_found_in_unpacked_packages_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    write_list(tmp_path, monkeypatch, hashlib.sha256(b"a photo").hexdigest())
    with pytest.raises(UserError, match="photos of cats are missing: run apt-get download cats"):
        tool.find([tmp_path])
    file = tmp_path / "unpacked" / "usr" / "cat.png"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"a photo")
    (found,) = tool.find([tmp_path, tmp_path / "unpacked"])
    assert found.path == file
    assert found.right == ("cat", "kitten")
    file.write_bytes(b"another")
    with pytest.raises(UserError, match=r"other photos than those of list.tsv: .*cat.png"):
        tool.find([tmp_path / "unpacked"])


def test_the_report_counts_captions_and_what_is_seen() -> None:
    def told(words: str, seen: list[Seen], at_words: Seen) -> tool.Told:
        parts = words.split()
        weights = np.full((len(parts), 2, 2), 0.25)
        caption = Caption(words, parts, weights, -1.0, np.zeros(len(parts)), (0, 0, 8, 8))
        return tool.Told(caption, seen, at_words, Seen("animal", 0.4))

    seen = [Seen("cat", 0.8), Seen("wall", 0.5)]
    of = [told("a man sits", seen, seen[0]), told("a kitten", [], Seen("dog", 0.2))]
    first, second = tool.report([CAT, CAT], {"photos": of}).split("\n\n")
    counts = [[cell.strip() for cell in line.strip("|").split("|")] for line in first.splitlines()[2:]]
    assert counts == [
        ["photos: caption", "1", "0", "1"],
        ["photos: lens at its words, from 0.5", "1", "0", "1"],
        ["photos: lens at its words", "1", "0", "1"],
        ["photos: lens, whole photo", "0", "2", "0"],
    ]
    assert "a man sits (wrong) | cat 0.8, wall 0.5 (right)" in second
    assert "a kitten (right) | –" in second


def test_the_likeliest_thing_is_that_at_words_which_may_name_things() -> None:
    caption = Caption("a man", ["a", "man"], np.full((2, 2, 2), 0.25), -1.0, np.zeros(2), (0, 0, 8, 8))
    reading = LensReading([[Seen("cat", 0.9)], [Seen("dog", 0.3)]], [[], []], [])
    assert tool._likeliest(caption, reading) == Seen("dog", 0.3)
