"""A caption again, word by word: the model is fed its words, and each can be said anew with other weights.

What is asked of one step is asked with everything before it as it was. So the answer is about the attention of this
word, not about what earlier words saw.

Hard attention reads the expectation under α while its captions are said again, however it chose when it wrote them: of
a single chosen region there is nothing to hide but the whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from caption.attention.base import Attention, Look, Memory
from caption.attention.forced import force, with_parts
from caption.data.images import open_image
from caption.decoders.base import Decoder
from caption.encoders.base import Regions
from caption.eval_mode import eval_mode
from caption.result import Caption
from caption.tensor_tree import State, TensorTree, map_tensors, select_images
from caption.text.vocabulary import PAD, START, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from caption.captioner import Captioner
    from caption.result import Photo


class Sentences(NamedTuple):
    """B images with a caption each, ready for teacher forcing."""

    captions: list[Caption]
    vectors: Tensor
    """(B, L, D) the regions as the decoder gets them."""
    mask: Tensor | None
    """(B, L) bool, True where there is a region; None = all real."""
    words: Tensor
    """(B, T) int64 word ids, without the end word; PAD behind. Words the model does not know are UNKNOWN."""
    lengths: Tensor
    """(B,) int64 number of words."""
    first: int = 0
    """Which of all the photos is the first of these."""

    def said(self, rows: Tensor, step: int) -> list[str]:
        """The words of some sentences (N,) at a step that they have."""
        return [self.captions[row].words[step] for row in rows.tolist()]

    @property
    def fed(self) -> Tensor:
        """(B, T) int64: what the decoder is fed to say `words`."""
        return torch.cat((torch.full_like(self.words[:, :1], START), self.words[:, :-1]), 1)


class Moment(NamedTuple):
    """One step of the B' captions that have one: what the model said there, and all it takes to ask it again."""

    step: int
    """Counted from 0, the step of the first word."""
    rows: Tensor
    """(B',) int64: which of the B sentences."""
    vectors: Tensor
    """(B', L, D)."""
    mask: Tensor | None
    state: State
    """Before the step, one hypothesis per image."""
    fed: Tensor
    """(B', 1) int64, the word before."""
    words: Tensor
    """(B',) int64, the word said."""
    weights: Tensor
    """(B', L) α of the step."""
    log_probs: Tensor
    """(B', V) of the words, as the model says them."""

    def of_word(self, log_probs: Tensor) -> Tensor:
        """(B', K, V) -> (B', K): the log-probability of the word said."""
        index = self.words[:, None, None].expand(*log_probs.shape[:2], 1)
        return log_probs.gather(2, index).squeeze(2)

    def take(self, entries: Tensor) -> Moment:
        """The moment of some of its captions, (B'',) int64 indices into the B', perhaps repeated."""
        shared, carried = select_images((self.state.shared, self.state.carried), entries)
        mask = None if self.mask is None else self.mask[entries]
        return Moment(
            self.step, self.rows[entries], self.vectors[entries], mask, State(shared, carried, None),
            self.fed[entries], self.words[entries], self.weights[entries], self.log_probs[entries],
        )  # fmt: skip


def sentences(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    batch_size: int = 32,
) -> Iterator[Sentences]:
    """Photos with their captions, encoded, in batches.

    Args:
        captioner: the model; it is in evaluation mode while a batch is out.
        photos: one, or many; taken one batch at a time.
        captions: what is to be said about each photo, by this model or another; None = what this model says.
        batch_size: photos encoded at once.

    Raises:
        ValueError: there are more or fewer captions than photos.
        caption.errors.ImageError: a photo cannot be read.
    """
    several = listed(photos)
    given = None if captions is None else iter(captions)
    first = 0
    with eval_mode(captioner):
        while batch := list(islice(several, batch_size)):
            told = None if given is None else list(islice(given, len(batch)))
            if told is not None and len(told) < len(batch):
                raise ValueError("there are fewer captions than photos")
            yield _prepared(captioner, batch, told)._replace(first=first)
            first += len(batch)
        if given is not None and next(given, None) is not None:
            raise ValueError("there are more captions than photos")


def listed(photos: Photo | Iterable[Photo]) -> Iterator[Photo]:
    """One photo, or each of many."""
    if isinstance(photos, (str, os.PathLike)) or hasattr(
        photos, "getexif"
    ):  # so that Pillow is loaded only where it was
        return iter([photos])  # type: ignore[list-item]
    return iter(photos)


