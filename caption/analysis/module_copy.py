"""Copies of a module in which some parts are replaced."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

from torch import nn

Owner = TypeVar("Owner", bound=nn.Module)


def with_parts(owner: Owner, parts: Mapping[str, nn.Module | None]) -> Owner:
    """A copy in which the submodules at some dotted paths are replaced. It shares all weights with `owner`.

    `owner` is not changed.
    """
    copied = copy.copy(owner)
    copied.__dict__["_modules"] = dict(owner._modules)
    for path, part in parts.items():
        *above, name = path.split(".")
        inner: nn.Module = copied
        for child in above:
            inner._modules[child] = with_parts(inner.get_submodule(child), {})
            inner = inner.get_submodule(child)
        inner._modules[name] = part
    return copied
