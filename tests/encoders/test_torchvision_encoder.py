"""Any torchvision CNN as an encoder: its grid, its weights, and its frozen modules."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from caption.encoders import TorchvisionEncoder
from caption.encoders.base import PIECE
from caption.encoders.torchvision import IMAGENET_MEAN, IMAGENET_STD
from caption.errors import CheckpointError, UserError
from caption.parts import make

WEIGHTS = Path(__file__).resolve().parents[3] / "shared" / "weights" / "mobilenet_v2_imagenet_features.pth"
pytestmark = pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning")


def noise(height: int = 64, width: int = 96, images: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (images, 3, height, width), dtype=torch.uint8, generator=generator)


def lively(encoder: TorchvisionEncoder) -> TorchvisionEncoder:
    """Random weights whose layers all keep the scale of their inputs."""
    generator = torch.Generator().manual_seed(0)
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            fan_in = module.weight[0].numel()
            with torch.no_grad():
                module.weight.copy_(
                    torch.randn(module.weight.shape, generator=generator) * (2 / fan_in) ** 0.5
                )
    return encoder


@pytest.fixture(scope="module")
def small() -> TorchvisionEncoder:
    """Stride 4, 24 features, with BatchNorm."""
    return TorchvisionEncoder("shufflenet_v2_x0_5", "maxpool").eval()


# -- the grid ----------------------------------------------------------------------------------------------

GRIDS = [  # name, layer, features, rows and cols of a 64x96 image
    ("mobilenet_v2", "features", 1280, (2, 3)),
    ("resnet18", "layer3", 256, (4, 6)),
    ("vgg11", "features.10", 256, (8, 12)),
    ("squeezenet1_1", "features", 512, (3, 5)),
    ("shufflenet_v2_x0_5", "stage2", 48, (8, 12)),
]


@pytest.mark.parametrize(("name", "layer", "size", "grid"), GRIDS, ids=lambda value: str(value))
def test_any_model_gives_its_grid(name: str, layer: str, size: int, grid: tuple[int, int]):
    torch.manual_seed(0)
    encoder = TorchvisionEncoder(name, layer)
    assert encoder.training
    encoder.eval()
    with torch.no_grad():
        (regions,) = encoder(noise())
    assert encoder.region_sizes == (size,)
    assert regions.grid == grid
    assert regions.vectors.shape == (1, grid[0] * grid[1], size)
    # Only what the layer needs is kept.
    assert not any(part in name for name in encoder.state_dict() for part in ("classifier", "fc."))


def test_an_inner_layer_gives_the_models_own_output():
    torch.manual_seed(0)
    model = models.get_model("resnet18", weights=None).eval()
    encoder = TorchvisionEncoder("resnet18", "layer1").eval()
    encoder.trunk.load_state_dict({name: model.state_dict()[name] for name in encoder.trunk.state_dict()})
    images = (noise() / 255 - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(IMAGENET_STD).view(
        3, 1, 1
    )
    with torch.no_grad():
        expected = model.layer1(model.maxpool(model.relu(model.bn1(model.conv1(images)))))
        (regions,) = encoder(noise())
    torch.testing.assert_close(regions.vectors, expected.flatten(2).transpose(1, 2))
    # Region i is at row i // cols, column i % cols.
    rows, cols = regions.grid
    torch.testing.assert_close(regions.vectors.view(1, rows, cols, -1)[0, 5, 2], expected[0, :, 5, 2])


def test_several_layers_give_a_view_each():
    torch.manual_seed(0)
    together = TorchvisionEncoder("resnet18", ["layer3", "layer1"]).eval()
    assert together.region_sizes == (256, 64)
    with torch.no_grad():
        found = together(noise(images=2))
    assert [view.grid for view in found] == [(4, 6), (16, 24)]
    for layer, view in zip(("layer3", "layer1"), found, strict=True):
        alone = TorchvisionEncoder("resnet18", layer).eval()
        alone.trunk.load_state_dict(
            {name: together.state_dict()[f"trunk.{name}"] for name in alone.trunk.state_dict()}
        )
        with torch.no_grad():
            (expected,) = alone(noise(images=2))
        assert view.grid == expected.grid
        torch.testing.assert_close(view.vectors, expected.vectors)


def test_several_layers_are_put_together_again_from_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    encoder = TorchvisionEncoder("shufflenet_v2_x0_5", ["maxpool", "stage2"]).eval()
    images = noise(32, 32, images=PIECE + 1)
    whole = encoder(images)
    with torch.no_grad():
        for view, expected in zip(encoder(images), whole, strict=True):
            torch.testing.assert_close(view.vectors, expected.vectors)


def test_several_layers_are_averaged_to_one_grid_and_made_again_from_the_spec():
    encoder = TorchvisionEncoder("shufflenet_v2_x0_5", ["maxpool", "stage2"], grid=(3, 2)).eval()
    again = make(encoder.spec, TorchvisionEncoder).eval()
    again.load_state_dict(encoder.state_dict())
    with torch.no_grad():
        for view, expected in zip(again(noise()), encoder(noise()), strict=True):
            assert view.grid == (3, 2)
            assert torch.equal(view.vectors, expected.vectors)


def test_of_several_layers_the_one_that_gives_no_grid_is_named():
    with pytest.raises(UserError, match="the layer flatten of resnet18 gives"):
        TorchvisionEncoder("resnet18", ["layer4", "flatten"])
    with pytest.raises(UserError, match="resnet18 has no layer layer9; its"):
        TorchvisionEncoder("resnet18", ["layer4", "layer9"])


@pytest.mark.parametrize("cell", [(0, 0), (0, 11), (7, 0), (3, 8)], ids=str)
def test_a_bright_spot_moves_the_region_it_lies_in(cell: tuple[int, int]):
    encoder = lively(TorchvisionEncoder("shufflenet_v2_x0_5", "maxpool")).eval()  # 16x24 cells of 4 pixels
    row, col = cell
    dark = torch.full((1, 3, 64, 96), 40, dtype=torch.uint8)
    bright = dark.clone()
    bright[..., 8 * row : 8 * row + 8, 8 * col : 8 * col + 8] = 255
    with torch.no_grad():
        moved = (encoder(bright)[0].vectors - encoder(dark)[0].vectors).norm(dim=-1)
    shares = moved.view(16, 24) / moved.sum()
    middle = [(shares.sum(1) * torch.arange(16)).sum() + 0.5, (shares.sum(0) * torch.arange(24)).sum() + 0.5]
    assert tuple(int(coordinate / 2) for coordinate in middle) == cell


def test_a_requested_grid_is_averaged_from_the_layers(small: TorchvisionEncoder):
    """A small version of the tutorial's 14x14 from 8x8: 5 rows from 4, of which the second touches old rows 0 and 1."""
    resized = TorchvisionEncoder("shufflenet_v2_x0_5", "maxpool", grid=(5, 2)).eval()
    resized.load_state_dict(small.state_dict())
    with torch.no_grad():
        (old,), (new,) = small(noise(16, 16)), resized(noise(16, 16))
    assert (old.grid, new.grid) == ((4, 4), (5, 2))
    rows, cells = old.vectors.view(4, 4, -1), new.vectors.view(5, 2, -1)
    torch.testing.assert_close(cells[0, 0], rows[0, :2].mean(0))
    torch.testing.assert_close(cells[1, 1], rows[:2, 2:].mean((0, 1)))
    torch.testing.assert_close(cells[4, 0], rows[3, :2].mean(0))


