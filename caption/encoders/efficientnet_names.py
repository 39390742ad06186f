"""timm's names for the tensors of the PyTorch ports `efficientnet-pytorch` and `efficientnet-lite-pytorch`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import Tensor

OUTSIDE_BLOCKS = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
WITH_EXPANSION = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_se_reduce": "se.conv_reduce",
    "_se_expand": "se.conv_expand",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
WITHOUT_EXPANSION = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_se_reduce": "se.conv_reduce",
    "_se_expand": "se.conv_expand",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}


def is_port(state: dict[str, Tensor]) -> bool:
    """Whether the tensors have the names of a port."""
    return "_conv_stem.weight" in state


def timm_names(state: dict[str, Tensor], names_of_whole: Iterable[str]) -> dict[str, Tensor]:
    """Rename the tensors of a port. Names that no port has are kept.

    The ports number all blocks in one row, timm by stage and block, and a block without an expansion has other names
    in timm.

    Args:
        state: by the port's names.
        names_of_whole: timm's names of the same model's tensors, which say how many blocks each stage has.
    """
    found = {
        (int(m[1]), int(m[2])) for name in names_of_whole if (m := re.match(r"blocks\.(\d+)\.(\d+)\.", name))
    }
    blocks = [f"blocks.{stage}.{block}" for stage, block in sorted(found)]
    return {_renamed(name, state, blocks): tensor for name, tensor in state.items()}


def _renamed(name: str, state: dict[str, Tensor], blocks: list[str]) -> str:
    if not (match := re.match(r"_blocks\.(\d+)\.(\w+)\.(\w+)$", name)):
        module, _, tensor = name.rpartition(".")
        return f"{OUTSIDE_BLOCKS[module]}.{tensor}" if module in OUTSIDE_BLOCKS else name
    block, module, tensor = int(match[1]), match[2], match[3]
    expands = f"_blocks.{block}._expand_conv.weight" in state
    names = WITH_EXPANSION if expands else WITHOUT_EXPANSION
    return f"{blocks[block]}.{names[module]}.{tensor}" if block < len(blocks) and module in names else name
