"""Any torchvision CNN as an encoder: its grid, its weights, and its frozen modules."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_torchvision import TinyCNN
from torch import Tensor, nn
from torchvision import models

from caption.core.errors import CheckpointError, UserError
from caption.encoders import TorchvisionEncoder

pytestmark = pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning")


def noise(height: int = 64, width: int = 96, images: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (images, 3, height, width), dtype=torch.uint8, generator=generator)


def tiny(layer: str | list[str] = "features.5", **options: object) -> TorchvisionEncoder:
    """Stride 4 and 12 features at `features.5`, stride 8 and 16 features from `features.7` on."""
    torch.manual_seed(0)
    return TorchvisionEncoder("tiny_cnn", layer, **options)


@pytest.mark.parametrize(
    ("name", "layer", "size", "grid"),
    [("mobilenet_v2", "features", 1280, (2, 3)), ("squeezenet1_1", "features", 512, (3, 5))],
)
def test_any_model_gives_its_grid(name: str, layer: str, size: int, grid: tuple[int, int]):
    torch.manual_seed(0)
    encoder = TorchvisionEncoder(name, layer)
    assert encoder.training
    with torch.no_grad():
        (regions,) = encoder.eval()(noise())
    assert encoder.region_sizes == (size,)
    assert regions.grid == grid
    assert regions.vectors.shape == (1, grid[0] * grid[1], size)
    # Only what the layer needs is kept.
    assert not any(part in name for name in encoder.state_dict() for part in ("classifier", "fc."))


def test_layers_give_the_models_own_maps_a_view_each():
    torch.manual_seed(0)
    model = TinyCNN().eval()
    encoder = tiny(["features", "features.5"]).eval()
    encoder.trunk.load_state_dict({name: model.state_dict()[name] for name in encoder.trunk.state_dict()})
    mean, std = (
        torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    with torch.no_grad():
        fine = model.features[:6]((noise(images=2) / 255 - mean) / std)
        views = encoder(noise(images=2))
    assert encoder.region_sizes == (16, 12)
    assert [view.grid for view in views] == [(8, 12), (16, 24)]
    for view, expected in zip(views, (model.features[6:](fine), fine), strict=True):
        torch.testing.assert_close(view.vectors, expected.flatten(2).mT)
        # Region i is at row i // cols, column i % cols.
        torch.testing.assert_close(view.vectors.view(2, *view.grid, -1)[0, 5, 2], expected[0, :, 5, 2])


def test_a_requested_grid_is_averaged_from_each_layer():
    """A small version of the tutorial's 14x14 from 8x8: 5 rows from 4, of which the second touches old rows 0 and 1."""
    encoder, resized = tiny().eval(), tiny(["features.5", "features"], grid=(5, 2)).eval()
    with torch.no_grad():
        (old,), (new, other) = encoder(noise(16, 16)), resized(noise(16, 16))
    assert (old.grid, new.grid, other.grid) == ((4, 4), (5, 2), (5, 2))
    rows, cells = old.vectors.view(4, 4, -1), new.vectors.view(5, 2, -1)
    torch.testing.assert_close(cells[0, 0], rows[0, :2].mean(0))
    torch.testing.assert_close(cells[1, 1], rows[:2, 2:].mean((0, 1)))
    torch.testing.assert_close(cells[4, 0], rows[3, :2].mean(0))


def statistics(encoder: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in encoder.named_buffers()}


def changed(encoder: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in encoder.named_buffers() if not torch.equal(tensor, before[name])}


def test_a_frozen_encoder_stays_in_evaluation_mode_and_an_unfrozen_one_learns_again():
    encoder = tiny()
    encoder.freeze()
    owner = nn.Sequential(encoder, nn.Linear(1, 1))  # which a training loop switches to training mode
    for mode in (True, False, True):
        owner.train(mode)
        assert not any(module.training for module in encoder.modules())
    assert owner[1].training
    before = statistics(encoder)
    (regions,) = encoder(noise(images=2))
    assert not changed(encoder, before)
    assert not regions.vectors.requires_grad
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    # Lightning saves the flags of all modules before validation, and restores them without calling train().
    flags = {module: module.training for module in owner.modules()}
    owner.eval()
    for module, flag in flags.items():
        module.training = flag
    encoder.freeze(False)
    assert all(module.training for module in owner.modules())
    encoder(noise(images=2))[0].vectors.square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    assert any("running_mean" in name for name in changed(encoder, before))
    owner.eval()
    assert not any(module.training for module in encoder.modules())


def test_modules_before_finetune_from_stay_as_they_are():
    encoder = tiny("features", finetune_from="features.5")
    encoder.freeze()
    encoder.freeze(False)
    before = statistics(encoder)
    encoder(noise(images=2))[0].vectors.square().sum().backward()
    learning = {name for name, parameter in encoder.trunk.named_parameters() if parameter.grad is not None}
    assert {name.split(".")[1] for name in learning} == {"5", "7", "8", "10", "11"}
    assert {name.split(".")[2] for name in changed(encoder, before)} == {"5", "8", "11"}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda encoder: pickle.loads(pickle.dumps(encoder))])
