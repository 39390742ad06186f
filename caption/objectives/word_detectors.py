"""Detectors of words in regions, trained on whole captions: multiple-instance learning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.maps import single_precision
from caption.attention.smoothing import smoothed
from caption.core.regions import Regions
from caption.text.vocabulary import END, FORBIDDEN

FAR_BELOW = -1e9
"""Log-odds in masked regions."""
UNKNOWN_SHARE = 0.5
"""Prior of a word before `prepare`."""


def log_present(log_absent: Tensor) -> Tensor:
    """log P(w | image), given log(1 − P(w | image)) below 0."""
    return torch.log(-torch.expm1(log_absent))


def saved_detectors(state: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The states of the `WordDetectors` in the state of a training, in its order."""
    prefixes = [name.removesuffix("index") for name in state if name.endswith("detectors.index")]
    return [
        {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        for prefix in prefixes
    ]


class WordDetectors(nn.Module):
    """P(w | image) = 1 − Π_i (1 − σ(u_w · a_i + c_w)): a word is in the image if it is in one of its regions.

    Captions name objects, but not their positions. With this noisy OR, a word is detected in the regions that
    distinguish images with the word from images without it. Words that are not specific to images, in more than half of
    the training images ("a", "in"), and rare words are left out.

    Args:
        region_size: D of the regions.
        vocabulary_size: V.
        words: W, the number of detected words: those in the captions of the most images.
        smoothing: width in cells of a Gaussian over the grid, which averages the log-odds; 0 = no smoothing.

    Source: Fang et al. 2015, "From Captions to Visual Concepts and Back", eq. 1.
    """

    index: Tensor
    prior: Tensor

    def __init__(self, region_size: int, vocabulary_size: int, words: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.layer = nn.Linear(region_size, min(words, vocabulary_size))
        nn.init.zeros_(self.layer.bias)
        # Both are computed from the training captions; `prepare` does so again when training resumes. Checkpoints keep
        # the index, which says what the weights' rows mean.
        self.register_buffer("index", torch.full((vocabulary_size,), -1))
        self.register_buffer("prior", torch.full((self.layer.out_features,), UNKNOWN_SHARE), persistent=False)

    def prepare(self, references: Iterable[Sequence[Sequence[int]]]) -> None:
        """Choose the words, and compute the share of images with each; for `references` see `Objective.prepare`."""
        counts = torch.zeros_like(self.index)
        images = 0
        for captions in references:
            counts[sorted(set(chain.from_iterable(captions)) - {*FORBIDDEN, END})] += 1
            images += 1
        counts[counts * 2 > images] = 0
        chosen = counts.argsort(descending=True, stable=True)[: len(self.prior)]
        chosen = chosen[counts[chosen] > 0]
        self.index.fill_(-1)
        self.index[chosen] = torch.arange(len(chosen), device=chosen.device)
        self.prior.fill_(UNKNOWN_SHARE)
        self.prior[: len(chosen)] = counts[chosen] / max(images, 1)

    def forward(self, regions: Regions) -> Tensor:
        """(B, L, W) log-odds that a word is in a region, in float32 at least; `FAR_BELOW` in masked regions."""
        # The probability in each region with which P equals the prior before training.
        real = torch.ones_like(regions.vectors[..., 0]) if regions.mask is None else regions.mask
        initial = -torch.expm1(torch.log1p(-self.prior) / real.sum(1)[:, None, None])
        vectors = regions.vectors.to(self.layer.weight.dtype)  # stored regions are in half precision
        scores = self.layer(vectors)
        if self.smoothing:
            scores = smoothed(scores.mT, regions.grid, self.smoothing, regions.mask).mT
        scores = single_precision(scores) + initial.logit()
        if regions.mask is not None:
            scores = scores.masked_fill(~regions.mask[..., None], FAR_BELOW)
        return scores

    def log_absent(self, scores: Tensor) -> Tensor:
        """(B, W) log(1 − P(w | image)), below 0."""
        return functional.logsigmoid(-scores).sum(1).clamp(max=-1e-6)

    def loss(self, log_absent: Tensor, shares: Tensor) -> Tensor:
        """(B,) cross-entropy summed over the W words, given log(1 − P) (B, W) and `shares` (B, W)."""
        return -(shares * log_present(log_absent) + (1 - shares) * log_absent).sum(1)

    def shares(self, words: Tensor, real: Tensor) -> Tensor:
        """Words (B, K, T), and which of them are real (B, K, T) -> (B, W) the share of an image's captions that contain
        each word."""
        index = self.index[words].masked_fill(~real, -1)
        present = index.new_zeros((*words.shape[:2], len(self.prior) + 1), dtype=self.layer.weight.dtype)
        present = present.scatter(2, index % present.shape[2], 1.0)[
            ..., :-1
        ]  # index -1 becomes the last column
        captions = real.any(2).sum(1, keepdim=True).clamp_min(1)
        return present.sum(1) / captions
