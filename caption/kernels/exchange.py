"""Exchanging modules for faster ones, in place.

A module gets a class derived from its own, and keeps everything else: weights and their names, hooks, configuration and
the behaviour of its copies. The new class has the name of the old one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn

from caption.core.parts import Part, Spec, public_path


class _ExchangedPart(Part):
    """A part whose `spec` names its plain class."""

    plain: type

    @property
    def spec(self) -> Spec:
        return super().spec | {"class_path": public_path(self.plain)}


def exchange(module: nn.Module, kernel: type[nn.Module]) -> None:
    """Replace methods of a module by those of `kernel`.

    Args:
        module: its class has the methods that `kernel` overrides.
        kernel: derived from a base class of the module's class.
    """
    module.__class__ = _joined(kernel, type(module))  # type: ignore[arg-type]  # torch declares __hash__ by hand


def restore(module: nn.Module) -> None:
    """Give a module its plain class."""
    module.__class__ = plain_class(type(module))


def plain_class(cls: type) -> Any:
    """The class before `exchange`; the class itself if it was not exchanged."""
    return getattr(cls, "plain", cls)


@cache
def _joined(kernel: type[nn.Module], plain: type[nn.Module]) -> type[nn.Module]:
    bases = (_ExchangedPart, kernel, plain) if issubclass(plain, Part) else (kernel, plain)
    names = ("__module__", "__qualname__", "__doc__")
    return type(plain.__name__, bases, {"plain": plain} | {name: getattr(plain, name) for name in names})
