"""A photo that is encoded once and captioned under many edits of the attention.

    photo = EncodedPhoto(captioner, "photo.jpg")
    original = photo.caption()
    looking_left = photo.caption(NO_EDITS.plus([Force((2, 0), at=3)], original.caption), after=original)

The second caption keeps the first three words, and their steps are not computed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from caption.analysis.interventions.edited_attention import (
    combine_edits,
    edited_attention,
    fixed_seed,
    mask_views,
)
from caption.analysis.interventions.forced_attention import Change, Erase, visible_on
from caption.analysis.interventions.selection import Place, steps_of, tokens_of
from caption.analysis.module_copy import with_parts
from caption.attention.map_hooks import Edit
from caption.captioner import LIKELIEST, Captioner
from caption.core.errors import UserError
from caption.core.regions import Grid
from caption.core.runtime.eval_mode import eval_mode
from caption.core.tensor_tree import State, select_hypotheses
from caption.data.photos import Photo, open_image
from caption.data.text_files import short_repr
from caption.results.caption import Caption
from caption.search import BeamSearch, Search, Step
from caption.text.vocabulary import END, FORBIDDEN, START


def check_changes(changes: Sequence[object]) -> None:
    """Raise a UserError unless all are changes."""
    if others := [change for change in changes if not isinstance(change, (Change, Erase))]:
        raise UserError(
            f"{short_repr(others[0])} is no change: give them one by one, such as Force((0, 0), at=2), Mask((1, 1))"
        )


@dataclass(frozen=True, eq=False)
class Edits:
    """Changes of the attention, each resolved against the caption to which it refers."""

    maps: tuple[Edit, ...] = ()
    steps: tuple[frozenset[int] | None, ...] = ()
    """The steps of each of `maps`; None = all."""
    erased: tuple[Place, ...] = ()
    reference: Caption | None = None
    """A caption of the photo; the erased places refer to its grid and box."""

    def plus(self, changes: Sequence[Change | Erase], caption: Caption) -> Edits:
        """These edits, followed by changes.

        Args:
            changes: applied after these edits, in this order.
            caption: to which the steps, words and places of `changes` refer.

        Raises:
            ValueError: it has no such step, word or place.
            UserError: one of `changes` is none.
        """
        check_changes(changes)
        of_maps = [change for change in changes if isinstance(change, Change)]
        return Edits(
            self.maps + tuple(change.edit(caption) for change in of_maps),
            self.steps + tuple(steps_of(change.at, caption) for change in of_maps),
            self.erased + tuple(change.where for change in changes if isinstance(change, Erase)),
            caption,
        )

    def visible(self, grids: Sequence[Grid]) -> dict[Grid, Tensor]:
        """(L,) bool by grid: the regions that are not erased; {} = all."""
        if self.reference is None or not self.erased:
            return {}
        return {grid: visible_on(self.erased, self.reference, grid) for grid in grids}

    def edited_steps(self, caption: Caption) -> list[int]:
        """The steps of a caption at which maps are edited."""
        steps = range(len(tokens_of(caption)))
        return [step for step in steps if any(edited is None or step in edited for edited in self.steps)]

    def unchanged_words(self, before: Edits, caption: Caption) -> int:
        """Number of words of a caption before the first step that these edits change and `before` does not."""
        if len(self.erased) > len(before.erased):
            return 0
        newer = replace(self, steps=self.steps[len(before.steps) :])
        return min(newer.edited_steps(caption), default=len(caption.words))


NO_EDITS = Edits()


class ComputedStep(NamedTuple):
    """A step of one caption of one photo."""

    word: int
    """The word that was chosen."""
    log_probs: Tensor
    """(1, 1, V) of the words that could follow."""
    state: State
    """After the step, for one hypothesis."""


def with_computed_steps(step: Step, computed: Sequence[ComputedStep]) -> Step:
    """A step function for one search of one photo, whose first steps are not computed again.

    Args:
        step: scores the words after them.
        computed: the first steps of all hypotheses, whose words the search is given as their beginning.
    """
    remaining = iter(computed)

    def replayed(state: State, previous: Tensor) -> tuple[Tensor, State]:
        replay = next(remaining, None)
        if replay is None:
            return step(state, previous)
        # Every hypothesis continues the only one; the search drops all but the first as impossible.
        log_probs, carried, trace = select_hypotheses(
            (replay.log_probs, replay.state.carried, replay.state.trace), torch.zeros_like(previous)
        )
        return log_probs, State(replay.state.shared, carried, trace)

    return replayed


class EditedCaption(NamedTuple):
    """The caption of a photo under some edits, and the steps that were computed for it."""

    edits: Edits
    caption: Caption
    steps: list[ComputedStep]
    """One for each token of the caption, by teacher forcing."""

    @property
    def log_probs(self) -> np.ndarray:
        """(N,) natural log-probability of each token under the edits."""
        return log_probs_of(self.steps)


def log_probs_of(steps: Sequence[ComputedStep]) -> np.ndarray:
    """(N,) natural log-probability of the word of each step."""
    return np.array([float(step.log_probs[0, 0, step.word]) for step in steps])


class EncodedPhoto:
    """The regions of a photo, and the model that captions them.

    Args:
        captioner: the model; it is not modified.
        photo: see `Captioner.describe`.
        seed: for attention and searches that sample: all captions use the same random numbers, so that they differ only
            by the edits. The global generator is not used.
        watch: called before every step that is computed. It may raise an exception to stop the work.
        image: the photo, if it is decoded already.

    Raises:
        caption.core.errors.ImageError: the photo cannot be read.
    """

    def __init__(
        self,
        captioner: Captioner,
        photo: Photo,
        seed: int = 0,
        watch: Callable[[], None] | None = None,
        image: Image.Image | None = None,
    ) -> None:
        self.image = open_image(photo) if image is None else image
        self.photo = photo if image is None else image
        self.seed, self.watch = seed, watch
        self.seen = captioner.transform.box(*self.image.size)
        with eval_mode(captioner), torch.no_grad():
            # From the file, as for `describe`: JPEG decoders reduce large photos, and round their pixels otherwise.
            again = isinstance(photo, (str, os.PathLike, bytes))
            self.encoded = captioner.encode([captioner.transform.read(photo if again else self.image)])
            self.views = captioner.refine(self.encoded)
        self.grids: list[Grid] = [view.grid for view in self.views]
        self.model = with_parts(captioner, {"refiner": None})  # these regions are refined

    def caption(
        self, edits: Edits = NO_EDITS, search: Search | None = None, after: EditedCaption | None = None
    ) -> EditedCaption:
        """The photo's caption under some edits.

        Args:
            edits: of every hypothesis of the search.
            search: None = the search the model was saved with.
            after: another caption of the photo, under edits with which `edits` begin. The words before the first
                step that is changed are kept, and their steps are not computed again. None = search anew.

        Raises:
            ValueError: all regions are erased.
            UserError: the decoder has no attention, or no region is left to read.

        The caption has a `beam_tree`. Words that are kept are a single branch of it.
        """
        kept = [] if after is None else after.steps[: edits.unchanged_words(after.edits, after.caption)]
        model = self.model
        with eval_mode(model.decoder), torch.no_grad(), self._edited(edits, len(kept)) as visible:
            start = self._start(visible)
            with fixed_seed(self.seed, model.device):
                search = search or model.search
                hypotheses = search(
                    with_computed_steps(self._step, kept), start, 1, START, END, FORBIDDEN,
                    model.vocabulary.content if search.repeat_penalty else (),
                    beginning=[step.word for step in kept],
                    likeliest=LIKELIEST,
                    record=isinstance(search, BeamSearch),
                )  # fmt: skip
        caption = next(model.captions(hypotheses, self.grids, [self.seen], [self.photo])).stepwise
        return EditedCaption(edits, caption, self.follow(caption, edits, kept))

    def follow(
        self, caption: Caption, edits: Edits = NO_EDITS, computed: Sequence[ComputedStep] = ()
    ) -> list[ComputedStep]:
        """The steps of a caption's tokens under some edits, by teacher forcing.

        Args:
            caption: any.
            edits: as for `caption`.
            computed: the first steps of a caption under these edits. Those up to the first word in which the captions
                differ, which depend on the words before it alone, are not computed again.
        """
        words = [self.model.vocabulary[token] for token in tokens_of(caption)]
        steps: list[ComputedStep] = []
        for word, step in zip(words, computed, strict=False):
            steps.append(step._replace(word=word))
            if word != step.word:
                break
        with eval_mode(self.model.decoder), torch.no_grad(), self._edited(edits, len(steps)) as visible:
            state = steps[-1].state if steps else self._start(visible)
            previous = steps[-1].word if steps else START
            for word in words[len(steps) :]:
                log_probs, state = self._step(state, torch.tensor([[previous]], device=self.model.device))
                steps.append(ComputedStep(word, log_probs, state))
                previous = word
        return steps

    @contextmanager
    def _edited(self, edits: Edits, first_step: int) -> Iterator[Mapping[Grid, Tensor]]:
        """Edit the attention within the context. Yields the regions that are left, (L,) bool by grid, or {} for all."""
        visible = edits.visible(self.grids)
        edit = combine_edits(edits.maps, visible)
        with edited_attention(self.model.decoder, edit, self.grids, self.seed, first_step):
            yield visible

    def _step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        if self.watch is not None:
            self.watch()
        return self.model.decoder.step(state, words)

    def _start(self, visible: Mapping[Grid, Tensor]) -> State:
        if not visible:
            return self._whole
        return self.model.decoder.start(self.model.project(mask_views(self.views, visible)))

    @cached_property
    def _whole(self) -> State:
        """The state before the first word with all regions, whose projections are computed once."""
        return self.model.decoder.start(self.model.project(self.views))
