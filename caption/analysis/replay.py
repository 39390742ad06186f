"""Replay of captions: a model is fed the words of a caption, and any word can be said again with other maps.

Only one step is changed at a time; all steps before it stay. The answer is therefore about the attention of this word,
not about what earlier words saw.

Attention that samples reads the expectation during a replay, however it wrote the caption: of a single chosen region,
only the whole could be hidden.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from caption.analysis.map_arithmetic import Grid
from caption.attention.base import Attention, AttentionOutput, Query
from caption.attention.map_hooks import attentions
from caption.attention.maps import named_maps, with_maps
from caption.attention.stochastic import override_at_test
from caption.data.batch_inference import decode, encode
from caption.decoders.base import Decoder, Memory
from caption.regions import Views
from caption.result import Caption
from caption.runtime.eval_mode import eval_mode
from caption.tensor_tree import State, TensorTree, combine, leaves, map_tensors, select_images
from caption.text.vocabulary import PAD, START

if TYPE_CHECKING:
    from caption.captioner import Captioner
    from caption.data.decoding import Photo

Maps = Mapping[str, TensorTree]
"""The maps (B, K, ..., L) of each of a decoder's attentions, by the attention's name; see `WeighOutput.maps`."""


class Sentences(NamedTuple):
    """B images with a caption each, ready for teacher forcing."""

    captions: list[Caption]
    views: Views
    """The regions as the decoder gets them."""
    words: Tensor
    """(B, T) int64 word ids, without the end word; PAD behind, UNKNOWN for words that the model does not know."""
    lengths: Tensor
    """(B,) int64 number of words."""
    first: int = 0
    """Index of the first of these photos among all photos."""

    def said(self, rows: Tensor, step: int) -> list[str]:
        """The words of some sentences (N,) at a step that they have."""
        return [self.captions[row].words[step] for row in rows.tolist()]

    @property
    def fed(self) -> Tensor:
        """(B, T) int64: what the decoder is fed in order to say `words`."""
        return torch.cat((torch.full_like(self.words[:, :1], START), self.words[:, :-1]), 1)


class Moment(NamedTuple):
    """One step of the B' captions that have this step: what the model said, and all that is needed to repeat it."""

    step: int
    """Counted from 0, the step of the first word."""
    rows: Tensor
    """(B',) int64: which of the B sentences."""
    views: Views
    """The regions of the B' images."""
    state: State
    """Before the step, one hypothesis per image."""
    fed: Tensor
    """(B', 1) int64, the word before."""
    words: Tensor
    """(B',) int64, the word said."""
    weights: Tensor
    """(B', L) the summary α of the step, over the regions of the first view."""
    maps: Maps
    """All maps of the step, with K = 1."""
    log_probs: Tensor
    """(B', V) of the words, as the model says them."""

    def of_word(self, log_probs: Tensor) -> Tensor:
        """(B', K, V) -> (B', K): the log-probability of the word said."""
        index = self.words[:, None, None].expand(*log_probs.shape[:2], 1)
        return log_probs.gather(2, index).squeeze(2)

    def take(self, entries: Tensor) -> Moment:
        """The moment of some of its captions: (B'',) int64 indices into the B', which may repeat."""
        return select_images(self, entries)


class Term(NamedTuple):
    """One of several readings whose sum is the context."""

    maps: Maps
    """With K maps, or one for all K."""
    memory: Memory | None = None
    """Of the moment's B' images with other regions; None = the moment's own."""
    sign: int = 1
    """1, or -1 for a reading that is subtracted."""


def sentences(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    batch_size: int = 32,
) -> Iterator[Sentences]:
    """Photos with their captions, encoded, in batches.

    Args:
        captioner: the model; it is in evaluation mode while the iterator is open.
        photos: one, or many; taken one batch at a time.
        captions: the caption to be said about each photo, by this model or another; None = what this model says.
        batch_size: photos encoded at once.

    Raises:
        ValueError: there are more or fewer captions than photos.
        caption.errors.ImageError: a photo cannot be read.
    """
    given = None if captions is None else iter(captions)
    first = 0
    with eval_mode(captioner):
        for batch in batches(photos, batch_size):
            told = None if given is None else list(islice(given, len(batch)))
            if told is not None and len(told) < len(batch):
                raise ValueError("there are fewer captions than photos")
            yield _prepared(captioner, batch, told)._replace(first=first)
            first += len(batch)
        if given is not None and next(given, None) is not None:
            raise ValueError("there are more captions than photos")