@pytest.mark.parametrize("training", [False, True])
def test_a_copy_is_in_the_same_mode(
    copied: Callable[[TorchvisionEncoder], TorchvisionEncoder], training: bool
) -> None:
    encoder = tiny("features", finetune_from="features.5")
    encoder.train(training)
    other = copied(encoder)
    assert [module.training for module in other.modules()] == [
        module.training for module in encoder.modules()
    ]
    assert any(module.training for module in other.trunk.modules()) == training
    if not training:
        assert torch.equal(other(noise())[0].vectors, encoder(noise())[0].vectors)


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    torch.manual_seed(1)
    return TinyCNN().state_dict()


def test_weights_come_from_a_file_of_the_whole_model_or_of_its_beginning(
    state: dict[str, Tensor], tmp_path: Path
):
    late = ("features.7", "features.8", "features.10", "features.11", "fc")
    beginning = {
        name: tensor
        for name, tensor in state.items()
        if not name.startswith(late) and "num_batches" not in name  # converted files lack these tensors
    }
    for file, content in (("whole.pth", state), ("beginning.pth", beginning)):
        torch.save(content, tmp_path / file)
        encoder = tiny(weights=str(tmp_path / file))
        encoder.load_pretrained()
        for name, tensor in encoder.trunk.state_dict().items():
            assert torch.equal(tensor, state[name])


def test_construction_needs_no_weights_and_a_name_is_handed_to_torchvision(
    monkeypatch: pytest.MonkeyPatch,
):
    # A checkpoint has its own weights.
    encoder = tiny(weights="nowhere/weights.pth")
    assert encoder.spec["init_args"]["weights"] == "nowhere/weights.pth"
    with pytest.raises(CheckpointError, match=r"'nowhere/weights\.pth' does not exist"):
        encoder.load_pretrained()
    with pytest.raises(UserError, match=r"weights\.pth"):
        tiny(weights="weights.pth").load_pretrained()
    named, without = tiny(weights="DEFAULT"), tiny()
    for encoder in (named, without):
        encoder.load_pretrained()
    assert not any(tensor.any() for tensor in named.state_dict().values())
    assert any(tensor.any() for tensor in without.state_dict().values())

    def get_model(name: str, weights: str | None) -> nn.Module:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(models, "get_model", get_model)
    with pytest.raises(UserError, match="no route to host"):
        named.load_pretrained()


class Stranger:
    """Unpickling this object writes a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.canary,)


DAMAGED: dict[str, tuple[Callable[[dict[str, Tensor], Path], object], str]] = {
    "pickle": (lambda state, folder: {"weight": Stranger(folder / "canary")}, "not a state dict"),
    "lacking": (lambda state, _: {n: t for n, t in state.items() if "features.0" not in n}, "it lacks"),
    "other shapes": (lambda state, _: {n: t[..., None] for n, t in state.items()}, "is not for tiny_cnn"),
    "deeper model": (
        lambda state, _: {**state, "more.weight": torch.zeros(1)},
        "it has 1 tensor that the model does not have",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_file_of_other_weights_is_refused(kind: str, state: dict[str, Tensor], tmp_path: Path):
    content, message = DAMAGED[kind]
    path = tmp_path / f"{kind}.pth"
    torch.save(content(state, tmp_path), path)
    encoder = tiny(weights=str(path))
    before = copy.deepcopy(encoder.state_dict())
    with pytest.raises(CheckpointError, match=message) as caught:
        encoder.load_pretrained()
    assert str(path) in str(caught.value)
    assert not (tmp_path / "canary").exists()
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())


@pytest.mark.parametrize(
    ("name", "layer", "options", "message"),
    [
        ("vgg99", "features", {}, "no classification model named vgg99; similar: .*vgg19"),
        ("tiny_cnn", "layer9", {}, "has no layer layer9; its top-level layers are .*features"),
        ("tiny_cnn", ["features.4", "layer9"], {}, "tiny_cnn has no layer layer9; its"),
        ("tiny_cnn", "fc", {}, r"the layer fc of tiny_cnn has the output \(10,\), which is not a grid"),
        ("tiny_cnn", ["features", "flatten"], {}, "the layer flatten of tiny_cnn has the output"),
        ("tiny_cnn", "features.3", {"finetune_from": "features.4"}, "from module features.4 on: check"),
        ("tiny_cnn", "features.3", {"finetune_from": "feature"}, "from module feature on: check"),
        ("tiny_cnn", "features", {"grid": (0, 3)}, "is not a grid: give rows and columns"),
        ("tiny_cnn", "features", {"grid": (3,)}, "is not a grid: give rows and columns"),
    ],
)
def test_a_wrong_choice_is_named(name: str, layer: Any, options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        TorchvisionEncoder(name, layer, **options)


class Transformer(nn.Module):
    """Gives (B, rows, cols, features), as torchvision's Swin Transformers do."""

    only_size: int | None = None
    """Required, as by torchvision's Vision Transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 4, stride=4)
        self.out = nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        if self.only_size is not None:
            torch._assert(images.shape[2] == self.only_size, "wrong image height")
        return self.out(self.layer(images).permute(0, 2, 3, 1))


@pytest.mark.parametrize(("size", "message"), [(None, "is not a grid of"), (224, "images of any size")])
def test_transformers_are_refused(size: int | None, message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Transformer, "only_size", size)
    monkeypatch.setattr(TorchvisionEncoder, "whole_model", staticmethod(lambda *_: Transformer()))
    with pytest.raises(UserError, match=f"{message}.*: choose a convolutional"):
        TorchvisionEncoder("transformer", "out")
