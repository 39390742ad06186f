"""What a map method is: a function from a model, photos and captions to the same captions with other weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from caption.analysis.ablation import Removed
from caption.analysis.maps.trial import Score, Trial
from caption.analysis.replay import Replay, sentences
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import WeightProperties
from caption.core.runtime.progress import progress_bar
from caption.data.photos import FittedPhoto, Photo
from caption.results.caption import AttentionMaps, Caption

Draw = Callable[[Captioner, Sequence[Photo], Sequence[Caption]], list[Caption]]
"""A model, photos, and of each photo a caption with the model's own weights, a word for each step -> the captions with
the method's weights, without further maps. Only methods that compare photos need more than one."""

UNSCALED = WeightProperties(sums_to_one=False)
"""Of maps whose scale differs from word to word."""
ERROR = "standard error"
"""The name in `Caption.maps` of the standard error of maps that are drawn at random."""


@dataclass(frozen=True)
class MapMethod:
    """A way to say, for each word of a caption, which regions of the photo matter."""

    name: str
    """On the command line."""
    source: str
    """The paper, and what the map shows."""
    draw: Draw
    cost: str = "none"
    """Of a word: how often the model computes it again."""
    replays: bool = False
    """It runs the words' steps again; hard attention then reads its expectation, Σ α_i a_i."""
    several: bool = False
    """It compares photos, so that one alone is not enough."""

    def __call__(
        self, captioner: Captioner, photos: Sequence[Photo], captions: Sequence[Caption]
    ) -> list[Caption]:
        """See `draw`.

        Raises:
            UserError: it compares photos, and there are not two with words, on one grid; or it is not possible with
                this model.
        """
        spoken = [caption for caption in captions if caption.words]
        if self.several and (len(spoken) < 2 or len({caption.weights.shape[1:] for caption in spoken}) > 1):
            raise UserError(
                f"the map {self.name} compares photos: give two or more, whose captions have words, on one grid"
            )
        if self.replays:
            return self.draw(captioner, photos, captions)
        steps = [caption.stepwise for caption in captions]
        drawn = self.draw(captioner, photos, steps)
        return [
            caption if maps is step else captioner.joined(maps)
            for caption, step, maps in zip(captions, steps, drawn, strict=True)
        ]


def of_captions(
    name: str, source: str, change: Callable[[Sequence[Caption]], list[Caption]], several: bool = False
) -> MapMethod:
    """A method that does not ask the model."""
    return MapMethod(name, source, lambda captioner, photos, captions: change(captions), several=several)


def at_step(name: str, source: str, score: Score, cost: str, signed: bool = False) -> MapMethod:
    """A method that scores the regions at each word's own step.

    Hidden regions leave their weight to the others (`Removed`). Where the score is drawn at random several times, the
    weights are the mean, and their standard error is in `Caption.maps`.

    Args:
        name, source, cost: see `MapMethod`.
        score: of the regions.
        signed: whether scores may be negative.
    """

    def draw(captioner: Captioner, photos: Sequence[Photo], captions: Sequence[Caption]) -> list[Caption]:
        replay, properties = Replay(captioner.decoder), UNSCALED._replace(signed=signed)
        generator = torch.Generator().manual_seed(0)
        drawn = []
        with progress_bar("maps", len(photos), unit="photos") as advance:
            # One by one: photos may have different grids.
            for batch in sentences(captioner, photos, captions, batch_size=1):
                ablate, grid = Removed().prepare(replay, batch), batch.views[0].grid
                if grid == (1, 1):
                    raise UserError(
                        f"{type(captioner.encoder).__name__} gives one region, so that there is no map: take an "
                        "encoder that keeps its grid"
                    )
                trials = (Trial(replay, step, ablate, generator, batch.first) for step in replay.steps(batch))
                of_words = [score(trial)[0].detach().float().cpu().numpy() for trial in trials]
                draws = np.stack(of_words) if of_words else np.zeros((0, 1, grid[0] * grid[1]))
                draws = draws.reshape(*draws.shape[:2], *grid)  # (T, R, rows, cols)
                maps = {}
                if draws.shape[1] > 1:
                    maps[ERROR] = draws.std(1, ddof=1) / draws.shape[1] ** 0.5
                caption, photo = batch.captions[0], batch.photos[0]
                drawn.append(placed(captioner, caption, photo, draws.mean(1), properties, maps))
                advance(1)
        return drawn

    return MapMethod(name, source, draw, cost, replays=True)


def placed(
    captioner: Captioner,
    caption: Caption,
    photo: FittedPhoto,
    weights: np.ndarray,
    properties: WeightProperties = UNSCALED,
    maps: Mapping[str, np.ndarray] | None = None,
) -> Caption:
    """A caption with weights over the model's first grid, in place of those that it had.

    Args:
        captioner: the model.
        caption: with a word for each step.
        photo: that was captioned.
        weights: (T, rows, cols).
        properties: of them.
        maps: further maps, by name.
    """
    other = caption.with_weights(weights, properties)
    box = captioner.boxes(photo.box)[0]
    other = replace(other, maps=AttentionMaps({**(maps or {})}), box=box, seen=photo.box, image=photo.photo)
    return captioner.joined(other)
