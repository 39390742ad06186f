"""What is loaded equals, bit for bit, what is constructed with memory and then given the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import mechanisms, refiner_cases
from helpers.tiny_captioner import captioner, photo
from torch import Tensor, nn

from caption.captioner import Captioner
from caption.data.photos import ImageTransform
from caption.decoders import DeepOutput, InitialState, ShowAttendAndTellDecoder
from caption.encoders import EfficientNetLite, SeveralEncoders, SmallCNN, TimmEncoder, TorchvisionEncoder
from caption.encoders.base import Encoder
from caption.models import checkpoint
from caption.models.checkpoint.rebuild import rebuild
from caption.search import BeamSearch, Sampling


def tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers, also those that files lack, under all their names."""
    return dict(
        [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    )


def check_loaded(model: Captioner, path: Path) -> Captioner:
    checkpoint.save(model, path)
    before = torch.get_rng_state()
    loaded = checkpoint.load(path, trust="helpers")
    assert torch.equal(torch.get_rng_state(), before)
    assert not loaded.training
    assert loaded.description() == model.description()
    plain = rebuild(model.description(), trust="helpers").eval()
    plain.load_state_dict(loaded.state_dict())
    ours, theirs = tensors(loaded), tensors(plain)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        other = ours[name]
        assert (other.dtype, other.requires_grad) == (tensor.dtype, tensor.requires_grad), name
        assert other.stride() == tensor.stride(), name
        assert torch.equal(other, tensor), name
        same, others = ([key for key in each if each[key] is each[name]] for each in (ours, theirs))
        assert same == others  # tied weights
    saved = model.float().state_dict()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in loaded.state_dict().items())
    one, other = plain.describe(photo()), loaded.describe(photo())
    assert (one.words, one.log_prob) == (other.words, other.log_prob)
    assert (one.weights == other.weights).all()
    return loaded


NAMES = [*mechanisms.ATTENTIONS, *mechanisms.OWN, *mechanisms.DECODERS, *mechanisms.OWN_DECODERS]


@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism(name: str, tmp_path: Path):
    torch.use_deterministic_algorithms(False)
    check_loaded(mechanisms.captioner(mechanisms.decoder(name)).float(), tmp_path / "model.ckpt")


@pytest.mark.parametrize("name", [name for name, case in refiner_cases.CASES.items() if case.sizes == (6,)])
def test_every_refiner(name: str, tmp_path: Path):
    refiner = refiner_cases.CASES[name].make()
    check_loaded(captioner(refiner=refiner), tmp_path / "model.safetensors")


def timm_encoder(name: str) -> Encoder:
    pytest.importorskip("timm")
    return TimmEncoder(name, "features")


ENCODERS: dict[str, Callable[[], Encoder]] = {
    "torchvision": lambda: TorchvisionEncoder("squeezenet1_1", "features.3", mean=(0.5, 0.4, 0.3)),
    "batch norm": lambda: TorchvisionEncoder("shufflenet_v2_x0_5", "stage2"),
    "tables of positions": lambda: timm_encoder("swin_tiny_patch4_window7_224"),
    "tokens": lambda: timm_encoder("test_vit"),
    "efficientnet lite": lambda: EfficientNetLite("efficientnet_lite0"),
    "several": lambda: SeveralEncoders([SmallCNN((4, 4, 6)), SmallCNN((4, 4, 6))]),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ENCODERS)
def test_every_kind_of_encoder(kind: str, tmp_path: Path):
    torch.manual_seed(0)
    encoder = ENCODERS[kind]()
    decoder = mechanisms.decoder("pyramid_attention" if kind == "several" else "additive")
    check_loaded(captioner(ImageTransform(64), encoder=encoder, decoder=decoder), tmp_path / "model.ckpt")


def test_transform_search_and_tied_weights(tmp_path: Path):
    transform, search = ImageTransform((16, 32), "pad"), BeamSearch(2, 5, 0.7)
    check_loaded(captioner(transform, search), tmp_path / "wide.ckpt")
    check_loaded(captioner(search=Sampling(max_length=6, seed=3)), tmp_path / "sampling.safetensors")
    parts = {"readout": DeepOutput(dropout=0), "tie_weights": True}
    decoder = ShowAttendAndTellDecoder(mechanisms.scored(), 6, 7, InitialState(dropout=0), **parts)
    loaded = check_loaded(captioner(decoder=decoder), tmp_path / "model.ckpt")
    assert loaded.decoder.readout.to_words.weight is loaded.decoder.embed.weight
