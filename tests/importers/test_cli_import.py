"""`caption import`: it writes a checkpoint for `caption describe`, or prints one line without a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import arctic_reference, sgrvinod_reference
from PIL import Image

import caption
from caption.encoders import TorchvisionEncoder
from caption.importers import arctic, sgrvinod
from caption.importers.assemble import encoder_and_transform, tokenizer_for

pytestmark = pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning")
WORDS = ["a", "dog", "runs", "away", "."]
FEATURES = 24  # of the small encoder
ENCODER = """\
encoder:
  class_path: caption.encoders.TorchvisionEncoder
  init_args: {name: shufflenet_v2_x0_5, layer: maxpool, grid: [3, 4]}
transform: {size: 32, fit: squash}
"""
OPTIONS: dict[str, Any] = {
    "ctx_dim": FEATURES,
    "dim": 4,
    "dim_word": 3,
    "n_words": len(WORDS) + 2,
    "selector": True,
    "prev2out": True,
    "ctx2out": True,
    "n_layers_att": 2,
    "n_layers_init": 2,
    "use_dropout": True,
    "attn_type": "stochastic",
    "temperature": 1.0,
    "lstm_encoder": False,
}


@pytest.fixture
def encoder(tmp_path: Path) -> list[str]:
    (tmp_path / "encoder.yaml").write_text(ENCODER)
    return ["--encoder", str(tmp_path / "encoder.yaml")]


@pytest.fixture
def of_arctic(tmp_path: Path) -> list[str]:
    """Arguments that name a model of the authors' code."""
    np.savez(tmp_path / "model.npz", **arctic_reference.parameters(OPTIONS))
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    (tmp_path / "words.txt").write_text("\n".join(WORDS))
    options = ["--options", str(tmp_path / "options.json"), "--vocabulary", str(tmp_path / "words.txt")]
    return ["import", "arctic", str(tmp_path / "model.npz"), *options]


@pytest.fixture
def of_sgrvinod(tmp_path: Path) -> list[str]:
    """Arguments that name a decoder of the tutorial."""
    word_map = {word: number for number, word in enumerate(["<pad>", *WORDS, "<unk>", "<start>", "<end>"])}
    sizes = {"region": FEATURES, "hidden": 4, "attention": 5, "embedding": 3, "vocabulary": len(word_map)}
    arrays = sgrvinod_reference.parameters(**sizes)
    state = {name: torch.tensor(array).float() for name, array in arrays.items()}
    torch.save(state, tmp_path / "decoder.pth")
    (tmp_path / "map.json").write_text(json.dumps(word_map))
    return ["import", "sgrvinod", str(tmp_path / "decoder.pth"), "--word-map", str(tmp_path / "map.json")]


@pytest.fixture(params=["arctic", "sgrvinod"])
def arguments(request: pytest.FixtureRequest) -> list[str]:
    """Arguments that name a model."""
    return request.getfixturevalue(f"of_{request.param}")


def test_imported_models_describe_photos(
    arguments: list[str], encoder: list[str], tmp_path: Path, cli: Callable[..., Any]
):
    model = tmp_path / "models" / "model.ckpt"
    ran = cli(*arguments, *encoder, "--out", model)
    assert (ran.code, ran.out) == (0, "")
    assert f"caption describe PHOTO --model {model}" in ran.err
    Image.new("RGB", (80, 60), "grey").save(tmp_path / "photo.png")
    ran = cli("describe", tmp_path / "photo.png", "--model", model, "--format", "json")
    assert ran.code == 0, ran.err
    (described,) = json.loads(ran.out)
    assert set(described["words"]) <= set(WORDS)
    loaded = caption.load(model)
    assert loaded.describe(tmp_path / "photo.png").weights.shape[1:] == (3, 4)
    assert list(loaded.vocabulary)[4:] == WORDS


@pytest.mark.parametrize(
    ("arguments", "by_option"),
    [("arctic", True), ("sgrvinod", True), ("sgrvinod", False)],
    indirect=["arguments"],
)
def test_weights_of_the_encoder_come_from_a_file(
    by_option: bool, arguments: list[str], encoder: list[str], tmp_path: Path, cli: Callable[..., Any]
):
    torch.manual_seed(3)
    weights = TorchvisionEncoder("shufflenet_v2_x0_5", "maxpool").trunk.state_dict()
    file = tmp_path / "weights.pth"
    torch.save(dict(weights), file)
    model = tmp_path / "model.ckpt"
    if not by_option:
        Path(encoder[1]).write_text(ENCODER.replace("{name:", f"{{weights: {file}, name:"))
    option = ["--encoder-weights", str(file)] if by_option else []
    assert cli(*arguments, *encoder, *option, "--out", model).code == 0
    loaded = caption.load(model).encoder.trunk.state_dict()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--encoder-weights", "nowhere/weights.pth"], "'nowhere/weights.pth' does not exist"),
        (["--encoder", "nowhere.yaml"], "'nowhere.yaml' does not exist"),
        (["--out", "."], "--out . is a folder"),
        (["--out", "model.bin"], "--out model.bin: end its name in .ckpt or .safetensors"),
    ],
)
def test_errors_are_one_sentence(
    more: list[str],
    said: str,
    of_arctic: list[str],
    encoder: list[str],
    tmp_path: Path,
    cli: Callable[..., Any],
):
    ran = cli(*of_arctic, *encoder, "--out", tmp_path / "model.ckpt", *more)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "model.ckpt").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "encoder: {class_path: caption.encoders.SmallCNN}",
            "regions of 24 numbers, and the encoder gives 128",
        ),
        ("transform: {size: 32}", "has 'size' and 'fit'"),
        ("encoders: {}", "should have 'encoder'"),
        ("[", "is not YAML"),
        ("encoder: {class_path: caption.search.Greedy}", "is not a subclass of Encoder"),
        ("encoder: vgg19", "a class path such as"),
    ],
)
def test_another_encoder_must_be_one_that_fits(
    text: str, said: str, of_sgrvinod: list[str], tmp_path: Path, cli: Callable[..., Any]
):
    file = tmp_path / "other.yaml"
    file.write_text(text if "encoder" in text else f"{ENCODER.partition('transform')[0]}{text}")
    ran = cli(*of_sgrvinod, "--encoder", file, "--out", tmp_path / "model.ckpt")
    assert ran.code == 2
    assert said in ran.err


def test_the_published_encoders_are_the_default():
    """Built without weights: 14x14 regions, of 512 and 2048 numbers."""
    for published, size, wanted in ((arctic.ENCODER, 224, 512), (sgrvinod.ENCODER, 256, 2048)):
        with torch.device("meta"), torch.no_grad():
            encoder, transform = encoder_and_transform(published)
            (regions,) = encoder.to("meta").eval()(torch.zeros(1, 3, size, size, dtype=torch.uint8))
        assert (transform.size, encoder.region_sizes) == (size, (wanted,))
        assert regions.grid == (14, 14)
        assert encoder.weights == "IMAGENET1K_V1"


@pytest.mark.parametrize(
    ("words", "tokenizer"),
    [
        (["a", "dog"], "ptb"),
        (["a", "dog", "."], "ptb-punct"),
        (["A", "dog"], "ptb-cased"),
        (["A", "dog", "."], "ptb-cased-punct"),
    ],
)
def test_captions_are_cut_as_the_words_are(words: list[str], tokenizer: str):
    assert tokenizer_for(words) == tokenizer
