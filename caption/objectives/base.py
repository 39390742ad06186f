"""What every training objective offers the training loop."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.decoders.base import Decoder, Unrolled
from caption.parts import Part
from caption.tensor_tree import TensorTree


class Captions(NamedTuple):
    """The captions of B images, K each, as teacher forcing takes them."""

    words: Tensor
    """(B, K, T) int64, the words fed in: the start token, then the caption without its end."""
    targets: Tensor
    """(B, K, T) int64, the word each step should emit; anything where there is no step."""
    lengths: Tensor
    """(B, K) int64, the real steps of each caption; 0 for a caption that is not there."""

    def repeated(self, times: int) -> Captions:
        """Each caption so many times, (B, K · times, ...), the copies of a caption side by side."""
        return Captions(*(tensor.repeat_interleave(times, 1) for tensor in self))


class Loss(NamedTuple):
    """What is minimised, and numbers worth logging."""

    value: Tensor
    """Scalar with gradient."""
    logged: dict[str, Tensor]
    """Scalars without gradient, by name."""
    unrolled: Unrolled
    """What the decoder made of the captions, for diagnostics."""


class Objective(Part, nn.Module):
    """A quantity to minimise. All are means over the captions of a batch, the 1/N Σ_n of the paper, unless told.

    An objective unrolls the decoder itself, because some want several samples of each caption.
    """

    def build(self, query_size: int) -> None:
        """Create the weights, for objectives that learn something themselves. Called once.

        Args:
            query_size: length H of the decoder's queries.
        """

    def forward(self, decoder: Decoder, memory: TensorTree, captions: Captions) -> Loss:
        """Loss of a batch.

        Args:
            decoder: in training mode, if it is trained.
            memory: of the B images.
            captions: of the B images.

        Raises:
            UserError: the decoder's attention is of a kind that this objective does not train.
        """
        raise NotImplementedError


def word_log_likelihoods(unrolled: Unrolled, targets: Tensor) -> Tensor:
    """log p(y[t] | y[<t], a) at the real steps, (N,), in nats; in float32 at least, also for logits in bf16."""
    logits = unrolled.logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return -functional.cross_entropy(logits, unrolled.pack(targets), reduction="none")
