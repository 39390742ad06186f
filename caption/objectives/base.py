"""What every training objective offers the training loop."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from caption.decoders.base import Unrolled
from caption.parts import Part


class Loss(NamedTuple):
    """What is minimised, and numbers worth logging."""

    value: Tensor
    """Scalar with gradient."""
    logged: dict[str, Tensor]
    """Scalars without gradient, by name."""


class Objective(Part, nn.Module):
    """A quantity to minimise. All are means over the captions of a batch, the 1/N Σ_n of the paper."""

    def forward(self, unrolled: Unrolled, targets: Tensor) -> Loss:
        """Loss of a batch.

        Args:
            unrolled: from the decoder under teacher forcing.
            targets: (B, K, T) int64, the word each step should emit; anything where there is no step.
        """
        raise NotImplementedError


def word_log_likelihoods(unrolled: Unrolled, targets: Tensor) -> Tensor:
    """log p(y[t] | y[<t], a) at the real steps, (N,), in nats; float32 whatever the precision of the logits."""
    return -functional.cross_entropy(unrolled.logits.float(), unrolled.pack(targets), reduction="none")
