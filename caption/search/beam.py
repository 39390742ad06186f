"""Beam search: the K most probable beginnings, extended side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from caption.errors import UserError
from caption.search.base import Hypotheses, Search, Step
from caption.search.blocks import largest
from caption.search.history import Choice, Endings
from caption.search.loop import device_of, explore, require_length
from caption.tensor_tree import State


@dataclass(frozen=True)
class BeamSearch(Search):
    """Beam search with a pool of finished hypotheses.

    At every step, of all the one-word extensions of an image's live hypotheses, the `beam_size` most probable
    are taken. Those that emit the end word go to the image's pool; the others live on, and the next step
    again takes `beam_size` extensions of however many live. A beam of size 1 is therefore greedy search.

    Hypotheses are ranked by

        score = log p(words, end) / length ** length_normalization

    where `length` counts the emitted words including the end word; 0 is no normalisation, the plain sum of
    log-probabilities, which favours short captions; 1 is the mean per word.

    An image is done when it has `candidates` finished hypotheses that none of the live ones can overtake: no
    log-probability is above 0, so a live hypothesis of log-probability s can reach a score of at most
    s / max_length ** length_normalization. Stopping there is exact: it returns what going on to `max_length`
    would. Hypotheses still live at `max_length` fill up where fewer than `candidates` have finished; they are
    marked unfinished and rank behind every finished one, whatever their score.

    Args:
        beam_size: K, the hypotheses extended at each step.
        max_length: largest number of words; the end word counts, so a finished caption has one fewer.
        length_normalization: exponent of the length in the score, at least 0.
        candidates: N, the hypotheses returned for each image, at most `beam_size`.

    Raises:
        UserError: if a number is out of its range.
    """

    beam_size: int = 5
    max_length: int = 30
    length_normalization: float = 0.0
    candidates: int = 1

    def __post_init__(self) -> None:
        require_length(self.max_length)
        if self.beam_size < 1:
            raise UserError(f"beam_size is {self.beam_size}: a beam holds at least 1 hypothesis")
        if not 0 <= self.length_normalization < math.inf:
            raise UserError(
                f"length_normalization is {self.length_normalization}: it is an exponent of at least 0 "
                "(0 = plain sum of log-probabilities, 1 = mean per word)"
            )
        if not 1 <= self.candidates <= self.beam_size:
            raise UserError(
                f"candidates is {self.candidates}: a beam of size {self.beam_size} gives 1 up to as many"
            )

    def __call__(
        self, step: Step, state: State, images: int, start: int, end: int, forbidden: Sequence[int] = ()
    ) -> Hypotheses:
        """Write `candidates` captions per image. See `Search`."""
        device = device_of(state)
        words = torch.full((images, 1), start, device=device)
        frontier = Beam(self, images, end, device)
        return explore(step, state, frontier, words, end, self.max_length, forbidden)


class Beam:
    """The live and the finished hypotheses of a batch; a frontier for `explore`.

    Args:
        search: its settings.
        images: B.
        end: the end word.
        device: of the log-probabilities to come.
    """

    def __init__(self, search: BeamSearch, images: int, end: int, device: torch.device) -> None:
        self.search = search
        self.end = end
        self.emitted = 0
        # Live hypotheses of the images still here, (B', K); −inf where there is none.
        self.log_probs = torch.zeros(images, 1, device=device)
        # What the search would return if it stopped now, for all B images.
        self.finished = _nothing(images, search.candidates, device, finished=True)
        self.unfinished = _nothing(images, search.beam_size, device, finished=False)
        self.unfinished.log_probs[:, :1] = 0.0
        self.unfinished.scores[:, :1] = 0.0

    def extend(self, rows: Tensor, log_probs: Tensor) -> tuple[Choice, Tensor]:
        """Take the most probable extensions. See `Frontier`."""
        totals, parents, words, gained = self._best_extensions(log_probs)
        self.emitted += 1
        possible = totals > -math.inf
        ended = possible & (words == self.end)
        living = possible & ~ended
        self._pool(rows, totals.where(ended, -math.inf))
        self.log_probs = totals.where(living, -math.inf)
        self._note_unfinished(rows, possible.any(dim=1))
        choice = Choice(parents, words.where(possible, self.end), gained)
        return choice, self._can_improve(rows)

    def keep(self, staying: Tensor) -> None:
        """Forget the live hypotheses of the images that have left."""
        self.log_probs = self.log_probs[staying]

    def endings(self) -> Endings:
        """The best `candidates` of each image."""
        both = Endings(*(torch.cat(pair, dim=1) for pair in zip(self.finished, self.unfinished, strict=True)))
        # An empty place in the pool must not pass for a finished hypothesis.
        finished = both.finished & (both.scores > -math.inf)
        return both._replace(finished=finished).best(self.search.candidates)

    def _best_extensions(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the K best, (B', K): log-probability, parent, word and the word's share; −inf where there are fewer."""
        beam_size = self.search.beam_size
        # No other word of a hypothesis can be among the K best of its image.
        shares, words = largest(log_probs, beam_size)
        totals, shares = (self.log_probs[..., None] + shares).flatten(1), shares.flatten(1)
        best, index = totals.topk(min(beam_size, totals.shape[1]), dim=1)
        missing = beam_size - best.shape[1]
        best, index = pad(best, (0, missing), value=-math.inf), pad(index, (0, missing))
        return best, index // words.shape[2], words.flatten(1).gather(1, index), shares.gather(1, index)

    def _score(self, log_probs: Tensor, length: int) -> Tensor:
        return log_probs / length**self.search.length_normalization

    def _pool(self, rows: Tensor, log_probs: Tensor) -> None:
        """Let the hypotheses that have just ended, (B', K) and −inf elsewhere, compete with the pool's."""
        new = self._endings_here(log_probs, self.emitted, finished=True)
        old = (field[rows] for field in self.finished)
        both = Endings(*(torch.cat(pair, dim=1) for pair in zip(old, new, strict=True)))
        self.finished = _update(self.finished, rows, both.best(self.search.candidates))

    def _note_unfinished(self, rows: Tensor, moved: Tensor) -> None:
        """Remember the live hypotheses; those of an image where none could be extended stay as they were."""
        new = self._endings_here(self.log_probs, self.emitted, finished=False)
        old = Endings(*(field[rows] for field in self.unfinished))
        chosen = Endings(*(a.where(moved[:, None], b) for a, b in zip(new, old, strict=True)))
        self.unfinished = _update(self.unfinished, rows, chosen)

    def _endings_here(self, log_probs: Tensor, emitted: int, finished: bool) -> Endings:
        """As endings: the hypotheses (B', K) of this step that are not −inf."""
        there = log_probs > -math.inf
        slots = torch.arange(log_probs.shape[1], device=log_probs.device).expand(log_probs.shape)
        return Endings(
            emitted=there.long() * emitted,
            slots=slots,
            log_probs=log_probs,
            scores=self._score(log_probs, emitted),
            finished=torch.full_like(there, finished),
        )

    def _can_improve(self, rows: Tensor) -> Tensor:
        """(B',) whether a live hypothesis may still overtake the worst that would be returned."""
        reach = self._score(self.log_probs.amax(dim=1), self.search.max_length)
        return reach > self.finished.scores[rows].amin(dim=1)


def _nothing(images: int, count: int, device: torch.device, finished: bool) -> Endings:
    """Places (B, N) that any hypothesis beats."""
    none = torch.full((images, count), -math.inf, device=device)
    zeros = torch.zeros(images, count, dtype=torch.long, device=device)
    return Endings(zeros, zeros, none, none.clone(), torch.full_like(none, finished, dtype=torch.bool))


def _update(endings: Endings, rows: Tensor, new: Endings) -> Endings:
    """`endings` (B, N) with the images `rows` (B',) replaced by `new` (B', N)."""
    # The step decides the precision: double stays double.
    return Endings(*(a.to(b.dtype).index_copy(0, rows, b) for a, b in zip(endings, new, strict=True)))
