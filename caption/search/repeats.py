"""A penalty on words that a hypothesis has already said."""

from __future__ import annotations

import torch
from torch import Tensor


def lower_repeats(log_probs: Tensor, said: Tensor, content: Tensor, end: int, penalty: float) -> Tensor:
    """Log-probabilities of the next word, lowered for repeated words: all said content words, and the last word.

    Args:
        log_probs: (B, K, V), of the next word.
        said: (B, K, T) int64, the words of each hypothesis so far.
        content: (V,) bool, True for content words.
        end: the end word, which is never lowered; it is the last word of dead hypotheses.
        penalty: in nats.
    """
    last = said[..., -1:]
    repeats = torch.cat((content[said[..., :-1]], last != end), dim=2)
    before = log_probs.gather(2, said)
    # The minimum, since the last word may also be an earlier one, with another penalty.
    return log_probs.scatter_reduce(2, said, (before - penalty).where(repeats, before), "amin")
