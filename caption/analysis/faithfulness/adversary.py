"""Adversarial maps: how far can a word's map go from α while the prediction stays the same?

If a map unlike α gives the same distribution over the next word, α is not the only explanation of it
(Jain and Wallace 2019, "Attention is not Explanation", section 4.2.2). The map is searched for each word by gradients:

    maximise JS(α', α)    such that    TV(p(y | α'), p(y | α)) ≤ tolerance

Wiegreffe and Pinter 2019 ("Attention is not not Explanation", section 4) object that such maps need not be the maps of
any model, and train one adversary for all words. A map of its own for each word goes at least as far as any such model,
so a small divergence here answers the question for both; a large one shows what the read-out permits, not what a model
would learn. It needs no training, and works with every mechanism. Only one step is changed at a time.

    adversaries = adversarial_maps(captioner, "photo.jpg")
    adversaries.divergences.mean()             # bits: 0 if no other map will do, at most 1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from caption.analysis.faithfulness.permutation import permuted, real_regions
from caption.analysis.map_arithmetic import TINY, sums, with_map_dims
from caption.analysis.map_statistics import divergence
from caption.analysis.per_word import Measurements, PerWord
from caption.analysis.replay import Maps, Replay, Step, sentences
from caption.captioner import Captioner
from caption.core.regions import Grid
from caption.core.tensor_tree import map_tensors
from caption.data.photos import Photo
from caption.results.caption import Caption

TOLERANCE = 0.05
"""Total variation that counts as the same prediction: a twentieth of the probability has moved."""
LEARNING_RATE = 0.3
"""Of the logits of the maps, in Adam."""
PENALTY = 10.0
"""Bits that a total variation of 1 beyond the tolerance costs while the maps are searched."""
SMALLEST = 1e-6
"""Weights below count as this where the search starts, since a softmax cannot leave 0."""
MIXTURES = 33
"""Mixtures of α and the map found, of which the farthest that keeps the tolerance is taken."""


@dataclass(frozen=True, repr=False)
class Adversaries(PerWord):
    """N words, each with the farthest map that was found."""

    divergences: np.ndarray
    """(N,) Jensen-Shannon divergence of α and that map in bits, 0 to 1; of several maps, such as heads, the mean."""
    distances: np.ndarray
    """(N,) total variation between the two distributions over the next word; at most the tolerance."""
    permuted: np.ndarray
    """(N,) the mean divergence of α and α permuted: how far a map goes that is changed without regard to the word."""
    permuted_distances: np.ndarray
    """(N,) the mean total variation of these."""
    weights: np.ndarray
    """(N, L) the map found, in the place of α; of several maps their summary."""

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """How far the map found and α permuted are from α, in bits."""
        return {"map found": self.divergences, "permuted": self.permuted}


def adversarial_maps(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    tolerance: float = TOLERANCE,
    steps: int = 60,
    starts: int = 2,
    seed: int = 0,
    batch_size: int = 32,
) -> Adversaries:
    """Search, for every word of the captions of some photos, the map farthest from α that gives the same prediction.

    Args:
        captioner, photos, captions, batch_size: see `replay.sentences`. The end word is not measured.
        tolerance: the total variation that counts as the same prediction.
        steps: of gradient descent.
        starts: number of permutations of α from which the search starts. The farthest map is kept.
        seed: for the permutations.

    Raises:
        UserError: the decoder has no attention.
        ValueError: photos and captions differ in number, or the tolerance is negative.
    """
    if tolerance < 0:
        raise ValueError(f"tolerance {tolerance} must be a total variation, 0 to 1")
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(captioner.decoder)
    measured = Measurements()
    for batch in sentences(captioner, photos, captions, batch_size):
        for step in replay.steps(batch):
            begin = permuted(replay, step, step.maps, starts, generator)
            searched = _search(replay, step, begin, tolerance, steps)
            measured.add(batch, step, _measures(replay, step, begin, searched, tolerance))
    return measured.result(Adversaries, dict.fromkeys(Adversaries.__annotations__, np.zeros(0)))


def _search(replay: Replay, step: Step, begin: Maps, tolerance: float, steps: int) -> Maps:
    """Maps found by gradient descent on the logits of `begin`, with the same K."""
    before = replay.grid_maps(step, begin)
    totals = [sums(map_) for map_ in before]
    hides = partial(_hides, step)
    logits = [
        map_.abs().clamp_min(SMALLEST).log().masked_fill(masked, -torch.inf).requires_grad_()
        for map_, masked in zip(
            before, replay.grid_maps(step, replay.over_grids(hides, step, begin)), strict=True
        )
    ]
    optimizer = torch.optim.Adam(logits, lr=LEARNING_RATE)
    alpha = replay.grid_maps(step)

    def maps() -> list[Tensor]:
        return [logit.softmax(-1) * total for logit, total in zip(logits, totals, strict=True)]

    for _ in range(steps):
        with torch.enable_grad():
            current = maps()
            log_probs = replay.rerun(step, replay.with_grid_maps(current, step, begin))
            beyond = (step.distance(log_probs) - tolerance).clamp_min(0)
            loss = (PENALTY * beyond - _divergence(alpha, current)).sum()
            # The model's own weights get no gradient.
            for logit, gradient in zip(logits, torch.autograd.grad(loss, logits), strict=True):
                logit.grad = gradient
        optimizer.step()
    return replay.with_grid_maps([map_.detach() for map_ in maps()], step, begin)


def _hides(step: Step, weights: Tensor, grid: Grid) -> Tensor:
    """Bool, in the shape of a map (B', K, ..., L): the regions that the encoder has masked."""
    return ~with_map_dims(real_regions(step, grid)[:, None], weights).expand_as(weights)


def _measures(replay: Replay, step: Step, begin: Maps, searched: Maps, tolerance: float) -> dict[str, Tensor]:
    """(B', ...) by the fields of `Adversaries`: of the farthest mixture of α with a map found that keeps the tolerance,
    and of the maps begun with."""
    alpha = replay.grid_maps(step)
    mixed = [
        torch.cat([(1 - share) * before + share * after for share in np.linspace(0, 1, MIXTURES)], 1)
        for before, after in zip(alpha, replay.grid_maps(step, searched), strict=True)
    ]
    wide = map_tensors(lambda tensor: tensor.repeat(1, MIXTURES, *[1] * (tensor.dim() - 2)), searched)
    distances = step.distance(replay.rerun(step, replay.with_grid_maps(mixed, step, wide)))
    keeps = distances <= tolerance
    keeps[:, : distances.shape[1] // MIXTURES] = True  # α itself, up to rounding
    divergences, best = _divergence(alpha, mixed).where(keeps, -1.0).max(1)
    rows = torch.arange(len(best), device=best.device)
    farthest = replay.with_grid_maps([map_[rows, best][:, None] for map_ in mixed], step)
    return {
        "divergences": divergences,
        "distances": distances[rows, best],
        "permuted": _divergence(alpha, replay.grid_maps(step, begin)).mean(1),
        "permuted_distances": step.distance(replay.rerun(step, begin)).mean(1),
        "weights": replay.summary(step, farthest)[:, 0],
    }


def _divergence(alpha: Sequence[Tensor], maps: Sequence[Tensor]) -> Tensor:
    """(B', K) bits: the mean over all maps, each taken as the distribution |α_i| / Σ_j |α_j|."""
    of_maps = []
    for before, after in zip(alpha, maps, strict=True):
        p, q = (
            weights.abs() / weights.abs().sum(-1, keepdim=True).clamp_min(TINY) for weights in (before, after)
        )
        of_maps.append(divergence(p, q).flatten(2).mean(-1) if p.dim() > 3 else divergence(p, q))
    return torch.stack(of_maps).mean(0)
