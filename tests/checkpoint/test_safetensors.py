"""A captioner in one safetensors file, with its description in the header."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from helpers.tiny_captioner import captioner
from safetensors import safe_open

import caption
from caption import checkpoint
from caption.errors import UserError
from caption.models import model_zoo


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_other_programs_read_the_tensors_and_the_description(path: Path):
    model = captioner()
    checkpoint.save(model, path)
    with safe_open(path, "np") as file:
        header = file.metadata()
        assert set(file.keys()) == set(model.state_dict())
    assert header["format"] == "pt"
    described = json.loads(header["captioner"])
    assert described.pop("version")
    assert described == {"format": checkpoint.FORMAT, **model.description()}


def test_half_precision_halves_the_matrices_and_keeps_the_vectors(path: Path):
    model = captioner()
    for file in (path, path.with_suffix(".ckpt")):
        checkpoint.save(model, file, "float16")
        written, loaded = checkpoint.read(file)["state_dict"], checkpoint.load(file).state_dict()
        for name, tensor in model.state_dict().items():
            is_matrix = tensor.ndim > 1 and tensor.is_floating_point()
            assert written[f"captioner.{name}"].dtype == (torch.float16 if is_matrix else tensor.dtype)
            assert torch.equal(loaded[name], tensor.half().float() if is_matrix else tensor), name


def test_weights_out_of_range_are_named(path: Path):
    model = captioner()
    with torch.no_grad():
        next(p for p in model.parameters() if p.ndim > 1).view(-1)[0] = 1e5
    with pytest.raises(UserError, match="do not fit into float16: choose bfloat16"):
        checkpoint.save(model, path, "float16")
    checkpoint.save(model, path, "bfloat16")


def test_weights_that_share_memory_are_written_twice(path: Path):
    model = captioner()
    gates = model.decoder.readout.to_words
    gates.bias = torch.nn.Parameter(gates.weight.detach()[:, 0])
    checkpoint.save(model, path)
    assert torch.equal(checkpoint.load(path).state_dict()["decoder.readout.to_words.bias"], gates.bias)


def test_an_installed_model_may_be_a_safetensors_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "models").mkdir()
    model = captioner()
    checkpoint.save(model, tmp_path / "models" / "small.safetensors", "float16")
    checkpoint.save(model, tmp_path / "models" / "other.ckpt")
    monkeypatch.setattr(model_zoo, "files", lambda package: tmp_path)
    assert model_zoo.installed_models() == ["other", "small"]
    for name in ("other", "small"):
        assert caption.load(name).description() == model.description()