class Replay:
    """A decoder that says captions again, and single words of them under other weights.

    Args:
        decoder: of a captioner; it is not changed.

    Raises:
        UserError: the decoder has no attention whose weights could be others.
    """

    def __init__(self, decoder: Decoder) -> None:
        # A copy is an edit that changes nothing but what is read: Σ α_i a_i, also where one region was chosen.
        self.decoder = force(decoder, lambda weights, step: weights.clone())
        self._reading = _Given()
        self._asked = with_parts(decoder, attention=self._reading)

    @torch.no_grad()
    def moments(self, batch: Sentences) -> Iterator[Moment]:
        """The steps of a batch of sentences, one after the other."""
        state = self.decoder.start(self.decoder.project(batch.vectors, batch.mask))
        rows = torch.arange(len(batch.words), device=batch.words.device)
        fed = batch.fed
        for step in range(batch.words.shape[1]):
            going = (batch.lengths[rows] > step).nonzero().squeeze(1)
            if not len(going):
                return
            rows = rows[going]
            shared, carried = select_images((state.shared, state.carried), going)
            before = State(shared, carried, None)
            log_probs, state = self.decoder.step(before, fed[rows, step, None])
            yield Moment(
                step, rows, batch.vectors[rows], None if batch.mask is None else batch.mask[rows], before,
                fed[rows, step, None], batch.words[rows, step], state.trace.weights[:, 0], log_probs[:, 0],
            )  # fmt: skip

    @torch.no_grad()
    def say(self, moment: Moment, weights: Tensor, at_once: int = 64) -> Tensor:
        """Log-probabilities (B', K, V) of the words of a moment, had α been each of K others.

        Args:
            moment: from `moments`.
            weights: (B', K, L).
            at_once: how many of the K are computed together; bounds the memory.
        """
        return torch.cat([self._say(moment, some) for some in weights.split(at_once, 1)], 1)

    def _say(self, moment: Moment, weights: Tensor) -> Tensor:
        copies = weights.shape[1]
        carried = map_tensors(
            lambda tensor: tensor.expand(tensor.shape[0], copies, *tensor.shape[2:]), moment.state.carried
        )
        self._reading.weights = weights
        state = State(moment.state.shared, carried, None)
        return self._asked.step(state, moment.fed.expand(-1, copies))[0]

    def weights(self, batch: Sentences) -> Tensor:
        """(B, T, L) α of every word of a batch, 0 behind the end of a sentence."""
        steps, regions = batch.words.shape[1], batch.vectors.shape[1]
        weights = batch.vectors.new_zeros(len(batch.words), steps, regions)
        for moment in self.moments(batch):
            weights[moment.rows, moment.step] = moment.weights.to(weights.dtype)
        return weights

    def gradient_of_weights(self, moment: Moment) -> Tensor:
        """(B', L) ∂ log p(word) / ∂ α_i at this step: how much each region speaks for the word, read or not."""
        with torch.enable_grad():
            weights = moment.weights.detach().clone().requires_grad_()
            log_probs = self._say(moment, weights[:, None])
            return torch.autograd.grad(moment.of_word(log_probs).sum(), weights)[0]

    def gradient(self, moment: Moment) -> Tensor:
        """(B', L, D) ∂ log p(word) / ∂ a_i at this step: through what is read and through where α lies."""
        with torch.enable_grad():
            vectors = moment.vectors.detach().clone().requires_grad_()
            state = State(self.decoder.project(vectors, moment.mask), moment.state.carried, None)
            log_probs, _ = self.decoder.step(state, moment.fed)
            return torch.autograd.grad(moment.of_word(log_probs).sum(), vectors)[0]


class _Given(Attention):
    """Reads with weights that it is given. No score is computed: K of them cost little more than one."""

    weights: Tensor
    """(B, K, L)."""

    def forward(self, query: Tensor, memory: Memory, state: TensorTree = None) -> Look:
        return Look(self.weights @ memory.values, self.weights, state)


@torch.no_grad()
def encode(captioner: Captioner, photos: Iterable[Photo]) -> tuple[Regions, Tensor]:
    """Photos as the encoder's regions, and as the vectors (B, L, D) that the decoder gets: the refiner's, if any."""
    pixels = torch.stack([captioner.transform(open_image(photo)) for photo in photos])
    regions: Regions = captioner.encoder(pixels.to(captioner.device))
    return regions, regions.vectors if captioner.refiner is None else captioner.refiner(regions.vectors)


def _prepared(captioner: Captioner, photos: list[Photo], captions: list[Caption] | None) -> Sentences:
    images = [open_image(photo) for photo in photos]
    regions, vectors = encode(captioner, images)
    if captions is None:
        boxes = [captioner.transform.box(*image.size) for image in images]
        captions = list(captioner.captions(captioner.generate(regions), regions.grid, boxes, photos))
    words, lengths = _ids(captioner.vocabulary, captions)
    return Sentences(captions, vectors, None, words.to(captioner.device), lengths.to(captioner.device))


def _ids(vocabulary: Vocabulary, captions: list[Caption]) -> tuple[Tensor, Tensor]:
    number = {word: word_id for word_id, word in enumerate(vocabulary.words)}
    lengths = torch.tensor([len(caption.words) for caption in captions])
    words = torch.full((len(captions), int(lengths.max())), PAD)
    for row, caption in enumerate(captions):
        words[row, : len(caption.words)] = torch.tensor(
            [number.get(word, UNKNOWN) for word in caption.words], dtype=torch.int64
        )
    return words, lengths
