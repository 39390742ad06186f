"""Self-critical sequence training: REINFORCE on whole captions with their scores as the reward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from caption.core.batch import CaptionBatch
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.core.runtime.eval_mode import eval_mode
from caption.core.tensor_tree import indices
from caption.decoders.base import Decoder, Memory
from caption.metrics.bleu import sentence_bleu
from caption.metrics.cider import CiderD
from caption.objectives.base import Loss, Objective, count_elements
from caption.search import Sampling
from caption.text.sense import is_nonsense, names_person
from caption.text.vocabulary import END, FORBIDDEN, START

if TYPE_CHECKING:
    from caption.captioner import Captioner
    from caption.text.vocabulary import Vocabulary


class SelfCriticalSequence(Objective):
    """−Σ_s (r_s − b_s) log p(y_s|a) over S sampled captions of each image, averaged over the samples.

    r is CIDEr-D against the captions of the image in the batch (all of them with `data.captions_per_image: null`); 0
    for an image without captions. The end token counts as a word; otherwise the model learns to stop early. b_s is the
    mean reward of the image's other samples (leave-one-out), instead of the reward of the greedy caption in Rennie et
    al. 2017, "Self-Critical Sequence Training for Image Captioning", so no second search is needed. Weights of n-grams
    come from the training captions. With `bleu`, BLEU-4 is added to r. CIDEr-D pays for frequent n-grams whether they
    make sense or not ("a man in a"). So `sense` lowers r for samples that name a person where no caption of the image
    does, and for nonsense ("a kitchen with a kitchen"), by the rules of `caption.text.sense` for English.

    Train with cross-entropy first, and start from that model with `warm_start`. The decoder's dropout is off, so that
    the captions are samples of the distribution whose gradient is taken.

    Args:
        samples: S, at least 2.
        max_length: largest number of words of a sample, with the end token.
        bleu: weight of the sample's BLEU-4 (`sentence_bleu`, 0 to 1) in r, added to CIDEr-D (0 to 10).
        sense: subtracted from r for each of the two faults.

    Raises:
        UserError: fewer than two samples, or a weight below 0.
    """

    def __init__(self, samples: int = 5, max_length: int = 25, bleu: float = 0.0, sense: float = 0.0) -> None:
        super().__init__()
        if samples < 2:
            raise UserError(
                f"samples must be 2 or more, not {samples}, because each sample is compared with the others"
            )
        for name, weight in (("bleu", bleu), ("sense", sense)):
            if not weight >= 0:
                raise UserError(f"{name} must be a weight of at least 0, not {weight}")
        self.bleu, self.sense = bleu, sense
        self.search = Sampling(samples=samples, max_length=max_length)
        self.cider: CiderD | None = None

    def prepare(self, references: Iterable[Sequence[Sequence[int]]]) -> None:
        self.cider = CiderD([list(map(_words, captions)) for captions in references])

    def forward(self, captioner: Captioner, views: Views, captions: CaptionBatch) -> Loss:
        decoder, memory = captioner.decoder, captioner.project(views)
        with eval_mode(decoder):
            sampled = self._sample(decoder, memory, len(captions.words))
            unrolled = decoder(memory, sampled.words, sampled.lengths)
        if unrolled.trace.log_prob is not None:
            raise UserError(
                "self-critical training has no gradient for sampled attention: train soft attention with it"
            )
        logits = unrolled.logits.float()
        log_probs = logits.index_fill(1, indices(FORBIDDEN, logits.device), -torch.inf).log_softmax(-1)
        log_likelihoods = log_probs.gather(1, unrolled.pack(sampled.targets)[:, None]).squeeze(1)
        rewards = self._rewards(sampled, captions)
        if self.sense:
            rewards -= self.sense * _faults(sampled, captions, captioner.vocabulary)
        rewards = rewards.to(logits)
        baselines = (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
        elements = count_elements(sampled, unrolled)
        value = -elements.mean(((rewards - baselines) * unrolled.unpack(log_likelihoods).sum(-1)).sum())
        logged = {"reward": rewards.mean(), "sampled_words": elements.words / elements.captions}
        return Loss(value, logged, unrolled)

    @torch.no_grad()
    def _sample(self, decoder: Decoder, memory: Memory, images: int) -> CaptionBatch:
        """S captions of each image, in the form for teacher forcing."""
        samples = self.search(decoder.step, decoder.start(memory), images, START, END, FORBIDDEN)
        ends = samples.words.new_full((*samples.words.shape[:2], 1), END)
        targets = torch.cat((samples.words, ends), -1)  # padded with END already
        lengths = samples.lengths + samples.finished
        inputs = torch.cat((torch.full_like(ends, START), samples.words), -1)
        return CaptionBatch(inputs, targets, lengths)

    def _rewards(self, sampled: CaptionBatch, captions: CaptionBatch) -> Tensor:
        """(B, S) CIDEr-D of the samples, and their weighted BLEU-4; 0 for an image without captions."""
        assert self.cider is not None
        rewards = torch.zeros(sampled.lengths.shape)
        images = zip(_sentences(sampled), _sentences(captions), strict=True)
        for image, (samples, texts) in enumerate(images):
            if references := [words for words in texts if words]:
                rewards[image] = torch.tensor(self.cider(samples, references))
                if self.bleu:
                    rewards[image] += self.bleu * torch.tensor(sentence_bleu(samples, references))
        return rewards


def _faults(sampled: CaptionBatch, captions: CaptionBatch, vocabulary: Vocabulary) -> Tensor:
    """(B, S) the faults of each sample, 0 to 2: a person where no caption of the image has one, and nonsense."""
    rows = []
    for samples, references in zip(_sentences(sampled), _sentences(captions), strict=True):
        of_samples, of_people = (
            [vocabulary.decode(map(int, ids)) for ids in group] for group in (samples, references)
        )
        nobody = any(references) and not any(map(names_person, of_people))
        rows.append([(nobody and names_person(words)) + is_nonsense(words) for words in of_samples])
    return torch.tensor(rows, dtype=torch.float)


def _sentences(captions: CaptionBatch) -> list[list[list[str]]]:
    """The words of each caption of each image; none for an absent caption."""
    return [
        [_words(ids[:length]) for ids, length in zip(group, lengths, strict=True)]
        for group, lengths in zip(captions.targets.tolist(), captions.lengths.tolist(), strict=True)
    ]


def _words(ids: Sequence[int]) -> list[str]:
    return list(map(str, ids))