def test_a_model_with_a_grid_is_made_again_from_its_spec():
    spec = TorchvisionEncoder("shufflenet_v2_x0_5", "maxpool", grid=(5, 2)).spec
    again = make(spec, TorchvisionEncoder).eval()
    assert again(noise(16, 16))[0].grid == (5, 2)


@pytest.mark.parametrize("grid", [(0, 3), (3,), (1, 2, 3)])
def test_a_grid_that_is_none_is_refused(grid: tuple[int, ...]):
    with pytest.raises(UserError, match="is not a grid: give rows and columns"):
        TorchvisionEncoder("shufflenet_v2_x0_5", "maxpool", grid=grid)


# -- normalisation -----------------------------------------------------------------------------------------


def test_pixels_are_normalised_channel_by_channel(small: TorchvisionEncoder):
    pixels = torch.tensor([255, 0, 51], dtype=torch.uint8).view(1, 3, 1, 1)
    expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225]
    torch.testing.assert_close(small.normalise(pixels).flatten(), torch.tensor(expected))


def test_mean_and_std_can_be_given():
    encoder = TorchvisionEncoder("shufflenet_v2_x0_5", "maxpool", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.25))
    pixels = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)
    torch.testing.assert_close(encoder.normalise(pixels).flatten(), torch.tensor([1.0, -1.0, -2.0]))


