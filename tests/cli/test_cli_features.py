"""`caption features`: from a training configuration to a store, and its messages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from helpers.captioned_photos import write_captioned
from helpers.command_line import Cli, check_refused
from helpers.tiny_captioner import captioner
from torchvision import models

from caption.cli.configuration.parts import frozen_encoder, make_transform, read_parts
from caption.data.features.store import FeatureStore
from caption.data.photos import ImageTransform, open_image
from caption.models import checkpoint


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images in three splits, and weights for an encoder."""
    folder = tmp_path_factory.mktemp("data")
    splits = [*["train"] * 2, *["val"] * 2, *["test"] * 2]
    write_captioned(folder, splits, lambda number: [f"caption {number}"])
    torch.save(models.squeezenet1_1(weights=None).state_dict(), folder / "weights.pth")
    return folder


def configuration(data: Path) -> dict[str, Any]:
    described = yaml.safe_load((data / "config.yaml").read_text())
    described["data"] |= {"transform": {"size": 32, "fit": "crop"}, "batch_size": 50}
    encoder = {"name": "squeezenet1_1", "layer": "features.3", "weights": str(data / "weights.pth")}
    described["model"] = {
        "encoder": {"class_path": "caption.encoders.TorchvisionEncoder", "init_args": encoder}
    }
    return described


def write(config: Any, folder: Path) -> str:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture
def config(data: Path, tmp_path: Path) -> str:
    return write(configuration(data), tmp_path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("mirrored", [False, True])
def test_all_splits_are_stored_or_training_images_mirrored(config, data, out, cli: Cli, mirrored: bool):
    command = ("features", "-c", config, "--out", out, "--device", "cpu", *["--mirrored"] * mirrored)
    stored = [0, 1] if mirrored else range(6)
    ran = cli(*command)
    assert (ran.code, ran.out) == (0, "")
    assert f"{len(stored)} stored" in ran.err
    parts = read_parts([config])
    encoder, transform = frozen_encoder(parts), make_transform(parts)
    store = FeatureStore(str(out))
    store.matches(encoder, transform.to_dict(), mirrored=mirrored)
    assert sorted(store.ids) == [f"{number}.png" for number in stored]
    assert store.header.grids == [(7, 7)]
    pixels = transform(open_image(data / "1.png"))[None]
    with torch.no_grad():
        vectors = encoder(pixels.flip(-1) if mirrored else pixels)[0].vectors[0]
    (read,) = store.read_many(["1.png"])
    torch.testing.assert_close(read.vectors[0].float(), vectors, rtol=2e-3, atol=2e-3)
    assert f"{len(stored)} stored before" in cli(*command, "--batch-size", "2").err


def test_configurations_are_laid_over_each_other(config: str, tmp_path: Path, out: Path, cli: Cli) -> None:
    """As in `caption fit`, single entries override, and the command line has the last word."""
    path = tmp_path / "more.yaml"
    transform = {"size": 64, "fit": "pad"}
    encoder = {"init_args": {"layer": "features.1"}}
    path.write_text(yaml.safe_dump({"model": {"encoder": encoder}, "data": {"transform": transform}}))
    options = ("--data.transform.size=48", "--model.encoder.layer", "features.2", "--device", "cpu")
    assert cli("features", "-c", config, "-c", path, "--out", out, *options).code == 0
    key = FeatureStore(str(out)).header.key
    assert (key["transform size"], key["transform fit"]) == (48, "pad")
    assert (key["encoder name"], key["encoder layer"]) == ("squeezenet1_1", "features.2")


def test_only_needed_parts_are_built(data: Path, tmp_path: Path, out: Path, cli: Cli) -> None:
    """Other sections may name missing classes; with --model, the encoder's class may be missing, too."""
    model = captioner()
    model.encoder.freeze()
    checkpoint.save(model, tmp_path / "model.ckpt")
    described = configuration(data)
    described["model"]["decoder"] = {"class_path": "nowhere.Decoder"}
    described["trainer"] = {"logger": {"class_path": "nowhere.Logger"}}
    assert cli("features", "-c", write(described, tmp_path), "--out", out).code == 0
    described["model"]["encoder"] = "nowhere.Encoder"
    named = ("--model", tmp_path / "model.ckpt", "--out", f"{out}2")
    assert cli("features", "-c", write(described, tmp_path), *named).code == 0
    FeatureStore(f"{out}2").matches(model.encoder, model.transform.to_dict())
    for transform in (None, {}):
        described = configuration(data)
        described["data"]["transform"] = transform
        path = write(described, tmp_path)
        assert make_transform(read_parts([path])) == ImageTransform()
    assert make_transform(read_parts([path], ["--data.transform.fit", "pad"])).fit == "pad"


def test_unreadable_images_are_named_and_damage_is_refused(data: Path, tmp_path, out, cli: Cli) -> None:
    """The exit code is 1, stderr has the reason, and all other images are stored; a damaged file stops the command."""
    described = configuration(data)
    images = Path(shutil.copytree(data, tmp_path / "images"))
    (images / "1.png").write_bytes(b"no image")
    (images / "4.png").write_bytes(b"")
    described["data"]["reader"]["init_args"]["images"] = str(images)
    arguments = ("features", "--config", write(described, tmp_path), "--out", out, "--device", "cpu")
    ran = cli(*arguments)
    assert ran.code == 1
    assert "not stored: image '1.png'" in ran.err
    assert "4.png' is empty" in ran.err
    assert "4 stored, 2 cannot be read and are not stored" in ran.err
    assert len(FeatureStore(str(out))) == 4
    for number in (1, 4):
        shutil.copy(data / f"{number}.png", images)
    assert cli(*arguments).code == 0
    file = out / "features-00000.safetensors"
    os.truncate(file, file.stat().st_size - 1)
    check_refused(cli(*arguments), f"'{file}' is damaged", "Delete it")
    file.unlink()
    ran = cli(*arguments)
    assert ran.code == 0
    assert "4 stored, 2 stored before" in ran.err


FLICKR = {"class_path": "caption.data.readers.Flickr", "init_args": {"x": 1}}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "no data.reader with a class_path"),
        ([1, 2], "is not a configuration"),
        ({"data": [3]}, "is not a configuration"),
        ({"data": {"reader": "pathlib.Path"}}, "data.reader: pathlib.Path is not a CaptionReader"),
        ({"data": {"reader": FLICKR}}, "'x'"),
    ],
)
def test_wrong_configurations(wrong: Any, message: str, tmp_path: Path, cli: Cli) -> None:
    check_refused(cli("features", "--config", write(wrong, tmp_path), "--out", tmp_path / "s"), message)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("--data.transform.fit stretch", "stretch"),
        ("--data.transform.sides 3", "--data.transform.sides"),
        ("--model.encoder.weights /no/such/file.pth", "/no/such/file.pth"),
        ("--model.encoder.layer features.99", "has no layer features.99"),
        (
            "--model.encoder.class_path caption.encoders.Nothing",
            "module 'caption.encoders' has no attribute 'Nothing'",
        ),
        ("--device abacus", "device abacus cannot be used"),
        ("--model /no/such/file.ckpt", "/no/such/file.ckpt"),
        ("--config /no/such/file.yaml", "'/no/such/file.yaml' does not exist"),
        ("--model.encoder.weights null", "has random weights"),
    ],
)
def test_wrong_arguments(config: str, wrong: str, message: str, out: Path, cli: Cli) -> None:
    check_refused(cli("features", "--config", config, "--out", out, *wrong.split()), message)
    assert not any(out.glob("features*"))
