"""The base class of encoders cut from a library's pretrained models: weights and normalisation."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.core.errors import CheckpointError, UserError, number_of, reported_as
from caption.encoders.base import Encoder
from caption.encoders.fine_tuning import modules_before
from caption.encoders.weights import read_state, weights_file


class PretrainedEncoder(Encoder):
    """Base class of encoders whose trunk is the beginning of a library's model.

    Args:
        name: the library's name of the model.
        trunk: the part of the model that is kept.
        names_of_whole: names of the tensors of the whole model, which files of weights may contain.
        weights, mean, std, finetune_from, grid: see `TorchvisionEncoder`.

    Raises:
        UserError: `grid` is not a grid, or the trunk has no weights from `finetune_from` on.
    """

    def __init__(
        self,
        name: str,
        trunk: nn.Module,
        names_of_whole: Collection[str],
        weights: str | None,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        finetune_from: str | None,
        grid: tuple[int, int] | None,
    ) -> None:
        super().__init__()
        if grid is not None and (len(grid) != 2 or min(grid) < 1):
            raise UserError(f"grid {list(grid)} is not a grid: give rows and columns, each 1 or more")
        self.model_name = name
        self.trunk = trunk
        self.names_of_whole = frozenset(names_of_whole)
        self.weights = weights
        self.finetune_from = finetune_from
        self.grid = grid
        self.mean: Tensor
        self.std: Tensor
        # Files do not contain them, so they need memory even if the model is constructed on the meta device.
        device = "cpu" if torch.get_default_device().type == "meta" else None
        self.register_buffer("mean", torch.tensor(mean, device=device).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, device=device).view(3, 1, 1), persistent=False)
        fixed = self.fixed_modules()
        trained = [
            p for module in trunk.modules() if module not in fixed for p in module.parameters(recurse=False)
        ]
        if finetune_from is not None and not trained:
            raise UserError(
                f"{name} has no weights from module {finetune_from} on: check finetune_from and layer"
            )

    def normalise(self, images: Tensor) -> Tensor:
        return (images / 255 - self.mean) / self.std

    def maps(self, images: Tensor) -> tuple[Tensor, ...]:
        """Normalised images (B, 3, H, W) -> the map (B, D, rows, cols) of each requested layer."""
        raise NotImplementedError

    def features(self, images: Tensor) -> tuple[Tensor, ...]:
        # Convolutions on CPUs take a tenth to a third less time in this layout, and the regions are read in it.
        maps = self.maps(images.contiguous(memory_format=torch.channels_last))
        if self.grid is None:
            return maps
        if torch.compiler.is_exporting():  # ONNX has no pooling to uneven cells in the other layout
            maps = tuple(view.contiguous() for view in maps)
        return tuple(functional.adaptive_avg_pool2d(view, self.grid) for view in maps)

    def fixed_modules(self) -> set[nn.Module]:
        """The trunk's modules before `finetune_from`."""
        return set() if self.finetune_from is None else modules_before(self.trunk, self.finetune_from)

    # -- weights --------------------------------------------------------------------------------------------------

    def load_pretrained(self) -> None:
        if self.weights is not None:
            self.load_weights(self.pretrained_state(), self.weights)

    def pretrained_state(self) -> dict[str, Tensor]:
        """The state dict that `weights` names, by the library's names; {} without weights."""
        if self.weights is None:
            return {}
        file = weights_file(self.weights, self.trust)
        return self.named_weights(self.weights) if file is None else read_state(file)

    def whole(self) -> nn.Module:
        """The library's whole model with its classifier and random weights."""
        raise NotImplementedError

    def expected_normalisation(self) -> tuple[Sequence[float], Sequence[float]] | None:
        """Mean and std of the images that the pretrained weights were trained on; None if they are not known."""
        return None

    def named_weights(self, weights: str) -> dict[str, Tensor]:
        """The state dict of the whole model with the library's weights of that name.

        Raises:
            UserError: the library has no such weights.
        """
        raise NotImplementedError

    def load_weights(self, state: dict[str, Tensor], source: str) -> None:
        """Load a state dict of the whole model, or of its first layers.

        Args:
            state: tensors by the library's names.
            source: their origin, for messages.

        Raises:
            CheckpointError: they belong to another model; nothing is loaded then.
        """
        unknown = state.keys() - self.names_of_whole
        if unknown:
            raise CheckpointError(
                f"{source} is not for {self.model_name}: it has {number_of(len(unknown), 'tensor')} that the model "
                f"does not have, such as {min(unknown)}"
            )
        missing = [name for name in self.trunk.state_dict() if name not in state]
        missing = [name for name in missing if not name.endswith("num_batches_tracked")]
        if missing:
            raise CheckpointError(
                f"{source} is not for {self.model_name}: it lacks {number_of(len(missing), 'tensor')}, "
                f"such as {missing[0]}"
            )
        with reported_as(CheckpointError, f"{source} is not for {self.model_name}", RuntimeError):
            self.trunk.load_state_dict(
                {n: state[n] for n in self.trunk.state_dict() if n in state}, strict=False
            )