def batches(photos: Photo | Iterable[Photo], batch_size: int) -> Iterator[list[Photo]]:
    """One photo, or many, in lists."""
    several = listed(photos)
    while batch := list(islice(several, batch_size)):
        yield batch


def listed(photos: Photo | Iterable[Photo]) -> Iterator[Photo]:
    """One photo, or each of many."""
    is_image = getattr(photos, "ndim", 4) < 4  # an array or tensor
    if is_image or hasattr(photos, "read") or isinstance(photos, (str, bytes, os.PathLike, Image.Image)):
        return iter([cast("Photo", photos)])
    return iter(cast("Iterable[Photo]", photos))


class Replay:
    """A decoder that says captions again, and single words of them with other maps.

    Args:
        decoder: of a captioner; it is not changed.

    Raises:
        UserError: the decoder has no attention.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = with_parts(decoder, {})
        self.decoder.compiled = False  # compiled code would not notice the hooks
        self._attentions = attentions(decoder)
        self._readers = {name: _GivenMaps(attention) for name, attention in self._attentions.items()}
        self._reading = with_parts(self.decoder, self._readers)

    @torch.no_grad()
    def moments(self, batch: Sentences) -> Iterator[Moment]:
        """The steps of a batch of sentences, one after the other."""
        with override_at_test(self.decoder, "expectation"):
            state = self.decoder.start(self.decoder.project(batch.views))
        rows = torch.arange(len(batch.words), device=batch.words.device)
        fed = batch.fed
        for step in range(batch.words.shape[1]):
            going = (batch.lengths[rows] > step).nonzero().squeeze(1)
            if not len(going):
                return
            rows = rows[going]
            before = select_images(state._replace(trace=None), going)
            maps: dict[str, TensorTree] = {}
            with ExitStack() as hooks:
                for name, attention in self._attentions.items():
                    hooks.enter_context(attention.register_forward_hook(partial(_note, maps, name)))
                log_probs, state = self._step(before, fed[rows, step, None])
            yield Moment(
                step, rows, select_images(batch.views, rows), before, fed[rows, step, None],
                batch.words[rows, step], state.trace.weights[:, 0], maps, log_probs[:, 0],
            )  # fmt: skip

    def say(self, moment: Moment, maps: Maps | Sequence[Term], at_once: int = 64) -> Tensor:
        """Log-probabilities (B', K, V) of the words of a moment, had its maps been each of K others.

        No score is computed, so K maps cost little more than one. Differentiable in maps that require a gradient.

        Args:
            moment: from `moments`.
            maps: with K maps, or one for all K, of every attention; or terms whose readings are summed.
            at_once: how many of the K are computed together; bounds the memory.
        """
        terms = [Term(maps)] if isinstance(maps, Mapping) else maps
        tensors = leaves([term.maps for term in terms])
        copies = max(tensor.shape[1] for tensor in tensors)
        wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)

        def part(start: int, tensor: Tensor) -> Tensor:
            return _repeated(copies, tensor)[:, start : start + at_once]

        with torch.set_grad_enabled(wanted):
            return torch.cat(
                [
                    self._say(moment, [term._replace(maps=map_tensors(partial(part, k), term.maps)) for term in terms])
                    for k in range(0, copies, at_once)
                ],
                1,
            )  # fmt: skip

    def _say(self, moment: Moment, terms: Sequence[Term]) -> Tensor:
        for number, (name, reader) in enumerate(self._readers.items()):
            reader.given = [
                (term.sign, term.maps[name], term.memory and term.memory.projected[number]) for term in terms
            ]
        copies = leaves(terms[0].maps)[0].shape[1]
        state = moment.state._replace(carried=map_tensors(partial(_repeated, copies), moment.state.carried))
        return self._reading.step(state, moment.fed.expand(-1, copies))[0]

    def over_grids(
        self, function: Callable[[Tensor, Grid], Tensor], moment: Moment, maps: Maps | None = None
    ) -> Maps:
        """Maps with `function(map, grid)` in the place of every map that lies on a grid; others are left alone.

        Args:
            function: takes (B', K, ..., L) and (rows, cols).
            moment: says which grids there are.
            maps: None = the moment's own.
        """
        views = [view.grid for view in moment.views]
        changed = {}
        for name, of_attention in (moment.maps if maps is None else maps).items():
            named, grids = named_maps(of_attention), self._attentions[name].grids(views)
            changed[name] = with_maps(
                of_attention, {each: function(named[each], grid) for each, grid in grids.items()}
            )
        return changed

    def weights(self, batch: Sentences) -> Tensor:
        """(B, T, L) the summary α of every word of a batch, 0 behind the end of a sentence."""
        vectors = batch.views[0].vectors
        weights = vectors.new_zeros(*batch.words.shape, vectors.shape[1])
        for moment in self.moments(batch):
            weights[moment.rows, moment.step] = moment.weights.to(weights.dtype)
        return weights

    def maps(self, batch: Sentences) -> Maps:
        """All maps (B, T, ..., L) of every word of a batch, 0 behind the end of a sentence; {} without words."""

        def placed(moment: Moment, tensor: Tensor) -> Tensor:
            return tensor.new_zeros(len(batch.words), *tensor.shape[2:]).index_copy(
                0, moment.rows, tensor[:, 0]
            )

        of_steps = [map_tensors(partial(placed, moment), moment.maps) for moment in self.moments(batch)]
        return combine(lambda tensors: torch.stack(tensors, 1), of_steps) if of_steps else {}

    def gradient(self, moment: Moment) -> Tensor:
        """(B', L, D) ∂ log p(word) / ∂ a_i at this step, for the first view: through the context and the scores."""
        with torch.enable_grad():
            first, *others = moment.views
            vectors = first.vectors.detach().clone().requires_grad_()
            memory = self.decoder.project((first._replace(vectors=vectors), *others))
            log_probs, _ = self._step(moment.state._replace(shared=memory), moment.fed)
            return torch.autograd.grad(moment.of_word(log_probs).sum(), vectors)[0]

    def _step(self, state: State, fed: Tensor) -> tuple[Tensor, State]:
        with override_at_test(self.decoder, "expectation"):
            return self.decoder.step(state, fed)


class _GivenMaps(Attention):
    """Another attention that reads maps that are given to it; it computes no score."""

    given: list[tuple[int, TensorTree, TensorTree]]
    """Sign, maps and memory of each reading; None for the memory that the decoder gives."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, query: Query, memory: TensorTree, state: TensorTree = None) -> AttentionOutput:
        readings = [
            sign * self.attention.read(maps, query, memory if other is None else other).context
            for sign, maps, other in self.given
        ]
        maps = self.given[0][1]
        # The state is not carried on: a moment is one step.
        return AttentionOutput(sum(readings[1:], readings[0]), self.attention.summary(maps), maps, state)


Owner = TypeVar("Owner", bound=nn.Module)


def with_parts(owner: Owner, parts: Mapping[str, nn.Module | None]) -> Owner:
    """A copy of a module in which some parts, named by their dotted paths, are others.

    Weights are shared. The module given stays as it is.
    """
    made = copy.copy(owner)
    made.__dict__["_modules"] = dict(owner._modules)
    for path, part in parts.items():
        *above, name = path.split(".")
        inner: nn.Module = made
        for child in above:
            inner._modules[child] = with_parts(inner.get_submodule(child), {})
            inner = inner.get_submodule(child)
        inner._modules[name] = part
    return made


def _note(
    maps: dict[str, TensorTree], name: str, module: nn.Module, args: Any, output: AttentionOutput
) -> None:
    maps[name] = output.maps


def _repeated(copies: int, tensor: Tensor) -> Tensor:
    """(B, 1 or K, ...) -> (B, K, ...)."""
    return tensor.expand(tensor.shape[0], copies, *tensor.shape[2:])


@torch.no_grad()
def _prepared(captioner: Captioner, photos: list[Photo], captions: list[Caption] | None) -> Sentences:
    decoded = [decode(photo, captioner.transform) for photo in photos]
    views = encode(captioner.encoder, decoded, captioner.device)
    if captions is None:
        found, seen = captioner.generate(views), [each.box for each in decoded]
        captions = list(captioner.captions(found, captioner.grids(views), seen, photos))
    words = [
        torch.tensor([captioner.vocabulary[word] for word in each.words], dtype=torch.int64)
        for each in captions
    ]
    lengths = torch.tensor([len(ids) for ids in words])
    padded = pad_sequence(words, batch_first=True, padding_value=PAD)
    device = captioner.device
    return Sentences(captions, captioner.refine(views), padded.to(device), lengths.to(device))
