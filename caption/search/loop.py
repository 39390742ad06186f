"""The interface of every search, and the loop that all share: score, choose, reorder, drop finished images.

The extensions of all steps are kept; in the end, each hypothesis is followed back from its last word to its first.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from caption.core.parts import Spec, public_path
from caption.core.tensor_tree import (
    State,
    TensorTree,
    combine,
    leaves,
    map_tensors,
    select_hypotheses,
    select_images,
)
from caption.search.base import Hypotheses, SearchRecord, Step
from caption.search.top_k import top_k


class Extension(NamedTuple):
    """One step's extension of the hypotheses of B images to K each."""

    parents: Tensor
    """(B, K) int64, the hypothesis of the previous step that each one continues."""
    words: Tensor
    """(B, K) int64, the word it adds."""
    log_probs: Tensor
    """(B, K), the log-probability of that word. Where there is no such hypothesis, it or one before is −inf."""


class Endings(NamedTuple):
    """The ends of the hypotheses of B images, N each."""

    emitted: Tensor
    """(B, N) int64, the number of steps of each, including that of its end word."""
    slots: Tensor
    """(B, N) int64, its place among the K hypotheses of its last step; any value if it has no steps."""
    log_probs: Tensor
    """(B, N), the log-probability of all it emitted."""
    scores: Tensor
    """(B, N), the score that ranks it."""
    finished: Tensor
    """(B, N) bool, whether its last word is the end word."""

    def best(self, count: int, ranks: Tensor | None = None) -> Endings:
        """The `count` best of each image: by rank (B, N), by default finished before unfinished, then by score."""
        ranks = self.finished.long() if ranks is None else ranks
        order = self.scores.argsort(dim=1, descending=True, stable=True)
        by_rank = ranks.gather(1, order).argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, by_rank)[:, :count]
        return Endings(*(field.gather(1, order) for field in self))


class History:
    """The steps of a search, in order. Hypotheses share their past, so nothing is reordered until `backtrack`.

    Args:
        images: B, the number of images at the first step.
    """

    def __init__(self, images: int) -> None:
        self.images = images
        self.entries: list[tuple[Tensor, Extension, tuple[TensorTree, TensorTree]]] = []
        self.unfinished: list[tuple[Tensor, Tensor]] = []

    def add(
        self, rows: Tensor, extension: Extension, kept: tuple[TensorTree, TensorTree], unfinished: Tensor
    ) -> None:
        """Append a step: its images rows (B',), extension (B', K), trace and likeliest words, tensors (B', K, ...) in
        its order, and unfinished (B',) bool."""
        # Of each image in the step; 0 for images that had left the batch.
        positions = rows.new_zeros(self.images)
        positions[rows] = torch.arange(len(rows), device=rows.device)
        self.entries.append((positions, extension, kept))
        self.unfinished.append((rows, unfinished))

    def _backwards(self, endings: Endings) -> Iterator[tuple[int, tuple[Tensor, Tensor], Tensor]]:
        """The steps, the last first; the places there of the hypotheses with these endings (B, N); which of them had a
        word there (B, N)."""
        slots = endings.slots
        for time, (positions, extension, _) in reversed(list(enumerate(self.entries))):
            emitted = time < endings.emitted
            at = (positions[:, None], slots.where(emitted, 0))  # a later step may have fewer hypotheses
            yield time, at, emitted
            slots = extension.parents[at].where(emitted, slots)

    def record(self, endings: Endings) -> SearchRecord:
        """All extensions, and the places of the hypotheses with these endings (B, N)."""
        ones = [
            torch.zeros_like(positions).index_copy_(0, rows, unfinished.long())
            for (positions, _, _), (rows, unfinished) in zip(self.entries, self.unfinished, strict=True)
        ]
        steps = 1 + torch.stack(ones[:-1]).sum(dim=0) if len(ones) > 1 else torch.ones_like(ones[0])
        places = [slots.where(emitted, -1) for _, (_, slots), emitted in self._backwards(endings)]
        whole = [
            map_tensors(partial(torch.index_select, dim=0, index=positions), (extension, trace))
            for positions, extension, (trace, _) in self.entries
        ]
        extension, trace = combine(partial(torch.stack, dim=1), whole)
        return SearchRecord(
            extension.words,
            extension.parents,
            extension.log_probs,
            steps,
            torch.stack(places[::-1], dim=2),
            trace,
        )

    def backtrack(self, endings: Endings, end: int) -> Hypotheses:
        """Follow each hypothesis from its ending back to its first word.

        Args:
            endings: (B, N), in the order of the result.
            end: the word for padding.
        """
        lengths = endings.emitted - endings.finished.long()
        longest = int(lengths.max()) if lengths.numel() else 0
        words, log_probs, steps = [], [], []
        for time, at, emitted in self._backwards(endings):
            _, extension, kept = self.entries[time]
            if time <= longest:
                log_probs.append(extension.log_probs[at].where(emitted, 0.0))
            if time < longest:
                within = time < lengths
                words.append(extension.words[at].where(within, end))
                steps.append(_pick(kept, at, within))
        if len(log_probs) == longest:  # the longest was cut off, so it has no step of an end word
            log_probs.insert(0, torch.zeros_like(endings.log_probs))
        stack = partial(torch.stack, dim=2)
        kept = combine(stack, steps[::-1]) if steps else _no_steps(self.entries[0][2], lengths)
        return Hypotheses(
            words=stack(words[::-1]) if words else lengths.new_empty(*lengths.shape, 0),
            lengths=lengths,
            log_probs=endings.log_probs,
            word_log_probs=stack(log_probs[::-1]),
            scores=endings.scores,
            finished=endings.finished,
            trace=kept[0],
            likeliest=kept[1],
        )


