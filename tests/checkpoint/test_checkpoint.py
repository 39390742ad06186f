"""Checkpoints: captioners are restored, and other files are refused."""

from __future__ import annotations

import errno
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo
from torch import nn

import caption
from caption import checkpoint
from caption.attention import Multinoulli
from caption.captioner import Captioner
from caption.checkpoint import FORMAT
from caption.data.resize import ImageTransform
from caption.encoders import LinearRefiner, TorchvisionEncoder
from caption.errors import CheckpointError, UserError
from caption.search import BeamSearch, Sampling
from caption.version import package_version


@pytest.fixture(scope="module")
def made() -> Captioner:
    return captioner()


@pytest.fixture
def path(made: Captioner, tmp_path: Path) -> Path:
    checkpoint.save(made, tmp_path / "model.ckpt")
    return tmp_path / "model.ckpt"


def changed(path: Path, **changes: Any) -> Path:
    """The checkpoint with other entries in its `captioner` section."""
    contents = torch.load(path, weights_only=True)
    contents["captioner"] |= changes
    torch.save(contents, path)
    return path


# -- saving and loading ------------------------------------------------------------------------------------


VARIANTS: dict[str, dict[str, Any]] = {
    "soft.ckpt": {},
    "hard.ckpt": {"alignment": Multinoulli(at_test="argmax")},
    "refined.ckpt": {"refiner": LinearRefiner(size=5)},
    "refined.safetensors": {"refiner": LinearRefiner(size=5), "search": Sampling(max_length=6, seed=3)},
    "wide.ckpt": {"transform": ImageTransform((16, 32), "pad"), "search": BeamSearch(2, 5, 0.7)},
    "torchvision.ckpt": {"encoder": TorchvisionEncoder("squeezenet1_1", "features.3", mean=(0.5, 0.5, 0.5))},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_captioner_comes_back(name: str, tmp_path: Path):
    made = captioner(**VARIANTS[name])
    checkpoint.save(made, tmp_path / name)
    again = caption.load(tmp_path / name)
    assert isinstance(again, caption.Captioner)
    assert not again.training
    assert again.description() == made.description()
    assert again.vocabulary == made.vocabulary
    assert again.transform == made.transform
    assert again.search == made.search
    assert again.state_dict().keys() == made.state_dict().keys()
    for key, tensor in made.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor)
    one, other = made.describe(photo()), again.describe(photo())
    assert other.words == one.words
    assert other.log_prob == one.log_prob
    np.testing.assert_array_equal(other.weights, one.weights)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_it_holds_tensors_and_plain_values_alone(path: Path):
    contents = torch.load(path, weights_only=True)
    assert json.loads(json.dumps(contents["captioner"])) == contents["captioner"]
    assert all(name.startswith("captioner.") for name in contents["state_dict"])
    assert contents["captioner"]["format"] == FORMAT
    assert contents["captioner"]["version"] == package_version()


def test_encoder_weights_come_from_the_checkpoint_and_not_from_their_file(tmp_path: Path):
    encoder = TorchvisionEncoder("squeezenet1_1", "features.3", weights=str(tmp_path / "gone.pth"))
    checkpoint.save(captioner(encoder=encoder), tmp_path / "model.ckpt")
    again = checkpoint.load(tmp_path / "model.ckpt")
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(again.encoder.state_dict()[name], tensor)


def test_the_entries_of_training_do_not_matter(path: Path, made: Captioner):
    contents = torch.load(path, weights_only=True)
    contents["state_dict"]["objective.baseline.value"] = torch.zeros(())
    contents |= {"optimizer_states": [{"lr": 0.1}], "epoch": 3, "pytorch-lightning_version": "2.6.6"}
    torch.save(contents, path)
    assert checkpoint.load(path).description() == made.description()


