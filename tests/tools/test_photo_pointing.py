"""The pointing game on photos with boxes drawn by eye: its data, its table, and the maps of captions that are fed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.shared_data import FLICKR8K, SHARED
from PIL import Image

from caption.metrics.caption_files import captions_of, read_captions
from tools import photo_pointing as tool

PHOTOS = SHARED / "data" / "photos"
UNSEEN = tool.BOXES.with_name("photo_boxes_unseen.json")


@pytest.mark.parametrize(("file", "photos"), [(tool.BOXES, 24), (UNSEEN, 16)])
def test_every_box_lies_in_its_photo_and_has_names_and_a_kind(file: Path, photos: int):
    found = json.loads(file.read_text())
    assert len(found) == photos
    for photo, entry in found.items():
        width, height = entry["size"]
        for each in entry["objects"]:
            left, top, right, bottom = each["box"]
            assert 0 <= left < right <= width, photo
            assert 0 <= top < bottom <= height, photo
            assert each["kind"] in tool.KINDS
            assert all(name == name.lower().strip() and name for name in each["names"]), photo
        kinds: dict[str, str] = {}
        assert all(
            kinds.setdefault(name, each["kind"]) == each["kind"]
            for each in entry["objects"]
            for name in each["names"]
        ), photo


@pytest.mark.skipif(not PHOTOS.exists() or not FLICKR8K.exists(), reason="needs ../shared/data")
@pytest.mark.parametrize("file", [tool.BOXES, UNSEEN])
def test_the_boxes_are_of_the_photos_and_every_name_is_said_of_them(file: Path):
    drawn = json.loads(file.read_text())
    images = PHOTOS if file == tool.BOXES else FLICKR8K.parent / "images"
    at_full_size = {path.name for path in PHOTOS.glob("*.jpg")}
    assert set(drawn) == at_full_size if file == tool.BOXES else not set(drawn) & at_full_size
    captions = captions_of(read_captions(str(FLICKR8K)), drawn).values()
    unsaid = []
    for (photo, entry), texts in zip(drawn.items(), captions, strict=True):
        assert list(Image.open(images / photo).size) == entry["size"]
        said = " ".join(f" {text.lower()} " for text in texts)
        unsaid += [(photo, n) for each in entry["objects"] for n in each["names"] if f" {n} " not in said]
    assert unsaid == []


def scene(folder: Path, boxes: dict) -> None:
    """Photos, their captions and their boxes."""
    for name, grey in (("a.png", 30), ("b.png", 200), ("d.png", 0)):
        Image.fromarray(np.full((40, 60, 3), grey, np.uint8)).save(folder / name)
    (folder / "tokens.txt").write_text(
        "a.png#0\tA red circle .\na.png#1\tthe circle\nb.png#0\tA square\nc.png#0\tx\n"
    )
    (folder / "boxes.json").write_text(json.dumps(boxes))


WHOLE = {
    "a.png": {"size": [60, 40], "objects": [{"kind": "thing", "names": ["circle"], "box": [0, 0, 60, 40]}]},
    "b.png": {"size": [60, 40], "objects": [{"kind": "person", "names": ["square"], "box": [0, 0, 1, 1]}]},
}


def files(folder: Path) -> list[str]:
    """The options that name the files of `scene`."""
    named = {"--photos": folder, "--captions": folder / "tokens.txt", "--boxes": folder / "boxes.json"}
    return [str(part) for option in named.items() for part in option]


def test_the_table_of_an_installed_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    scene(tmp_path, WHOLE)
    out = tmp_path / "numbers.json"
    assert tool.main([*files(tmp_path), "--model", "soft=shapes", "--json", str(out)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert [cell.strip() for cell in line.split("|")[1:3]] == ["soft", "3"]
    numbers = json.loads(out.read_text())["soft"]
    # "circle" is always in its box, and "square" never: no cell's centre is in the photo's corner.
    assert numbers["own maps"] == numbers["chance"] == numbers["middle cell"] == pytest.approx(2 / 3)
    assert (numbers["thing"], numbers["person"]) == (1, 0)
    # So the paired interval of their difference has no width.
    assert line.split("|")[10].strip() == "+0.00 (+0.00 to +0.00)"
    assert numbers["above the middle"] == 0
    # On grey photos without a shape the words still depend on the regions, more on those that were looked at.
    assert 0 < numbers["faithfulness"] < 1
    assert line.split("|")[-2].strip().startswith(f"{numbers['faithfulness']:.3f} (")


def test_several_files_of_boxes_count_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    named = []
    for photo, entry in WHOLE.items():
        (tmp_path / photo).mkdir()
        scene(tmp_path / photo, {photo: entry})
        named += ["--photos", str(tmp_path / photo), "--boxes", str(tmp_path / photo / "boxes.json")]
    captions = ["--captions", str(tmp_path / "a.png" / "tokens.txt")]
    out = tmp_path / "numbers.json"
    assert tool.main([*named, *captions, "--model", "soft=shapes", "--json", str(out)]) == 0
    numbers = json.loads(out.read_text())["soft"]
    assert (numbers["words"], numbers["own maps"]) == (3, pytest.approx(2 / 3))
    with pytest.raises(SystemExit):
        tool.main([*named[:2], *named, *captions, "--model", "soft=shapes"])
    assert "3 --photos for 2 --boxes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("boxes", "model", "said"),
    [
        (WHOLE, "shapes", "write NAME=MODEL"),
        ({**WHOLE, "d.png": WHOLE["a.png"]}, "a=shapes", "no caption of d.png"),
        ({"e.png": WHOLE["a.png"]}, "a=shapes", "e.png"),
        (
            {"a.png": {**WHOLE["a.png"], "size": [6, 4]}},
            "a=shapes",
            "has 60x40 pixels, and its boxes were drawn on 6x4",
        ),
        (WHOLE, "a=nowhere", "there is no checkpoint nowhere"),
    ],
    ids=["name", "captions", "photo", "size", "model"],
)
def test_mistakes_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], boxes: dict, model: str, said: str
):
    scene(tmp_path, boxes)
    with pytest.raises(SystemExit):
        tool.main([*files(tmp_path), "--model", model])
    assert said in capsys.readouterr().err
