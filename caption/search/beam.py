"""Beam search: the K most probable hypotheses are extended in parallel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from caption.core.errors import UserError
from caption.core.tensor_tree import State
from caption.search.base import require_count, require_number, require_penalty, require_time
from caption.search.loop import Endings, Extension, Frontier, Search
from caption.search.top_k import top_k

LARGEST_EXPONENT = 10
"""Limit of the exponent of the length: 1000 words to this power are a number of single precision, and so are scores."""


@dataclass(frozen=True, repr=False)
class BeamSearch(Search):
    """Beam search with a pool of finished hypotheses.

    Every step takes the `beam_size` most probable of all one-word extensions of an image's live hypotheses. Those that
    emit the end word go to the image's pool; the others stay alive. The next step again takes `beam_size` extensions,
    whatever the number of live hypotheses. A beam of size 1 is therefore greedy search.

    Hypotheses are ranked by

        score = log p(words, end) / length ** length_normalization

    where `length` counts the emitted words including the end word. 0 means no normalisation, the plain sum of
    log-probabilities, which favours short captions; 1 means the mean per word. With a `repeat_penalty`, hypotheses are
    extended and ranked by log p less the penalties.

    An image is done when it has `candidates` finished hypotheses that no live one can overtake. A log-probability is
    never above 0, so a live hypothesis of log-probability s can reach at most the score
    s / max_length ** length_normalization. This stopping rule is exact: continuing to `max_length` would return the
    same. If fewer than `candidates` have finished, hypotheses still alive at `max_length` are returned as well. They
    are marked unfinished and rank after every finished one, whatever their score.

    Args:
        beam_size: K, the hypotheses extended at each step.
        max_length: largest number of words, including the end word, so a finished caption has one fewer.
        length_normalization: exponent of the length in the score, 0 to 10.
        candidates: N, the hypotheses returned for each image, at most `beam_size`.
        repeat_penalty: see `Search`.

    Raises:
        UserError: a number is out of its range.
    """

    beam_size: int = 5
    max_length: int = 30
    length_normalization: float = 0.0
    candidates: int = 1
    repeat_penalty: float = 0.0
    least_exponent: ClassVar[float] = 0.0
    """Below 0, the rule by which the search stops would not be exact."""

    def __post_init__(self) -> None:
        require_count("max_length", self.max_length)
        require_count("beam_size", self.beam_size)
        require_time("beam_size", self.beam_size, self.max_length)
        require_count("candidates", self.candidates)
        require_number("length_normalization", self.length_normalization)
        require_penalty(self.repeat_penalty)
        if not self.least_exponent <= self.length_normalization <= LARGEST_EXPONENT:
            raise UserError(
                f"length_normalization is {self.length_normalization}: it must be an exponent from "
                f"{self.least_exponent:g} to {LARGEST_EXPONENT} (0 = sum of log-probabilities, 1 = mean per word)"
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
    """A search with changed options; the search itself if all are None.

    Args:
        search: any search; a search other than `BeamSearch` is replaced by one with its `repeat_penalty`.
        beam_size: see `BeamSearch`; None = that of the search, or `candidates` if that is larger.
        candidates, length_normalization: see `BeamSearch`; None = those of the search.

    Raises:
        UserError: a number is out of its range.
    """
    options = {"candidates": candidates, "length_normalization": length_normalization, "beam_size": beam_size}
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        return search
    base = search if isinstance(search, BeamSearch) else BeamSearch(repeat_penalty=search.repeat_penalty)
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
        # (B', K) log-probabilities of the live hypotheses of the images in the batch; −inf for an empty slot.
        self.log_probs = torch.zeros(images, 1, device=device)
        # The hypotheses of all B images that the search would return if it stopped now.
        self.finished = _no_endings(images, search.candidates, device, finished=True)
        self.unfinished = _no_endings(images, search.beam_size, device, finished=False)
        self.unfinished.log_probs[:, :1] = 0.0
        self.unfinished.scores[:, :1] = 0.0

    def extend(self, rows: Tensor, log_probs: Tensor, state: State) -> tuple[Extension, Tensor]:
        """Take the most probable extensions. See `Frontier`."""
        totals, parents, words, terms = self._best_extensions(log_probs)
        self.emitted += 1
        possible = totals > -math.inf
        ended = possible & (words == self.end)
        live = possible & ~ended
        self._add_to_pool(rows, totals.where(ended, -math.inf))
        self.log_probs = totals.where(live, -math.inf)
        self._update_unfinished(rows, possible.any(dim=1))
        return Extension(parents, words.where(possible, self.end), terms), self._can_improve(rows)

    def keep(self, staying: Tensor) -> None:
        """Keep only the live hypotheses of these images."""
        self.log_probs = self.log_probs[staying]

    def endings(self) -> Endings:
        """The best `candidates` of each image."""
        endings = _concatenated(self.finished, self.unfinished)
        # An empty slot of the pool is not a finished hypothesis.
        finished = endings.finished & (endings.scores > -math.inf)
        return endings._replace(finished=finished).best(self.search.candidates)

    def _best_extensions(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-probability, parent, last word and its log-probability of the best extensions, (B', `width`) each; −inf
        if there are fewer."""
        # Only the `width` best words of a hypothesis can be among the best of its image.
        terms, words = top_k(log_probs, self.width)
        totals, terms = (self.log_probs[..., None] + terms).flatten(1), terms.flatten(1)
        best, index = _padded_topk(totals, self.width)
        terms = terms.gather(1, index).where(best > -math.inf, -math.inf)
        return best, index // words.shape[2], words.flatten(1).gather(1, index), terms

    def _score(self, log_probs: Tensor, length: int) -> Tensor:
        return log_probs / float(length) ** self.search.length_normalization  # powers of integers overflow

    def _add_to_pool(self, rows: Tensor, log_probs: Tensor) -> None:
        """Add the hypotheses that have just ended, (B', K) with −inf for the others, to the pool."""
        new = self._endings_at_step(log_probs, self.emitted, finished=True)
        old = Endings(*(field[rows] for field in self.finished))
        self.finished = _update(self.finished, rows, _concatenated(old, new).best(self.search.candidates))

    def _update_unfinished(self, rows: Tensor, extended: Tensor) -> None:
        """Store the live hypotheses. Images without any extension (`extended` is False) keep their earlier ones."""
        new = self._endings_at_step(self.log_probs, self.emitted, finished=False)
        old = Endings(*(field[rows] for field in self.unfinished))
        latest = Endings(*(a.where(extended[:, None], b) for a, b in zip(new, old, strict=True)))
        self.unfinished = _update(self.unfinished, rows, latest)

    def _endings_at_step(self, log_probs: Tensor, emitted: int, finished: bool) -> Endings:
        """The hypotheses (B', K) of this step as endings; −inf for an empty slot."""
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
        bound = self._score(self.log_probs.amax(dim=1), self.search.max_length)
        return bound > self.finished.scores[rows].amin(dim=1)


def _concatenated(first: Endings, second: Endings) -> Endings:
    """Endings (B, N) and (B, N') -> (B, N + N')."""
    return Endings(*(torch.cat(pair, dim=1) for pair in zip(first, second, strict=True)))


def _padded_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (N, V) and their indices; if there are fewer, −inf at index 0."""
    best, index = values.topk(min(count, values.shape[1]), dim=1)
    missing = (0, count - best.shape[1])
    return pad(best, missing, value=-math.inf), pad(index, missing)


def _no_endings(images: int, count: int, device: torch.device, finished: bool) -> Endings:
    """Empty slots (B, N), whose score −inf is below that of any hypothesis."""
    lowest = torch.full((images, count), -math.inf, device=device)
    zeros = torch.zeros(images, count, dtype=torch.long, device=device)
    return Endings(zeros, zeros, lowest, lowest.clone(), torch.full_like(lowest, finished, dtype=torch.bool))


def _update(endings: Endings, rows: Tensor, new: Endings) -> Endings:
    """`endings` (B, N) with the images `rows` (B',) replaced by `new` (B', N)."""
    # The precision of the step is kept: double stays double.
    return Endings(*(a.to(b.dtype).index_copy(0, rows, b) for a, b in zip(endings, new, strict=True)))
