"""Attention that is guided by word detectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from caption.core.batch import CaptionBatch
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.decoders.base import Decoder, Unrolled
from caption.objectives.base import PER_IMAGE, Loss, Objective, count_elements
from caption.objectives.cross_entropy import CrossEntropy
from caption.objectives.word_detectors import WordDetectors, log_present

if TYPE_CHECKING:
    from caption.captioner import Captioner

SMALLEST = 1e-8
"""Smaller weights are clamped to this in log α."""


class GuidedAttention(Objective):
    """L + λ_d · L_detect + λ Σ_t g_t KL(β_t ‖ α_t), the last two averaged over images and captions.

    L is the loss of soft attention. L_detect trains detectors of words in regions (`WordDetectors`) on the image's
    captions alone. They read the encoder's regions before a refiner, in which positions are least mixed. β_t is the map
    of the detectors for the word y_t, softmax(κ s) of its log-odds s; with κ = 1, these are the probabilities of the
    regions if exactly one contains the word. g_t, between 0 and 1, is the detectors' gain, log P(y_t | image) −
    log P(y_t) in nats, so words that are not detected, such as "in" or rare words, do not guide the attention. β and g
    have no gradient, so the divergence does not adapt the detectors to the attention. L_detect also trains an encoder
    that is fine-tuned. The saved captioner does not contain the detectors; a training that starts from the checkpoint
    (`warm_start`) and detects the same words takes them from there.

    The divergence is that of Zhou et al. 2020, "More Grounded Image Captioning by Distilling Image-Text Matching
    Model", whose maps come from a matching model over detected objects.

    Args:
        objective: L; None = `CrossEntropy()`.
        weight: λ.
        detection: λ_d.
        sharpness: κ.
        words: number of words that are detected: the most frequent ones among those in at most half of the images.
        smoothing: width in cells of a Gaussian over the grid, which averages the detectors' log-odds; see
            `ScoredAttention`. 0 = no smoothing.

    Raises:
        UserError: a number is negative, or there are no words.
    """

    detectors: WordDetectors

    def __init__(
        self,
        objective: CrossEntropy | None = None,
        weight: float = 0.2,
        detection: float = 0.1,
        sharpness: float = 1.0,
        words: int = 1000,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        weights = all(number >= 0 for number in (weight, detection, smoothing))  # NaN is not
        if not weights or not sharpness > 0 or words < 1:
            raise UserError(
                f"weight {weight}, detection {detection} and smoothing {smoothing} must be at least 0, sharpness "
                f"{sharpness} above 0, and words {words} at least 1"
            )
        self.objective = objective or CrossEntropy()
        self.weight = weight
        self.detection = detection
        self.sharpness = sharpness
        self.words = words
        self.smoothing = smoothing

    def build(self, query_size: int, region_sizes: tuple[int, ...], vocabulary_size: int) -> None:
        super().build(query_size, region_sizes, vocabulary_size)
        self.detectors = WordDetectors(region_sizes[0], vocabulary_size, self.words, self.smoothing)

    def prepare(self, references: Iterable[Sequence[Sequence[int]]]) -> None:
        references = list(references)
        super().prepare(references)
        self.detectors.prepare(references)

    def forward(self, captioner: Captioner, views: Views, captions: CaptionBatch) -> Loss:
        loss = self.objective(captioner, views, captions)
        unrolled = loss.unrolled
        elements = count_elements(captions, unrolled)
        scores = self.detectors(views[0])
        log_absent = self.detectors.log_absent(scores)
        shares = self.detectors.shares(captions.targets, captions.real())
        captioned = captions.real().flatten(1).any(1)
        detection = elements.mean((self.detectors.loss(log_absent, shares) * captioned).sum(), PER_IMAGE)
        divergence = self._divergence(captioner.decoder, unrolled, captions, scores, log_absent).sum()
        divergence = elements.mean(divergence)
        value = loss.value + self.detection * detection + self.weight * divergence
        logged = {"detection": detection.detach(), "guidance": divergence.detach()}
        return Loss(value, loss.logged | logged, unrolled)

    def _divergence(
        self, decoder: Decoder, unrolled: Unrolled, captions: CaptionBatch, scores: Tensor, log_absent: Tensor
    ) -> Tensor:
        """(N,) g_t KL(β_t ‖ α_t)."""
        weights = unrolled.trace.weights.to(scores.dtype)
        if decoder.properties.signed or weights.shape[-1] != scores.shape[1]:
            raise UserError(
                "GuidedAttention needs maps over the regions of the first view, with weights of at least 0: this "
                f"attention has maps of {weights.shape[-1]} cells over {scores.shape[1]} regions"
                + (", some negative" if decoder.properties.signed else "")
            )
        word = self.detectors.index[unrolled.pack(captions.targets)]
        image = unrolled.positions // (unrolled.shape[1] * unrolled.shape[2])
        detected = word >= 0
        with torch.no_grad():
            log_guide = (self.sharpness * scores[image, :, word]).log_softmax(-1)  # log β_t
            present = log_present(log_absent[image, word])
            gain = (present - self.detectors.prior[word].log()).clamp(0, 1) * detected
        if not decoder.properties.sums_to_one:  # larger weights everywhere would lower the divergence
            weights = weights / weights.sum(-1, keepdim=True).clamp_min(SMALLEST)
        log_weights = weights.clamp_min(SMALLEST).log()
        return gain * (log_guide.exp() * (log_guide - log_weights)).sum(-1)