def test_saving_over_a_checkpoint_leaves_no_partial_file(path: Path):
    checkpoint.save(captioner(search=BeamSearch(2)), path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert checkpoint.load(path).search == BeamSearch(2)


def test_a_save_that_fails_leaves_the_old_checkpoint(
    path: Path, made: Captioner, monkeypatch: pytest.MonkeyPatch
):
    before = path.read_bytes()

    def save(contents: object, file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(UserError, match=r"could not be written: No space left"):
        checkpoint.save(made, path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# -- refused files -----------------------------------------------------------------------------------------


class Trap:
    """Unpickling this object writes the canary file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


PICKLED = "pickled objects, which could run any code"
OTHERS = "a PyTorch file, but not a checkpoint of this package"
OTHER_FILES: dict[str, tuple[Callable[[Path, Trap], object], str]] = {
    "missing": (lambda path, trap: path.unlink(), "there is no checkpoint"),
    "folder": (
        lambda path, trap: (path.unlink(), path.mkdir()),
        "is a folder: name the checkpoint file in it",
    ),
    "empty": (lambda path, trap: path.write_bytes(b""), "not a checkpoint of this package"),
    "text": (lambda path, trap: path.write_text("a: checkpoint\n"), "not a checkpoint of this package"),
    "half": (lambda path, trap: path.write_bytes(path.read_bytes()[:9000]), "damaged"),
    "nearly whole": (lambda path, trap: path.write_bytes(path.read_bytes()[:-30]), "damaged"),
    "no beginning": (lambda path, trap: path.write_bytes(path.read_bytes()[100:]), "not a checkpoint"),
    "bare pickle": (lambda path, trap: path.write_bytes(pickle.dumps(trap)), "a bare pickle"),
    "pickled object": (lambda path, trap: torch.save({"state_dict": {}, "captioner": trap}, path), PICKLED),
    "old format of torch": (
        lambda path, trap: torch.save({"captioner": trap}, path, _use_new_zipfile_serialization=False),
        "a bare pickle",
    ),
    "module": (lambda path, trap: torch.save(captioner(), path), PICKLED),
    "other zip": (lambda path, trap: other_zip(path), "damaged or not a checkpoint"),
    "state dict": (lambda path, trap: torch.save(nn.Linear(2, 2).state_dict(), path), OTHERS),
    "tensor": (lambda path, trap: torch.save(torch.zeros(3), path), OTHERS),
    "others' checkpoint": (lambda path, trap: torch.save({"state_dict": {}, "epoch": 3}, path), OTHERS),
}


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_other_files_are_refused_with_the_reason(kind: str, path: Path, canary: Path):
    write, said = OTHER_FILES[kind]
    write(path, Trap(canary))
    with pytest.raises(CheckpointError, match=said) as caught:
        checkpoint.load(path)
    assert str(path) in str(caught.value)
    assert not canary.exists()


def test_the_trap_would_have_worked(path: Path, canary: Path):
    OTHER_FILES["pickled object"][0](path, Trap(canary))
    torch.load(path, weights_only=False)
    assert canary.exists()


def test_any_torch_error_means_damage(path: Path, monkeypatch: pytest.MonkeyPatch):
    def load(*arguments: Any, **options: Any) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(path)


@pytest.mark.parametrize("other", [1, 99])
def test_another_format_names_the_version_that_reads_it(other: int, path: Path):
    with pytest.raises(CheckpointError, match=rf"format {other}, .*version 7\.1 of this package"):
        checkpoint.load(changed(path, format=other, version="7.1"))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"tokenizer_version": "old"}, "version old of the tokenizer 'ptb'"),
        ({"tokenizer": "nonesuch"}, "nonesuch"),
    ],
)
def test_another_tokenizer_is_refused(entry: dict[str, str], said: str, path: Path, made: Captioner):
    with pytest.raises(CheckpointError, match=said):
        checkpoint.load(changed(path, vocabulary={**made.vocabulary.to_dict(), **entry}))


def hostile(canary: Path) -> dict[str, Any]:
    return {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", str(canary)]}}


@pytest.mark.parametrize("entry", ["encoder", "decoder", "refiner", "search"])
def test_classes_that_are_not_parts_are_refused(entry: str, path: Path, canary: Path):
    with pytest.raises(CheckpointError, match=r"subprocess\.Popen is not a subclass of"):
        checkpoint.load(changed(path, **{entry: hostile(canary)}))
    assert not canary.exists()


def test_classes_that_are_not_parts_are_refused_as_arguments(path: Path, canary: Path, made: Captioner):
    decoder = made.decoder.spec
    decoder["init_args"]["attention"]["init_args"]["score"] = hostile(canary)
    with pytest.raises(CheckpointError, match=r"subprocess\.Popen is not a subclass of Part"):
        checkpoint.load(changed(path, decoder=decoder))
    assert not canary.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": {"class_path": "caption.encoders.Nonesuch", "init_args": {}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"depth": 3}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": []}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": [4, 4, 7]}}},
        {"encoder": {"class_path": "caption.encoders.Encoder", "init_args": {}}},
        {"encoder": None},
        {"decoder": "caption.decoders.LSTMDecoder"},
        {"decoder": {"class_path": "caption.decoders.LSTMDecoder", "init_args": {"attention": None}}},
        {"vocabulary": {"words": ["a", "a"], "tokenizer": "ptb", "tokenizer_version": "1"}},
        {"vocabulary": {"words": ["a", "b"]}},
        {"vocabulary": None},
        {"transform": {"size": 0, "fit": "crop"}},
        {"transform": {"size": 8, "fit": "stretch"}},
        {"search": {"class_path": "caption.search.BeamSearch", "init_args": {"beam_size": 0}}},
    ],
    ids=str,
)
def test_parts_that_cannot_be_made_are_refused(changes: dict[str, Any], path: Path):
    with pytest.raises(CheckpointError, match="cannot be rebuilt"):
        checkpoint.load(changed(path, **changes))


@pytest.mark.parametrize("entry", ["encoder", "decoder", "vocabulary", "transform", "search"])
def test_a_missing_entry_is_named(entry: str, path: Path):
    contents = torch.load(path, weights_only=True)
    del contents["captioner"][entry]
    torch.save(contents, path)
    with pytest.raises(CheckpointError, match=entry):
        checkpoint.load(path)


FIRST = "captioner.encoder.layers.0.weight"
MISFITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "one missing": lambda contents: contents["state_dict"].pop(FIRST),
    "one too many": lambda contents: contents["state_dict"].update({"captioner.surplus": torch.zeros(1)}),
    "another shape": lambda contents: contents["state_dict"].update(
        {FIRST: contents["state_dict"][FIRST][:1]}
    ),
    "no tensor": lambda contents: contents["state_dict"].update({FIRST: "weights"}),
    "not a dict": lambda contents: contents.update(state_dict=[1, 2]),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_weights_that_do_not_fit_are_refused(kind: str, path: Path):
    contents = torch.load(path, weights_only=True)
    MISFITS[kind](contents)
    torch.save(contents, path)
    with pytest.raises(CheckpointError, match=r"cannot be rebuilt|was refused"):
        checkpoint.load(path)
