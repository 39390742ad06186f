"""The score-function estimator that trains hard attention (Xu et al. 2015, section 4.1).

∂L_s/∂W ≈ 1/N Σ_n [ ∂log p(y|s̃,a)/∂W + λ_r (log p(y|s̃,a) − b) ∂log p(s̃|a)/∂W + λ_e ∂H[s̃]/∂W ]
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from caption.attention.base import chosen
from caption.attention.map_entropy import entropy
from caption.attention.stochastic import at_test
from caption.decoders.base import Decoder, Memory, Unrolled
from caption.errors import UserError
from caption.objectives.base import Captions, Loss, Objective, counts, word_log_likelihoods
from caption.objectives.baselines import Baseline, MovingAverage, Returns
from caption.objectives.regularizers import Reduction, doubly_stochastic
from caption.parts import check_choice
from caption.regions import Views
from caption.runtime.distributed import mean, process_count
from caption.runtime.eval_mode import eval_mode


class Reinforce(Objective):
    """Maximises the bound L_s (eq. 10) by sampling, with a baseline and an entropy bonus.

    The gradient of `value` is the estimator above, but `value` itself is not a useful measure of progress; use the NLL.
    All terms are summed over a caption's words and averaged over captions and their samples. Steps that read the
    expectation have no score-function term.

    The reward is log p(y|s̃,a). With credit "caption", every sampled location of a caption is credited with the whole
    reward, as in the paper. With "future", it is credited only with the words from its own step on, which lowers the
    variance without bias. Credit and baseline carry no gradient.

    Args:
        baseline: b; None = the paper's `MovingAverage()`.
        samples: number of samples of each caption.
        reward_weight: λ_r; 1 makes the estimator unbiased, the authors' code has 0.1.
        entropy_weight: λ_e; the authors' code has 0.002.
        reward: "sum" for log p(y|s̃,a) as in the paper's equation, or "mean" to divide it by the caption's number of
            words, as in the authors' code.
        credit: "caption" or "future".
        doubly_stochastic: λ of eq. 14's second term; the authors' code prints it for hard attention but does not use
            it.
        regions: the doubly stochastic term is the "sum" over regions as in eq. 14, or their "mean".
        captions: the terms other than log p(y|s̃,a) are the "mean" over captions as above, or their "sum" as in the
            authors' code, which makes their weight grow with the batch.
    """

    def __init__(
        self,
        baseline: Baseline | None = None,
        samples: int = 1,
        reward_weight: float = 0.1,
        entropy_weight: float = 0.002,
        reward: Literal["mean", "sum"] = "mean",
        credit: Literal["caption", "future"] = "caption",
        doubly_stochastic: float = 0.0,
        regions: Reduction = "sum",
        captions: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_choice("reward", reward, ("mean", "sum"))
        check_choice("credit", credit, ("caption", "future"))
        check_choice("regions", regions, ("sum", "mean"))
        check_choice("captions", captions, ("sum", "mean"))
        self.baseline = MovingAverage() if baseline is None else baseline
        if samples < self.baseline.least_samples:
            raise ValueError(
                f"{type(self.baseline).__name__} needs {self.baseline.least_samples} samples or more, not {samples}"
            )
        self.samples = samples
        self.reward_weight = reward_weight
        self.entropy_weight = entropy_weight
        self.reward = reward
        self.credit = credit
        self.doubly_stochastic = doubly_stochastic
        self.regions = regions
        self.captions = captions

    def build(self, query_size: int, region_sizes: tuple[int, ...], vocabulary_size: int) -> None:
        self.baseline.build(query_size)

    def forward(
        self, decoder: Decoder, memory: Memory, captions: Captions, views: Views | None = None
    ) -> Loss:
        samples = captions.repeated(self.samples)
        unrolled = decoder(memory, samples.words, samples.lengths)
        trace = unrolled.trace
        if trace.log_prob is None:
            raise UserError(
                "the score-function estimator trains attention that samples, such as caption.attention.Multinoulli: "
                "soft attention and GumbelSoftmax take the objective caption.objectives.CrossEntropy"
            )
        log_likelihoods = word_log_likelihoods(unrolled, samples.targets)
        returns = self._returns(unrolled, log_likelihoods.detach(), decoder, memory, captions)
        baseline = self.baseline(returns)
        advantage = unrolled.pack((returns.credited - baseline).flatten(1, 2))
        score_function = (advantage * trace.log_prob).sum()
        terms = (
            self.reward_weight * score_function
            + self.entropy_weight * entropy(trace.weights, decoder.properties).sum()
        )
        count = counts(unrolled)
        deviations = advantage - mean(advantage.sum()) / count.words
        sums = {
            "NLL": -log_likelihoods.detach(),
            "baseline": unrolled.pack(baseline.expand_as(returns.credited).flatten(1, 2)),
            "advantage": advantage,
            "advantage_variance": deviations.square(),
        }
        if trace.location is not None:
            sums["sampled"] = chosen(trace.location).float()
        logged = {name: each.sum() / count.words for name, each in sums.items()}
        if self.doubly_stochastic:
            penalty = doubly_stochastic(unrolled, decoder.properties, self.regions).sum()
            logged["doubly_stochastic"] = penalty.detach() / count.captions
            terms = terms - self.doubly_stochastic * penalty
        # The count is of samples, so a sum over captions is still a mean over the samples of each.
        divisor = count.captions if self.captions == "mean" else self.samples / process_count()
        value = -log_likelihoods.sum() / count.captions - terms / divisor
        own_loss = self.baseline.learn(returns) if self.training else None
        if own_loss is not None:
            logged["baseline_loss"] = own_loss.detach()
            value = value + own_loss
        return Loss(value, logged, unrolled)

    def _returns(
        self,
        unrolled: Unrolled,
        log_likelihoods: Tensor,
        decoder: Decoder,
        memory: Memory,
        captions: Captions,
    ) -> Returns:
        def greedy() -> Tensor:
            with eval_mode(decoder), torch.no_grad(), at_test(decoder, "argmax"):
                best = decoder(memory, captions.words, captions.lengths)
            return self._credited(best.unpack(word_log_likelihoods(best, captions.targets)), captions.lengths)

        words = unrolled.unpack(log_likelihoods)  # (B, K·S, T)
        lengths = unrolled.unpack(torch.ones_like(log_likelihoods)).sum(-1)
        shape = (captions.words.shape[1], self.samples)
        credited = self._credited(words, lengths)
        whole = Returns(
            credited,
            self._rewards(words, lengths).sum(-1),
            self._share(words, lengths),
            unrolled,
            greedy,
        )
        return whole._replace(
            credited=credited.unflatten(1, shape),
            totals=whole.totals.unflatten(1, shape),
            share=whole.share.unflatten(1, shape),
        )

    def _rewards(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Log-likelihoods (B, K, T), 0 where there is no step -> each word's part of the reward."""
        return words if self.reward == "sum" else words / lengths.clamp_min(1)[..., None]

    def _credited(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(B, K, T): the credit of each step's location, 0 where there is no step."""
        rewards = self._rewards(words, lengths)
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
