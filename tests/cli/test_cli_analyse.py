"""`caption analyse`: its page, its JSON, its messages; on tiny models and photos of noise, and on scenes of Shapes."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import tiny_captioner
from helpers.command_line import Cli, check_refused

from caption.analysis.maps import scales
from caption.analysis.study.looking import NEED_BOXES, NEED_MODELS
from caption.analysis.study.sentences import NEED_REFERENCES
from caption.analysis.study.tables import ON_PHOTOS, ON_SHAPES
from caption.core.runtime.atomic_files import is_own
from caption.core.runtime.outputs import check_outputs
from caption.models import checkpoint

WIDTH, HEIGHT = 80, 40
MEASURED = [name for name in ON_PHOTOS if name not in ("single maps", "heads")]
"""What a model without heads can be asked."""
ONE = ("analyse", "--model", "one.ckpt")
NAMES = ("a.png", "b.png", "c.png")
CAPTIONS = ("a man runs with the dog", "the man and the dog", "a man", "a man")


def instances() -> dict[str, Any]:
    """Of two of the photos: a dog on the left half of both, and a cat in the middle of one."""
    objects = [(1, 17, 30, 50), (1, 18, 0, 40), (2, 18, 0, 40)]
    return {
        "images": [{"id": n, "file_name": NAMES[n - 1], "width": WIDTH, "height": HEIGHT} for n in (1, 2)],
        "categories": [{"id": 17, "name": "cat"}, {"id": 18, "name": "dog"}, {"id": 81, "name": "sink"}],
        "annotations": [
            {"id": number, "image_id": image, "category_id": category, "bbox": [left, 0, right - left, HEIGHT],
             "iscrowd": 0, "segmentation": [[left, 0, right, 0, right, HEIGHT, left, HEIGHT]]}
            for number, (image, category, left, right) in enumerate(objects, 1)
        ],
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos, two models, boxes of two photos and captions of all."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for seed, name in enumerate(NAMES):
        tiny_captioner.photo(WIDTH, HEIGHT, seed=seed).save(tmp_path / "in" / name)
    checkpoint.save(tiny_captioner.captioner(), tmp_path / "one.ckpt")
    checkpoint.save(tiny_captioner.captioner(), tmp_path / "other.ckpt")
    (tmp_path / "instances.json").write_text(json.dumps(instances()))
    lines = [f"{name},{text}" for name in NAMES for text in CAPTIONS]
    (tmp_path / "captions.csv").write_text("\n".join(["image,caption", *lines]))
    return tmp_path


def numbers(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "analysis.json").read_text())


def test_maps_are_weighed_against_each_other(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("caption.analysis.maps.scales.COPIES", 1)
    args = "--model one.ckpt --photos in --boxes instances.json --maps attention gradcam chance"
    printed = cli("analyse", *args.split())
    assert printed.code == 0
    data = numbers(folder)
    of_maps = ["maps", "map differences", "map sanity", "random layers", "map agreement"]
    assert [name for name in data if name in (*of_maps, "grounding")] == of_maps
    rows, sanity = ({row["map"]: row for row in data[part]["rows"]} for part in ("maps", "map sanity"))
    assert list(rows) == list(sanity) == ["attention", "gradcam", "chance"]
    assert sanity["chance"]["random model"]["mean"] == pytest.approx(1)  # it does not ask the model
    assert rows["attention"]["true effect"] == "–"  # known for scenes alone
    assert 0 < rows["gradcam"]["insertion"]["mean"] < 1
    assert 0 < sanity["gradcam"]["deletion, pixels"]["mean"] < 1
    differences = {(row["map"], row["less"], row["scale"]): row for row in data["map differences"]["rows"]}
    assert len(differences) == 2 * 4  # maps and scales
    mass = [rows[name]["mass in the box"]["mean"] for name in ("chance", "attention")]
    less = differences["chance", "attention", "mass in the box"]
    assert less["difference"]["mean"] == pytest.approx(mass[0] - mass[1])
    assert 0 < float(less["p"]) <= 1
    layers = data["random layers"]["rows"]
    assert layers[-1]["gradcam"] == sanity["gradcam"]["random model"]
    assert [layer["chance"]["mean"] for layer in layers] == pytest.approx([1] * len(layers))
    assert [(row["map"], row["and"]) for row in data["map agreement"]["rows"]] == [
        ("attention", "gradcam"), ("attention", "chance"), ("gradcam", "chance"),
    ]  # fmt: skip
    assert "Which map should I believe?" in (folder / "analysis.html").read_text(encoding="utf-8")
    check_refused(cli(*ONE, "--photos", "in", "--maps", "gradcm"), "no map 'gradcm' (did you mean gradcam?)")


def test_maps_of_a_stopped_command_are_not_drawn_again(
    folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("caption.analysis.maps.scales.COPIES", 1)
    command = [*ONE, "--photos", "in", "--maps", "occlusion", "attention"]
    assert cli(*command, "--out", "whole.html").code == 0
    noise, drawn = scales.under_noise, []

    def stopped(*args: Any) -> Any:
        drawn.append("noise")
        if len(drawn) == 2:
            raise KeyboardInterrupt
        return noise(*args)

    monkeypatch.setattr(scales, "under_noise", stopped)
    ran = cli(*command)
    assert (ran.code, "occlusion, noise: stopped after 1 of 3 photos" in ran.err) == (130, True)
    partial = folder / "analysis.partial.npz"
    assert is_own(partial)

    def draw(captioner: Any, method: str, *args: Any) -> Any:
        assert method != "occlusion"
        return scales.draw(captioner, method, *args)

    monkeypatch.setattr("caption.analysis.study.subject.draw", draw)
    assert cli(*command).code == 0
    assert drawn == ["noise"] * (1 + 1 + 2 + 1)  # kept, stopped, the other photos, all of attention at once
    assert not partial.exists()
    whole, again = (json.loads((folder / name).read_text()) for name in ("whole.json", "analysis.json"))
    for data in (whole, again):
        for row in data["maps"]["rows"]:
            del row["ms per word"]
    assert whole == again


def test_everything_is_measured(folder: Path, cli: Cli):
    args = "--model one.ckpt --model second=other.ckpt --photos in --boxes instances.json"
    printed = cli("analyse", *args.split(), "--references", "captions.csv")
    assert printed.code == 0
    assert "index" not in printed.out + printed.err  # pycocotools is silent
    page = (folder / "analysis.html").read_text(encoding="utf-8")
    data = numbers(folder)
    assert [name for name in data if name in MEASURED] == MEASURED
    measured = [name for name in MEASURED if "missing" not in data[name]]
    assert measured == [name for name in MEASURED if name != "persons"]  # there is a man in every photo
    assert data["models"] == ["one", "second"]
    assert "3 photos, 2 with boxes in instances.json, 3 with people's captions" in data["setting"]
    # Two captions of each of two photos name the dog; the man has no box, and nobody names a sink.
    own = data["grounding"]["rows"][0]
    assert (own["model"], own["maps"], own["words"]) == ("one", "own maps", 4)
    assert [row["maps"] for row in data["grounding"]["rows"][1:3]] == ["own maps, dog", "middle cell, dog"]
    assert 0 <= own["pointing accuracy"]["low"] <= own["pointing accuracy"]["mean"] <= 1
    chance = next(row for row in data["grounding"]["rows"] if row["maps"] == "any cell (chance)")
    # The model sees the middle of the photo, 20 to 60 across, and the dog is left of 40.
    assert chance["pointing accuracy"]["mean"] == 0.5
    assert chance["mass in the box"]["mean"] == pytest.approx(0.5)
    assert "2 of 3 categories are named by no word of the captions: cat, sink." in data["grounding"]["notes"]
    # Both models are one: their maps agree wholly.
    assert data["agreement"]["rows"][0]["same word"]["mean"] == pytest.approx(0, abs=1e-6)
    assert [row["captions"] for row in data["chair"]["rows"]] == [2, 2]
    man = next(row for row in data["named"]["rows"] if row["people agree on"] == "man")
    assert man["photos"] == 3
    assert page.count("<section") == len(MEASURED)
    assert page.count("data:image/jpeg") == 2 * 2  # one best and one worst of each model
    assert "Photos with the worst maps of second" in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)  # it loads nothing
    assert "default-src 'none'; img-src data:; style-src 'sha256-" in page
    assert "script" not in page  # it has none, and its policy allows none
    assert all(f"{data[name]['title']}\nmodel" in printed.out for name in measured)
    check_outputs({"--out": [folder / "analysis.html", folder / "analysis.json"]})  # may be replaced


@pytest.mark.nightly
def test_scenes_are_measured_where_no_photos_are_given(tmp_path: Path, monkeypatch, cli: Cli):
    monkeypatch.chdir(tmp_path)
    ran = cli("analyse", "--limit", "3", "--model", "soft=shapes")
    assert ran.code == 0
    assert re.search(r"Does it look at what it names\?\nmodel +maps", ran.out)
    data = numbers(tmp_path)
    assert data["setting"].startswith("3 scenes of the test split of Shapes; the centre prior has σ = ")
    expected = [name for name in ON_SHAPES if name not in ("single maps", "heads")]
    assert [name for name in data if name in ON_SHAPES] == expected
    assert (tmp_path / "analysis.html").read_text(encoding="utf-8").count("data:image/jpeg") == 2


def test_parts_are_chosen_and_a_damaged_photo_is_named(folder: Path, monkeypatch, cli: Cli):
    """Without references, boxes are of the words that the model says: of cats and dogs."""
    monkeypatch.setattr("caption.analysis.study.report.draw_curves", None)  # takes as long as a table
    (folder / "in" / "d.png").write_bytes(b"nothing")
    ran = cli(*ONE, "--photos", "in", "--boxes", "instances.json", "--measures", "grounding", "entropy")
    assert (ran.code, "d.png" in ran.err) == (1, True)
    data = numbers(folder)
    assert {name for name in data if name in MEASURED} == {"grounding", "entropy"}
    captions = data["captions"]["one"]
    assert len(captions) == 3
    said = {"cat", "dog"} & set(" ".join(captions.values()).split())
    assert said or "names cat, dog, sink" in data["grounding"]["missing"]


def test_what_is_not_given_is_left_out(folder: Path, cli: Cli):
    assert cli(*ONE, "--photos", "in", "--out", "page.html").code == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    data = json.loads((folder / "page.json").read_text())
    missing = {name: data[name]["missing"] for name in MEASURED if "missing" in data[name]}
    assert missing == {
        "grounding": NEED_BOXES, "agreement": NEED_MODELS, "named": NEED_REFERENCES, "chair": NEED_REFERENCES,
        "persons": NEED_REFERENCES,
    }  # fmt: skip
    tiles, left_out = re.search("<nav>.*?</nav>", page, re.DOTALL)[0], page.partition("<h2>Left out</h2>")[2]
    assert tiles.count("<a ") == len([name for name in MEASURED if name in data]) - 5
    assert "not measured" not in page
    assert left_out.count("<li>") == 5
    assert all(html.escape(reason) in left_out for reason in missing.values())
    assert not re.search(r"falls by [-−]", page)
    assert "how much faster p(word) falls" in page  # by which photos are chosen without boxes


@pytest.mark.parametrize("photos", [(".",), ("./a.png", "b.png"), ("../in/a.png", ".//b.png")])
def test_a_photo_is_the_same_however_its_path_is_written(
    folder: Path, cli: Cli, monkeypatch, photos: tuple[str, ...]
):
    monkeypatch.chdir(folder / "in")
    args = "--model ../one.ckpt --boxes ../instances.json --references ../captions.csv --measures chair grounding"
    assert cli("analyse", *args.split(), "--photos", *photos).code == 0
    data = numbers(folder / "in")
    assert (data["chair"]["rows"][0]["captions"], data["grounding"]["rows"][0]["words"]) == (2, 4)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--photos in --measures chiar", "there is no measure 'chiar'"),
        ("--boxes instances.json", "--boxes is about photos: name them with --photos"),
        ("--photos in --split val", "--split is about people's captions"),
        ("--photos in --limit 1", "leave 1 photo: at least 2"),
        ("--photos -", "photos are read several times"),
        ("--photos in --out page.md", "--out page.md: end its name in .html"),
        ("--photos in --references others.csv", "captions of z.png, but of none of these photos"),
        ("--photos in --boxes instances.json --references last.csv", "no photo has both boxes and people's"),
        ("--photos in --boxes captions.csv", "captions.csv' is not JSON"),
        ("--photos in --model a=one.ckpt --model a=other.ckpt", "each name once"),
        ("--model =shapes", "--model =shapes: write NAME=MODEL"),
        ("--limit 1", "--limit 1"),
    ],
)
def test_wrong_usage_is_named(folder: Path, cli: Cli, arguments: str, complaint: str):
    (folder / "others.csv").write_text("image,caption\nz.png,a cat\n")
    (folder / "last.csv").write_text("image,caption\nc.png,a cat\n")
    check_refused(cli(*(("analyse",) if "--model" in arguments else ONE), *arguments.split()), complaint)
