"""Checkpoints, also as safetensors files: what they hold, and which files are refused."""

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
from safetensors import safe_open
from torch import nn

from caption.captioner import Captioner
from caption.core.errors import CheckpointError, UserError
from caption.core.version import package_version
from caption.models import checkpoint
from caption.models.checkpoint import FORMAT


@pytest.fixture(scope="module")
def model() -> Captioner:
    return captioner()


@pytest.fixture
def path(model: Captioner, tmp_path: Path) -> Path:
    checkpoint.save(model, tmp_path / "model.ckpt")
    return tmp_path / "model.ckpt"


# -- what they hold ----------------------------------------------------------------------------------------


def test_it_holds_tensors_and_plain_values_alone(path: Path, model: Captioner, tmp_path: Path):
    contents = torch.load(path, weights_only=True)
    assert all(name.startswith("captioner.") for name in contents["state_dict"])
    described = {"format": FORMAT, "version": package_version(), **model.description()}
    assert json.loads(json.dumps(contents["captioner"])) == contents["captioner"] == described
    checkpoint.save(model, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "np") as file:  # as other programs read it
        header = file.metadata()
        assert set(file.keys()) == set(model.state_dict())
    assert (header["format"], json.loads(header["captioner"])) == ("pt", described)


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_half_precision_halves_the_matrices_and_keeps_the_vectors(tmp_path: Path, suffix: str):
    model, path = captioner(), tmp_path / f"model{suffix}"
    checkpoint.save(model, path, "float16")
    written, loaded = checkpoint.read(path)["state_dict"], checkpoint.load(path).state_dict()
    for name, tensor in model.state_dict().items():
        is_matrix = tensor.ndim > 1 and tensor.is_floating_point()
        assert written[f"captioner.{name}"].dtype == (torch.float16 if is_matrix else tensor.dtype)
        assert torch.equal(loaded[name], tensor.half().float() if is_matrix else tensor), name
    with torch.no_grad():
        next(p for p in model.parameters() if p.ndim > 1).view(-1)[0] = 1e5
    with pytest.raises(UserError, match=r"float16.*bfloat16"):
        checkpoint.save(model, path, "float16")
    checkpoint.save(model, path, "bfloat16")


def test_weights_that_share_memory_are_written_twice_to_safetensors(tmp_path: Path):
    model = captioner()
    words = model.decoder.readout.to_words
    words.bias = nn.Parameter(words.weight.detach()[:, 0])
    checkpoint.save(model, tmp_path / "x.safetensors")
    state = checkpoint.load(tmp_path / "x.safetensors").state_dict()
    assert torch.equal(state["decoder.readout.to_words.bias"], words.bias)


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
    "half": (lambda path, trap: path.write_bytes(path.read_bytes()[:9000]), "damaged"),
    "no beginning": (lambda path, trap: path.write_bytes(path.read_bytes()[100:]), "not a checkpoint"),
    "bare pickle": (lambda path, trap: path.write_bytes(pickle.dumps(trap)), "a bare pickle"),
    "pickled object": (lambda path, trap: torch.save({"state_dict": {}, "captioner": trap}, path), PICKLED),
    "other zip": (lambda path, trap: other_zip(path), "damaged or not a checkpoint"),
    "state dict": (lambda path, trap: torch.save({"x": torch.zeros(2)}, path), f"{OTHERS}: it holds 'x'; "),
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


