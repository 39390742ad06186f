"""`caption lens`: a calibrated lens beside a model, its picture, and `describe --lens` with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from helpers.captioned_photos import write_captioned
from helpers.command_line import Cli, check_refused
from helpers.tiny_captioner import captioner
from PIL import Image

from caption.data.photos import ImageTransform
from caption.encoders import EfficientNetLite
from caption.encoders.efficientnet_lite import efficientnet_lite
from caption.models import checkpoint
from caption.results.lens_reading import OUT_OF_DISTRIBUTION

MAKE = ("lens", "model.ckpt", "-c", "config.yaml", "--trust", "weights.pth", "--out")
LITE = "efficientnet_lite0"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose encoder has a classifier, and photos of two splits with captions that name dogs or cups."""
    torch.manual_seed(0)
    torch.save(efficientnet_lite(LITE).state_dict(), tmp_path / "weights.pth")
    monkeypatch.chdir(tmp_path)
    encoder = EfficientNetLite(LITE, weights="weights.pth")
    encoder.load_pretrained()
    checkpoint.save(captioner(ImageTransform(64, "crop"), encoder=encoder), tmp_path / "model.ckpt")
    checkpoint.save(captioner(), tmp_path / "plain.ckpt")
    splits = ["val"] * 22 + ["test"] * 2 + ["train"]
    write_captioned(tmp_path, splits, lambda number: [f"a {('dog', 'cup')[number % 2]} ."])
    return tmp_path


@pytest.mark.nightly
def test_a_lens_is_made_drawn_and_found_beside_its_model(cli: Cli, folder: Path) -> None:
    untrusted = cli(*MAKE[:4], "--out", "model.lens")
    check_refused(untrusted, "--trust weights.pth, or trust='weights.pth' in Python\n")
    made = cli(*MAKE, "model.lens", "--report", "test", "--figure", "drawn.png")
    assert made.code == 0, made.err
    assert "calibrated on 22 images. On test: calibration error" in made.out
    assert Image.open(folder / "drawn.png").size[0] > 300
    described = cli("describe", "1.png", "--model", "model.ckpt", "--lens", "--format", "jsonl")
    assert described.code == 0, described.err
    reading = json.loads(described.out)["lens"]
    assert (reading["calibrated"], reading["out_of_distribution"]) == (True, False)
    for name, unlike in (("model", False), ("plain", None)):  # also without --lens
        told = cli("describe", "1.png", "--model", f"{name}.ckpt", "--format", "jsonl")
        entry = json.loads(told.out)
        assert (entry["out_of_distribution"], entry["lens"]) == (unlike, None)
    before = (folder / "model.lens").read_bytes()
    check_refused(cli(*MAKE, "model.lens"), "--out model.lens exists")
    assert (folder / "model.lens").read_bytes() == before


def test_what_cannot_be_is_said_before_the_work(cli: Cli, folder: Path) -> None:
    for arguments, message in (
        (("lens", "plain.ckpt", "-c", "config.yaml", "--out", "x.lens"), "SmallCNN has no classifier"),
        ((*MAKE, "x.ckpt"), "x.ckpt"),
        ((*MAKE, "x.lens", "--report", "other"), "no images in the split other"),
        ((*MAKE, "x.lens", "--figure", "1.png"), "--figure 1.png exists"),
        ((*MAKE, "x.lens", "--figure", "drawn.doc"), "drawn.doc"),
        (("describe", "1.png", "--model", "plain.ckpt", "--lens"), "SmallCNN has no classifier"),
    ):
        check_refused(cli(*arguments), message)
        assert not list(folder.glob("x.*"))
    ran = cli("describe", "1.png", "--model", "model.ckpt", "--lens", "--trust", "weights.pth")
    assert (ran.code, "not calibrated" in ran.err) == (0, True)  # without a file, with a note


def test_a_page_says_what_the_terminal_says(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a picture that is not a photo, with the installed model, and without --lens."""
    monkeypatch.chdir(tmp_path)
    picture = Path(__file__).parents[2] / "docs" / "demo.png"
    described = cli("describe", picture, "--html", "page.html", "--format", "jsonl")
    assert described.code == 0, described.err
    assert json.loads(described.out)["lens"] is None
    remarks = [line.partition("demo.png: ")[2] for line in described.err.splitlines()]
    assert OUT_OF_DISTRIBUTION in remarks
    (found,) = re.findall(r'"remarks":(\[[^]]*\])', Path("page.html").read_text(encoding="utf-8"))
    assert json.loads(found) == [remark for remark in remarks if remark]
