"""The loss of soft attention: cross-entropy and the doubly stochastic term, eq. 14."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.map_entropy import entropy
from caption.decoders.base import Decoder, Memory
from caption.errors import UserError
from caption.objectives.base import Captions, Loss, Objective, counts, word_log_likelihoods
from caption.objectives.regularizers import Reduction, doubly_stochastic
from caption.parts import check_choice
from caption.regions import Views
from caption.runtime.distributed import process_count


class CrossEntropy(Objective):
    """L_d = −log p(y|a) + λ Σ_i (1 − Σ_t α[t,i])², summed over a caption's words and averaged over captions (eq. 14).

    It also trains `GumbelSoftmax` attention, whose samples have a gradient.

    Args:
        doubly_stochastic: λ; 0 = without the term.
        entropy: weight of H[α[t]] at each word, in nats, which makes the maps sharper; the paper has none.
        entropy_after: training batches before the entropy term starts. Early in training, when all regions are equally
            useful, it would fix all maps on one region permanently.
        label_smoothing: share of each target that is spread uniformly over all words (Szegedy et al. 2016); the paper
            has none.
        words: −log p is the "sum" over a caption's words, averaged over captions, as in eq. 14; or the "mean" over all
            words of the batch.
        regions: the doubly stochastic term is the "sum" over regions as in eq. 14, or their "mean".
        captions: the terms other than −log p are the "mean" over captions, or their "sum" as in the authors' code,
            which makes their weight grow with the batch.
        attention_penalty: weight of the attention's own penalty (`Attention.penalty`), such as the overlap of queries
            or the number of open heads.
    """

    batches: Tensor

    def __init__(
        self,
        doubly_stochastic: float = 1.0,
        entropy: float = 0.0,
        entropy_after: int = 0,
        label_smoothing: float = 0.0,
        words: Reduction = "sum",
        regions: Reduction = "sum",
        captions: Reduction = "mean",
        attention_penalty: float = 0.0,
    ) -> None:
        super().__init__()
        for name, choice in (("words", words), ("regions", regions), ("captions", captions)):
            check_choice(name, choice, ("sum", "mean"))
        self.doubly_stochastic = doubly_stochastic
        self.attention_penalty = attention_penalty
        self.entropy = entropy
        self.entropy_after = entropy_after
        self.label_smoothing = label_smoothing
        self.words = words
        self.regions = regions
        self.captions = captions
        if entropy_after:
            self.register_buffer(
                "batches", torch.zeros((), dtype=torch.int64)
            )  # training batches so far; restored when training resumes

    def forward(
        self, decoder: Decoder, memory: Memory, captions: Captions, views: Views | None = None
    ) -> Loss:
        unrolled = decoder(memory, captions.words, captions.lengths)
        if unrolled.trace.log_prob is not None:
            raise UserError(
                "cross-entropy has no gradient for sampled attention: train Multinoulli attention with the "
                "objective caption.objectives.Reinforce, or sample with caption.attention.GumbelSoftmax"
            )
        count = counts(unrolled)
        caption_divisor = count.captions if self.captions == "mean" else 1 / process_count()
        log_likelihoods = word_log_likelihoods(unrolled, captions.targets)
        word_divisor = count.captions if self.words == "sum" else count.words
        value = -log_likelihoods.sum() / word_divisor
        if self.label_smoothing:
            uniform = unrolled.logits.float().log_softmax(-1).mean(-1).sum() / word_divisor
            value = (1 - self.label_smoothing) * value - self.label_smoothing * uniform
        logged = {"NLL": -log_likelihoods.sum().detach() / count.words}
        if self.doubly_stochastic:
            penalty = doubly_stochastic(unrolled, decoder.properties, self.regions).sum()
            logged["doubly_stochastic"] = penalty.detach() / count.captions
            value = value + self.doubly_stochastic * penalty / caption_divisor
        if self.entropy and (not self.entropy_after or self.batches >= self.entropy_after):
            value = (
                value
                + self.entropy * entropy(unrolled.trace.weights, decoder.properties).sum() / caption_divisor
            )
        declared = decoder.penalty(unrolled.trace.maps) if self.attention_penalty else None
        if declared is not None:
            declared = declared * len(log_likelihoods) / count.words  # it is a mean over this process's words
            logged["attention_penalty"] = declared.detach()
            value = value + self.attention_penalty * declared
        if self.training and self.entropy_after:
            self.batches += 1
        return Loss(value, logged, unrolled)
