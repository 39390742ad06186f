"""Beam search: the K most probable beginnings are extended side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from caption.core.errors import UserError
from caption.search.base import require_count, require_number
from caption.search.loop import Endings, Extension, Frontier, Search
from caption.search.top_k import top_k


@dataclass(frozen=True)
class BeamSearch(Search):
    """Beam search with a pool of finished hypotheses.

    Every step takes the `beam_size` most probable of all one-word extensions of an image's live hypotheses. Those that
    emit the end word go to the image's pool; the others stay alive. The next step again takes `beam_size` extensions,
    however many are alive. A beam of size 1 is therefore greedy search.

    Hypotheses are ranked by

        score = log p(words, end) / length ** length_normalization

    where `length` counts the emitted words including the end word. 0 means no normalisation, the plain sum of
    log-probabilities, which favours short captions; 1 means the mean per word.

    An image is done when it has `candidates` finished hypotheses that no live one can overtake. A log-probability is
    never above 0, so a live hypothesis of log-probability s can reach at most the score
    s / max_length ** length_normalization. This stop is exact: going on to `max_length` would return the same. If
    fewer than `candidates` have finished, hypotheses still alive at `max_length` fill the places. They are marked
    unfinished and rank behind every finished one, whatever their score.

    Args:
        beam_size: K, the hypotheses extended at each step.
        max_length: largest number of words; the end word counts, so a finished caption has one fewer.
        length_normalization: exponent of the length in the score, 0 to 100.
        candidates: N, the hypotheses returned for each image, at most `beam_size`.

    Raises:
        UserError: a number is out of its range.
    """

    beam_size: int = 5
    max_length: int = 30
    length_normalization: float = 0.0
    candidates: int = 1

    def __post_init__(self) -> None:
        require_count("max_length", self.max_length)
        require_count("beam_size", self.beam_size)
        require_count("candidates", self.candidates)
        require_number("length_normalization", self.length_normalization)
        if not 0 <= self.length_normalization <= 100:  # beyond, powers of a length are no floats
            raise UserError(
                f"length_normalization is {self.length_normalization}: it is an exponent from 0 to 100 "
                "(0 = plain sum of log-probabilities, 1 = mean per word)"
            )
        if self.candidates > self.beam_size:
            raise UserError(
                f"candidates is {self.candidates}: it must be from 1 to beam_size, {self.beam_size}"
            )

    def frontier(self, images: int, end: int, device: torch.device) -> Frontier:
        return Beam(self, images, end, device)


def adjusted(
    search: Search,
    beam_size: int | None = None,
    candidates: int | None = None,
    length_normalization: float | None = None,
) -> Search:
    """A search with some numbers changed; the search itself if all are None.

    Args:
        search: any; one that is not a beam search is replaced by a beam search.
        beam_size: see `BeamSearch`; None = that of the search, widened to `candidates` where it is smaller.
        candidates, length_normalization: see `BeamSearch`; None = those of the search.

    Raises:
        UserError: a number is out of its range.
    """
    numbers = {"candidates": candidates, "length_normalization": length_normalization, "beam_size": beam_size}
    changes = {name: value for name, value in numbers.items() if value is not None}
    if not changes:
        return search
    base = search if isinstance(search, BeamSearch) else BeamSearch()
    if beam_size is None and isinstance(candidates, int):
        changes["beam_size"] = max(base.beam_size, candidates)
    return replace(base, **changes)  # type: ignore[arg-type]


class Beam:
    """The live and the finished hypotheses of a batch; the frontier of a `BeamSearch`.

    Args:
        search: the settings.
        images: B.
        end: the end word.
        device: the device of the log-probabilities.
    """

    beginnings = 1

    def __init__(self, search: BeamSearch, images: int, end: int, device: torch.device) -> None:
        self.search = search
        self.width = search.beam_size
        self.end = end
        self.emitted = 0
        # Of the live hypotheses of the images in the batch, (B', K); −inf marks an empty place.
        self.log_probs = torch.zeros(images, 1, device=device)
        # For all B images, the hypotheses that the search would return if it stopped now.
        self.finished = _no_endings(images, search.candidates, device, finished=True)
        self.unfinished = _no_endings(images, search.beam_size, device, finished=False)
        self.unfinished.log_probs[:, :1] = 0.0
        self.unfinished.scores[:, :1] = 0.0

    def extend(self, rows: Tensor, log_probs: Tensor) -> tuple[Extension, Tensor]:
        """Take the most probable extensions. See `Frontier`."""
        totals, parents, words, terms = self._best_extensions(log_probs)
        self.emitted += 1
        possible = totals > -math.inf
        ended = possible & (words == self.end)
        living = possible & ~ended
        self._pool(rows, totals.where(ended, -math.inf))
        self.log_probs = totals.where(living, -math.inf)
        self._note_unfinished(rows, possible.any(dim=1))
        return Extension(parents, words.where(possible, self.end), terms), self._can_improve(rows)

    def keep(self, staying: Tensor) -> None:
        """Keep the live hypotheses of these images only."""
        self.log_probs = self.log_probs[staying]

    def endings(self) -> Endings:
        """The best `candidates` of each image."""
        both = Endings(*(torch.cat(pair, dim=1) for pair in zip(self.finished, self.unfinished, strict=True)))
        # An empty place in the pool is not a finished hypothesis.
        finished = both.finished & (both.scores > -math.inf)
        return both._replace(finished=finished).best(self.search.candidates)

    def _best_extensions(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-probability, parent, word and its log-probability of the best, (B', `width`); −inf if there are fewer."""
        # Only the best words of a hypothesis, as many, can be among the best of its image.
        terms, words = top_k(log_probs, self.width)
        totals, terms = (self.log_probs[..., None] + terms).flatten(1), terms.flatten(1)
        best, index = _padded_topk(totals, self.width)
        terms = terms.gather(1, index).where(best > -math.inf, -math.inf)
        return best, index // words.shape[2], words.flatten(1).gather(1, index), terms

    def _score(self, log_probs: Tensor, length: int) -> Tensor:
        return log_probs / length**self.search.length_normalization

    def _pool(self, rows: Tensor, log_probs: Tensor) -> None:
        """Merge the hypotheses that have just ended, (B', K) with −inf for the others, into the pool."""
        new = self._endings_here(log_probs, self.emitted, finished=True)
        old = (field[rows] for field in self.finished)
        both = Endings(*(torch.cat(pair, dim=1) for pair in zip(old, new, strict=True)))
        self.finished = _update(self.finished, rows, both.best(self.search.candidates))

    def _note_unfinished(self, rows: Tensor, moved: Tensor) -> None:
        """Remember the live hypotheses, except for images without any extension: those keep their earlier ones."""
        new = self._endings_here(self.log_probs, self.emitted, finished=False)
        old = Endings(*(field[rows] for field in self.unfinished))
        chosen = Endings(*(a.where(moved[:, None], b) for a, b in zip(new, old, strict=True)))
        self.unfinished = _update(self.unfinished, rows, chosen)

    def _endings_here(self, log_probs: Tensor, emitted: int, finished: bool) -> Endings:
        """The hypotheses (B', K) of this step as endings; −inf marks an empty place."""
        exists = log_probs > -math.inf
        slots = torch.arange(log_probs.shape[1], device=log_probs.device).expand(log_probs.shape)
        return Endings(
            emitted=exists.long() * emitted,
            slots=slots,
            log_probs=log_probs,
            scores=self._score(log_probs, emitted),
            finished=torch.full_like(exists, finished),
        )

    def _can_improve(self, rows: Tensor) -> Tensor:
        """(B',) whether a live hypothesis can still overtake the worst one that would be returned."""
        reach = self._score(self.log_probs.amax(dim=1), self.search.max_length)
        return reach > self.finished.scores[rows].amin(dim=1)


def _padded_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (N, V) and their places; if there are fewer, −inf at place 0."""
    best, index = values.topk(min(count, values.shape[1]), dim=1)
    missing = (0, count - best.shape[1])
    return pad(best, missing, value=-math.inf), pad(index, missing)


def _no_endings(images: int, count: int, device: torch.device, finished: bool) -> Endings:
    """Empty places (B, N), which any hypothesis beats."""
    none = torch.full((images, count), -math.inf, device=device)
    zeros = torch.zeros(images, count, dtype=torch.long, device=device)
    return Endings(zeros, zeros, none, none.clone(), torch.full_like(none, finished, dtype=torch.bool))


def _update(endings: Endings, rows: Tensor, new: Endings) -> Endings:
    """`endings` (B, N) with the images `rows` (B',) replaced by `new` (B', N)."""
    # The precision is that of the step: double stays double.
    return Endings(*(a.to(b.dtype).index_copy(0, rows, b) for a, b in zip(endings, new, strict=True)))
