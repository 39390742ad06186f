"""`caption calibrate`: the model that it writes has the probabilities that the validation captions ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.captioned_photos import write_captioned
from helpers.command_line import Cli, check_refused
from helpers.tiny_captioner import captioner

import caption
from caption.analysis.calibration import divide_logits
from caption.models import checkpoint
from caption.search import Greedy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that is far too sure, photos of two splits, and a configuration that names them."""
    model = captioner()
    divide_logits(model, 0.3)
    checkpoint.save(model, tmp_path / "sure.ckpt")
    texts = ("a cat sits", "a dog runs", "a dog sits", "a cat runs")
    write_captioned(tmp_path, ["train", *["val"] * 3], lambda number: [texts[number], f"the {texts[number]}"])
    (tmp_path / "train.jsonl").write_text('{"image": "0.png", "caption": "a cat", "split": "train"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_model_is_written_with_its_logits_divided(cli: Cli, folder: Path):
    ran = cli("calibrate", "sure.ckpt", "-c", "config.yaml", "--out", "calm.ckpt")
    assert ran.code == 0
    assert ran.out.startswith("temperature ")
    assert "27 words of 3 images" in ran.out
    temperature = float(ran.out.split()[1].rstrip(":"))
    assert temperature > 1
    before, after = caption.load("sure.ckpt"), caption.load("calm.ckpt")
    rows = [model.decoder.readout.to_words.weight for model in (before, after)]
    assert torch.allclose(rows[0], temperature * rows[1], rtol=1e-3)
    photos = [str(folder / f"{number}.png") for number in range(4)]
    said = [[each.text for each in model.describe(photos, Greedy())] for model in (before, after)]
    assert said[0] == said[1]


def test_beyond_the_temperatures_that_are_tried_it_says_so(cli: Cli, folder: Path):
    model = caption.load("sure.ckpt")
    divide_logits(model, 0.1)
    checkpoint.save(model, "surer.ckpt")
    ran = cli("calibrate", "surer.ckpt", "-c", "config.yaml", "--out", "first.safetensors")
    assert ran.out.startswith("temperature 2.000")
    assert "calibrate the file again" in ran.out
    again = cli("calibrate", "first.safetensors", "-c", "config.yaml", "--out", "second.ckpt")
    assert float(again.out.split()[1].rstrip(":")) > 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("calm.onnx", "end its name in .ckpt or .safetensors"),
        ("sure.ckpt", "exists: choose another name"),
        ("calm.ckpt --data.reader.init_args.captions train.jsonl", "split val"),
    ],
)
def test_what_is_refused(options: str, said: str, cli: Cli, folder: Path):
    before = (folder / "sure.ckpt").read_bytes()
    check_refused(cli("calibrate", "sure.ckpt", "-c", "config.yaml", "--out", *options.split()), said)
    assert (folder / "sure.ckpt").read_bytes() == before
    assert not (folder / "calm.ckpt").exists()
