"""Gradients of an imported model with respect to the original parameters, by autograd and by a complex step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from helpers.tiny_views import WithoutEncoder, one_row
from torch import Tensor
from torch.func import functional_call

from caption.core.runtime.trust import make
from caption.decoders import Decoder
from caption.objectives import CaptionBatch, Objective
from caption.text.vocabulary import PAD, START

STEP = 1e-20
PRESETS = Path(__file__).resolve().parents[2] / "configs" / "presets"


class Whole(WithoutEncoder):
    """Decoder and objective as one function of the decoder's weights."""

    def __init__(self, decoder: Decoder, loss: Objective) -> None:
        super().__init__(decoder)
        self.loss = loss

    def forward(self, regions: Tensor, captions: CaptionBatch) -> Tensor:
        return self.loss(self, one_row(regions), captions).value


def ours(
    decoder: Decoder,
    preset: str,
    convert: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    parameters: dict[str, np.ndarray],
    regions: np.ndarray,
    captions: list[list[int]],
) -> dict[str, np.ndarray]:
    """Gradients through this package's decoder, loss and importer.

    Args:
        decoder: built, in evaluation mode and double precision.
        preset: defines the loss.
        convert: original parameters -> state dict of the decoder.
        parameters: the original parameters.
        regions: (B, L, D).
        captions: one of each image, this package's ids without START, with END.
    """
    config = yaml.safe_load((PRESETS / f"{preset}.yaml").read_text(encoding="utf-8"))
    whole = Whole(decoder, make(config["model"]["objective"], Objective))
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}
    state = {f"decoder.{name}": tensor for name, tensor in convert(leaves).items()}
    functional_call(whole, state, (torch.tensor(regions), packed(captions))).backward()
    return {
        name: np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        for name, leaf in leaves.items()
    }


def packed(captions: list[list[int]]) -> CaptionBatch:
    """One caption of each image, (B, 1, T)."""
    longest = max(map(len, captions))
    targets = torch.tensor([[[*caption, *[PAD] * (longest - len(caption))]] for caption in captions])
    words = torch.cat((torch.full_like(targets[..., :1], START), targets[..., :-1]), -1)
    return CaptionBatch(words, targets, torch.tensor([[len(caption)] for caption in captions]))


def check(
    gradients: dict[str, np.ndarray],
    loss: Callable[[dict[str, np.ndarray]], Any],
    parameters: dict[str, np.ndarray],
    directions: Callable[[tuple[int, ...]], Iterable[np.ndarray]],
) -> None:
    """Compare gradients with the derivatives of `loss` along directions, which are given for an array's shape."""
    for name, gradient in gradients.items():
        for direction in directions(gradient.shape):
            moved = {**parameters, name: parameters[name] + 1j * STEP * direction}
            expected = loss(moved).imag / STEP
            assert (gradient * direction).sum() == pytest.approx(expected, abs=1e-4), (name, direction)


def axes(shape: tuple[int, ...]) -> Iterable[np.ndarray]:
    """The directions of single numbers."""
    return np.eye(math.prod(shape)).reshape(-1, *shape)
