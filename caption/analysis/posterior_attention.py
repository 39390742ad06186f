"""Posterior attention: where a word came from, once it is known.

    maps = posterior(captioner, "photo.jpg")      # captions whose weights are P(i | y[t], y[<t], a)
    ground(zip(maps, boxes))                      # do they lie on the named objects?

Attention is decided before its word: α[t] must serve all words that may come next. Once y[t] is known, Bayes' rule
gives the region from which it came:

    P(z[t] = i | y[t]) = α[t,i] P(y[t] | z[t] = i) / Σ_j α[t,j] P(y[t] | z[t] = j)

This is exact for hard attention that looks at one region at step t and reads the expectation before. For soft
attention, whose word is computed from the mean of the regions, the same weights are treated as probabilities of single
regions.

Source: Shankar and Sarawagi 2019, "Posterior Attention Models for Sequence to Sequence Learning".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from caption.analysis.map_arithmetic import TINY
from caption.analysis.replay import Replay, Step, sentences
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import WeightProperties
from caption.data.photos import Photo
from caption.results.caption import Caption


@torch.no_grad()
def posterior(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    batch_size: int = 8,
    words: Mapping[int, Collection[int]] | None = None,
) -> list[Caption]:
    """Captions whose weights are posterior attention, a distribution over the regions.

    For P(y[t] | z[t] = i) every map of every attention is forced to region i at step t, as by `Force`; earlier steps
    keep their maps. It takes a step of the decoder for each region and word.

    Args:
        captioner: the model.
        photos: one, or many; a photo may come several times, once for each of its captions.
        captions: one for each photo, on the model's grid, such as from `attend_references`; None = the model's own.
        batch_size: captions at once, with all regions of each.
        words: by the number of a caption, the steps whose maps are wanted; others get weights of 0; None = all.

    Raises:
        UserError: the decoder has no attention, or one with negative weights.
        ValueError: there are more or fewer captions than photos.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    if captioner.decoder.properties.signed:
        raise UserError(
            "posterior attention needs weights that are probabilities: this attention has negative ones"
        )
    replay = Replay(captioner.decoder)
    posteriors: list[Caption] = []
    for batch in sentences(captioner, photos, captions, batch_size):
        grid = batch.views[0].grid
        weights = torch.zeros(*batch.words.shape, grid[0] * grid[1])
        for step in replay.steps(batch):
            numbers = [batch.first + row for row in step.rows.tolist()]
            wanted = [
                row
                for row, number in enumerate(numbers)
                if words is None or step.number in words.get(number, ())
            ]
            if wanted:
                part = step.take(step.rows.new_tensor(wanted))
                weights[part.rows.cpu(), part.number] = _of_step(replay, part).cpu()
        posteriors += [
            captioner.joined(
                caption.with_weights(of_caption[: len(caption.words)].numpy(), WeightProperties())
            )
            for caption, of_caption in zip(batch.captions, weights.unflatten(2, grid), strict=True)
        ]
    return posteriors


def _of_step(replay: Replay, step: Step) -> Tensor:
    """(B', L) posterior attention; 0 if the prior is 0 everywhere, because a sentinel has all attention."""
    prior = step.weights.float()
    log_likelihood = step.of_word(replay.rerun(step, replay.single_regions(step))).float()
    joint = prior * (log_likelihood - log_likelihood.amax(1, keepdim=True)).exp()
    return joint / joint.sum(1, keepdim=True).clamp_min(TINY)
