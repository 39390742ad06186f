"""Which model `caption describe` uses: the one named, several averaged, or the installed one for photos."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.command_line import Ran
from helpers.tiny_captioner import captioner, photo
from PIL import Image

import caption
from caption import checkpoint
from caption.models import model_zoo
from caption.models.ensemble import ensemble

Cli = Callable[..., Ran]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    photo(80, 40).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Two models that differ."""
    paths = []
    for seed in (1, 2):
        made = captioner()
        with torch.no_grad():
            for parameter in made.decoder.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
        paths.append(tmp_path / f"{seed}.ckpt")
        checkpoint.save(made, paths[-1])
    return paths


def test_several_models_are_averaged(cli: Cli, image: Path, models: list[Path]):
    options = [word for path in models for word in ("--model", path)]
    ran = cli("describe", image, *options, "--format", "json")
    expected = ensemble([caption.load(path) for path in models]).describe(str(image))
    (entry,) = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert entry["words"] == expected.words
    assert entry["log_prob"] == pytest.approx(expected.log_prob, rel=1e-4)
    assert entry["model"] == f"{models[0]} + {models[1]}"


def test_models_that_do_not_fit_together_are_named(cli: Cli, image: Path, models: list[Path]):
    ran = cli("describe", image, "--model", models[0], "--model", "shapes")
    assert (ran.code, ran.out) == (2, "")
    assert "must have one vocabulary" in ran.err


def test_without_a_model_the_installed_one_for_photos_is_used_and_said(
    cli: Cli, image: Path, models: list[Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(model_zoo, "_installed", lambda: {"photos": models[0]})
    ran = cli("describe", image)
    assert ran == (0, f"{caption.load(models[0]).describe(str(image))}\n", "")  # nothing in logs
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    ran = cli("describe", image, image)
    said = (
        "caption describe: uses the installed model photos, a small model, trained on 8,200 photos: expect mistakes; "
        "--model takes another\n"
    )
    assert ran.err.count(said) == 1
    assert "expect mistakes" not in cli("describe", image, "--model", "photos").err


def test_without_a_model_for_photos_one_must_be_named(cli: Cli, image: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_zoo, "_installed", lambda: {"shapes": image})
    ran = cli("describe", image)
    assert (ran.code, ran.out) == (2, "")
    assert "name a model with --model: a checkpoint, or an installed model (shapes)" in ran.err


def test_a_photo_given_to_the_model_of_scenes_gets_a_warning(
    cli: Cli, tmp_path: Path, image: Path, shapes: Path
):
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
