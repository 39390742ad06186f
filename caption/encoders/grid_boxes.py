"""The part of an encoder's input that the grid of a feature map covers, so that cells are drawn at their position.

In a convolution with kernel k, stride s, padding p and dilation d, output j reads the d (k − 1) + 1 inputs around

    s j + d (k − 1) / 2 − p + 1/2

in units of inputs, where input i extends from i to i + 1 (Araujo, Norris and Sim 2019, "Computing Receptive Fields of
Convolutional Neural Networks", Distill). m outputs, each a stride wide around its centre, begin at and extend over

    (d (k − 1) + 1 − s) / 2 − p    and    s m

and these compose from layer to layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from caption.core.box import Box

COVERED = "covered_box"
"""The attribute of a tensor with the part of the input that it covers, during a forward pass with `_Tracking`."""


def grid_boxes(features: Callable[[Tensor], Tensor | tuple[Tensor, ...]], images: Tensor) -> tuple[Box, ...]:
    """The part of the images that each feature map covers, in the images' pixels.

    One forward pass, in which every operation on tensors is tracked. Convolutions, pooling and separate padding change
    the covered part by the equations above. All other operations cover the same part as their input: patches, adaptive
    pooling, interpolation. If paths that cover different parts are joined, the result covers their mean.

    Args:
        features: images -> a feature map (B, D, rows, cols), or several.
        images: (B, 3, H, W).
    """
    height, width = images.shape[2:]
    image_box = Box(0.0, 0.0, float(width), float(height))
    setattr(images, COVERED, image_box)
    with torch.no_grad(), _Tracking():
        maps = features(images)
    return tuple(getattr(view, COVERED, image_box) for view in (maps if isinstance(maps, tuple) else (maps,)))


class _Tracking(TorchFunctionMode):
    """A mode in which the results of operations get the attribute `COVERED`."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # Before the call, which may be in place.
        inputs = _tensors([*args, *kwargs.values()])
        covered = {getattr(tensor, COVERED): None for tensor in inputs if hasattr(tensor, COVERED)}
        result = function(*args, **kwargs)
        if covered:
            box = Box(*(sum(sides) / len(covered) for sides in zip(*covered, strict=True)))
            rule = RULES.get(getattr(function, "__name__", ""))
            steps = None if rule is None else rule(*args, **kwargs)
            for output in _tensors([result]):
                setattr(output, COVERED, box if steps is None else _moved(box, args[0], output, steps))
        return result


class _Step(NamedTuple):
    """The geometry of an operation along one side, in cells of its input."""

    start: float
    """Where its first output begins."""
    stride: float


def _windows(kernel: Any, stride: Any, padding: Any, dilation: Any) -> list[_Step]:
    """The steps of a convolution or pooling along rows and columns."""
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
    if padding == "same":  # torch adds an odd padding's extra cell on the right
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
    if len(pad) > 4:  # more than rows and columns: Transformers pad windows, and remove the padding later
        return None
    left, _right, top, _bottom = (*pad, 0, 0)[:4]
    return [_Step(-top, 1), _Step(-left, 1)]


RULES: dict[str, Callable[..., list[_Step] | None]] = {
    "conv2d": _convolution,
    "max_pool2d": _max_pooling,
    "avg_pool2d": _mean_pooling,
    "pad": _padding,
}
"""The steps of operations, by their names, with the arguments of `torch.nn.functional`."""


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
    """The values for rows and columns of an argument that may be a single number."""
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else tuple(value)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
