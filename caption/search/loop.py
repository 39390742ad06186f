"""The interface of searches, and their common loop: score, choose, reorder, drop finished images.

The extensions of all steps are kept; at the end, each hypothesis is traced back from its last word to its first.
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
from torch.nn.functional import pad

from caption.core.parts import Spec, public_path
from caption.core.tensor_tree import (
    State,
    TensorTree,
    combine,
    indices,
    leaves,
    map_tensors,
    select_hypotheses,
    select_images,
)
from caption.search.base import Hypotheses, SearchRecord, Step
from caption.search.repeats import lower_repeats
from caption.search.top_k import top_k

EVERY = 4
"""Steps of a search on a GPU after which the host reads whether an image is unfinished."""


class Extension(NamedTuple):
    """The K hypotheses of each of B images after one step, as extensions of those before it."""

    parents: Tensor
    """(B, K) int64, the index of the hypothesis of the previous step that each one continues."""
    words: Tensor
    """(B, K) int64, the word that each one adds."""
    log_probs: Tensor
    """(B, K), the log-probability of that word. In an empty slot, this log-probability or an earlier one is −inf."""


class Endings(NamedTuple):
    """The ends of the hypotheses of B images, N each."""

    emitted: Tensor
    """(B, N) int64, the number of steps of each hypothesis, including that of its end word."""
    slots: Tensor
    """(B, N) int64, its index among the K hypotheses of its last step; any value if it has no steps."""
    log_probs: Tensor
    """(B, N), the log-probability of all its words."""
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
    """The steps of a search, in order. Hypotheses share earlier steps, so nothing is reordered until `backtrack`.

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
        """Append a step.

        Args:
            rows: (B',) the images of the step.
            extension: (B', K).
            kept: trace and likeliest words, tensors (B', K, ...) in the order of the extension.
            unfinished: (B',) bool.
        """
        # The position of each image in the step; 0 for images that had left the batch.
        positions = rows.new_zeros(self.images)
        positions[rows] = torch.arange(len(rows), device=rows.device)
        self.entries.append((positions, extension, kept))
        self.unfinished.append((rows, unfinished))

    def _backwards(self, endings: Endings) -> Iterator[tuple[int, tuple[Tensor, Tensor], Tensor]]:
        """Each step, from the last to the first: its time, the indices in it of the hypotheses with these endings
        (B, N), and which of them have a word at it (B, N)."""
        slots = endings.slots
        for time, (positions, extension, _) in reversed(list(enumerate(self.entries))):
            emitted = time < endings.emitted
            index = (positions[:, None], slots.where(emitted, 0))  # a later step may have fewer hypotheses
            yield time, index, emitted
            slots = extension.parents[index].where(emitted, slots)

    def record(self, endings: Endings) -> SearchRecord:
        """All extensions, and which of them belong to the hypotheses with these endings (B, N)."""
        unfinished = [
            torch.zeros_like(positions).index_copy_(0, rows, flags.long())
            for (positions, _, _), (rows, flags) in zip(self.entries, self.unfinished, strict=True)
        ]
        steps = torch.stack([torch.ones_like(unfinished[0]), *unfinished[:-1]]).sum(dim=0)
        places = [slots.where(emitted, -1) for _, (_, slots), emitted in self._backwards(endings)]
        widest = max(extension.words.shape[1] for _, extension, _ in self.entries)
        entries = []
        for positions, narrow, (trace, _) in self.entries:
            extension, trace = map_tensors(partial(_widened, width=widest), (narrow, trace))
            extension.log_probs[:, narrow.words.shape[1] :] = -math.inf
            entries.append(select_images((extension, trace), positions))
        extension, trace = combine(partial(torch.stack, dim=1), entries)
        return SearchRecord(
            extension.words,
            extension.parents,
            extension.log_probs,
            steps,
            torch.stack(places[::-1], dim=2),
            trace,
        )

    def backtrack(self, endings: Endings, end: int) -> Hypotheses:
        """Trace each hypothesis from its ending back to its first word.

        Args:
            endings: (B, N), in the order of the result.
            end: the word for padding.
        """
        lengths = endings.emitted - endings.finished.long()
        longest = int(lengths.max()) if lengths.numel() else 0
        words, log_probs, steps = [], [], []
        for time, index, emitted in self._backwards(endings):
            _, extension, kept = self.entries[time]
            if time <= longest:
                log_probs.append(extension.log_probs[index].where(emitted, 0.0))
            if time < longest:
                within = time < lengths
                words.append(extension.words[index].where(within, end))
                steps.append(_pick(kept, index, within))
        if len(log_probs) == longest:  # the longest was cut off, so it has no step for an end word
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


