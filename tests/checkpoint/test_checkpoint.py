"""Checkpoints: captioners are restored, and other files are refused."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_captioner import captioner, rewrite
from torch import nn

from caption import checkpoint
from caption.captioner import Captioner
from caption.checkpoint import FORMAT
from caption.encoders import TorchvisionEncoder
from caption.errors import CheckpointError
from caption.version import package_version


@pytest.fixture(scope="module")
def model() -> Captioner:
    return captioner()


@pytest.fixture
def path(model: Captioner, tmp_path: Path) -> Path:
    checkpoint.save(model, tmp_path / "model.ckpt")
    return tmp_path / "model.ckpt"


def changed(path: Path, **changes: Any) -> Path:
    """The checkpoint with other entries in its `captioner` section."""
    return rewrite(path, lambda contents: contents["captioner"].update(changes))


def test_it_holds_tensors_and_plain_values_alone(path: Path):
    contents = torch.load(path, weights_only=True)
    assert json.loads(json.dumps(contents["captioner"])) == contents["captioner"]
    assert all(name.startswith("captioner.") for name in contents["state_dict"])
    assert contents["captioner"]["format"] == FORMAT
    assert contents["captioner"]["version"] == package_version()


def test_encoder_weights_come_from_the_checkpoint_and_not_from_their_file(tmp_path: Path):
    encoder = TorchvisionEncoder("squeezenet1_1", "features.3", weights=str(tmp_path / "gone.pth"))
    checkpoint.save(captioner(encoder=encoder), tmp_path / "model.ckpt")
    again = checkpoint.load(tmp_path / "model.ckpt").encoder
    torch.testing.assert_close(again.state_dict(), encoder.state_dict(), rtol=0, atol=0)


def test_the_entries_of_training_do_not_matter(path: Path, model: Captioner):
    def add(contents: dict[str, Any]) -> None:
        contents["state_dict"]["objective.baseline.value"] = torch.zeros(())
        contents |= {"optimizer_states": [{"lr": 0.1}], "epoch": 3, "pytorch-lightning_version": "2.6.6"}

    assert checkpoint.load(rewrite(path, add)).description() == model.description()


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


PICKLED = "pickled objects, which could run any code.*`caption import --help`"
OTHERS = "a PyTorch file, but not a checkpoint of this package"
OTHER_FILES: dict[str, tuple[Callable[[Path, Trap], object], str]] = {
    "missing": (lambda path, trap: path.unlink(), "there is no checkpoint"),
    "folder": (lambda path, trap: (path.unlink(), path.mkdir()), "is a folder. Name the file in it"),
    "empty": (lambda path, trap: path.write_bytes(b""), "not a checkpoint of this package"),
    "text": (lambda path, trap: path.write_text("a: checkpoint\n"), "not a checkpoint of this package"),
    "half": (lambda path, trap: path.write_bytes(path.read_bytes()[:9000]), "damaged"),
    "no beginning": (lambda path, trap: path.write_bytes(path.read_bytes()[100:]), "not a checkpoint"),
    "bare pickle": (lambda path, trap: path.write_bytes(pickle.dumps(trap)), "a bare pickle"),
    "pickled object": (lambda path, trap: torch.save({"state_dict": {}, "captioner": trap}, path), PICKLED),
    "module": (lambda path, trap: torch.save(captioner(), path), PICKLED),
    "other zip": (lambda path, trap: other_zip(path), "damaged or not a checkpoint"),
    "state dict": (
        lambda path, trap: torch.save(nn.Linear(2, 2).state_dict(), path),
        f"{OTHERS}: it holds 'weight', 'bias'; `caption import",
    ),
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


def test_another_format_or_tokenizer_is_refused(path: Path, model: Captioner):
    words = model.vocabulary.to_dict()
    for changes, said in (
        ({"format": 1, "version": "7.1"}, r"format 1, .*version 7\.1 of this package"),
        ({"format": [2]}, "has checkpoint format"),
        (
            {"format": FORMAT, "vocabulary": {**words, "tokenizer_version": "old"}},
            "version old of the tokenizer 'ptb'",
        ),
        ({"vocabulary": {**words, "tokenizer": "nonesuch"}}, "nonesuch"),
    ):
        with pytest.raises(CheckpointError, match=said):
            checkpoint.load(changed(path, **changes))


@pytest.mark.parametrize("entry", ["encoder", "decoder", "refiner", "search", "score"])
def test_classes_that_are_not_parts_are_refused(entry: str, path: Path, canary: Path, model: Captioner):
    spec = {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", str(canary)]}}
    if entry == "score":
        entry, score, spec = "decoder", spec, model.decoder.spec
        spec["init_args"]["attention"]["init_args"]["score"] = score
    with pytest.raises(CheckpointError, match=r"subprocess\.Popen is not a subclass of"):
        checkpoint.load(changed(path, **{entry: spec}))
    assert not canary.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": {"class_path": "caption.encoders.Nonesuch", "init_args": {}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"depth": 3}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": []}}},
        {"encoder": {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": [4, 4, 7]}}},
        {"encoder": {"class_path": "caption.encoders.Encoder", "init_args": {}}},
        {
            "decoder": {
                "class_path": "caption.decoders.ShowAttendAndTellDecoder",
                "init_args": {"attention": None},
            }
        },
        {"vocabulary": {"words": ["a", "a"], "tokenizer": "ptb", "tokenizer_version": "1"}},
        {"vocabulary": {"words": [1, 2, 3, 4, 5], "tokenizer": "ptb", "tokenizer_version": "1"}},
        {"vocabulary": {"words": "abcde", "tokenizer": "ptb", "tokenizer_version": "1"}},
        {"transform": {"size": 0, "fit": "crop"}},
        {"transform": {"size": 10**9, "fit": "crop"}},
        {"transform": {"size": 8, "fit": "stretch"}},
        {"search": {"class_path": "caption.search.BeamSearch", "init_args": {"beam_size": 0}}},
        {"search": {"class_path": "caption.search.BeamSearch", "init_args": {"beam_size": 2.5}}},
        {"search": {"class_path": "caption.search.BeamSearch", "init_args": {"max_length": 10**9}}},
        {"search": {"class_path": "caption.search.Greedy", "init_args": {"max_length": "30"}}},
    ],
    ids=str,
)
def test_parts_that_cannot_be_made_are_refused(changes: dict[str, Any], path: Path):
    with pytest.raises(CheckpointError, match="cannot be rebuilt"):
        checkpoint.load(changed(path, **changes))


@pytest.mark.parametrize("entry", ["encoder", "decoder", "vocabulary", "transform", "search"])
def test_a_missing_entry_is_named(entry: str, path: Path):
    with pytest.raises(CheckpointError, match=entry):
        checkpoint.load(rewrite(path, lambda contents: contents["captioner"].pop(entry)))


FIRST = "captioner.encoder.layers.0.weight"
MISFITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "one missing": (lambda state: state.pop(FIRST), "weights are missing: .*layers.0.weight"),
    "one too many": (
        lambda state: state.update({"captioner.surplus": torch.zeros(1)}),
        "not its own: .*surplus",
    ),
    "another shape": (lambda state: state.update({FIRST: state[FIRST][:1]}), r"is floating \(1, "),
    "no tensor": (lambda state: state.update({FIRST: "weights"}), "not a tensor|are sparse"),
    "complex": (lambda state: state.update({FIRST: state[FIRST].to(torch.complex64)}), "is torch.complex64"),
    "integer": (lambda state: state.update({FIRST: state[FIRST].long()}), "is integer"),
    "sparse": (lambda state: state.update({FIRST: state[FIRST].to_sparse()}), "not a tensor|are sparse"),
    "meta": (lambda state: state.update({FIRST: state[FIRST].to("meta")}), "not a tensor|are sparse"),
    "NaN": (lambda state: state.update({FIRST: state[FIRST] * torch.nan}), "infinity: the training"),
    "infinity": (lambda state: state.update({FIRST: state[FIRST] / 0}), "infinity: the training"),
}


@pytest.mark.parametrize(("change", "said"), MISFITS.values(), ids=MISFITS)
def test_weights_that_do_not_fit_are_refused(
    change: Callable[[dict[str, Any]], object], said: str, path: Path
):
    with pytest.raises(CheckpointError, match=said):
        checkpoint.load(rewrite(path, lambda contents: change(contents["state_dict"])))


def test_weights_that_are_a_list_are_refused(path: Path):
    with pytest.raises(CheckpointError, match="state_dict is not a dictionary"):
        checkpoint.load(rewrite(path, lambda contents: contents.update(state_dict=[1, 2])))
