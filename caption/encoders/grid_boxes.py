"""The part of an encoder's input that the grid of a feature map covers, so that its cells are drawn where they look.

Of a convolution with kernel k, stride s, padding p and dilation d, output j sees the d (k − 1) + 1 inputs around

    s j + d (k − 1) / 2 − p + 1/2

in units of inputs, of which input i reaches from i to i + 1 (Araujo, Norris and Sim 2019, "Computing Receptive Fields
of Convolutional Neural Networks", Distill). m outputs, each a stride wide around its centre, reach from

    (d (k − 1) + 1 − s) / 2 − p    over a length of    s m

and these compose from layer to layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from caption.core.box import Box

PLACE = "covered_box"
"""The attribute in which a tensor carries the part of the input that it covers, while it is followed."""


def grid_boxes(features: Callable[[Tensor], Tensor | tuple[Tensor, ...]], images: Tensor) -> tuple[Box, ...]:
    """The part of the images that each feature map covers, in the images' pixels.

    One forward pass, in which every operation on tensors is followed. Convolutions and pooling move the part as the
    module says, and so does padding apart from them. All other operations cover what their input covers, from edge to
    edge: patches, adaptive pooling, interpolation. Where paths that cover different parts are joined, it is their mean.

    Args:
        features: images -> a feature map (B, D, rows, cols), or several.
        images: (B, 3, H, W).
    """
    height, width = images.shape[2:]
    whole = Box(0.0, 0.0, float(width), float(height))
    setattr(images, PLACE, whole)
    with torch.no_grad(), _Following():
        maps = features(images)
    return tuple(getattr(view, PLACE, whole) for view in (maps if isinstance(maps, tuple) else (maps,)))


class _Following(TorchFunctionMode):
    """Within it, the results of operations carry the part of the input that they cover."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        # Before the call, which may be in place.
        inputs = _tensors([*args, *named.values()])
        covered = {getattr(tensor, PLACE): None for tensor in inputs if hasattr(tensor, PLACE)}
        result = function(*args, **named)
        if covered:
            box = Box(*(sum(sides) / len(covered) for sides in zip(*covered, strict=True)))
            rule = RULES.get(getattr(function, "__name__", ""))
            steps = None if rule is None else rule(*args, **named)
            for output in _tensors([result]):
                setattr(output, PLACE, box if steps is None else _moved(box, args[0], output, steps))
        return result


class _Step(NamedTuple):
    """What an operation does along one side, in cells of its input."""

    start: float
    """Where its first output begins."""
    stride: float


def _windows(kernel: Any, stride: Any, padding: Any, dilation: Any) -> list[_Step]:
    """Of rows and of columns, for a convolution or pooling."""
    sides = zip(*map(_pair, (kernel, stride, padding, dilation)), strict=True)
    return [_Step((d * (k - 1) + 1 - s) / 2 - p, s) for k, s, p, d in sides]


def _convolution(
    images: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> list[_Step]:
    kernel = weight.shape[2:]
    if padding == "same":  # torch puts the odd one of the padding on the right
        padding = [d * (k - 1) // 2 for k, d in zip(kernel, _pair(dilation), strict=True)]
    return _windows(kernel, stride, 0 if padding == "valid" else padding, dilation)


def _max_pooling(
    images: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *_: Any,
    **__: Any,
) -> list[_Step]:
    return _windows(kernel_size, stride or kernel_size, padding, dilation)


def _mean_pooling(
    images: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *_: Any, **__: Any
) -> list[_Step]:
    return _windows(kernel_size, stride or kernel_size, padding, 1)


def _padding(images: Tensor, pad: Sequence[int], *_: Any, **__: Any) -> list[_Step] | None:
    if len(pad) > 4:  # not of rows and columns alone: Transformers pad windows, and cut the padding off later
        return None
    left, _right, top, _bottom = (*pad, 0, 0)[:4]
    return [_Step(-top, 1), _Step(-left, 1)]


RULES: dict[str, Callable[..., list[_Step] | None]] = {
    "conv2d": _convolution,
    "max_pool2d": _max_pooling,
    "avg_pool2d": _mean_pooling,
    "pad": _padding,
}
"""By the name of the operation. Their arguments are those of `torch.nn.functional`."""


def _moved(box: Box, before: Tensor, after: Tensor, steps: Sequence[_Step]) -> Box:
    """The part that the output of an operation covers, given that of its input; both (B, D, rows, cols)."""
    if before.dim() != 4:
        return box
    rows, cols = zip(before.shape[2:], after.shape[2:], steps, strict=True)
    top, bottom = _reach(box.top, box.bottom, *rows)
    left, right = _reach(box.left, box.right, *cols)
    return Box(left, top, right, bottom)


def _reach(start: float, end: float, inputs: int, outputs: int, step: _Step) -> tuple[float, float]:
    cell = (end - start) / inputs
    return start + step.start * cell, start + (step.start + step.stride * outputs) * cell


def _pair(value: Any) -> tuple[int, int]:
    """Of rows and of columns."""
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else tuple(value)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
