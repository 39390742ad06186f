"""Ablation of regions at one step, in two ways, which differ in what happens to the weight of hidden regions.

    Removed     the other regions share it in proportion: α_i / Σ_visible α. For a softmax of scores, this is as if the
                regions had not been in the memory. The model may find the same thing in a neighbouring region.
    Replaced    it goes to a vector without information about the image. The maps stay the same, and no neighbour is
                read more than before.

Only this step's context changes: the words before, the LSTM's state and its first state stay as they were. With several
grids, regions are hidden on that of the summary weights, and on the others by the area that they cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from caption.analysis.map_arithmetic import resampled, rescaled, with_map_dims
from caption.analysis.replay import Reading, Replay, Sentences, Step, batches
from caption.captioner import Captioner
from caption.core.regions import Grid, Regions, mean_region
from caption.core.runtime.eval_mode import eval_mode
from caption.core.tensor_tree import select_images
from caption.data.photos import Photo

Ablate = Callable[[Step, Tensor], Sequence[Reading]]
"""A step, and how much of each region is visible (B', K, L), bool or 0 to 1 -> readings for `Replay.rerun`."""


class Removed:
    """The regions that are left share the sum of every map. If none are left, all weights are 0."""

    def prepare(self, replay: Replay, batch: Sentences) -> Ablate:
        """The ablation for a batch of sentences."""

        def ablate(step: Step, visible: Tensor) -> list[Reading]:
            def left(weights: Tensor, grid: Grid) -> Tensor:
                return rescaled(weights * _share(visible, step, weights, grid), weights)

            return [Reading(replay.over_grids(left, step))]

        return ablate


class Replaced:
    """A hidden region is read with another vector in place of its own.

    The context is read(kept weights, memory) + read(hidden weights, blank memory) − read(no weights, memory). This is
    exact for every mechanism whose context is affine in its maps; for others, such as pooling by a maximum, take
    `Removed`. The blank memory is made of the same grids filled with the vector.

    Args:
        vector: (D,), as the decoder gets its regions, for instance `mean_regions`; one for each view, if there are
            several. None = the mean of the image's own regions: what the image shows, but not where.
    """

    def __init__(self, vector: Tensor | Sequence[Tensor] | None = None) -> None:
        self.vectors = [vector] if isinstance(vector, Tensor) else vector

    def prepare(self, replay: Replay, batch: Sentences) -> Ablate:
        """The ablation for a batch of sentences.

        Raises:
            ValueError: there is not one vector for each view, or its length is not D.
        """
        vectors = [None] * len(batch.views) if self.vectors is None else self.vectors
        if len(vectors) != len(batch.views):
            raise ValueError(
                f"an image has {len(batch.views)} views, so one vector for each is needed, not {len(vectors)}"
            )
        with torch.no_grad():
            blank = replay.decoder.project(tuple(map(_filled, batch.views, vectors)))

        def ablate(step: Step, visible: Tensor) -> list[Reading]:
            def kept(weights: Tensor, grid: Grid) -> Tensor:
                return weights * _share(visible, step, weights, grid)

            def hidden(weights: Tensor, grid: Grid) -> Tensor:
                return weights * (1 - _share(visible, step, weights, grid))

            return [
                Reading(replay.over_grids(kept, step)),
                Reading(replay.over_grids(hidden, step), select_images(blank, step.rows)),
                Reading(replay.over_grids(lambda weights, grid: torch.zeros_like(weights), step), sign=-1),
            ]

        return ablate


Ablation = Removed | Replaced


def mean_regions(captioner: Captioner, photos: Photo | Iterable[Photo], batch_size: int = 32) -> list[Tensor]:
    """(D,) for each view: the mean of all real regions of many photos; each photo counts alike."""
    means: list[list[Tensor]] = []
    with eval_mode(captioner), torch.no_grad():
        for batch in batches(photos, batch_size):
            means.append([mean_region(view)[:, 0] for view in captioner.refine(captioner.encode(batch))])
    return [torch.cat(of_view).mean(0) for of_view in zip(*means, strict=True)]


def _share(visible: Tensor, step: Step, weights: Tensor, grid: Grid) -> Tensor:
    """(B', K, L) over the summary's grid -> how much of each region of a map (B', K, ..., L') is visible."""
    return with_map_dims(resampled(visible.to(weights.dtype), step.views[0].grid, grid), weights)


def _filled(view: Regions, vector: Tensor | None) -> Regions:
    """The view with one vector everywhere."""
    if vector is None:
        return view._replace(vectors=mean_region(view).expand_as(view.vectors))
    if vector.shape != view.vectors.shape[2:]:
        raise ValueError(
            f"a region is replaced by ({view.vectors.shape[2]},) numbers, not {tuple(vector.shape)}"
        )
    return view._replace(vectors=vector.to(view.vectors).expand_as(view.vectors))
