"""Which photos a command line names."""

from __future__ import annotations

from pathlib import Path

from caption.cli.photos import photos_of


def test_a_folder_is_its_images_by_name(tmp_path: Path):
    for name in ("b.jpg", "a.PNG", "c.webp", "notes.txt", "Thumbs.db", "._b.jpg", "README"):
        (tmp_path / name).touch()
    (tmp_path / "deeper.png").mkdir()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.jpg").touch()
    assert photos_of([str(tmp_path)]) == [str(tmp_path / name) for name in ("a.PNG", "b.jpg", "c.webp")]


def test_files_stay_as_they_are_named_and_in_order(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.jpg").touch()
    named = ["z.jpg", "missing.xyz", str(tmp_path / "in"), "./a.png", "z.jpg", "a\0b"]
    inside = str(tmp_path / "in" / "x.jpg")
    assert photos_of(named) == ["z.jpg", "missing.xyz", inside, "./a.png", "z.jpg", "a\0b"]


def test_a_folder_without_images_stands_for_itself(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    assert photos_of([str(tmp_path)]) == [str(tmp_path)]
