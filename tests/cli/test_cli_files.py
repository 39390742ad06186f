"""The photos that a command line names, and the paths of its outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from caption.cli.files import input_photos, output_file, output_paths
from caption.errors import UserError


def test_a_folder_is_its_images_by_name(tmp_path: Path):
    for name in ("b.jpg", "a.PNG", "c.webp", "notes.txt", "Thumbs.db", "._b.jpg", "README"):
        (tmp_path / name).touch()
    (tmp_path / "deeper.png").mkdir()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.jpg").touch()
    assert input_photos([str(tmp_path)]) == [str(tmp_path / name) for name in ("a.PNG", "b.jpg", "c.webp")]


def test_files_stay_as_they_are_named_and_in_order(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.jpg").touch()
    named = ["z.jpg", "missing.xyz", str(tmp_path / "in"), "./a.png", "z.jpg", "a\0b"]
    inside = str(tmp_path / "in" / "x.jpg")
    assert input_photos(named) == ["z.jpg", "missing.xyz", inside, "./a.png", "z.jpg", "a\0b"]


def test_a_folder_without_images_stands_for_itself(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    assert input_photos([str(tmp_path)]) == [str(tmp_path)]


# -- output paths ----------------------------------------------------------------------------------------------


def names(target: object, *inputs: str, suffix: str = ".png") -> list[str]:
    return [path.name for path in output_paths(str(target), inputs, suffix, "--heatmap")]


def test_a_file_for_one_input(tmp_path: Path):
    target = tmp_path / "deep" / "er" / "out.png"
    assert output_paths(str(target), ["a/x.jpg"], ".png", "--heatmap") == [target]
    assert target.parent.is_dir()


@pytest.mark.parametrize("target", ["folder", "folder/", "folder.d/"])
def test_no_suffix_or_a_slash_at_the_end_is_a_folder(tmp_path: Path, target: str):
    (path,) = output_paths(f"{tmp_path}/{target}", ["a/x.jpg"], ".png", "--heatmap")
    assert path == tmp_path / target.rstrip("/") / "x.png"
    assert path.parent.is_dir()


def test_an_existing_folder_is_a_folder(tmp_path: Path):
    (tmp_path / "folder.png").mkdir()
    assert names(tmp_path / "folder.png", "x.jpg") == ["x.png"]


def test_inputs_of_one_stem_are_numbered(tmp_path: Path):
    assert names(tmp_path / "o", "a/x.png", "b/x.png", "c/x.jpg", "y.png") == [
        "x.png",
        "x-2.png",
        "x-3.png",
        "y.png",
    ]
    assert names(tmp_path / "o", "x.png", "x.png") == ["x.png", "x-2.png"]


@pytest.mark.parametrize(
    "inputs",
    [
        ("x-2.png", "x.png", "b/x.png"),
        ("x.png", "b/x.png", "x-2.png"),
        ("x.png", "x-2.png", "b/x.png", "b/x-2.png", "x-2-2.png"),
        ("X.png", "x.png"),
        ("x", "x.tar.gz", "x.tar"),
    ],
)
def test_no_two_outputs_are_one_file_even_where_case_does_not_count(tmp_path: Path, inputs: tuple[str, ...]):
    found = names(tmp_path / "o", *inputs)
    assert len({name.casefold() for name in found}) == len(inputs)


def test_a_single_output_is_not_a_folder(tmp_path: Path):
    with pytest.raises(UserError, match="is a folder"):
        output_file(str(tmp_path), "--html")
