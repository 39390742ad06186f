"""`caption lens`: a calibrated lens beside a model, its picture, and `describe --lens` with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.command_line import Ran
from helpers.tiny_captioner import captioner, photo
from PIL import Image

from caption import checkpoint
from caption.data.resize import ImageTransform
from caption.encoders import EfficientNetLite
from caption.encoders.efficientnet_lite import efficientnet_lite

Cli = Callable[..., Ran]
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
    for number in range(25):
        photo(64, 64, seed=number).save(tmp_path / f"{number}.png")
    lines = [f"{number}.png#0\ta {('dog', 'cup')[number % 2]} .\n" for number in range(25)]
    (tmp_path / "captions.txt").write_text("".join(lines))
    splits = {"train": [24], "val": range(22), "test": [22, 23]}
    for name, numbers in splits.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{number}.png\n" for number in numbers))
    reader = {
        "captions": str(tmp_path / "captions.txt"),
        "images": str(tmp_path),
        "splits": {name: str(tmp_path / f"{name}.txt") for name in splits},
    }
    described = {"data": {"reader": {"class_path": "caption.data.readers.Flickr", "init_args": reader}}}
    (tmp_path / "config.yaml").write_text(json.dumps(described))
    return tmp_path


@pytest.mark.nightly
def test_a_lens_is_made_drawn_and_found_beside_its_model(cli: Cli, folder: Path) -> None:
    untrusted = cli(*MAKE[:4], "--out", "model.lens")
    assert untrusted.code == 2
    assert untrusted.err.endswith("--trust weights.pth, or trust='weights.pth' in Python\n")
    made = cli(*MAKE, "model.lens", "--report", "test", "--figure", "drawn.png")
    assert made.code == 0, made.err
    assert "calibrated on 22 images. On test: calibration error" in made.out
    assert Image.open(folder / "drawn.png").size[0] > 300
    described = cli("describe", "1.png", "--model", "model.ckpt", "--lens", "--format", "json")
    assert described.code == 0, described.err
    reading = (
        json.loads(described.out)["lens"]
        if described.out.startswith("{")
        else json.loads(described.out)[0]["lens"]
    )
    assert reading["calibrated"] is True
    assert reading["out_of_distribution"] is False
    for name, unlike in (("model", False), ("plain", None)):  # also without --lens
        told = cli("describe", "1.png", "--model", f"{name}.ckpt", "--format", "jsonl")
        entry = json.loads(told.out)
        assert (entry["out_of_distribution"], entry["lens"]) == (unlike, None)
    before = (folder / "model.lens").read_bytes()
    again = cli(*MAKE, "model.lens")
    assert again.code == 2
    assert "--out model.lens exists" in again.err
    assert (folder / "model.lens").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lens", "plain.ckpt", "-c", "config.yaml", "--out", "x.lens"], "SmallCNN has no classifier"),
        ([*MAKE, "x.ckpt"], "x.ckpt"),
        ([*MAKE, "x.lens", "--report", "other"], "no images in the split other"),
        ([*MAKE, "x.lens", "--figure", "1.png"], "--figure 1.png exists"),
        ([*MAKE, "x.lens", "--figure", "drawn.doc"], "drawn.doc"),
    ],
)
def test_what_cannot_be_is_said_before_the_work_and_nothing_is_written(
    cli: Cli, folder: Path, arguments: list[str], message: str
) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert not list(folder.glob("x.*"))


def test_a_model_without_a_file_is_read_uncalibrated_with_a_note(cli: Cli, folder: Path) -> None:
    ran = cli("describe", "1.png", "--model", "model.ckpt", "--lens", "--trust", "weights.pth")
    assert ran.code == 0
    assert "not calibrated" in ran.err
    refused = cli("describe", "1.png", "--model", "plain.ckpt", "--lens")
    assert refused.code == 2
    assert "SmallCNN has no classifier" in refused.err