# -- frozen and unfrozen -----------------------------------------------------------------------------------


def statistics(encoder: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in encoder.named_buffers()}


def with_batch_norm(finetune_from: str | None = None) -> TorchvisionEncoder:
    torch.manual_seed(0)
    return TorchvisionEncoder("mobilenet_v3_small", "features.3", finetune_from=finetune_from)


@pytest.fixture
def owner() -> nn.Sequential:
    """The owner of the encoder, which a training loop switches to training mode."""
    encoder = with_batch_norm()
    encoder.freeze()
    return nn.Sequential(encoder, nn.Linear(1, 1))


def test_a_frozen_encoder_stays_in_evaluation_mode(owner: nn.Sequential):
    encoder = owner[0]
    for mode in (True, False, True):
        owner.train(mode)
        assert not any(module.training for module in encoder.modules())
    assert owner[1].training


def test_a_frozen_encoder_keeps_its_statistics(owner: nn.Sequential):
    owner.train()
    before = statistics(owner[0])
    for seed in range(2):
        owner[0](noise(images=2) // (seed + 1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in owner[0].named_buffers())


def test_a_frozen_encoder_computes_no_gradients(owner: nn.Sequential):
    (regions,) = owner[0](noise())
    assert not regions.vectors.requires_grad
    assert not any(parameter.requires_grad for parameter in owner[0].parameters())


def test_a_thawed_encoder_learns_again(owner: nn.Sequential):
    owner.train()
    encoder = owner[0]
    encoder.freeze(False)
    assert all(module.training for module in encoder.modules())
    before = statistics(encoder)
    encoder(noise(images=2))[0].vectors.square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    drifted = [name for name, tensor in encoder.named_buffers() if not torch.equal(tensor, before[name])]
    assert any("running_mean" in name for name in drifted)
    owner.eval()
    assert not any(module.training for module in encoder.modules())


def test_thawing_works_after_modes_were_restored_by_hand(owner: nn.Sequential):
    # Like Lightning around validation: it saves the flags of all modules and restores them without calling
    # train().
    flags = {module: module.training for module in owner.train().modules()}
    owner.eval()
    for module, flag in flags.items():
        module.training = flag
    owner[0].freeze(False)
    assert all(module.training for module in owner[0].modules())


def test_an_encoder_that_was_never_frozen_keeps_its_mode():
    encoder = with_batch_norm().eval()
    encoder.freeze(False)
    assert not encoder.training


def test_evaluation_without_gradients_stays_without(owner: nn.Sequential):
    owner[0].freeze(False)
    with torch.no_grad():
        assert not owner[0](noise())[0].vectors.requires_grad


# -- fine-tuning from a module on --------------------------------------------------------------------------


def test_modules_before_finetune_from_stay_as_they_are():
    encoder = with_batch_norm(finetune_from="features.2")
    encoder.freeze()
    encoder.freeze(False)
    encoder.train()
    before = statistics(encoder)
    encoder(noise(images=2))[0].vectors.square().sum().backward()
    learning = {name for name, parameter in encoder.trunk.named_parameters() if parameter.grad is not None}
    late = ("features.2.", "features.3.")
    assert learning == {name for name, _ in encoder.trunk.named_parameters() if name.startswith(late)}
    drifted = {name for name, tensor in encoder.named_buffers() if not torch.equal(tensor, before[name])}
    assert drifted
    assert {name.split(".")[2] for name in drifted} == {"2", "3"}


def test_finetune_from_means_nothing_to_a_frozen_encoder():
    encoder = with_batch_norm(finetune_from="features.2")
    encoder.freeze()
    encoder.train()
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert not any(module.training for module in encoder.modules())


def first_to_learn(layer: str, finetune_from: str) -> str:
    encoder = TorchvisionEncoder("squeezenet1_1", layer, finetune_from=finetune_from)
    encoder.freeze(False)
    return next(name for name, parameter in encoder.trunk.named_parameters() if parameter.requires_grad)


def test_finetuning_may_start_at_a_module_without_weights():
    # Of squeezenet's features, 1 is a ReLU, 2 a pool, 3 the next with weights; and 1 is not 10 or 11.
    assert first_to_learn("features.12", "features.1").startswith("features.3.")
    assert first_to_learn("features.4", "features.4.squeeze").startswith("features.4.squeeze.")
    assert first_to_learn("features.4", "features").startswith("features.0.")


@pytest.mark.parametrize("start", ["features.5", "feature", "features.3.squeeze.weights"])
def test_finetuning_must_start_before_the_layer(start: str):
    with pytest.raises(UserError, match=f"from module {start} on: check finetune_from"):
        TorchvisionEncoder("squeezenet1_1", "features.3", finetune_from=start)


# -- weights -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    torch.manual_seed(1)
    return models.get_model("shufflenet_v2_x0_5", weights=None).state_dict()


def reading(path: Path | str, name: str = "shufflenet_v2_x0_5", layer: str = "stage2") -> TorchvisionEncoder:
    return TorchvisionEncoder(name, layer, weights=str(path))


def test_weights_come_from_a_file_of_the_whole_model_or_of_its_beginning(
    state: dict[str, Tensor], tmp_path: Path
):
    beginning = {
        name: tensor
        for name, tensor in state.items()
        if name.startswith(("conv1", "stage2"))
        and "num_batches" not in name  # converted files lack these tensors
    }
    for file, content in (("whole.pth", state), ("beginning.pth", beginning)):
        torch.save(content, tmp_path / file)
        encoder = reading(tmp_path / file)
        encoder.load_pretrained()
        for name, tensor in encoder.trunk.state_dict().items():
            assert torch.equal(tensor, state[name])


def test_construction_does_not_need_the_file():
    # A checkpoint has its own weights.
    encoder = reading("nowhere/weights.pth")
    assert encoder.spec["init_args"]["weights"] == "nowhere/weights.pth"
    with pytest.raises(CheckpointError, match=r"there is no file nowhere/weights\.pth"):
        encoder.load_pretrained()


def test_without_weights_nothing_is_loaded(small: TorchvisionEncoder):
    small.weights = None
    before = {name: tensor.clone() for name, tensor in small.state_dict().items()}
    small.load_pretrained()
    assert all(torch.equal(tensor, before[name]) for name, tensor in small.state_dict().items())


def test_a_name_is_handed_to_torchvision(monkeypatch: pytest.MonkeyPatch, state: dict[str, Tensor]):
    encoder = reading("IMAGENET1K_V1")
    asked = []

    def get_model(name: str, weights: str | None) -> nn.Module:
        asked.append((name, weights))
        model = models.shufflenet_v2_x0_5()
        model.load_state_dict(state)
        return model

    monkeypatch.setattr(models, "get_model", get_model)
    encoder.load_pretrained()
    assert asked == [("shufflenet_v2_x0_5", "IMAGENET1K_V1")]
    assert torch.equal(encoder.trunk.state_dict()["conv1.0.weight"], state["conv1.0.weight"])


@pytest.mark.parametrize("name", ["weights.pth", "NOPE"])
def test_a_name_that_is_neither_file_nor_weights_is_refused(name: str):
    with pytest.raises(UserError, match=f"{name} names neither a file nor weights"):
        reading(name).load_pretrained()


def test_a_failed_download_names_the_remedy(monkeypatch: pytest.MonkeyPatch):
    encoder = reading("DEFAULT")

    def get_model(name: str, weights: str | None) -> nn.Module:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(models, "get_model", get_model)
    with pytest.raises(UserError, match=r"could not be downloaded \(no route to host\); give the path"):
        encoder.load_pretrained()


class Stranger:
    """Unpickling this object writes a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.canary,)


def damaged(folder: Path, kind: str, state: dict[str, Tensor]) -> Path:
    path = folder / f"{kind}.pth"
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("not weights at all\n")
    elif kind == "empty":
        path.touch()
    elif kind == "truncated":
        torch.save(state, path)
        path.write_bytes(path.read_bytes()[:5000])
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"weight": Stranger(folder / "canary")}, protocol=2))
    elif kind == "module":
        torch.save(nn.Linear(1, 1), path)
    elif kind == "list":
        torch.save([torch.zeros(1)], path)
    elif kind == "nested":
        torch.save({"state_dict": state}, path)
    elif kind == "no tensors":
        torch.save({}, path)
    elif kind == "other model":
        torch.save(nn.Linear(1, 1).state_dict(), path)
    elif kind == "lacking":
        torch.save({name: tensor for name, tensor in state.items() if "conv1.1" not in name}, path)
    elif kind == "other shapes":
        torch.save({name: tensor[..., None] for name, tensor in state.items()}, path)
    elif kind == "deeper model":
        torch.save({**state, "stage2.9.branch2.0.weight": torch.zeros(1)}, path)
    return path


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("folder", "not a state dict"),
        ("text", "not a state dict"),
        ("empty", "not a state dict"),
        ("truncated", "not a state dict"),
        ("pickle", "not a state dict"),
        ("module", "not a state dict"),
        ("list", "no state dict of tensors"),
        ("nested", "no state dict of tensors"),
        ("no tensors", "no state dict of tensors"),
        ("other model", "is not for shufflenet_v2_x0_5"),
        ("lacking", "is not for shufflenet_v2_x0_5: it lacks"),
        ("other shapes", "is not for shufflenet_v2_x0_5"),
        ("deeper model", "is not for shufflenet_v2_x0_5: it has 1 tensors too many"),
    ],
)
def test_a_file_of_other_weights_is_refused(
    kind: str, said: str, state: dict[str, Tensor], tmp_path: Path, small: TorchvisionEncoder
):
    path = damaged(tmp_path, kind, state)
    small.weights = str(path)
    before = {name: tensor.clone() for name, tensor in small.state_dict().items()}
    with pytest.raises(CheckpointError, match=said) as caught:
        small.load_pretrained()
    assert str(path) in str(caught.value)
    assert not (tmp_path / "canary").exists()
    assert all(torch.equal(tensor, before[name]) for name, tensor in small.state_dict().items())


@pytest.mark.skipif(not WEIGHTS.exists(), reason=f"no weights in {WEIGHTS.parent}")
def test_mobilenet_weights_load_and_tell_images_apart():
    encoder = TorchvisionEncoder(
        "mobilenet_v2", "features", weights=str(WEIGHTS), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
    )
    encoder.load_pretrained()
    encoder.freeze()
    (regions,) = encoder(torch.cat((noise(224, 224), torch.full((1, 3, 224, 224), 255, dtype=torch.uint8))))
    assert regions.grid == (7, 7)
    assert regions.vectors.shape == (2, 49, 1280)
    assert (regions.vectors[0] - regions.vectors[1]).abs().mean() > 0.05


# -- wrong choices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "layer", "said"),
    [
        ("vgg99", "features", "no classification model named vgg99; similar: .*vgg19"),
        ("resnet18", "layer9", "has no layer layer9; its top-level layers are .*layer4"),
        ("resnet18", "fc", r"the layer fc of resnet18 gives \(1000,\) for an image, which is not a grid"),
    ],
)
def test_a_wrong_model_or_layer_is_named(name: str, layer: str, said: str):
    with pytest.raises(UserError, match=said):
        TorchvisionEncoder(name, layer)


class FeaturesLast(nn.Module):
    """Gives (B, rows, cols, features), as torchvision's Swin Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 4, stride=4)
        self.out = nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return self.out(self.layer(images).permute(0, 2, 3, 1))


class OneSize(FeaturesLast):
    """Requires a fixed image size, like torchvision's Vision Transformers."""

    def forward(self, images: Tensor) -> Tensor:
        torch._assert(images.shape[2] == 224, "wrong image height")
        return self.out(self.layer(images))


@pytest.mark.parametrize(
    ("model", "said"), [(FeaturesLast, "is not a grid of"), (OneSize, "images of any size")]
)
def test_transformers_are_refused(model: type[nn.Module], said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TorchvisionEncoder, "whole_model", staticmethod(lambda name, weights: model()))
    with pytest.raises(UserError, match=f"{said}.*: choose a convolutional"):
        TorchvisionEncoder("transformer", "out")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda encoder: pickle.loads(pickle.dumps(encoder))])
@pytest.mark.parametrize("training", [False, True])
def test_a_copy_is_in_the_same_mode(
    copied: Callable[[TorchvisionEncoder], TorchvisionEncoder], training: bool
) -> None:
    encoder = TorchvisionEncoder("mobilenet_v2", "features.2", weights=None, finetune_from="features.1")
    encoder.train(training)
    made = copied(encoder)
    assert [m.training for m in made.modules()] == [m.training for m in encoder.modules()]
    assert any(m.training for m in made.trunk.modules()) == training
    if not training:
        images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
        torch.testing.assert_close(made(images)[0].vectors, encoder(images)[0].vectors, rtol=0, atol=0)
