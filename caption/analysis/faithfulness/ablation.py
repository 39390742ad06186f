"""What hiding a region means: it is taken out of what a step reads, and something has to become of its share of α.

    Removed     the others share it in proportion: α_i / Σ_visible α. As if the region had not been in the memory, for
                attention that is a softmax of scores. The model may find the same thing in a neighbouring region.
    Replaced    it goes to a vector that says nothing about the image. Where the model looks stays as it was, what
                it finds there is gone; no neighbour is read any more than before.

Both leave the prefix, the LSTM's state and hence its first state as they were: only this step's context changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from caption.analysis.replay import Sentences, encode, listed
from caption.errors import UserError
from caption.eval_mode import eval_mode

if TYPE_CHECKING:
    from caption.captioner import Captioner
    from caption.result import Photo


class Removed:
    """α over the regions that are left, with the sum it had. With none left, nothing is read: z = 0."""

    def prepare(self, batch: Sentences) -> Sentences:
        """The sentences with what the hiding needs."""
        return batch

    def __call__(self, weights: Tensor, kept: Tensor) -> Tensor:
        """α (B, 1, L) and how much of each region is visible (B, K, L), bool or 0 to 1 -> weights (B, K, L) of the
        prepared memory."""
        left = weights * kept
        # Sums that underflow leave nothing to share.
        return left * (weights.sum(-1, keepdim=True) / left.sum(-1, keepdim=True).clamp_min(1e-30))


class Replaced:
    """A hidden region is read as `vector`.

    Args:
        vector: (D,), as the decoder gets its regions; for instance `mean_region`. None = the mean of the image's own
            regions, which still tells what is in it, though not where.
    """

    def __init__(self, vector: Tensor | None = None) -> None:
        self.vector = vector

    def prepare(self, batch: Sentences) -> Sentences:
        """The sentences with the vector as one more region, behind the others and masked: never attended to."""
        vectors = batch.vectors
        if batch.mask is not None:
            raise UserError("regions are replaced in memories without a mask only: hide them by Removed().")
        if self.vector is None:
            extra = vectors.mean(1, keepdim=True)
        elif self.vector.shape == vectors.shape[2:]:
            extra = self.vector.to(vectors).expand(len(vectors), 1, -1)
        else:
            shape = tuple(self.vector.shape)
            raise ValueError(f"a region is replaced by ({vectors.shape[2]},) numbers, not {shape}")
        mask = torch.ones(len(vectors), vectors.shape[1] + 1, dtype=torch.bool, device=vectors.device)
        mask[:, -1] = False
        return batch._replace(vectors=torch.cat((vectors, extra), 1), mask=mask)

    def __call__(self, weights: Tensor, kept: Tensor) -> Tensor:
        """As `Removed.__call__`; the last of the weights is the vector's."""
        real, kept = weights[..., :-1], kept.to(weights.dtype)
        return torch.cat((real * kept, (real * (1 - kept)).sum(-1, keepdim=True)), -1)


Hiding = Removed | Replaced


def mean_region(captioner: Captioner, photos: Photo | Iterable[Photo], batch_size: int = 32) -> Tensor:
    """(D,) the mean of all regions of many photos: what a region looks like if nothing is known of it."""
    several, means = listed(photos), []
    with eval_mode(captioner):
        while batch := list(islice(several, batch_size)):
            means.append(encode(captioner, batch)[1].mean(1))
    return torch.cat(means).mean(0)
