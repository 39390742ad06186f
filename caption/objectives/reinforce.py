"""The score-function estimator that trains hard attention (Xu et al. 2015, section 4.1).

∂L_s/∂W ≈ 1/N Σ_n [ ∂log p(y|s̃,a)/∂W + λ_r (log p(y|s̃,a) − b) ∂log p(s̃|a)/∂W + λ_e ∂H[s̃]/∂W ]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from caption.attention.maps import has_location
from caption.attention.stochastic import override_at_test
from caption.core.batch import CaptionBatch
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.core.runtime.distributed import mean
from caption.core.runtime.eval_mode import eval_mode
from caption.decoders.base import Decoder, Memory, Unrolled
from caption.objectives.base import (
    PER_CAPTION,
    PER_WORD,
    Loss,
    Objective,
    Term,
    Unit,
    check_units,
    count_elements,
    word_log_likelihoods,
)
from caption.objectives.baselines import Baseline, MovingAverage, Rewards
from caption.objectives.entropy import Entropy

if TYPE_CHECKING:
    from caption.captioner import Captioner


class Reinforce(Objective):
    """Maximises the bound L_s (eq. 10) by sampling, with a baseline and an entropy bonus.

    The defaults are the estimator of the paper's text, with `Multinoulli()`; `configs/estimators` has others. The
    gradient of `value` is the estimator above, but `value` itself is not a useful measure of progress; use the NLL.
    All terms are summed over a caption's words and averaged over captions and their samples. Steps that read the
    expectation have no score-function term.

    The reward is log p(y|s̃,a). With credit "caption", every sampled location of a caption is credited with the whole
    reward, as in the paper. With "future", it is credited only with the words from its own step on, which lowers the
    variance without bias. Credit and baseline have no gradient.

    Args:
        baseline: b; None = the paper's `MovingAverage()`.
        samples: number of samples of each caption.
        reward_weight: λ_r, which the paper does not give; with 1 the estimator is unbiased, the authors' code has 0.1.
        reward: "sum" for log p(y|s̃,a) as in the paper's equation, or "mean" to divide it by the caption's number of
            words, as in the authors' code.
        credit: "caption" or "future".
        per: the elements that the score-function term is divided by (see `Term`); () as in the authors' code, which
            makes its weight grow with the batch.
        terms: added to the loss; None = `Entropy(-0.002)`, the λ_e = 0.002 of the authors' code; the paper does not
            give it.
    """

    def __init__(
        self,
        baseline: Baseline | None = None,
        samples: int = 1,
        reward_weight: float = 1.0,
        reward: Literal["mean", "sum"] = "sum",
        credit: Literal["caption", "future"] = "caption",
        per: Sequence[Unit] = PER_CAPTION,
        terms: list[Term] | None = None,
    ) -> None:
        super().__init__()
        check_units(per)
        self.baseline = MovingAverage() if baseline is None else baseline
        if samples < self.baseline.least_samples:
            raise UserError(
                f"{type(self.baseline).__name__} needs {self.baseline.least_samples} samples or more, not {samples}"
            )
        self.samples = samples
        self.reward_weight = reward_weight
        self.reward = reward
        self.credit = credit
        self.per = per
        self.terms: Sequence[Term] = nn.ModuleList([Entropy(-0.002)] if terms is None else terms)  # type: ignore[assignment]

    def build(self, query_size: int, region_sizes: tuple[int, ...], vocabulary_size: int) -> None:
        self.baseline.build(query_size)

    def forward(self, captioner: Captioner, views: Views, captions: CaptionBatch) -> Loss:
        decoder, memory = captioner.decoder, captioner.project(views)
        samples = captions.repeated(self.samples)
        unrolled = decoder(memory, samples.words, samples.lengths)
        trace = unrolled.trace
        if trace.log_prob is None:
            raise UserError(
                "the score-function estimator trains attention that samples, such as caption.attention.Multinoulli: "
                "soft attention and GumbelSoftmax take the objective caption.objectives.CrossEntropy"
            )
        log_likelihoods = word_log_likelihoods(unrolled, samples.targets)
        rewards = self._rewards(unrolled, log_likelihoods.detach(), decoder, memory, captions)
        baseline = self.baseline(rewards)
        advantage = unrolled.pack((rewards.credited - baseline).flatten(1, 2))
        score_function = (advantage * trace.log_prob).sum()
        elements = count_elements(captions, unrolled, self.samples)
        value = -elements.mean(log_likelihoods.sum())
        value = value - self.reward_weight * elements.mean(score_function, self.per)
        value, means = elements.add_terms(value, self.terms, unrolled, captioner)
        deviations = advantage - mean(elements.mean(advantage.sum(), PER_WORD))
        per_word = {
            "NLL": -log_likelihoods.detach(),
            "baseline": unrolled.pack(baseline.expand_as(rewards.credited).flatten(1, 2)),
            "advantage": advantage,
            "advantage_variance": deviations.square(),
        }
        if trace.location is not None:
            per_word["sampled"] = has_location(trace.location).float()
        logged = {name: elements.mean(values.sum(), PER_WORD) for name, values in per_word.items()} | means
        error = self.baseline.learn(rewards) if self.training else None
        if error is not None:
            baseline_loss = elements.mean(error, PER_WORD)
            logged["baseline_loss"] = baseline_loss.detach()
            value = value + baseline_loss
        return Loss(value, logged, unrolled)

    def _rewards(
        self,
        unrolled: Unrolled,
        log_likelihoods: Tensor,
        decoder: Decoder,
        memory: Memory,
        captions: CaptionBatch,
    ) -> Rewards:
        def greedy() -> Tensor:
            with eval_mode(decoder), torch.no_grad(), override_at_test(decoder, "argmax"):
                best = decoder(memory, captions.words, captions.lengths)
            words = best.unpack(word_log_likelihoods(best, captions.targets))
            return self._credited(words, captions.lengths.to(words.device, non_blocking=True))

        words = unrolled.unpack(log_likelihoods)  # (B, K·S, T)
        lengths = unrolled.unpack(torch.ones_like(log_likelihoods)).sum(-1)
        by_sample = (captions.words.shape[1], self.samples)
        return Rewards(
            self._credited(words, lengths).unflatten(1, by_sample),
            self._word_rewards(words, lengths).sum(-1).unflatten(1, by_sample),
            self._share(words, lengths).unflatten(1, by_sample),
            unrolled,
            greedy,
        )

    def _word_rewards(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Log-likelihoods (B, K, T), 0 for padding -> each word's part of the reward."""
        return words if self.reward == "sum" else words / lengths.clamp_min(1)[..., None]

    def _credited(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(B, K, T): the credit of each step's location, 0 for padding."""
        rewards = self._word_rewards(words, lengths)
        if self.credit == "caption":
            real = torch.arange(words.shape[-1], device=words.device) < lengths[..., None]
            return rewards.sum(-1, keepdim=True) * real
        return rewards.flip(-1).cumsum(-1).flip(-1)

    def _share(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(B, K, T): the fraction of a caption's words that the credit of each step covers."""
        if self.credit == "caption":
            return torch.ones_like(words)
        steps = torch.arange(words.shape[-1], device=words.device)
        return (lengths[..., None] - steps).clamp_min(0) / lengths.clamp_min(1)[..., None]
