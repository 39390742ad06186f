"""Replay of captions: a model is fed the words of a caption, and any step can be run again with other maps.

Only one step is changed at a time. The result therefore depends on the attention of this word alone, not on that of
earlier words.

Attention that samples reads its expectation during a replay, even if it sampled while generating the caption: a single
sampled region could only be hidden as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, NamedTuple, cast
from weakref import WeakValueDictionary

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from caption.analysis.map_arithmetic import resampled, with_map_dims, with_sum_of
from caption.analysis.module_copy import with_parts
from caption.attention.base import Attention, AttentionOutput, Query
from caption.attention.map_hooks import attentions
from caption.attention.maps import named_maps, with_maps
from caption.attention.stochastic import override_at_test
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import Grid, Views
from caption.core.runtime.eval_mode import eval_mode
from caption.core.tensor_tree import State, TensorTree, combine, leaves, map_tensors, select_images
from caption.data.photos import FittedPhoto, Photo
from caption.data.text_files import short_repr
from caption.decoders.base import Decoder, Memory
from caption.results.caption import Caption
from caption.text.vocabulary import PAD, START

Maps = Mapping[str, TensorTree]
"""The maps (B, K, ..., L) of each of a decoder's attentions, by the attention's name; see `WeighOutput.maps`."""


class Sentences(NamedTuple):
    """B images with a caption each, ready for teacher forcing."""

    captions: list[Caption]
    """With a word for each step."""
    photos: list[FittedPhoto]
    encoded: Views
    """The regions from the encoder."""
    views: Views
    """The regions that the decoder gets."""
    words: Tensor
    """(B, T) int64 word ids, without the end word; PAD after the caption, UNKNOWN for words outside the vocabulary."""
    lengths: Tensor
    """(B,) int64 number of words."""
    images: Tensor
    """(B,) int64 `PhotoNumbers` of the photos: captions of one photo have one number."""
    first: int = 0
    """Index of the first of these captions among all captions."""

    @property
    def inputs(self) -> Tensor:
        """(B, T) int64: the words before `words`, which the decoder is fed."""
        return torch.cat((torch.full_like(self.words[:, :1], START), self.words[:, :-1]), 1)


class Step(NamedTuple):
    """One decoding step of the B' captions that have it: its output, and the inputs to run it again."""

    number: int
    """Counted from 0, the step of the first word."""
    rows: Tensor
    """(B',) int64: which of the B sentences."""
    views: Views
    """The regions of the B' images."""
    state: State
    """Before the step, one hypothesis per image."""
    inputs: Tensor
    """(B', 1) int64, the word before."""
    words: Tensor
    """(B',) int64, the word of the caption."""
    weights: Tensor
    """(B', L) the summary α of the step, over the regions of the first view."""
    maps: Maps
    """All maps of the step, with K = 1."""
    log_probs: Tensor
    """(B', V) of all words."""

    @property
    def log_prob(self) -> Tensor:
        """(B',) the log-probability of the caption's word."""
        return self.of_word(self.log_probs[:, None])[:, 0]

    def of_word(self, log_probs: Tensor) -> Tensor:
        """(B', K, V) -> (B', K): the log-probability of the caption's word."""
        index = self.words[:, None, None].expand(*log_probs.shape[:2], 1)
        return log_probs.gather(2, index).squeeze(2)

    def distance(self, log_probs: Tensor) -> Tensor:
        """(B', K) total variation, 0 to 1, between this prediction and others (B', K, V)."""
        return (self.log_probs[:, None].exp() - log_probs.exp()).abs().sum(-1) / 2

    def take(self, entries: Tensor) -> Step:
        """The step for some of its captions: (B'',) int64 indices into the B', which may repeat."""
        return select_images(self, entries)


class Reading(NamedTuple):
    """Maps to be read from a memory; the context may be the sum of several readings."""

    maps: Maps
    """With K maps, or one for all K."""
    memory: Memory | None = None
    """Other regions of the step's B' images; None = the step's own."""
    sign: int = 1
    """1, or -1 for a reading that is subtracted."""