def _pick(kept: TensorTree, index: tuple[Tensor, Tensor], within: Tensor) -> TensorTree:
    """Tensors (B, N, ...), the entries of a step at an index; 0 where `within` (B, N) is False."""

    def pick(tensor: Tensor) -> Tensor:
        picked = tensor[index]
        mask = within.view(*within.shape, *[1] * (picked.dim() - 2))
        return picked.where(mask, torch.zeros((), dtype=picked.dtype, device=picked.device))

    return map_tensors(pick, kept)


def _widened(tensor: Tensor, width: int) -> Tensor:
    """(B, K, ...) -> (B, `width`, ...), with empty slots at the end."""
    return pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, width - tensor.shape[1]])


def _no_steps(kept: TensorTree, slots: Tensor) -> TensorTree:
    """Tensors (B, N, 0, ...) for zero steps, with the further dimensions of a step's tensors."""
    return map_tensors(lambda tensor: tensor.new_empty(*slots.shape, 0, *tensor.shape[2:]), kept)


class Frontier(Protocol):
    """The live and the finished hypotheses of a search."""

    beginnings: int
    """K, the hypotheses of each image at the first step."""

    def extend(self, rows: Tensor, log_probs: Tensor, state: State) -> tuple[Extension, Tensor]:
        """Choose the next words.

        Args:
            rows: (B',) int64, the images that are still in the batch.
            log_probs: (B', K, V), −inf for words that may not follow.
            state: of the step; only a search for one kind of decoder may read it.

        Returns:
            the extension, and (B',) bool: which images are unfinished. A finished image may be passed again; its result
            no longer changes.
        """

    def keep(self, staying: Tensor) -> None:
        """Keep only the images at the indices `staying` (B'',) of B'."""

    def endings(self) -> Endings:
        """The ends of the hypotheses of all B images, best first."""


