"""The paths of outputs, and which files they may replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from caption.core.errors import UserError
from caption.core.runtime.atomic_files import MARK
from caption.core.runtime.outputs import check_outputs, new_file, output_file, output_paths

PNG = (".png", ".pdf")


def test_a_file_for_one_input_and_a_folder_without_suffix_or_with_a_slash(tmp_path: Path):
    target = tmp_path / "new" / "out.png"
    assert output_paths(str(target), ["a/x.jpg"], PNG, "--heatmap") == [target]
    (tmp_path / "there.png").mkdir()
    for folder in ("folder", "folder/", "folder.d/", "there.png"):
        (path,) = output_paths(f"{tmp_path}/{folder}", ["a/x.jpg"], PNG, "--heatmap")
        assert path == tmp_path / folder.rstrip("/") / "x.png"
    for name, said in (
        (str(tmp_path), "is a folder: name a file"),
        ("x.xyz", r"x\.xyz: end its name in \.html"),
    ):
        with pytest.raises(UserError, match=said):
            output_file(name, (".html",), "--html")


@pytest.mark.parametrize(
    "inputs",
    [
        ("a/x.png", "b/x.png", "c/x.jpg", "y.png"),
        ("x-2.png", "x.png", "b/x.png"),
        ("x.png", "b/x.png", "x-2.png"),
        ("x.png", "x-2.png", "b/x.png", "b/x-2.png", "x-2-2.png"),
        ("X.png", "x.png", "X.jpg"),
        ("x", "x.tar.gz", "x.tar"),
        (f"{'x' * 251}.png", f"b/{'x' * 251}.png", f"{'ü' * 125}.png"),
    ],
)
def test_no_two_outputs_are_one_file_even_where_case_does_not_count(tmp_path: Path, inputs: tuple[str, ...]):
    names = [path.name for path in output_paths(str(tmp_path / "o"), inputs, PNG, "--heatmap")]
    assert len({name.casefold() for name in names}) == len(inputs)
    assert all(len(name.encode()) <= 255 for name in names)
    assert "y.png" not in inputs or names == ["x.png", "x-2.png", "x-3.png", "y.png"]


@pytest.mark.parametrize("link", ["itself", "hard link", "symbolic link"])
def test_an_output_is_not_an_input_under_another_name(tmp_path: Path, link: str):
    (tmp_path / "photo.png").touch()
    output = tmp_path / ("photo.png" if link == "itself" else "out.png")
    if link == "hard link":
        output.hardlink_to(tmp_path / "photo.png")
    elif link == "symbolic link":
        output.symlink_to("photo.png")
    with pytest.raises(UserError, match=r"--heatmap would overwrite the input .*photo\.png"):
        check_outputs({"--heatmap": [output]}, ["missing.jpg", str(tmp_path / "photo.png")])


def test_files_of_another_origin_stay_and_ours_devices_and_new_ones_may_be_written(tmp_path: Path):
    page = tmp_path / "out.html"
    page.write_text("mine")
    with pytest.raises(UserError, match=r"--html would overwrite .*out\.html"):
        check_outputs({"--html": [page]}, [])
    page.write_text(MARK)
    check_outputs({"--html": [page]}, [])
    check_outputs({"--html": [tmp_path / "new.html"], "--heatmap": [Path("/dev/null")]}, ["/dev/null"])
    with pytest.raises(UserError, match="--html and --heatmap name one file"):
        check_outputs({"--heatmap": [tmp_path / "a.png"], "--html": [tmp_path / "A.png"]}, [])
    (tmp_path / "lost.ckpt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"--out .*lost\.ckpt exists"):
        new_file(str(tmp_path / "lost.ckpt"), (".ckpt",), "--out")
    assert new_file(str(tmp_path / "new" / "x.ckpt"), (".ckpt",), "--out").parent.is_dir()
