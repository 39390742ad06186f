"""One word with the attention forced to every region in turn.

    result = force_everywhere(captioner, "photo.jpg", at="circle")

`result.words` has the likeliest word for each region, and `result.probability` says how likely "circle" remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import torch
from torch import Tensor

from caption.analysis.interventions.selection import step_of, tokens_of
from caption.analysis.map_arithmetic import resampled, with_map_dims, with_sum_of
from caption.analysis.module_copy import with_parts
from caption.attention.map_hooks import Edit, Grid, attentions, edit_maps
from caption.attention.stochastic import override_at_test
from caption.captioner import Captioner
from caption.data.decoding import Photo, open_image
from caption.result import Caption
from caption.runtime.eval_mode import eval_mode
from caption.search import Search
from caption.tensor_tree import select_images
from caption.text.vocabulary import START

AT_ONCE = 64
"""Regions that are forced together; bounds the memory."""


@dataclass(frozen=True, eq=False)
class ForcedStep:
    """The predictions of one step of a caption with all attention on one region, for each region."""

    caption: Caption
    """Of the unedited model; the words before the step are those of this caption."""
    step: int
    """Counted from 0."""
    words: list[list[str]]
    """(rows, cols) the likeliest word."""
    probability: np.ndarray
    """(rows, cols) float32, the probability of the caption's own word."""


@torch.no_grad()
def force_everywhere(
    captioner: Captioner, photo: Photo, at: SupportsIndex | str, search: Search | None = None
) -> ForcedStep:
    """Force the attention of one word to each region of the first grid in turn.

    Every map of every attention is forced, as by `Force`. Attention that samples reads its expectation.

    Args:
        captioner: the model; it is the same afterwards.
        photo: see `Captioner.describe`.
        at: a step, or a word that the caption says once.
        search: None = the search the model was saved with.

    Raises:
        ValueError: there is no such step or word.
        UserError: the decoder has no attention.
        caption.errors.ImageError: the photo cannot be read.
    """
    attentions(captioner.decoder)
    image = open_image(photo)
    with eval_mode(captioner), override_at_test(captioner, "expectation"):
        views = captioner.refine(captioner.encode([image]))
        model = with_parts(captioner, {"refiner": None})  # these regions are refined
        grids = [view.grid for view in views]
        seen = model.transform.box(*image.size)
        caption = next(model.captions(model.generate(views, search), grids, [seen], [image]))
        tokens = tokens_of(caption)
        step = step_of(at, tokens)
        ids = [START, *(model.vocabulary[token] for token in tokens[: step + 1])]
        rows, cols = grids[0]
        parts = []
        for regions in torch.eye(rows * cols, device=model.device).split(AT_ONCE):
            copies = select_images(views, torch.zeros(len(regions), dtype=torch.long, device=model.device))
            with edit_maps(model.decoder, _forced(regions, grids[0], step), grids):
                state = model.decoder.start(model.project(copies))
                for word in ids[:-1]:
                    inputs = torch.full((len(regions), 1), word, device=model.device)
                    log_probs, state = model.decoder.step(state, inputs)
            parts.append(log_probs[:, 0])
    log_probs = torch.cat(parts)
    best = [model.vocabulary.words[number] for number in log_probs.argmax(-1).tolist()]
    probability = log_probs[:, ids[-1]].exp().float().view(rows, cols).cpu().numpy()
    return ForcedStep(
        caption, step, [best[row * cols : (row + 1) * cols] for row in range(rows)], probability
    )


def _forced(regions: Tensor, grid: Grid, at: int) -> Edit:
    """An edit that gives image b of the batch the map regions[b] (L,) over `grid` at one step."""

    def edit(weights: Tensor, step: int, other: Grid) -> Tensor:
        if step != at:
            return weights
        target = resampled(regions, grid, other)[:, None]  # (B, 1, L')
        return with_sum_of(weights, with_map_dims(target, weights))

    return edit
