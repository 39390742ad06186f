"""The searches of transformers' `generate`, so that a foreign model writes the same captions as there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from caption.core.errors import UserError
from caption.core.tensor_tree import State
from caption.models.transformers.decoder import Carried
from caption.models.transformers.generation import GenerateOptions, generate_options
from caption.search.base import LARGEST, MOST_STEPS, Hypotheses
from caption.search.beam import LARGEST_EXPONENT, Beam, BeamSearch
from caption.search.independent import IndependentHypotheses
from caption.search.loop import Endings, Extension, Frontier, Search
from caption.search.top_k import inverse_cdf, top_k
from caption.text.vocabulary import SPECIAL_TOKENS

LONGEST = 20
"""Number of new pieces in transformers if no length is configured."""


@dataclass(frozen=True, repr=False)
class GenerateBeam(BeamSearch):
    """Beam search whose beam stays full: a hypothesis that ends is replaced by the next best unfinished one.

    Of the (1 + E) K most probable extensions, E the number of end pieces, those among the first K that end go to the
    pool, and the K best that do not end are the next beam. The search stops when the pool has K hypotheses of which no
    live one can overtake the worst. Hypotheses that reach `max_length` compete with finished ones.

    Args:
        early_stopping: as in transformers' `GenerationConfig`. False judges a live hypothesis by its length so far, and
            may miss longer ones; "never" judges it by `max_length`; with True, a full pool is enough.
        options: change the scores by which hypotheses are ranked; None = log p. The returned log-probabilities are
            those of the model.
    """

    least_exponent: ClassVar[float] = -LARGEST_EXPONENT
    early_stopping: bool | Literal["never"] = False
    options: GenerateOptions | None = None

    def frontier(self, images: int, end: int, device: torch.device) -> Frontier:
        scores = _PieceScores(self.options, self.max_length, end)
        if self.beam_size == 1:  # greedy: a full beam would continue after the end
            return _OnePieceEach(images, end, scores, _most_probable, device)
        return _FullBeam(self, images, end, scores, device)

    def __call__(self, *args: Any, **kwargs: Any) -> Hypotheses:
        hypotheses = super().__call__(*args, **kwargs)
        if self.options is None:
            return hypotheses
        totals = hypotheses.word_log_probs.sum(2)  # ranks were sums of scores
        return hypotheses._replace(log_probs=totals.where(hypotheses.scores > -math.inf, -math.inf))


@dataclass(frozen=True, repr=False)
class GenerateSampling(Search):
    """Draws one caption, piece by piece, from the softmax of the scores. Log-probabilities are those of the model.

    The random numbers are drawn as by `caption.search.Sampling`, from torch's generator.

    Args:
        max_length: largest number of pieces, including the end piece.
        options: change the scores: temperature, top_k, top_p, ...; None = they are the logits.
    """

    max_length: int = LONGEST
    options: GenerateOptions | None = None

    def frontier(self, images: int, end: int, device: torch.device) -> Frontier:
        uniform = torch.rand(images, 1, self.max_length, dtype=torch.float64).to(device)

        def draw(scores: Tensor, rows: Tensor, time: int) -> Tensor:
            return inverse_cdf(scores.softmax(-1), uniform[rows, :, time])

        return _OnePieceEach(images, end, _PieceScores(self.options, self.max_length, end), draw, device)


class _PieceScores:
    """The scores by which `generate` ranks the next piece. Each end piece is a word of its own.

    Args:
        options: change them; None = they are log p.
        max_length: largest number of pieces.
        end: the end word.
    """

    def __init__(self, options: GenerateOptions | None, max_length: int, end: int) -> None:
        self.options, self.longest, self.end = options, max_length, end
        self.ends = torch.tensor([end])
        self.processors: Any = None

    def __call__(self, log_probs: Tensor, state: State, of_logits: bool) -> tuple[Tensor, Tensor]:
        """Scores (B, K, V) and log-probabilities (B, K, V) of the next word.

        Args:
            log_probs: (B, K, V), −inf for words that may not follow.
            state: of a `ForeignDecoder`; of any decoder if there are no options.
            of_logits: whether options are applied to logits, as in greedy search, not to log p, as with a beam.
        """
        carried = state.carried
        if not isinstance(carried, Carried):
            if self.options is None:
                return log_probs, log_probs
            raise UserError(
                "a search with the options of a generation_config works for captioners of transformers alone: give "
                "another, such as caption.search.BeamSearch()"
            )
        first = len(SPECIAL_TOKENS)
        may_end = log_probs[..., self.end, None] > -math.inf
        self.ends = carried.ends[0, 0] + first
        log_probs = log_probs.scatter(
            2, carried.ends + first, carried.end_log_probs.where(may_end, -math.inf)
        )
        log_probs[..., self.end] = -math.inf
        if self.options is None:
            return log_probs, log_probs
        if self.processors is None:
            prompt = carried.pieces.shape[2]
            self.longest = self.options.longest(prompt, self.longest)
            self.processors = self.options.processors(prompt, self.longest, log_probs.device)
        scores = log_probs + carried.normalizer[..., None] if of_logits else log_probs
        flat = scores[..., first:].flatten(0, 1)
        processed = self.processors(carried.pieces.flatten(0, 1), flat.clone()).view_as(scores[..., first:])
        possible = log_probs[..., first:] > -math.inf
        processed = processed.where(possible, -math.inf)
        # Words of a given beginning follow whatever the options say.
        processed = processed.where((processed > -math.inf).any(2, keepdim=True), scores[..., first:])
        return torch.cat((log_probs[..., :first], processed), 2), log_probs

    def merged(self, words: Tensor) -> Tensor:
        """The words, with the end word in place of all end pieces."""
        return words.where(~torch.isin(words, self.ends), self.end)


class _OnePieceEach(IndependentHypotheses):
    """The frontier of greedy search and of sampling."""

    def __init__(
        self,
        images: int,
        end: int,
        scores: _PieceScores,
        choose: Callable[[Tensor, Tensor, int], Tensor],
        device: torch.device,
    ) -> None:
        super().__init__(images, 1, end, choose, device)
        self.scores = scores

    def extend(self, rows: Tensor, log_probs: Tensor, state: State) -> tuple[Extension, Tensor]:
        scores, log_probs = self.scores(log_probs, state, of_logits=True)
        words = self.choose(scores, rows, self.time)
        terms = log_probs.gather(2, words[..., None]).squeeze(2)
        extension, unfinished = self.take(rows, self.scores.merged(words), terms)
        return extension, unfinished & (self.time < self.scores.longest)


def _most_probable(scores: Tensor, rows: Tensor, time: int) -> Tensor:
    return top_k(scores, 1)[1].squeeze(2)


class _FullBeam(Beam):
    """The frontier of `GenerateBeam`: K live hypotheses first, then those that have just ended."""

    def __init__(
        self, search: GenerateBeam, images: int, end: int, scores: _PieceScores, device: torch.device
    ) -> None:
        super().__init__(replace(search, candidates=search.beam_size), images, end, device)
        self.candidates, self.early_stopping = search.candidates, search.early_stopping
        self.scores = scores
        self.done = torch.zeros(images, dtype=torch.bool, device=device)

    def extend(self, rows: Tensor, log_probs: Tensor, state: State) -> tuple[Extension, Tensor]:
        size = self.search.beam_size
        scores, log_probs = self.scores(log_probs, state, of_logits=False)
        self.width = (1 + len(self.scores.ends)) * size
        totals, parents, words, _ = self._best_extensions(scores)
        terms = log_probs.flatten(1).gather(1, parents * log_probs.shape[2] + words)
        best = (totals, parents, self.scores.merged(words), terms)
        words = best[2]
        self.emitted += 1
        first = torch.arange(self.width, device=words.device) < size
        ended = (totals > -torch.inf) & (words == self.end)
        pooled = ended & first & ~self.done[rows, None]
        most_pooled = int(pooled.sum(1).max())
        order = torch.cat((_first(~ended, size), _first(pooled, most_pooled)), 1)
        totals, parents, words, terms = (values.gather(1, order) for values in best)
        pooled = torch.cat(
            (torch.zeros_like(order[:, :size], dtype=torch.bool), pooled.gather(1, order[:, size:])), 1
        )
        living = (totals > -torch.inf) & (words != self.end)
        living[:, size:] = False
        self._add_to_pool(rows, totals.where(pooled, -torch.inf))
        competing = living[:, :size] & first[order[:, :size]]
        self.log_probs = totals[:, :size].where(competing, -torch.inf)
        self._update_unfinished(rows, living.any(1))
        self.log_probs = totals.where(living, -torch.inf)
        exists = living | pooled
        extension = Extension(parents, words.where(exists, self.end), terms.where(exists, -torch.inf))
        return extension, self._can_improve(rows) & (self.emitted < self.scores.longest)

    def endings(self) -> Endings:
        if self.emitted < self.scores.longest:
            return self.finished.best(self.candidates)
        pairs = zip(self.finished, self.unfinished, strict=True)
        endings = Endings(*(torch.cat(pair, dim=1) for pair in pairs))
        finished = endings.finished & (endings.scores > -torch.inf)
        return endings._replace(finished=finished).best(self.candidates, torch.zeros_like(endings.slots))

    def _can_improve(self, rows: Tensor) -> Tensor:
        worst = self.finished.scores[rows].amin(dim=1)
        never = self.early_stopping == "never" and self.search.length_normalization > 0
        reach = self._score(self.log_probs.amax(dim=1), self.scores.longest if never else self.emitted)
        can_improve = reach > worst
        if self.early_stopping is True:
            can_improve &= worst == -torch.inf
        self.done[rows] |= ~can_improve
        return ~self.done[rows]


def _first(chosen: Tensor, count: int) -> Tensor:
    """(B, N) bool -> (B, count) places of the chosen entries, in order, then of the others."""
    return (~chosen).long().argsort(dim=1, stable=True)[:, :count]


def configured_search(generation: Any, prompt: int, ends: tuple[int, ...], vocabulary_size: int) -> Search:
    """The search that a `GenerationConfig` of transformers describes.

    Captions have at most `LARGEST` pieces, or fewer if there are more than `MOST_STEPS / LARGEST` beams.

    Args:
        generation: the configuration.
        prompt: number of pieces before the first word, which count in its `max_length`.
        ends: the pieces that end a caption.
        vocabulary_size: number of pieces.

    Raises:
        UserError: it has an option that is not supported, or a value out of its range; the message names it.
    """
    options = generate_options(generation, ends, vocabulary_size)
    beams = _in_range(generation, "num_beams", 1, LARGEST, default=1)
    penalty = _in_range(
        generation, "length_penalty", GenerateBeam.least_exponent, LARGEST_EXPONENT, default=1.0
    )
    new = _in_range(generation, "max_new_tokens", 1, math.inf, default=LONGEST)
    total = _in_range(generation, "max_length", 1, math.inf, default=prompt + LONGEST)
    longest = max(
        1, min(LARGEST, MOST_STEPS // beams, total - prompt if generation.max_new_tokens is None else new)
    )
    if generation.early_stopping not in (None, False, True, "never"):
        raise UserError(
            f"early_stopping of the model's generation_config is {generation.early_stopping!r}: it must be true, "
            'false or "never"'
        )
    if not generation.do_sample:
        return GenerateBeam(
            beams, longest, penalty, early_stopping=generation.early_stopping or False, options=options
        )
    if beams > 1:
        raise UserError(
            f"the model's generation_config draws pieces (do_sample) within a beam (num_beams {beams}), which is not "
            "supported: remove one of the two from generation_config.json"
        )
    return GenerateSampling(longest, options)


def _in_range(generation: Any, name: str, least: float, most: float, default: float) -> Any:
    """An option of a configuration; `default` if it is None."""
    value = getattr(generation, name)
    if value is None:
        return default
    kinds = (int, float) if isinstance(default, float) else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        raise UserError(
            f"{name} of the model's generation_config is {value!r}: it must be a number from {least:g}"
            + (f" to {most:g}" if most < math.inf else " up")
        )
    return value