def sentences(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    batch_size: int = 32,
) -> Iterator[Sentences]:
    """Photos with their captions, encoded, in batches; those of other proportions in a batch of their own, if the
    model keeps proportions.

    Args:
        captioner: the model; it is in evaluation mode while the iterator is open.
        photos: one, or many; taken one batch at a time.
        captions: one for each photo, by this model or another; None = those that this model generates.
        batch_size: photos encoded at once.

    Raises:
        ValueError: there are more or fewer captions than photos.
        UserError: captions are texts.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    if isinstance(captions, Caption):
        captions = [captions]
    supply = None if captions is None else iter(captions)
    numbers, first = PhotoNumbers(), 0
    with eval_mode(captioner):
        for batch in batches(photos, batch_size):
            of_batch = None if supply is None else list(islice(supply, len(batch)))
            if of_batch is not None and len(of_batch) < len(batch):
                raise ValueError("there are fewer captions than photos")
            for alike in _encoded(captioner, batch, list(map(numbers.add, batch)), of_batch):
                yield alike._replace(first=first)
                first += len(alike.captions)
        if supply is not None and next(supply, None) is not None:
            raise ValueError("there are more captions than photos")


class PhotoNumbers:
    """Numbers photos by the place at which each was given first, so that the captions of one photo share its number.

    A photo is known by its path or bytes, or as an object that is still in memory.
    """

    def __init__(self) -> None:
        self._count = 0
        self._numbers: dict[str | bytes | int, int] = {}
        # An object that is gone may leave its id to another.
        self._objects: WeakValueDictionary[int, Photo] = WeakValueDictionary()

    def add(self, photo: Photo) -> int:
        """The number of the next photo."""
        place, self._count = self._count, self._count + 1
        if isinstance(photo, (str, bytes, os.PathLike)):
            return self._numbers.setdefault(os.fspath(photo), place)
        if self._objects.get(id(photo)) is not photo:
            self._objects[id(photo)] = photo
            self._numbers[id(photo)] = place
        return self._numbers[id(photo)]


def _projected(memory: Memory) -> list[TensorTree]:
    """What each attention reads, in their order; those of an ensemble's members follow each other."""
    parts = [_projected(part) if isinstance(part, Memory) else [part] for part in memory.projected]
    return list(chain.from_iterable(parts))


def words_alone(words: Sequence[str]) -> Caption:
    """A caption for `sentences` that has only words."""
    steps = len(words)
    return Caption(" ".join(words), list(words), np.zeros((steps, 1, 1)), 0.0, np.zeros(steps), (0, 0, 1, 1))


def batches(photos: Photo | Iterable[Photo], batch_size: int) -> Iterator[list[Photo]]:
    """One photo, or many, in lists."""
    remaining = iter_photos(photos)
    while batch := list(islice(remaining, batch_size)):
        yield batch


def iter_photos(photos: Photo | Iterable[Photo]) -> Iterator[Photo]:
    is_image = getattr(photos, "ndim", 4) < 4  # an array or tensor
    if is_image or hasattr(photos, "read") or isinstance(photos, (str, bytes, os.PathLike, Image.Image)):
        return iter([cast("Photo", photos)])
    return iter(cast("Iterable[Photo]", photos))


