"""Sampling: captions drawn word by word from the model's distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from caption.errors import UserError
from caption.search.base import Hypotheses, Search, Step
from caption.search.blocks import invert, largest
from caption.search.chains import Chains
from caption.search.loop import device_of, explore, require_length
from caption.tensor_tree import State, select_hypotheses


@dataclass(frozen=True)
class Sampling(Search):
    """y[t] ~ p(y | y[1..t-1], image) ** (1 / temperature), renormalised, of the words that are admitted.

    The temperature acts first; then `top_k` admits the k most probable words (Fan et al. 2018); then `top_p`
    admits, of what is left and renormalised, the fewest most probable words that together reach the
    probability p (nucleus sampling, Holtzman et al. 2020). Forbidden words are out before all of this.

    The log-probabilities returned are those of the model's own distribution: no temperature, nothing cut off,
    nothing renormalised. The samples of an image come best first, so with `samples` above 1 the first is the
    best of several and no fair draw; all of them together are.

    The chance is drawn on the CPU before the first word, `samples` · `max_length` numbers for each image in
    turn. So the samples do not depend on the device nor on when other images finish, and one generator handed
    from batch to batch gives each image the same samples whatever the batch size.

    Args:
        temperature: above 0; 1 leaves the distribution as it is, less sharpens it.
        top_k: number of words admitted; None for all.
        top_p: probability admitted, above 0 and at most 1; None for all.
        samples: N, the captions drawn for each image.
        max_length: largest number of words; the end word counts, so a finished caption has one fewer.
        seed: every call begins with this seed and so repeats itself; None draws from torch's generator.

    Raises:
        UserError: if a number is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    samples: int = 1
    max_length: int = 30
    seed: int | None = None

    def __post_init__(self) -> None:
        require_length(self.max_length)
        if not 0 < self.temperature < math.inf:
            raise UserError(f"temperature is {self.temperature}: it must be above 0; Greedy is the limit 0")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k is {self.top_k}: at least 1 word must be admitted")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}: it is a probability above 0 and at most 1")
        if self.samples < 1:
            raise UserError(f"samples is {self.samples}: at least 1 caption must be drawn")

    def __call__(
        self,
        step: Step,
        state: State,
        images: int,
        start: int,
        end: int,
        forbidden: Sequence[int] = (),
        generator: torch.Generator | None = None,
    ) -> Hypotheses:
        """Draw `samples` captions per image. See `Search`.

        Args:
            step: scores the next word.
            state: before the first word.
            images: B.
            start: the word fed to the first step.
            end: the word that finishes a caption.
            forbidden: words never emitted.
            generator: a CPU generator to draw from, instead of `seed`.
        """
        device = device_of(state)
        chance = self._chance(images, generator).to(device)

        def choose(log_probs: Tensor, rows: Tensor, time: int) -> Tensor:
            return self._draw(log_probs, chance[rows, :, time])

        frontier = Chains(images, self.samples, end, choose, device)
        words = torch.full((images, self.samples), start, device=device)
        # Before the first step, so that attention that samples does so for every caption.
        same = torch.zeros_like(words)
        state = state._replace(
            carried=select_hypotheses(state.carried, same), trace=select_hypotheses(state.trace, same)
        )
        return explore(step, state, frontier, words, end, self.max_length, forbidden)

    def _chance(self, images: int, generator: torch.Generator | None) -> Tensor:
        """(B, N, max_length) uniform in [0, 1); double, so that rare words keep their chance."""
        if generator is None and self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed)
        return torch.rand(images, self.samples, self.max_length, dtype=torch.float64, generator=generator)

    def _draw(self, log_probs: Tensor, chance: Tensor) -> Tensor:
        """Words (B, K) from log_probs (B, K, V), one by each number of `chance` (B, K)."""
        if self.top_k is None and self.top_p is None:
            return invert(self._weights(log_probs), chance)
        if self.top_k is None:
            ranked, words = log_probs.sort(dim=2, descending=True)
        else:  # no need to rank the rest
            ranked, words = largest(log_probs, self.top_k)
        weights = self._weights(ranked)
        if self.top_p is not None:
            before = weights.cumsum(dim=2, dtype=torch.float64) - weights
            weights = weights.where(before < self.top_p * weights.sum(dim=2, keepdim=True), 0.0)
        return words.gather(2, invert(weights, chance)[..., None]).squeeze(2)

    def _weights(self, log_probs: Tensor) -> Tensor:
        """(B, K, V) p ** (1 / temperature), as parts of the largest."""
        # A temperature that rounds to 0 would divide 0 by it.
        temperature = max(self.temperature, torch.finfo(log_probs.dtype).tiny)
        return (log_probs - log_probs.amax(dim=2, keepdim=True)).div_(temperature).exp_()
