"""The table of whom a model names: groups that references agree on, shares of captions, and their intervals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caption.analysis import named_groups
from tools import who_is_named as tool


def references(*groups: str) -> list[frozenset[str]]:
    return [frozenset(each.split()) for each in groups]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (("man", "man", "man dog", "person", ""), "man"),
        (("man", "man", "", "", ""), None),  # two are not enough
        (("man", "man", "man", "woman", ""), None),  # another one is on the photo, or people disagree
        (("dog", "dog", "dog", "", ""), "dog"),
        (("dog", "dog", "dog", "man", ""), None),
        (("girl dog", "girl dog", "girl dog", "girl", ""), None),
        (("person", "person", "person", "person", "person"), None),
    ],
)
def test_an_image_counts_where_people_agree(said: tuple[str, ...], expected: str | None):
    assert named_groups.group_of(references(*said)) == expected


def test_words_are_whole_words():
    assert named_groups.named(["a", "woman", "and", "dogs"]) == {"woman", "dog"}
    assert named_groups.named(["mankind", "manual"]) == frozenset()


def test_wilsons_interval():
    # Wilson 1927 for 8 of 10: worked out by hand with z = 1.96.
    low, high = named_groups.wilson(8, 10)
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=2e-4)
    assert named_groups.wilson(0, 0) == (0.0, 1.0)


def test_the_table_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    texts = {"a.jpg": ["A man runs ."] * 3 + ["He runs ."] * 2, "b.jpg": ["A lady sits ."] * 5}
    lines = [f"{name}#{n}\t{text}" for name, five in texts.items() for n, text in enumerate(five)]
    (tmp_path / "references.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "candidates.json").write_text(json.dumps({"a.jpg": "a man", "b.jpg": "a man sits"}))
    arguments = [
        "--references",
        str(tmp_path / "references.txt"),
        "--candidates",
        str(tmp_path / "candidates.json"),
    ]
    assert tool.main(arguments) == 0
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()
    ]
    found = {line[0]: line[1:] for line in cells}
    assert found["man"][:3] == ["1", "1.00 [0.21, 1.00]", "0.00 [0.00, 0.79]"]
    assert found["woman"][:3] == ["1", "1.00 [0.21, 1.00]", "0.00 [0.00, 0.79]"]  # a woman, called a man
    assert found["boy"][:2] == ["0", "–"]
    assert found["all captions"][:3] == ["2", "1.00", "0.00"]


def test_captions_without_references_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "references.json").write_text(json.dumps({"a": ["a man"]}))
    (tmp_path / "candidates.json").write_text(json.dumps({"b": "a man"}))
    with pytest.raises(SystemExit):
        tool.main(
            [
                "--references",
                str(tmp_path / "references.json"),
                "--candidates",
                str(tmp_path / "candidates.json"),
            ]
        )
    assert "has no captions of b: give those of all candidates" in capsys.readouterr().err
