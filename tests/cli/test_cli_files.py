"""The photos that a command line names, and the paths of its outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.tiny_captioner import photo
from PIL import Image

from caption.cli.files import input_photos, output_file, output_paths, printable, refuse_overwriting
from caption.errors import UserError
from caption.result import Caption
from caption.runtime.outputs import is_replaceable


def test_a_folder_is_its_images_by_name(tmp_path: Path):
    for name in ("b.jpg", "a.PNG", "c.webp", "notes.txt", "Thumbs.db", "._b.jpg", "README"):
        (tmp_path / name).touch()
    (tmp_path / "deeper.png").mkdir()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.jpg").touch()
    photos, notes = input_photos([str(tmp_path)])
    assert photos == [str(tmp_path / name) for name in ("a.PNG", "b.jpg", "c.webp")]
    left_out = (
        "3 files that are no images (README, Thumbs.db, notes.txt) and 2 subfolders (below, deeper.png)"
    )
    assert notes == [f"'{tmp_path}': left out {left_out}"]


def test_photos_without_a_suffix_and_from_cameras_are_not_skipped(tmp_path: Path):
    photo(20, 20, 0).save(tmp_path / "IMG_1", format="PNG")
    for name in ("IMG_2.HEIC", "IMG_3.heif", "LICENSE"):
        (tmp_path / name).write_bytes(b"x")
    photos, notes = input_photos([str(tmp_path)])
    assert [Path(each).name for each in photos] == ["IMG_1", "IMG_2.HEIC", "IMG_3.heif"]
    assert "1 file that is no image (LICENSE)" in notes[0]


def test_a_bad_link_condemns_itself_only(tmp_path: Path):
    (tmp_path / "a.jpg").touch()
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "long.jpg").symlink_to("x" * 300)
    (tmp_path / "dangling.jpg").symlink_to("nothing")
    photos, notes = input_photos([str(tmp_path)])
    assert [Path(each).name for each in photos] == ["a.jpg", "dangling.jpg", "long.jpg", "loop.jpg"]
    assert notes == []


def test_names_stay_on_one_line():
    assert printable("a b ü.jpg") == "a b ü.jpg"
    assert printable("a\nb\t\x1b[31m\u2028.jpg") == r"a\nb\t\x1b[31m\u2028.jpg"
    assert printable("a\udcff.jpg") == "a\udcff.jpg"  # not Unicode, printed byte for byte


def test_files_stay_as_they_are_named_and_in_order(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.jpg").touch()
    named = ["z.jpg", "missing.xyz", str(tmp_path / "in"), "./a.png", "z.jpg", "a\0b"]
    inside = str(tmp_path / "in" / "x.jpg")
    assert input_photos(named).photos == ["z.jpg", "missing.xyz", inside, "./a.png", "z.jpg", "a\0b"]


def test_a_folder_without_images_stands_for_itself(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    assert input_photos([str(tmp_path)]) == ([str(tmp_path)], [])


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


def test_numbered_outputs_of_long_names_fit_into_a_folder(tmp_path: Path):
    found = names(tmp_path / "o", f"{'x' * 251}.png", f"b/{'x' * 251}.png", f"{'ü' * 125}.png")
    assert len(set(found)) == 3
    assert all(len(name.encode()) <= 255 for name in found)


# -- what must not be overwritten ------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["itself", "hard link", "symbolic link"])
def test_an_output_is_not_an_input_under_another_name(tmp_path: Path, link: str):
    (tmp_path / "photo.png").touch()
    output = tmp_path / ("photo.png" if link == "itself" else "out.png")
    if link == "hard link":
        output.hardlink_to(tmp_path / "photo.png")
    elif link == "symbolic link":
        output.symlink_to("photo.png")
    with pytest.raises(UserError, match=r"--heatmap would overwrite the input .*photo\.png"):
        refuse_overwriting({"--heatmap": [output]}, ["missing.jpg", str(tmp_path / "photo.png")])


@pytest.mark.parametrize("content", [b"", b"mine", b"PK\3\4 damaged", b"x" * 300_000])
def test_a_file_of_another_origin_is_kept(tmp_path: Path, content: bytes):
    (tmp_path / "out.html").write_bytes(content)
    with pytest.raises(UserError, match=r"--html would overwrite .*out\.html"):
        refuse_overwriting({"--html": [tmp_path / "out.html"]}, [])


def test_a_file_that_cannot_be_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def forbidden(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "out.html").touch()
    monkeypatch.setattr(Path, "open", forbidden)
    assert not is_replaceable(tmp_path / "out.html")


def test_two_options_do_not_name_one_file(tmp_path: Path):
    twice = {"--heatmap": [tmp_path / "a.png"], "--html": [tmp_path / "A.png"]}
    with pytest.raises(UserError, match="--html and --heatmap name one file"):
        refuse_overwriting(twice, [])


def test_devices_and_new_files_may_be_written(tmp_path: Path):
    refuse_overwriting({"--html": [tmp_path / "new.html"], "--heatmap": [Path("/dev/null")]}, ["/dev/null"])


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tif", "pdf", "svg", "eps", "html", "npz"])
def test_this_packages_own_outputs_may_be_written_again(tmp_path: Path, suffix: str):
    from caption.visualize import plot_caption, save_figure, save_html, to_html

    caption = Caption("a", ["a"], np.ones((1, 2, 2)) / 4, 0.0, [0.0], (0, 0, 20, 20), image=photo(20, 20, 0))
    path = tmp_path / f"out.{suffix}"
    if suffix == "html":
        save_html(to_html([caption]), path)
    elif suffix == "npz":
        caption.save_attention(path)
    else:
        save_figure(plot_caption(caption, caption.image), path)
    refuse_overwriting({"--out": [path]}, [])
    if suffix in ("png", "jpg"):  # of another origin
        Image.new("RGB", (400, 400)).save(path)
        assert not is_replaceable(path)
