"""Encoding in pieces on a CPU, with the same regions as for the whole batch; encoders of other people."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.tiny_captioner import captioner
from torch import Tensor

from caption.core.errors import UserError
from caption.encoders import Encoder, SmallCNN
from caption.kernels import accelerate
from caption.kernels import encoder as kernel

PIECE = 8


class Counting(SmallCNN):
    """Records the number of images per call."""

    def features(self, images: Tensor) -> Tensor:
        self.seen = [*getattr(self, "seen", []), len(images)]
        return super().features(images)


def counting_encoder() -> Counting:
    torch.manual_seed(0)
    encoder = Counting((4, 4, 6)).eval()
    accelerate(encoder)
    return encoder


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "PIXELS", PIECE * 32 * 40)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


def images(count: int) -> Tensor:
    return torch.randint(0, 256, (count, 3, 32, 40), generator=torch.Generator().manual_seed(0)).byte()


@pytest.mark.parametrize("count", [0, 1, PIECE, 3 * PIECE + 1])
def test_pieces_are_put_together_again(count: int):
    encoder = counting_encoder()
    (whole,) = encoder(images(count))
    with torch.no_grad():
        (regions,) = encoder(images(count))
    assert encoder.seen[0] == count
    assert max(encoder.seen[1:]) <= PIECE
    assert sum(encoder.seen[1:]) == count
    assert regions.grid == whole.grid == (8, 10)
    torch.testing.assert_close(regions.vectors, whole.vectors)


@torch.no_grad()
def test_a_piece_is_at_least_an_image_for_each_thread(monkeypatch: pytest.MonkeyPatch):
    large, many = counting_encoder(), counting_encoder()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3 * PIECE)
    many(images(4 * PIECE))
    assert many.seen == [3 * PIECE, PIECE]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(kernel, "PIXELS", 32 * 40 // 3)
    large(images(2))
    assert large.seen == [1, 1]


def test_statistics_are_those_of_the_whole_batch_and_a_frozen_encoder_uses_pieces_in_training_too():
    encoder = counting_encoder().train()
    with torch.no_grad():
        encoder(images(2 * PIECE))
    encoder.freeze()
    encoder.train()
    encoder(images(2 * PIECE))
    assert encoder.seen == [2 * PIECE, PIECE, PIECE]


@pytest.mark.parametrize("sizes", [None, [6], (), (6.0,), (0,)])
def test_an_encoder_that_does_not_say_its_sizes_is_named(sizes: Any):
    class Mine(Encoder):
        def __init__(self) -> None:
            super().__init__()
            if sizes is not None:
                self.region_sizes = sizes

    with pytest.raises(UserError, match=r"Mine has region_sizes .* such as \(512,\)"):
        captioner(encoder=Mine())
