"""Sampling: captions drawn word by word from the model's distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import NoneType

import torch
from torch import Tensor

from caption.core.errors import UserError
from caption.search.base import require_count, require_number, require_penalty, require_time
from caption.search.independent import IndependentHypotheses
from caption.search.loop import Frontier, Search
from caption.search.top_k import inverse_cdf, top_k


@dataclass(frozen=True, repr=False)
class Sampling(Search):
    """y[t] ~ p(y | y[1..t-1], image) ** (1 / temperature), renormalised over the admitted words.

    Forbidden words are removed first, and repeated words lowered by `repeat_penalty`. Then the temperature is applied;
    then `top_k` admits the k most probable words (Fan et al. 2018); then their probabilities are renormalised, and
    `top_p` admits the fewest most probable words that together reach the probability p (nucleus sampling, Holtzman et
    al. 2020).

    The returned log-probabilities are those of the model, without penalty, temperature, truncation and renormalisation.
    The samples of an image are sorted, best first. So with `samples` above 1, the first is the best of several, not a
    fair draw; all of them together are fair draws.

    The random numbers are drawn on the CPU before the first word, `samples` · `max_length` for each image in turn. So
    the samples depend neither on the device nor on when other images finish. Without a seed, they depend on the state
    of torch's generator before the first batch, but not on the batch size.

    Args:
        temperature: above 0; 1 leaves the distribution unchanged, a lower temperature sharpens it.
        top_k: number of admitted words; None = all.
        top_p: admitted probability, above 0 and at most 1; None = all.
        samples: N, the number of captions drawn for each image.
        max_length: largest number of words, including the end word, so a finished caption has one fewer.
        seed: every call starts from this seed, and so returns the same samples; None = draw from torch's generator.
        repeat_penalty: see `Search`.

    Raises:
        UserError: a number is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    samples: int = 1
    max_length: int = 30
    seed: int | None = None
    repeat_penalty: float = 0.0

    def __post_init__(self) -> None:
        require_count("max_length", self.max_length)
        require_count("samples", self.samples)
        require_time("samples", self.samples, self.max_length)
        require_number("temperature", self.temperature)
        require_penalty(self.repeat_penalty)
        for name, value in (("top_k", self.top_k), ("seed", self.seed)):
            if not isinstance(value, (int, NoneType)):
                raise UserError(f"{name} is {value!r}: it must be a whole number or None")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise UserError(f"seed is {self.seed}: it must be at least 0 and at most 2^64 - 1")
        if self.top_p is not None:
            require_number("top_p", self.top_p)
        if not 0 < self.temperature < math.inf:
            raise UserError(
                f"temperature is {self.temperature}: it must be above 0; for the limit 0, take Greedy"
            )
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k is {self.top_k}: at least 1 word must be admitted")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}: it must be a probability above 0 and at most 1")

    def frontier(self, images: int, end: int, device: torch.device) -> Frontier:
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        # Uniform in [0, 1); in double precision, so that rare words can be drawn.
        shape = images, self.samples, self.max_length
        uniform = torch.rand(shape, dtype=torch.float64, generator=generator).to(device, non_blocking=True)

        def choose(log_probs: Tensor, rows: Tensor, time: int) -> Tensor:
            return self._draw(log_probs, uniform[rows, :, time])

        return IndependentHypotheses(images, self.samples, end, choose, device)

    def _draw(self, log_probs: Tensor, uniform: Tensor) -> Tensor:
        """Words (B, K) drawn from log_probs (B, K, V) with uniform random numbers (B, K)."""
        if self.top_k is None and self.top_p is None:
            return inverse_cdf(self._weights(log_probs), uniform)
        if self.top_k is None:
            ranked, words = log_probs.sort(dim=2, descending=True)
        else:  # other words need not be ranked
            ranked, words = top_k(log_probs, self.top_k)
        weights = self._weights(ranked)
        if self.top_p is not None:
            before = weights.cumsum(dim=2, dtype=torch.float64) - weights
            weights = weights.where(before < self.top_p * weights.sum(dim=2, keepdim=True), 0.0)
        return words.gather(2, inverse_cdf(weights, uniform)[..., None]).squeeze(2)

    def _weights(self, log_probs: Tensor) -> Tensor:
        """(B, K, V) p ** (1 / temperature), relative to the largest."""
        # A temperature that rounds to 0 would give 0 / 0.
        temperature = max(self.temperature, torch.finfo(log_probs.dtype).tiny)
        return (log_probs - log_probs.amax(dim=2, keepdim=True)).div_(temperature).exp_()
