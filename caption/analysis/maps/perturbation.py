"""Maps from hiding regions: a word's log-probability is measured again with some of them hidden."""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor
from torch.nn import functional

from caption.analysis.maps.trial import Trial

WINDOW = 3
"""Side, in regions, of the windows of occlusion."""
MASKS = 500
"""Random masks of RISE; the paper takes 4,000 and more of pixels."""
CELLS = 4
"""Rows and columns of the coarse masks of RISE; 7 in the paper, for photos of 224 pixels."""
VISIBLE = 0.5
"""Share of the coarse cells that are visible, as in the paper."""
PATIENCE = 10.0
"""Seconds for each word, above which the time of Shapley values is said first."""
SAID: set[int] = set()
"""Numbers of regions for which it has been said."""
ORDERS = 64
"""Orders in which regions are added for Shapley values."""
TOGETHER = 8
"""Of these, those that are computed together."""


def occlusion(trial: Trial) -> Tensor:
    """How much log p falls when the region alone is hidden: measured, not estimated, for single regions."""
    weights = trial.step.weights
    visible = ~torch.eye(weights.shape[1], dtype=torch.bool, device=weights.device)
    return (trial.step.log_prob[:, None] - trial.log_probs(visible.expand(len(weights), -1, -1)))[:, None]


def occlusion_by_windows(trial: Trial) -> Tensor:
    """The fall of log p per hidden region, as the mean over all windows of `WINDOW` × `WINDOW` that hide the region.

    After Zeiler and Fergus 2014, section 4.2. Windows reach beyond the grid, so that each region lies in equally many.
    """
    rows, cols = trial.step.views[0].grid
    reach = WINDOW // 2
    centres = torch.cartesian_prod(torch.arange(-reach, rows + reach), torch.arange(-reach, cols + reach))
    cells = torch.cartesian_prod(torch.arange(rows), torch.arange(cols))
    hides = (centres[:, None] - cells).abs().amax(-1) <= reach  # (windows, L)
    windows = hides.to(trial.vectors)
    falls = trial.step.log_prob[:, None] - trial.log_probs((1 - windows).expand(len(trial.vectors), -1, -1))
    return ((falls / windows.sum(1)) @ windows / windows.sum(0))[:, None]


def rise(trial: Trial) -> Tensor:
    """Σ_n p(word | mask n) M_ni / Σ_n M_ni (Petsiuk et al. 2018, eq. 6, with the masks' own mean for E[M]).

    Masks are drawn coarsely, enlarged bilinearly and shifted at random, as in the paper, on the grid of regions.
    """
    masks = random_masks(trial.step.views[0].grid, MASKS, trial.generator).to(trial.vectors)
    probabilities = trial.log_probs(masks.expand(len(trial.vectors), -1, -1)).exp()
    return (probabilities @ masks / masks.sum(0))[:, None]


def random_masks(grid: tuple[int, int], count: int, generator: torch.Generator) -> Tensor:
    """(count, L) from 0, hidden, to 1: the masks of RISE, section 3.3."""
    rows, cols = grid
    height, width = (-(-side // CELLS) for side in grid)
    coarse = (torch.rand(count, 1, CELLS, CELLS, generator=generator) < VISIBLE).float()
    size = ((CELLS + 1) * height, (CELLS + 1) * width)
    fine = functional.interpolate(coarse, size, mode="bilinear", align_corners=False)[:, 0]
    tops = torch.randint(height, (count,), generator=generator).tolist()
    lefts = torch.randint(width, (count,), generator=generator).tolist()
    return torch.stack(
        [
            mask[top : top + rows, left : left + cols].flatten()
            for mask, top, left in zip(fine, tops, lefts, strict=True)
        ]
    )


def shapley(trial: Trial) -> Tensor:
    """Shapley values of the regions for log p, by sampling (Castro et al. 2009): (B', `ORDERS`, L).

    Regions are added one after the other in random orders, and each gets the rise of log p that it brings. The mean
    over the orders is unbiased, and sums to log p with all regions less log p with none.
    """
    (captions, regions), device, start = (
        trial.step.weights.shape,
        trial.step.weights.device,
        time.perf_counter(),
    )
    draws: list[Tensor] = []
    for _ in range(0, ORDERS, TOGETHER):
        places = torch.rand((TOGETHER, regions), generator=trial.generator).argsort(1).to(device)
        counts = torch.arange(regions + 1, device=device)[:, None]
        visible = places[:, None] < counts  # (orders, L + 1, L), one more each time
        log_probs = trial.log_probs(visible.flatten(0, 1).expand(captions, -1, -1))
        rises = log_probs.unflatten(1, (TOGETHER, regions + 1)).diff(dim=2)
        draws.append(rises.gather(2, places.expand(captions, -1, -1)))
        seconds = ORDERS / TOGETHER * (time.perf_counter() - start)
        if len(draws) == 1 and regions not in SAID and seconds > PATIENCE:
            SAID.add(regions)
            per_word = f"about {seconds:,.0f} seconds for each word"
            print(f"shapley: {per_word}, with {regions:,} regions; Ctrl-C stops", file=sys.stderr, flush=True)
    return torch.cat(draws, 1)


class AtRandom:
    """Random numbers, the maps of chance; several are drawn for each word.

    Args:
        draws: number of maps for each word.
    """

    def __init__(self, draws: int = 5) -> None:
        self.draws = draws

    def __call__(self, trial: Trial) -> Tensor:
        words, regions = trial.step.weights.shape
        scores = torch.rand((words, self.draws, regions), generator=trial.generator)
        return scores.to(trial.step.weights.device)