def _pick(kept: TensorTree, at: tuple[Tensor, Tensor], within: Tensor) -> TensorTree:
    """What was kept (B, N, ...) of the hypotheses `at`; zero where `within` (B, N) is false."""

    def pick(tensor: Tensor) -> Tensor:
        picked = tensor[at]
        mask = within.view(*within.shape, *[1] * (picked.dim() - 2))
        return picked.where(mask, torch.zeros((), dtype=picked.dtype, device=picked.device))

    return map_tensors(pick, kept)


def _no_steps(kept: TensorTree, slots: Tensor) -> TensorTree:
    """Tensors (B, N, 0, ...), shaped after what was kept of a step."""
    return map_tensors(lambda tensor: tensor.new_empty(*slots.shape, 0, *tensor.shape[2:]), kept)


class Frontier(Protocol):
    """The live hypotheses of a search, and those that are done."""

    beginnings: int
    """K, the hypotheses of each image at the first step."""

    def extend(self, rows: Tensor, log_probs: Tensor) -> tuple[Extension, Tensor]:
        """Choose the next words.

        Args:
            rows: (B',) int64, the images that are still in the batch.
            log_probs: (B', K, V), −inf for words that may not follow.

        Returns:
            The extension, and (B',) bool: which images go on. An image that does not go on may be passed again; its
            result no longer changes.
        """

    def keep(self, staying: Tensor) -> None:
        """Keep the images at the indices `staying` (B'',) of B' only."""

    def endings(self) -> Endings:
        """The ends of the hypotheses of all B images, best first."""


class Search(ABC):
    """A way to turn step scores into captions: a frontier, and the loop that extends it, which all searches share."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Largest number of steps; the end word counts."""

    @abstractmethod
    def frontier(self, images: int, end: int, device: torch.device) -> Frontier:
        """The hypotheses before the first word.

        Args:
            images: B.
            end: the word that finishes a hypothesis.
            device: of the log-probabilities.
        """

    @torch.no_grad()
    def __call__(
        self,
        step: Step,
        state: State,
        images: int,
        start: int,
        end: int,
        forbidden: Sequence[int] = (),
        beginning: Sequence[int] = (),
        likeliest: int = 0,
        record: bool = False,
    ) -> Hypotheses:
        """Write captions for a batch of images, until each is done or `max_length` steps were taken.

        Images that are done leave the batch with their `shared` tensors. The tensors of the others are copied then, and
        copying an image takes about as long as one step of one of its hypotheses. So images leave together, once as
        many hypotheses have been computed in vain as there are images that go on. Asking which images go on is the only
        time per step that the host waits for the device.

        Args:
            step: scores the next word, see `Step`.
            state: the state before the first word, one hypothesis per image: `shared` tensors (B, ...),
                `carried` and `trace` tensors (B, 1, ...).
            images: B.
            start: the word fed to the first step.
            end: the word that finishes a hypothesis.
            forbidden: words never emitted (padding, start, unknown). Their probability is not redistributed: the
                log-probabilities returned are the model's own.
            beginning: the first words of every caption. They keep the log-probability that the model gives them.
            likeliest: C, the likeliest words of each step to return; 0 = none.
            record: also return all extensions, see `SearchRecord`.

        Returns:
            At most `max_length` words per hypothesis. If every log-probability of its next word is −inf or NaN, a
            hypothesis stops there, unfinished.
        """
        device = next((tensor.device for tensor in leaves(state)), torch.device("cpu"))
        frontier = self.frontier(images, end, device)
        words = torch.full((images, frontier.beginnings), start, device=device)
        # Expanded before the first step, so that an attention that samples does so for each hypothesis.
        carried, trace = select_hypotheses((state.carried, state.trace), torch.zeros_like(words))
        state = State(state.shared, carried, trace)
        rows = torch.arange(images, device=device)
        barred = torch.tensor(list(forbidden), dtype=torch.long, device=device)
        history = History(images)
        wasted = 0
        for time in range(self.max_length):
            log_probs, state = step(state, words)
            best = top_k(log_probs.nan_to_num(nan=-math.inf), likeliest) if likeliest else None
            admissible = _admissible(log_probs, barred)
            if time < len(beginning):
                admissible = _only(beginning[time], admissible)
            extension, unfinished = frontier.extend(rows, admissible)
            carried, trace, best = select_hypotheses((state.carried, state.trace, best), extension.parents)
            history.add(rows, extension, (trace, best), unfinished)
            staying = unfinished.nonzero().squeeze(1)
            if len(staying) == 0:
                break
            state, words = State(state.shared, carried, trace), extension.words
            wasted += (len(rows) - len(staying)) * words.shape[1]
            if wasted >= len(staying):
                wasted = 0
                state, words, rows = select_images((state, words, rows), staying)
                frontier.keep(staying)
        endings = frontier.endings()
        hypotheses = history.backtrack(endings, end)
        return hypotheses._replace(record=history.record(endings)) if record else hypotheses


def search_spec(search: Search) -> Spec:
    """A search as class path and arguments."""
    return {"class_path": public_path(type(search)), "init_args": dataclasses.asdict(search)}  # type: ignore[call-overload]


def _admissible(log_probs: Tensor, barred: Tensor) -> Tensor:
    """Log-probabilities with −inf for NaN and barred words, in at least single precision.

    Sums of half-precision log-probabilities would lose the ranking.
    """
    log_probs = log_probs.to(torch.promote_types(log_probs.dtype, torch.float32))
    log_probs = log_probs.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    return log_probs.index_fill_(2, barred, -math.inf)  # in place: nan_to_num has just made a copy


def _only(word: int, log_probs: Tensor) -> Tensor:
    """−inf for all other words."""
    only = torch.full_like(log_probs, -math.inf)
    only[..., word] = log_probs[..., word]
    return only
