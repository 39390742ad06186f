"""The attention mechanisms of decoders: their names, properties and grids."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from helpers.tiny_decoder import decoder
from torch import Tensor, nn

from caption.attention import Attention
from caption.decoders import Decoder
from caption.regions import WeightProperties


class Named(Attention):
    """An attention that declares given properties."""

    def __init__(self, map_name: str = "weights", view: int = 0, **properties: bool) -> None:
        super().__init__()
        self.map_name, self.map_views = map_name, {map_name: view}
        self.properties = WeightProperties(**properties)


class Holder(Attention):
    """A mechanism that contains another one."""

    def __init__(self, inner: Attention) -> None:
        super().__init__()
        self.steps = nn.ModuleList([inner])


class Several(Decoder):
    """A decoder with the given parts."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def test_attentions_are_listed_by_dotted_name_in_order():
    layers = nn.ModuleList(nn.ModuleDict({"cross": Named(), "feed": nn.Linear(1, 1)}) for _ in range(2))
    model = Several(top=Named(), layers=layers, readout=nn.Linear(1, 1), low=Named())
    assert list(model.attentions) == ["top", "layers.0.cross", "layers.1.cross", "low"]
    assert model.attentions["layers.1.cross"] is layers[1]["cross"]


def test_a_mechanism_inside_another_belongs_to_that_one():
    inner = Named(signed=True)
    model = Several(attention=Holder(inner), attention_2=Named())
    assert list(model.attentions) == ["attention", "attention_2"]  # a name with the other as its prefix
    assert not model.properties.signed


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ([{}], WeightProperties()),
        ([{}, {"sums_to_one": False}], WeightProperties(sums_to_one=False)),
        ([{"signed": True}, {}], WeightProperties(signed=True)),
        ([{}, {"sentinel": True}, {"signed": True}], WeightProperties(signed=True, sentinel=True)),
    ],
)
def test_properties_are_combined_over_attentions(declared: list[dict[str, bool]], expected: WeightProperties):
    model = Several(**{f"attention_{i}": Named(**properties) for i, properties in enumerate(declared)})
    assert model.properties == expected


def test_every_map_is_given_the_grid_it_lies_on():
    model = Several(fine=Named("heads"), coarse=Named("level 2", view=1))
    assert model.map_grids([(14, 14), (7, 7)]) == {"heads": (14, 14), "level 2": (7, 7)}
    assert model.map_views == {"heads": 0, "level 2": 1}
    assert decoder().map_grids([(2, 3)]) == {"weights": (2, 3)}


class Penalised(Named):
    """An attention with the mean of its map as penalty."""

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor:
        return maps[self.map_name].mean()


def test_the_penalties_of_all_mechanisms_are_summed():
    maps = {"heads": torch.full((5, 2, 6), 3.0), "level": torch.full((5, 4), 4.0), "other": torch.ones(5, 4)}
    model = Several(first=Penalised("heads"), second=Named("other"), third=Penalised("level"))
    assert model.penalty(maps) == 7
    assert Several(only=Named("other")).penalty(maps) is None
    assert decoder().penalty({}) is None
