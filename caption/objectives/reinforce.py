"""Training hard attention: the score-function estimator of Xu et al. 2015, section 4.1.

∂L_s/∂W ≈ 1/N Σ_n [ ∂log p(y|s̃,a)/∂W + λ_r (log p(y|s̃,a) − b) ∂log p(s̃|a)/∂W + λ_e ∂H[s̃]/∂W ]
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, distributed

from caption.decoders.base import Unrolled
from caption.objectives.base import Loss, Objective, word_log_likelihoods
from caption.objectives.regularizers import doubly_stochastic, entropy
from caption.parts import check_choice


class Reinforce(Objective):
    """Minimises minus the bound L_s (eq. 10) with a moving-average baseline and an entropy bonus.

    The gradient of `value` is the estimator above; its number is not a loss to watch: watch the NLL. All terms are
    summed over a caption's words and averaged over captions. Steps that used the expectation sampled nothing and
    give no score-function term.

    The reward is log p(y|s̃,a). With credit "caption", every sampled location of a caption is credited with all of
    it, as in the paper; with "future" only with the words it could influence, from its own on, and with the same
    share of the baseline, which lowers the variance and leaves the expectation as it is.

    Args:
        reward_weight: λ_r; the authors' code has 0.1.
        entropy_weight: λ_e; the authors' code has 0.002.
        baseline_decay: b ← decay · b + (1 − decay) · mean reward of the batch, after the batch has used b.
        reward: log p(y|s̃,a) divided by the caption's number of words, as in the authors' code ("mean"), or not
            ("sum"), as in the paper's equation.
        credit: "caption" or "future".
        doubly_stochastic: λ of eq. 14's second term, which the authors' code also offers for hard attention.
    """

    baseline: Tensor

    def __init__(
        self,
        reward_weight: float = 0.1,
        entropy_weight: float = 0.002,
        baseline_decay: float = 0.9,
        reward: Literal["mean", "sum"] = "mean",
        credit: Literal["caption", "future"] = "caption",
        doubly_stochastic: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("reward", reward, ("mean", "sum"))
        check_choice("credit", credit, ("caption", "future"))
        self.reward_weight = reward_weight
        self.entropy_weight = entropy_weight
        self.baseline_decay = baseline_decay
        self.reward = reward
        self.credit = credit
        self.doubly_stochastic = doubly_stochastic
        self.register_buffer("baseline", torch.zeros(()))

    def forward(self, unrolled: Unrolled, targets: Tensor) -> Loss:
        trace = unrolled.trace
        if trace.log_prob is None:
            raise ValueError(
                "this objective trains attention that samples; soft attention takes CrossEntropy"
            )
        there = unrolled.there()
        captions = there.sum()
        log_likelihoods = word_log_likelihoods(unrolled, targets)
        advantage, reward = self._advantage(unrolled, log_likelihoods.detach())
        score_function = (unrolled.pack(advantage) * trace.log_prob.float()).sum()
        bonus = entropy(trace.weights).sum()
        gain = log_likelihoods.sum() + self.reward_weight * score_function + self.entropy_weight * bonus
        value = -gain / captions
        sampled = trace.location.ge(0) if trace.location is not None else torch.zeros_like(trace.log_prob)
        logged = {
            "NLL": -log_likelihoods.mean().detach(),
            "baseline": self.baseline.clone(),
            "advantage": (unrolled.pack(advantage)).mean(),
            "sampled": sampled.float().mean(),
        }
        if self.doubly_stochastic:
            penalty = (doubly_stochastic(unrolled) * there).sum() / captions
            logged["doubly_stochastic"] = penalty.detach()
            value = value + self.doubly_stochastic * penalty
        if self.training:
            self._update_baseline(reward[there].mean())
        return Loss(value, logged)

    def _advantage(self, unrolled: Unrolled, log_likelihoods: Tensor) -> tuple[Tensor, Tensor]:
        """Reward minus baseline for each step (B, K, T), and the reward of each caption (B, K). No gradient."""
        words = unrolled.unpack(log_likelihoods)
        lengths = unrolled.unpack(torch.ones_like(log_likelihoods)).sum(-1, keepdim=True)
        if self.reward == "mean":
            words = words / lengths.clamp_min(1)
        total = words.sum(-1, keepdim=True)
        if self.credit == "caption":
            return (total - self.baseline).expand_as(words), total.squeeze(-1)
        to_come = words.flip(-1).cumsum(-1).flip(-1)
        steps = torch.arange(words.shape[-1], device=words.device)
        share = (lengths - steps).clamp_min(0) / lengths.clamp_min(1)
        return to_come - share * self.baseline, total.squeeze(-1)

    def _update_baseline(self, reward: Tensor) -> None:
        """After use, so that no reward is compared with itself; the same on all processes."""
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(reward)
            reward = reward / distributed.get_world_size()
        self.baseline.mul_(self.baseline_decay).add_((1 - self.baseline_decay) * reward)
