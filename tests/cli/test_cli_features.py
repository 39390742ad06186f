"""`caption features`: from a training configuration to a store, and its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torchvision import models

from caption import checkpoint
from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.cli.configuration.parts import frozen_encoder, make_transform, read_parts
from caption.cli.main import main as caption_main
from caption.cli.main import run_verb
from caption.data.decoding import open_image
from caption.data.resize import ImageTransform
from caption.decoders import ShowAttendAndTellDecoder
from caption.encoders import SmallCNN
from caption.features.store import FeatureStore
from caption.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images in three splits, in Flickr's files, and weights for an encoder."""
    folder = tmp_path_factory.mktemp("data")
    noise = np.random.default_rng(0)
    names = [f"photo{number}.jpg" for number in range(6)]
    for name in names:
        Image.fromarray(noise.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(folder / name)
    lines = [f"{name}#{k}\tcaption {k} of {name}" for name in names for k in range(2)]
    (folder / "tokens.txt").write_text("\n".join(lines))
    for split, start in (("train", 0), ("val", 2), ("test", 4)):
        (folder / f"{split}.txt").write_text("\n".join(names[start : start + 2]))
    torch.manual_seed(0)
    model = models.squeezenet1_1(weights=None)
    torch.save(model.state_dict(), folder / "weights.pth")
    return folder


def configuration(data: Path) -> dict[str, Any]:
    return {
        "seed_everything": 1,
        "trainer": {"max_epochs": 1},
        "model": {
            "encoder": {
                "class_path": "caption.encoders.TorchvisionEncoder",
                "init_args": {
                    "name": "squeezenet1_1",
                    "layer": "features.3",
                    "weights": str(data / "weights.pth"),
                },
            },
            "objective": {"class_path": "caption.objectives.CrossEntropy"},
        },
        "data": {
            "transform": {"size": 32, "fit": "crop"},
            "batch_size": 50,
            "reader": {
                "class_path": "caption.data.readers.Flickr",
                "init_args": {
                    "captions": str(data / "tokens.txt"),
                    "images": str(data),
                    "splits": {split: str(data / f"{split}.txt") for split in ("train", "val", "test")},
                },
            },
        },
    }


def write(config: Any, folder: Path) -> str:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture
def config(data: Path, tmp_path: Path) -> str:
    return write(configuration(data), tmp_path)


def small_model(path: Path) -> SmallCNN:
    """A checkpoint, and the encoder in it."""
    torch.manual_seed(3)
    encoder = SmallCNN(widths=(4, 6))
    decoder = ShowAttendAndTellDecoder(ScoredAttention(AdditiveScore(size=8), Softmax()), 8, 8)
    words = Vocabulary.build(["a caption"], min_count=1)
    checkpoint.save(Captioner(encoder, decoder, words, ImageTransform(16, "squash")), path)
    encoder.freeze()
    return encoder


def test_all_splits_are_stored(
    config: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "store")
    assert run_verb("features", ["--config", config, "--out", out, "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "6 stored" in said.err
    store = FeatureStore(out)
    store.check(f"photo{number}.jpg" for number in range(6))
    assert len(store) == 6
    assert store.header.grids == [(7, 7)]
    parts = read_parts([config])
    encoder, transform = frozen_encoder(parts), make_transform(parts)
    store.matches(encoder, transform.to_dict())
    with torch.no_grad():
        vectors = encoder(transform(open_image(data / "photo3.jpg"))[None])[0].vectors[0]
    (stored,) = store.read_many(["photo3.jpg"])
    torch.testing.assert_close(stored.vectors[0].float(), vectors, rtol=2e-3, atol=2e-3)
    options = ["--batch-size", "2", "--device", "cpu"]
    assert run_verb("features", ["--config", config, "--out", out, *options]) == 0
    assert "6 stored before" in capsys.readouterr().err


def test_training_images_alone_are_stored_mirrored(config: str, data: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "store")
    assert run_verb("features", ["-c", config, "--out", out, "--device", "cpu", "--mirrored"]) == 0
    parts = read_parts([config])
    encoder, transform = frozen_encoder(parts), make_transform(parts)
    store = FeatureStore(out)
    store.matches(encoder, transform.to_dict(), mirrored=True)
    assert sorted(store.ids) == ["photo0.jpg", "photo1.jpg"]
    with torch.no_grad():
        vectors = encoder(transform(open_image(data / "photo1.jpg"))[None].flip(-1))[0].vectors[0]
    (stored,) = store.read_many(["photo1.jpg"])
    torch.testing.assert_close(stored.vectors[0].float(), vectors, rtol=2e-3, atol=2e-3)


def test_configurations_are_laid_over_each_other(config: str, tmp_path: Path) -> None:
    """As in `caption fit`, single entries override, and the command line has the last word."""
    path = tmp_path / "more.yaml"
    transform = {"size": 64, "fit": "pad"}
    encoder = {"init_args": {"layer": "features.1"}}
    path.write_text(yaml.safe_dump({"model": {"encoder": encoder}, "data": {"transform": transform}}))
    out = str(tmp_path / "store")
    options = ["--data.transform.size=48", "--model.encoder.layer", "features.2", "--device", "cpu"]
    assert run_verb("features", ["-c", config, "-c", str(path), "--out", out, *options]) == 0
    key = FeatureStore(out).header.key
    assert (key["transform size"], key["transform fit"]) == (48, "pad")
    assert (key["encoder name"], key["encoder layer"]) == ("squeezenet1_1", "features.2")


def test_only_needed_parts_are_built(data: Path, tmp_path: Path) -> None:
    """Other sections may name missing classes; with --model, the encoder's class may be missing, too."""
    encoder = small_model(tmp_path / "model.ckpt")
    described = configuration(data)
    described["model"]["decoder"] = {"class_path": "nowhere.Decoder"}
    described["trainer"] = {"logger": {"class_path": "nowhere.Logger"}}
    out = str(tmp_path / "store")
    arguments = ["--config", write(described, tmp_path), "--device", "cpu"]
    assert run_verb("features", [*arguments, "--out", out]) == 0
    described["model"]["encoder"] = "nowhere.Encoder"
    arguments = ["--config", write(described, tmp_path), "--device", "cpu"]
    assert (
        run_verb("features", [*arguments, "--out", out + "2", "--model", str(tmp_path / "model.ckpt")]) == 0
    )
    FeatureStore(out + "2").matches(encoder, ImageTransform(16, "squash").to_dict())


def test_the_default_transform(data: Path, tmp_path: Path) -> None:
    described = configuration(data)
    for transform in (None, {}):
        described["data"]["transform"] = transform
        path = write(described, tmp_path)
        assert make_transform(read_parts([path])) == ImageTransform()
    assert make_transform(read_parts([path], ["--data.transform.fit", "pad"])).fit == "pad"


def test_unreadable_images_are_named(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1, stderr has the reason, and all other images are stored."""
    described = configuration(data)
    images = tmp_path / "images"
    images.mkdir()
    for photo in data.glob("*.jpg"):
        (images / photo.name).write_bytes(photo.read_bytes())
    (images / "photo1.jpg").write_bytes(b"no image")
    (images / "photo4.jpg").write_bytes(b"")
    described["data"]["reader"]["init_args"]["images"] = str(images)
    out = str(tmp_path / "store")
    arguments = ["features", "--config", write(described, tmp_path), "--out", out, "--device", "cpu"]
    assert caption_main(arguments) == 1
    said = capsys.readouterr().err
    assert "not stored: image 'photo1.jpg'" in said
    assert "photo4.jpg' is empty" in said
    assert "4 stored, 2 cannot be read and are not stored" in said
    assert len(FeatureStore(out)) == 4
    assert caption_main(arguments) == 1  # the photos still cannot be read


def test_damage_is_repaired_on_request(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "store"
    arguments = ["features", "--config", config, "--out", str(out), "--device", "cpu"]
    assert caption_main(arguments) == 0
    file = out / "features-00000.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert caption_main([*arguments, "--verify"]) == 0
    assert "1 stored, 5 stored before, 1 were damaged" in capsys.readouterr().err
    assert not FeatureStore(out).damaged()


WRONG_CONFIGURATIONS = [
    ({}, "no data.reader with a class_path"),
    ([1, 2], "is not a configuration"),
    ({"data": [3]}, "is not a configuration"),
    ({"data": {"reader": "caption.data.readers.Nothing"}}, "caption.data.readers.Nothing"),
    ({"data": {"reader": "pathlib.Path"}}, "does not correspond to a subclass of CaptionReader"),
    ({"data": {"reader": {"class_path": "caption.data.readers.Flickr", "init_args": {"x": 1}}}}, "'x'"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_CONFIGURATIONS)
def test_wrong_configurations(
    wrong: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert caption_main(["features", "--config", write(wrong, tmp_path), "--out", str(tmp_path / "s")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


WRONG_ARGUMENTS = [
    (["--data.transform.fit", "stretch"], "stretch"),
    (["--data.transform.sides", "3"], "--data.transform.sides"),
    (["--model.encoder.weights", "/no/such/file.pth"], "/no/such/file.pth"),
    (["--model.encoder.layer", "features.99"], "has no layer features.99"),
    (["--model.encoder.sides", "3"], "'sides'"),
    (["--model.encoder.class_path", "caption.encoders.Nothing"], "caption.encoders.Nothing"),
    (["--device", "abacus"], "device abacus cannot be used"),
    (["--model", "/no/such/file.ckpt"], "/no/such/file.ckpt"),
    (["--config", "/no/such/file.yaml"], "'/no/such/file.yaml' does not exist"),
    (["--model.encoder.weights", "null"], "has random weights"),
    (["--batch-size", "many"], "many is not a whole number from 1 up"),
    (["--speed", "9"], "--speed"),
    (["--data.transform.size"], "--data.transform.size"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_ARGUMENTS)
def test_wrong_arguments(
    config: str, wrong: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "store"
    assert caption_main(["features", "--config", config, "--out", str(out), *wrong]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert not any(out.glob("features*"))
