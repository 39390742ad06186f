"""Which model `caption describe` uses: the one named, several averaged, or the installed one for photos."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from helpers.command_line import Cli, check_refused
from helpers.tiny_captioner import captioner, photo
from PIL import Image

import caption
from caption import checkpoint
from caption.models import model_zoo
from caption.models.ensemble import ensemble


@pytest.fixture
def image(tmp_path: Path) -> Path:
    photo(80, 40).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_several_models_are_averaged_if_they_fit_together(cli: Cli, image: Path, model: Path, tmp_path: Path):
    other = captioner()
    with torch.no_grad():
        other.decoder.embed.weight.neg_()
    checkpoint.save(other, tmp_path / "other.ckpt")
    models = [model, tmp_path / "other.ckpt"]
    ran = cli("describe", image, "--model", models[0], "--model", models[1], "--format", "jsonl")
    expected = ensemble([caption.load(path) for path in models]).describe(str(image))
    entry = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert entry["words"] == expected.words
    assert entry["log_prob"] == pytest.approx(expected.log_prob, rel=1e-4)
    assert entry["model"] == f"{models[0]} + {models[1]}"
    check_refused(cli("describe", image, "--model", model, "--model", "shapes"), "must have one vocabulary")


def test_without_a_model_the_installed_one_for_photos_is_used(
    cli: Cli, image: Path, model: Path, monkeypatch
):
    monkeypatch.setattr(model_zoo, "_installed", lambda: {"photos": model})
    ran = cli("describe", image)
    assert ran == (0, f"{caption.load(model).describe(str(image))}\n", "")  # nothing in logs
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    ran = cli("describe", image, image)
    assert ran.err.count("caption describe: uses the installed model photos, a small model") == 1
    assert "expect mistakes" not in cli("describe", image, "--model", "photos").err


def test_without_a_model_for_photos_one_must_be_named(cli: Cli, image: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_zoo, "_installed", lambda: {"shapes": image})
    said = "name a model with --model: a checkpoint, or an installed model (shapes)"
    check_refused(cli("describe", image), said)


def test_a_photo_given_to_the_model_of_scenes_gets_a_warning(cli: Cli, tmp_path, image: Path, shapes: Path):
    scene = min(shapes.rglob("*.png"))
    said = f"caption describe: shapes knows drawn scenes of coloured shapes and nothing else, and {image} is not one"
    both = cli("describe", scene, image, image, "--model", "shapes")
    assert both.code == 0
    assert both.err.count("not one") == 1
    assert both.err.startswith(said)
    assert cli("describe", scene, "--model", "shapes").err == ""
    large = tmp_path / "large.png"
    Image.new("RGB", (300, 300)).save(large)
    assert f"{large} is not one" in cli("describe", large, "--model", "shapes-hard").err
