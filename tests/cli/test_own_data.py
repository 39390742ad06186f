"""docs/own-data.md: from a table and a folder of photos to captions, by the commands of the page."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from helpers.command_line import Ran
from PIL import Image, ImageDraw

Cli = Callable[..., Ran]
REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "own-data.md").read_text(encoding="utf-8")
IMAGES = 30
COLOURS = ("red", "green", "blue")
SHAPES = ("circle", "square")


def draw(number: int) -> tuple[Image.Image, list[str]]:
    """A photo of one shape, and five captions."""
    colour, shape = COLOURS[number % 3], SHAPES[number % 2]
    noise = np.random.default_rng(number).integers(0, 90, (96, 128, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    left = 10 + 3 * (number % 7)
    pen = ImageDraw.Draw(image)
    (pen.ellipse if shape == "circle" else pen.rectangle)((left, 20, left + 50, 70), fill=colour)
    captions = [f"{start} {colour} {shape}." for start in ("A", "There is a", "One", "The", "I see a")]
    return image, captions


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the page, with an encoder that needs no further package."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with (tmp_path / "own.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption"])
        for number in range(IMAGES):
            name = "beach.jpg" if number == 0 else f"photo{number}.jpg"
            image, captions = draw(number)
            image.save(tmp_path / "photos" / name)
            table.writerows([name, each] for each in captions)
    from torchvision import models

    torch.manual_seed(0)
    (tmp_path / "data").mkdir()
    weights = models.mobilenet_v2(weights=None).state_dict()
    torch.save(weights, tmp_path / "data" / "mobilenet_v2_imagenet_features.pth")
    return tmp_path


def commands() -> list[list[str]]:
    """The page's commands, without the installation."""
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [shlex.split(line)[1:] for line in block.splitlines() if line.startswith("caption ")]


@pytest.mark.slow
def test_the_page_leads_from_a_table_to_captions(cli: Cli, own: Path):
    verbs = []
    for verb, *args in commands():
        # Faster, and with weights that are here.
        more = {"check": ["--base", "flickr8k_small"], "fit": ["--trainer.max_epochs", "2"]}.get(verb, [])
        ran = cli(verb, *args, *more)
        assert ran.code == 0, f"{verb}: {ran.err}"
        verbs.append(verb)
    assert verbs == ["check", "features", "fit", "test", "describe"]
    assert (own / "beach_heatmap.png").is_file()
    assert ran.out.strip()


def test_the_written_configuration_is_whole(cli: Cli, own: Path):
    check = next(args for verb, *args in commands() if verb == "check")
    ran = cli("check", *check)
    assert ran.code == 0, ran.err
    config = yaml.safe_load((own / "own.yaml").read_text())
    assert config["data"]["reader"]["class_path"] == "caption.data.readers.Csv"
    assert config["data"]["batch_size"] == 4
    assert config["data"]["features"] == "runs/own_features"
    assert config["trainer"]["default_root_dir"] == "runs/own"
    assert config["model"]["encoder"]["init_args"]["name"] == "efficientnet_lite2"
    # Its header has the commands of the page.
    header = (own / "own.yaml").read_text().partition("seed_everything")[0]
    assert all(f"caption {verb} " in header for verb in ("features", "fit", "test", "describe"))


def test_nothing_is_written_over_a_file_or_for_data_with_faults(cli: Cli, own: Path):
    (own / "own.yaml").write_text("mine")
    split = ("--images", "photos", "--splits", "train=0.7", "val=0.15", "test=0.15")
    ran = cli("check", "own.csv", *split, "--write", "own.yaml")
    assert ran.code == 2
    assert "own.yaml exists" in ran.err
    (own / "photos" / "photo3.jpg").write_bytes(b"")
    assert cli("check", "own.csv", *split, "--write", "new.yaml").code == 1
    assert not (own / "new.yaml").exists()


def test_data_without_validation_is_told_how_to_split(cli: Cli, own: Path):
    ran = cli("check", "own.csv", "--images", "photos", "--write", "own.yaml")
    assert ran.code == 2
    assert "--splits train=0.7 val=0.15 test=0.15" in ran.err
    assert not (own / "own.yaml").exists()