ENCODERS, SEARCHES = "caption.encoders.", "caption.search."
CANNOT = "cannot be rebuilt"
CHANGES: list[tuple[str, Any, str]] = [
    ("format", 1, f"format 1, .*version {package_version()} of this package"),
    ("search", None, "search"),
    ("encoder", None, "encoder"),
    ("vocabulary", {"tokenizer_version": "old"}, "version old of the tokenizer 'ptb'"),
    ("vocabulary", {"tokenizer": "nonesuch"}, "nonesuch"),
    ("vocabulary", {"words": ["a", "a"]}, CANNOT),
    ("vocabulary", {"words": [1, 2, 3, 4, 5]}, CANNOT),
    ("encoder", {"class_path": f"{ENCODERS}Nonesuch", "init_args": {}}, CANNOT),
    ("encoder", {"init_args": {"depth": 3}}, CANNOT),
    ("encoder", {"init_args": {"widths": [4, 4, 7]}}, CANNOT),
    ("decoder", {"init_args": {"attention": None}}, CANNOT),
    ("transform", {"size": 0}, CANNOT),
    ("transform", {"size": 10**9}, CANNOT),
    ("transform", {"fit": "stretch"}, CANNOT),
    ("search", {"init_args": {"beam_size": 0}}, CANNOT),
    ("search", {"init_args": {"max_length": 10**9}}, CANNOT),
    ("search", {"class_path": f"{SEARCHES}Greedy", "init_args": {"max_length": "30"}}, CANNOT),
]


@pytest.mark.parametrize(("entry", "change", "said"), CHANGES, ids=str)
def test_descriptions_of_which_nothing_can_be_made(entry: str, change: Any, said: str, path: Path):
    def apply(contents: dict[str, Any]) -> None:
        described = contents["captioner"]
        described[entry] = described[entry] | change if isinstance(change, dict) else change
        if change is None:
            del described[entry]

    with pytest.raises(CheckpointError, match=said):
        checkpoint.load(rewrite(path, apply))


@pytest.mark.parametrize("entry", ["encoder", "search", "score"])
def test_classes_that_are_not_parts_are_refused(entry: str, path: Path, canary: Path):
    spec = {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", str(canary)]}}

    def apply(contents: dict[str, Any]) -> None:
        of_decoder = contents["captioner"]["decoder"]["init_args"]
        (of_decoder["attention"]["init_args"] if entry == "score" else contents["captioner"])[entry] = spec

    with pytest.raises(CheckpointError, match=r"subprocess\.Popen is not a subclass of"):
        checkpoint.load(rewrite(path, apply))
    assert not canary.exists()


FIRST = "captioner.encoder.layers.0.weight"
MISFITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "one missing": (lambda state: state.pop(FIRST), "weights are missing: .*layers.0.weight"),
    "one too many": (lambda state: state.update({"captioner.x": torch.zeros(1)}), "do not belong to it: .*x"),
    "another shape": (lambda state: state.update({FIRST: state[FIRST][:1]}), r"is floating \(1, "),
    "no tensor": (lambda state: state.update({FIRST: "weights"}), "not a tensor"),
    "complex": (lambda state: state.update({FIRST: state[FIRST].to(torch.complex64)}), "is torch.complex64"),
    "integer": (lambda state: state.update({FIRST: state[FIRST].long()}), "is integer"),
    "sparse": (lambda state: state.update({FIRST: state[FIRST].to_sparse()}), "are sparse"),
    "meta": (lambda state: state.update({FIRST: state[FIRST].to("meta")}), "not a tensor|are sparse"),
    "NaN": (lambda state: state.update({FIRST: state[FIRST] * torch.nan}), "infinity: the training"),
    "infinity": (lambda state: state.update({FIRST: state[FIRST] / 0}), "infinity: the training"),
}


@pytest.mark.parametrize(("change", "said"), MISFITS.values(), ids=MISFITS)
def test_weights_that_do_not_fit(change: Callable[[dict[str, Any]], object], said: str, path: Path):
    with pytest.raises(CheckpointError, match=said):
        checkpoint.load(rewrite(path, lambda contents: change(contents["state_dict"])))


def test_weights_that_are_a_list_are_refused(path: Path):
    with pytest.raises(CheckpointError, match="state_dict is not a dictionary"):
        checkpoint.load(rewrite(path, lambda contents: contents.update(state_dict=[1, 2])))