class Search(ABC):
    """Base class of searches: a frontier, and the common loop that extends it. Subclasses are data classes."""

    def __repr__(self) -> str:
        options = search_spec(self)["init_args"].items()
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in options)})"

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Largest number of steps, including that of the end word."""

    @property
    def repeat_penalty(self) -> float:
        """Nats by which log p of a repeated word is lowered before words are chosen; 0 = none, 1000 forbid repeats.

        A word is repeated if it is a content word that the caption has already said, or directly follows itself.
        """
        return 0.0

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
        content: Sequence[int] = (),
        beginning: Sequence[int] = (),
        likeliest: int = 0,
        record: bool = False,
    ) -> Hypotheses:
        """Caption a batch of images, until each is finished or `max_length` steps have been taken.

        On a CPU, finished images are removed from the batch. This copies the `shared` tensors of the others, and
        copying an image takes about as long as a step of one hypothesis. So finished images are removed together, when
        one hypothesis per unfinished image has been computed for nothing. A GPU takes as long for few images as for
        many, but the host should not wait for it: all images stay, and every few steps the host reads whether one is
        unfinished.

        Args:
            step: scores the next word, see `Step`.
            state: the state before the first word, one hypothesis per image: `shared` tensors (B, ...),
                `carried` and `trace` tensors (B, 1, ...).
            images: B.
            start: the word fed to the first step.
            end: the word that finishes a hypothesis.
            forbidden: words that are never emitted (padding, start, unknown). Their probability is not redistributed:
                the returned log-probabilities are those of the model.
            content: the content words, see `repeat_penalty` and `caption.text.sense.is_content_word`.
            beginning: the first words of every caption, with the log-probabilities of the model.
            likeliest: C, the likeliest words of each step to return; 0 = none.
            record: also return all extensions, see `SearchRecord`.

        Returns:
            hypotheses of at most `max_length` words. A hypothesis stops unfinished if all log-probabilities of its next
            word are −inf or NaN.
        """
        device = next((tensor.device for tensor in leaves(state)), torch.device("cpu"))
        frontier = self.frontier(images, end, device)
        words = torch.full((images, frontier.beginnings), start, device=device)
        # Expanded before the first step, so that a sampling attention draws for each hypothesis.
        carried, trace = select_hypotheses((state.carried, state.trace), torch.zeros_like(words))
        state = State(state.shared, carried, trace)
        rows = torch.arange(images, device=device)
        forbidden_words = indices(forbidden, device)
        is_content = None
        penalty = self.repeat_penalty
        said = words.new_empty(*words.shape, 0) if penalty else None  # (B', K, time)
        history = History(images)
        wasted = 0
        for time in range(self.max_length):
            log_probs, state = step(state, words)
            best = top_k(log_probs.nan_to_num(nan=-math.inf), likeliest) if likeliest else None
            admissible = _admissible(log_probs, forbidden_words)
            if time < len(beginning):
                admissible = _only(beginning[time], admissible)
            ranked = admissible
            if said is not None and time >= len(beginning):
                if is_content is None:  # made on the host, which would wait for a GPU's search in a set
                    every = torch.arange(admissible.shape[-1])
                    is_content = torch.isin(every, torch.tensor(list(content))).to(device, non_blocking=True)
                ranked = lower_repeats(admissible, said, is_content, end, penalty)
            extension, unfinished = frontier.extend(rows, ranked, state)
            carried, trace, best, said = select_hypotheses(
                (state.carried, state.trace, best, said), extension.parents
            )
            if said is not None:
                extension = _with_true_log_probs(extension, ranked, admissible)
                said = torch.cat((said, extension.words[..., None]), dim=2)
            history.add(rows, extension, (trace, best), unfinished)
            state, words = State(state.shared, carried, trace), extension.words
            if not is_host(device):
                if time % EVERY == EVERY - 1 and not unfinished.any():
                    break
                continue
            staying = unfinished.nonzero().squeeze(1)
            if len(staying) == 0:
                break
            wasted += (len(rows) - len(staying)) * words.shape[1]
            if wasted >= len(staying):
                wasted = 0
                state, words, rows, said = select_images((state, words, rows, said), staying)
                frontier.keep(staying)
        endings = frontier.endings()
        hypotheses = history.backtrack(endings, end)
        if penalty:  # `endings` has log p less the penalties
            log_probs = hypotheses.word_log_probs.sum(2).where(endings.log_probs > -math.inf, -math.inf)
            hypotheses = hypotheses._replace(log_probs=log_probs)
        return hypotheses._replace(record=history.record(endings)) if record else hypotheses


def search_spec(search: Search) -> Spec:
    """A search as class path and arguments; a `repeat_penalty` only if there is one."""
    options = dataclasses.asdict(search)  # type: ignore[call-overload]
    if not search.repeat_penalty:
        options.pop("repeat_penalty", None)
    return {"class_path": public_path(type(search)), "init_args": options}


def _with_true_log_probs(extension: Extension, ranked: Tensor, true: Tensor) -> Extension:
    """The extension with the log-probabilities `true` (B, K, V) of repeated words instead of those `ranked`."""
    images = torch.arange(len(true), device=true.device)[:, None]
    chosen = images, extension.parents, extension.words
    repeated = ranked[chosen] < true[chosen]
    return extension._replace(log_probs=true[chosen].where(repeated, extension.log_probs))


def _admissible(log_probs: Tensor, forbidden: Tensor) -> Tensor:
    """Log-probabilities with −inf for NaN and forbidden words, in single precision at least.

    Sums of log-probabilities in half precision would be too coarse to rank hypotheses.
    """
    log_probs = log_probs.to(torch.promote_types(log_probs.dtype, torch.float32))
    log_probs = log_probs.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    return log_probs.index_fill_(2, forbidden, -math.inf)  # in place: nan_to_num has just made a copy


def is_host(device: torch.device) -> bool:
    """Whether reading a tensor of this device takes no waiting."""
    return device.type == "cpu"


def _only(word: int, log_probs: Tensor) -> Tensor:
    """Log-probabilities with −inf for all other words."""
    only = torch.full_like(log_probs, -math.inf)
    only[..., word] = log_probs[..., word]
    return only
