"""The initial state of a recurrent cell: c[0] = f_init,c(mean a), h[0] = f_init,h(mean a) (section 3.1.2), or a learned
constant."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from caption.attention.options import at_least_one
from caption.core.parts import Part
from caption.core.regions import Regions, mean_region


class Initial(Part, nn.Module):
    """Base class: the initial state of a recurrent cell."""

    def build(self, region_size: int, hidden_size: int, states: tuple[str, ...] = ("hidden", "cell")) -> None:
        """Create the weights for the vectors of the state, see `RecurrentCell.states`. Called once."""
        raise NotImplementedError

    def forward(self, regions: Regions) -> tuple[Tensor, ...]:
        """The first view of B images -> the vectors of the state, such as h[0] and c[0], each (B, 1, H)."""
        raise NotImplementedError


class ConstantState(Initial):
    """The same learned vectors h[0] and c[0] for all images.

    With `InitialState`, the decoder gets the mean region before it attends to any region. With a constant state, all
    information about the image passes through attention, which suits studies of attention.
    """

    def build(self, region_size: int, hidden_size: int, states: tuple[str, ...] = ("hidden", "cell")) -> None:
        self.states = states
        for name in states:
            setattr(self, name, nn.Parameter(torch.zeros(hidden_size)))

    def forward(self, regions: Regions) -> tuple[Tensor, ...]:
        shape = (regions.vectors.shape[0], 1, -1)
        return tuple(getattr(self, name).expand(shape) for name in self.states)


class InitialState(Initial):
    """An MLP on the mean region for each of h[0] and c[0].

    Args:
        layers: affine layers of each MLP, with ReLU and dropout between them.
        activation: of the last layer; "tanh" as in the authors' code, or "linear".
        dropout: between the layers.
        shared: whether the MLPs share all layers but the last, as in the authors' code.

    Raises:
        UserError: the activation is unknown.
        UserError: `layers` is below 1.
    """

    def __init__(
        self,
        layers: int = 1,
        activation: Literal["tanh", "linear"] = "tanh",
        dropout: float = 0.5,
        shared: bool = False,
    ) -> None:
        super().__init__()
        at_least_one(self, layers=layers)
        self.layers = layers
        self.activation = activation
        self.dropout = dropout
        self.shared = shared

    def build(self, region_size: int, hidden_size: int, states: tuple[str, ...] = ("hidden", "cell")) -> None:
        self.states = states
        self.trunk = nn.Sequential(*(self._inner(region_size) if self.shared else []))
        for name in states:
            setattr(self, name, self._mlp(region_size, hidden_size))

    def _inner(self, region_size: int) -> list[nn.Module]:
        """All layers but the last."""
        modules: list[nn.Module] = []
        for _ in range(self.layers - 1):
            modules += [nn.Linear(region_size, region_size), nn.ReLU(), nn.Dropout(self.dropout)]
        return modules

    def _mlp(self, region_size: int, hidden_size: int) -> nn.Sequential:
        modules = [] if self.shared else self._inner(region_size)
        modules.append(nn.Linear(region_size, hidden_size))
        if self.activation == "tanh":
            modules.append(nn.Tanh())
        return nn.Sequential(*modules)

    def forward(self, regions: Regions) -> tuple[Tensor, ...]:
        mean = self.trunk(mean_region(regions))
        return tuple(getattr(self, name)(mean) for name in self.states)
