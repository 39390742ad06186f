"""`caption import`: it writes a checkpoint for `caption describe`, or prints one line without a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.models_of_others import WORDS, write_models
from PIL import Image

import caption
from caption.models.importers import arctic, sgrvinod
from caption.models.importers.assemble import encoder_and_transform, tokenizer_for

pytestmark = pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning")
MODELS = {
    "arctic": "import arctic model.npz --options options.json --vocabulary words.txt",
    "sgrvinod": "import sgrvinod decoder.pth --word-map map.json",
}
ENCODER = ["--encoder", "encoder.yaml"]
Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of each codebase; tests must not change it."""
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return folder


@pytest.fixture(autouse=True)
def here(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory, with these models."""
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("codebase", MODELS)
def test_imported_models_describe_photos(codebase: str, cli: Cli):
    ran = cli(*MODELS[codebase].split(), *ENCODER, "--out", "models/model.ckpt")
    assert (ran.code, ran.out) == (0, "")
    assert "caption describe PHOTO --model models/model.ckpt" in ran.err
    Image.new("RGB", (80, 60), "grey").save("photo.png")
    ran = cli("describe", "photo.png", "--model", "models/model.ckpt", "--format", "json")
    assert ran.code == 0, ran.err
    (described,) = json.loads(ran.out)
    assert set(described["words"]) <= set(WORDS)
    loaded = caption.load("models/model.ckpt")
    assert loaded.describe("photo.png").weights.shape[1:] == (3, 4)
    assert list(loaded.vocabulary)[4:] == WORDS


@pytest.mark.parametrize(("codebase", "by_option"), [("arctic", True), ("sgrvinod", False)])
def test_weights_of_the_encoder_come_from_a_file(codebase: str, by_option: bool, cli: Cli):
    option = ["--encoder-weights", "encoder.pth"]
    if not by_option:
        option, file = [], Path("encoder.yaml")
        file.write_text(file.read_text().replace("init_args:", "init_args:\n    weights: encoder.pth"))
    assert cli(*MODELS[codebase].split(), *ENCODER, *option, "--out", "model.ckpt").code == 0
    loaded, weights = caption.load("model.ckpt").encoder.trunk.state_dict(), torch.load("encoder.pth")
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_errors_are_one_sentence(cli: Cli):
    """Other outputs that are refused are in tests/project/test_outputs_matrix.py."""
    for out, *more in (("model.bin",), ("model.ckpt", "--encoder-weights", "nowhere/weights.pth")):
        ran = cli(*MODELS["arctic"].split(), *ENCODER, "--out", out, *more)
        assert ran.code == 2
        assert (
            "end its name in .ckpt" if out == "model.bin" else "'nowhere/weights.pth' does not"
        ) in ran.err
        assert ran.err.count("\n") == 1
        assert not Path(out).exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("encoder: {class_path: caption.encoders.SmallCNN}", "of 24 numbers, and the encoder gives 128"),
        ("transform: {size: 32}", "has 'size' and 'fit'"),
        ("encoders: {}", "should have 'encoder'"),
        ("encoder: {class_path: caption.search.Greedy}", "is not a subclass of Encoder"),
    ],
)
def test_another_encoder_must_be_one_that_fits(text: str, said: str, cli: Cli):
    of_encoder = Path("encoder.yaml").read_text().partition("transform")[0]
    Path("other.yaml").write_text(text if "encoder" in text else f"{of_encoder}{text}")
    ran = cli(*MODELS["sgrvinod"].split(), "--encoder", "other.yaml", "--out", "model.ckpt")
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.nightly
def test_the_published_encoders_are_the_default():
    """Built without weights: 14x14 regions, of 512 and 2048 numbers."""
    for published, size, wanted in ((arctic.ENCODER, 224, 512), (sgrvinod.ENCODER, 256, 2048)):
        with torch.device("meta"), torch.no_grad():
            encoder, transform = encoder_and_transform(published)
            (regions,) = encoder.to("meta").eval()(torch.zeros(1, 3, size, size, dtype=torch.uint8))
        assert (transform.size, encoder.region_sizes) == (size, (wanted,))
        assert regions.grid == (14, 14)
        assert encoder.weights == "IMAGENET1K_V1"


def test_captions_are_cut_as_the_words_are():
    tokenizers = {"a dog": "ptb", "a dog .": "ptb-punct", "A dog": "ptb-cased", "A dog .": "ptb-cased-punct"}
    assert {words: tokenizer_for(words.split()) for words in tokenizers} == tokenizers