class Replay:
    """A decoder that is fed captions, and whose single steps can be run again with other maps.

    Args:
        decoder: of a captioner; it is not changed.

    Raises:
        UserError: the decoder has no attention.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = with_parts(decoder, {})
        self._attentions = attentions(decoder)
        self._readers = {name: _GivenMaps(attention) for name, attention in self._attentions.items()}
        self._reading = with_parts(self.decoder, self._readers)

    @torch.no_grad()
    def steps(self, batch: Sentences) -> Iterator[Step]:
        """The steps of a batch of sentences, one after the other."""
        with override_at_test(self.decoder, "expectation"):
            state = self.decoder.start(self.decoder.project(batch.views))
        rows = torch.arange(len(batch.words), device=batch.words.device)
        inputs = batch.inputs
        for number in range(batch.words.shape[1]):
            going = (batch.lengths[rows] > number).nonzero().squeeze(1)
            if not len(going):
                return
            rows = rows[going]
            before = select_images(state._replace(trace=None), going)
            maps: dict[str, TensorTree] = {}
            with ExitStack() as hooks:
                for name, attention in self._attentions.items():
                    hooks.enter_context(attention.register_forward_hook(partial(_record, maps, name)))
                log_probs, state = self._step(before, inputs[rows, number, None])
            yield Step(
                number, rows, select_images(batch.views, rows), before, inputs[rows, number, None],
                batch.words[rows, number], state.trace.weights[:, 0], maps, log_probs[:, 0],
            )  # fmt: skip

    def rerun(self, step: Step, maps: Maps | Sequence[Reading], at_once: int = 64) -> Tensor:
        """Log-probabilities (B', K, V) of a step that is run again with each of K other maps.

        No score is computed, so K maps cost little more than one. Differentiable in maps that require a gradient.

        Args:
            step: from `steps`.
            maps: with K maps, or one for all K, of every attention; or readings, which are summed.
            at_once: how many of the K are computed together; limits the memory.
        """
        readings = [Reading(maps)] if isinstance(maps, Mapping) else maps
        tensors = leaves([reading.maps for reading in readings])
        copies = max(tensor.shape[1] for tensor in tensors)
        differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)

        def part(start: int, reading: Reading) -> Reading:
            maps = map_tensors(
                lambda tensor: _repeated(copies, tensor)[:, start : start + at_once], reading.maps
            )
            return reading._replace(maps=maps)

        with torch.set_grad_enabled(differentiable):
            starts = range(0, copies, at_once)
            return torch.cat(
                [self._rerun(step, [part(start, reading) for reading in readings])[0] for start in starts], 1
            )

    @torch.no_grad()
    def summary(self, step: Step, maps: Maps) -> Tensor:
        """(B', K, L) the summary of K maps of every attention, as in `Step.weights`."""
        return self._rerun(step, [Reading(maps)])[1].trace.weights

    def _rerun(self, step: Step, readings: Sequence[Reading]) -> tuple[Tensor, State]:
        for number, (name, reader) in enumerate(self._readers.items()):
            reader.readings = [
                (sign, maps[name], memory and _projected(memory)[number]) for maps, memory, sign in readings
            ]
        copies = leaves(readings[0].maps)[0].shape[1]
        state = step.state._replace(carried=map_tensors(partial(_repeated, copies), step.state.carried))
        return self._reading.step(state, step.inputs.expand(-1, copies))

    def over_grids(
        self, function: Callable[[Tensor, Grid], Tensor], step: Step, maps: Maps | None = None
    ) -> Maps:
        """Maps with `function(map, grid)` in the place of every map that lies on a grid; further maps are kept.

        Args:
            function: takes (B', K, ..., L) and (rows, cols).
            step: has the grids.
            maps: None = the step's own.
        """
        views = [view.grid for view in step.views]
        changed = {}
        for name, of_attention in (step.maps if maps is None else maps).items():
            by_label, grids = named_maps(of_attention), self._attentions[name].grids(views)
            changed[name] = with_maps(
                of_attention, {label: function(by_label[label], grid) for label, grid in grids.items()}
            )
        return changed

    def grid_maps(self, step: Step, maps: Maps | None = None) -> list[Tensor]:
        """The maps (B', K, ..., L) that lie on grids, in the order of `over_grids`."""
        on_grids: list[Tensor] = []

        def collect(map_: Tensor, grid: Grid) -> Tensor:
            on_grids.append(map_)
            return map_

        self.over_grids(collect, step, maps)
        return on_grids

    def with_grid_maps(self, replacements: Iterable[Tensor], step: Step, maps: Maps | None = None) -> Maps:
        """Maps in which those of `grid_maps` are replaced, in the same order."""
        remaining = iter(replacements)
        return self.over_grids(lambda map_, grid: next(remaining), step, maps)

    def single_regions(self, step: Step) -> Maps:
        """The step's maps with K = L: each with all its weight on one region of the first grid, its sum kept."""
        grid, weights = step.views[0].grid, step.weights
        single = torch.eye(weights.shape[1], device=weights.device).expand(len(weights), -1, -1)
        return self.over_grids(
            lambda map_, own_grid: with_sum_of(map_, with_map_dims(resampled(single, grid, own_grid), map_)),
            step,
        )

    def maps(self, batch: Sentences) -> Maps:
        """All maps (B, T, ..., L) of every word of a batch, 0 after the end of a sentence; {} without words."""

        def placed(step: Step, tensor: Tensor) -> Tensor:
            return tensor.new_zeros(len(batch.words), *tensor.shape[2:]).index_copy(
                0, step.rows, tensor[:, 0]
            )

        of_steps = [map_tensors(partial(placed, step), step.maps) for step in self.steps(batch)]
        return combine(lambda tensors: torch.stack(tensors, 1), of_steps) if of_steps else {}

    def gradient(self, step: Step, vectors: Tensor | None = None) -> Tensor:
        """(B', L, D) ∂ log p(word) / ∂ a_i at this step, for the first view: through the context and the scores.

        Args:
            step: from `steps`.
            vectors: (B', L, D) other regions at which the gradient is taken; None = the step's own.

        Raises:
            UserError: the model computes without gradients.
        """
        with torch.enable_grad():
            first, *further = step.views
            at = (first.vectors if vectors is None else vectors).detach().clone().requires_grad_()
            memory = self.decoder.project((first._replace(vectors=at), *further))
            shared = self.decoder.start(memory).shared  # of an ensemble, the memories of its members
            log_probs, _ = self._step(step.state._replace(shared=shared), step.inputs)
            return gradients(step.of_word(log_probs).sum(), [at])[0]

    def run(self, step: Step) -> Tensor:
        """(B', 1, V) log-probabilities of the step, run again as it was, with gradients if they are enabled."""
        return self._step(step.state, step.inputs)[0]

    def _step(self, state: State, inputs: Tensor) -> tuple[Tensor, State]:
        with override_at_test(self.decoder, "expectation"):
            return self.decoder.step(state, inputs)


def gradients(log_prob: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """∂ log p / ∂ each of the inputs, 0 where log p does not depend on it. The graph stays.

    Raises:
        UserError: log p was computed without gradients, or depends on none of the inputs.
    """
    slopes: Sequence[Tensor | None] = ()
    if log_prob.requires_grad:
        slopes = torch.autograd.grad(log_prob, inputs, retain_graph=True, allow_unused=True)
    if all(slope is None for slope in slopes):  # quantised layers end the graph without an error
        raise UserError(
            "this model computes without gradients, as quantised and exported models do, or reads its maps without "
            "any, as max pooling does: take a map that hides regions, such as occlusion"
        )
    pairs = zip(inputs, slopes, strict=True)
    return tuple(torch.zeros_like(at) if slope is None else slope for at, slope in pairs)


class _GivenMaps(Attention):
    """An attention that reads given maps in place of its own; it computes no score."""

    readings: list[tuple[int, TensorTree, TensorTree]]
    """Sign, maps and memory of each reading; None = the memory from the decoder."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, query: Query, memory: TensorTree, state: TensorTree = None) -> AttentionOutput:
        contexts = [
            sign * self.attention.read(maps, query, memory if given is None else given).context
            for sign, maps, given in self.readings
        ]
        maps = self.readings[0][1]
        # The state is not carried on: only one step is run.
        return AttentionOutput(sum(contexts[1:], contexts[0]), self.attention.summary(maps), maps, state)


def _record(
    maps: dict[str, TensorTree], name: str, module: Attention, args: Any, output: AttentionOutput
) -> None:
    maps[name] = output.maps


def _repeated(copies: int, tensor: Tensor) -> Tensor:
    """(B, 1 or K, ...) -> (B, K, ...)."""
    return tensor.expand(tensor.shape[0], copies, *tensor.shape[2:])


@torch.no_grad()
def _encoded(
    captioner: Captioner, photos: list[Photo], numbers: list[int], captions: list[Caption] | None
) -> Iterator[Sentences]:
    # A photo that comes several times, once for each of its captions, is encoded once.
    read = {
        number: captioner.read(photo) for number, photo in dict(zip(numbers, photos, strict=True)).items()
    }
    given = iter([] if captions is None else captions)
    # With a transform that keeps proportions, photos may have different grids.
    for _, group in groupby(zip(numbers, photos, strict=True), lambda photo: read[photo[0]].pixels.shape):
        of_group, alike = zip(*group, strict=True)
        places = {number: place for place, number in enumerate(dict.fromkeys(of_group))}
        fitted = [read[number] for number in of_group]
        index = torch.tensor([places[number] for number in of_group], device=captioner.device)
        encoded = select_images(captioner.encode([read[number] for number in places]), index)
        if captions is None:
            hypotheses, boxes = captioner.generate(encoded), [photo.box for photo in fitted]
            own = captioner.captions(hypotheses, captioner.grids(encoded), boxes, alike)
            yield _fed(captioner, list(own), fitted, of_group, encoded)
        else:
            yield _fed(captioner, list(islice(given, len(fitted))), fitted, of_group, encoded)


def _fed(
    captioner: Captioner,
    captions: list[Caption],
    photos: list[FittedPhoto],
    numbers: Sequence[int],
    encoded: Views,
) -> Sentences:
    """Encoded photos with the words of their captions."""
    if texts := [caption for caption in captions if isinstance(caption, str)]:
        raise UserError(
            f"a caption is a Caption, not a text such as {short_repr(texts[0])}: attend_references feeds people's texts"
        )
    captions = [captioner.split(caption) for caption in captions]
    words = [
        torch.tensor([captioner.vocabulary[word] for word in caption.words], dtype=torch.int64)
        for caption in captions
    ]
    lengths = torch.tensor([len(ids) for ids in words])
    padded = pad_sequence(words, batch_first=True, padding_value=PAD)
    device = captioner.device
    refined, images = captioner.refine(encoded), torch.tensor(numbers, device=device)
    return Sentences(captions, photos, encoded, refined, padded.to(device), lengths.to(device), images)
