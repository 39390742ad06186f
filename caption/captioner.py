"""The captioner: an encoder, a refiner, a decoder, a vocabulary and an image transform, connected.

Training is in `caption.training`. A captioner loads from one file and captions photos:

    captioner = caption.load("model.ckpt")
    print(captioner("photo.jpg"))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
import torch
from torch import Tensor, nn

from caption.attention.maps import has_location
from caption.beam_tree import BeamTree
from caption.beam_tree import beam_tree as tree_of
from caption.box import Box, BoxLike, part_of, shares_of
from caption.captions import Captions
from caption.data.batch_inference import BATCH, DecodedPhoto, decode, decode_ahead, encode
from caption.data.resize import ImageTransform
from caption.decoders.base import Decoder, Memory, Unrolled
from caption.encoders import Refiner
from caption.encoders.base import Encoder, view_sizes
from caption.errors import ImageError
from caption.lens_reading import LensReading
from caption.parts import public_path
from caption.regions import Grid, Views
from caption.result import Caption
from caption.runtime.eval_mode import eval_mode
from caption.search import BeamSearch, Hypotheses, Search, adjusted
from caption.search.base import SearchRecord
from caption.search.beam import recording
from caption.search.step_functions import LikeliestWords, with_likeliest_words, with_prefix, with_stand_ins
from caption.tensor_tree import map_tensors
from caption.text.vocabulary import END, PAD, START, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from caption.data.decoding import Photo

LIKELIEST = 5
"""How many of the likeliest words of each step a caption keeps."""
FORBIDDEN = (PAD, START, UNKNOWN)
"""Words that search must not emit."""


class LensReader(Protocol):
    """A lens (`caption.analysis.lens`), as a captioner uses it."""

    def read(self, views: Views, captions: Sequence[Caption]) -> list[LensReading]:
        """The readings of B images with a caption each; `views` are the encoder's."""

    def where(self, views: Views, thing: str) -> np.ndarray:
        """(rows, cols): where a thing is, in the regions of one image."""


class Rewriter(Protocol):
    """Writes captions again (`caption.analysis.lens.naming`), as a captioner uses it."""

    def __call__(self, views: Views, captions: Sequence[Caption]) -> list[Caption]:
        """The captions of B images, or others in their place; `views` are the encoder's."""


class Captioner(nn.Module):
    """Turns photos into captions.

    Args:
        encoder: image -> grid of region vectors.
        decoder: regions -> words; its weights are created here, for the encoder's region sizes and the vocabulary.
        vocabulary: the words and their ids.
        transform: turns a photo into the encoder's input.
        search: default search; None = `BeamSearch()`.
        refiner: maps the regions before the decoder reads them; None = no refiner.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        vocabulary: Vocabulary,
        transform: ImageTransform,
        search: Search | None = None,
        refiner: Refiner | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.refiner = refiner
        self.decoder = decoder
        self.vocabulary = vocabulary
        self.transform = transform
        self.search = search or BeamSearch()
        self.lens: LensReader | None = None
        """Reads what the encoder sees behind each word of a caption; see `caption.load`."""
        self.namer: Rewriter | None = None
        """Writes captions again that leave out what the lens is sure of; see `caption.analysis.lens.naming`."""
        region_sizes = view_sizes(encoder)
        if refiner is not None:
            refiner.build(region_sizes)
            region_sizes = view_sizes(refiner)
        decoder.build(region_sizes, len(vocabulary), padding=PAD, start=START)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def encode(self, photos: Sequence[Photo]) -> Views:
        """Encode photos to regions, without gradients.

        Raises:
            caption.errors.ImageError: a photo cannot be read.
        """
        return encode(self.encoder, [decode(photo, self.transform) for photo in photos], self.device)

    def refine(self, views: Views) -> Views:
        """Apply the refiner to encoded regions."""
        return views if self.refiner is None else self.refiner(views)

    def project(self, views: Views) -> Memory:
        """Compute the decoder's memory of encoded images: everything that depends on the image alone."""
        return self.decoder.project(self.refine(views))

    def unroll(self, views: Views, words: Tensor, lengths: Tensor) -> Unrolled:
        """Teacher forcing: see `Decoder.forward` for words (B, K, T) and lengths (B, K)."""
        return self.decoder(self.project(views), words, lengths)

    @torch.no_grad()
    def generate(
        self,
        views: Views,
        search: Search | None = None,
        begin: Sequence[int] = (),
        likeliest: int = 0,
        record: bool = False,
        stand_ins: Sequence[int] = (),
    ) -> Hypotheses:
        """Generate captions of encoded images, as word ids; `trace` holds α, β and the decoder's other records.

        Args:
            views: of B images.
            search: None = the model's default search.
            begin: ids of the first words of every caption.
            likeliest: keep so many of the likeliest words at each step; the trace is then a `LikeliestWords`.
            record: a beam search records what it keeps, see `SearchRecord`.
            stand_ins: for each word, also for more than the vocabulary has, the one that stands in for it; see
                `with_stand_ins`.
        """
        state = self.decoder.start(self.project(views))
        search = search or self.search
        run = recording(search) if record else search
        step = with_prefix(self.decoder.step, begin)
        if likeliest:
            step = with_likeliest_words(step, likeliest)
        if stand_ins:
            step = with_stand_ins(step, stand_ins)
        return run(step, state, len(views[0].vectors), START, END, FORBIDDEN)

    @overload
    def describe(
        self,
        photos: list[Photo],
        search: Search | None = None,
        batch_size: int = 32,
        *,
        beam_size: int | None = None,
        candidates: int | None = None,
        length_normalization: float | None = None,
        beam_tree: bool = False,
    ) -> Captions: ...

    @overload
    def describe(
        self,
        photos: Photo,
        search: Search | None = None,
        batch_size: int = 32,
        *,
        beam_size: int | None = None,
        candidates: int | None = None,
        length_normalization: float | None = None,
        beam_tree: bool = False,
    ) -> Caption: ...

    def describe(
        self,
        photos: Photo | list[Photo],
        search: Search | None = None,
        batch_size: int = 32,
        *,
        beam_size: int | None = None,
        candidates: int | None = None,
        length_normalization: float | None = None,
        beam_tree: bool = False,
    ) -> Caption | Captions:
        """Caption one photo, or a list of them. `captioner(photos, ...)` is the same.

        Args:
            photos: a photo, or a list of photos. A photo is a path, a Pillow image, an array or tensor of pixels, bytes
                or an open file; see `caption.data.decoding.open_image`.
            search: None = the model's default search.
            batch_size: number of photos per batch.
            beam_size: hypotheses of the beam search, 1 = greedy; None = those of the search. See
                `caption.search.adjusted` for this and what follows.
            candidates: captions of each photo, best first, those after the first in `Caption.alternatives`.
            length_normalization: exponent of the length by which log p is divided, 0 = none.
            beam_tree: keep what a beam search kept at each step, as `Caption.beam_tree`, which pages show.

        Returns:
            a Caption for a photo, a list of them for a list, which a notebook shows as a gallery.

        Raises:
            caption.errors.ImageError: a photo cannot be read.
            caption.errors.UserError: a number is out of its range.
        """
        search = adjusted(search or self.search, beam_size, candidates, length_normalization)
        captions = Captions()
        photo_list = photos if isinstance(photos, list) else [photos]
        with closing(self.describe_each(photo_list, search, batch_size, beam_tree=beam_tree)) as stream:
            for caption in stream:
                if isinstance(caption, ImageError):
                    raise caption
                captions.append(caption)
        return captions if isinstance(photos, list) else captions[0]

    __call__ = describe

    def describe_each(
        self,
        photos: Iterable[Photo],
        search: Search | None = None,
        batch_size: int = BATCH,
        workers: int | None = None,
        beam_tree: bool = False,
    ) -> Generator[Caption | ImageError, None, None]:
        """Caption photos as a stream: the next files are decoded while the current batch is captioned.

        The captioner is in evaluation mode until the iterator ends or is closed. Closing it stops the work.

        Args:
            photos: see `describe`; taken a few batches ahead.
            search: None = the model's default search.
            batch_size: number of photos per batch.
            workers: number of threads that decode; None = one per processor, at most 16.
            beam_tree: see `describe`.

        Yields:
            for each photo, in order, its caption, or the error if it cannot be read.
        """
        with closing(decode_ahead(photos, self.transform, batch_size, workers)) as batches, eval_mode(self):
            for batch in batches:
                readable = [result for _, result in batch if isinstance(result, DecodedPhoto)]
                captions = self._describe(readable, search, beam_tree)
                yield from [
                    result if isinstance(result, ImageError) else next(captions) for _, result in batch
                ]

    def _describe(
        self, decoded: Sequence[DecodedPhoto], search: Search | None, record: bool
    ) -> Iterator[Caption]:
        if decoded:
            views = encode(self.encoder, decoded, self.device)
            hypotheses = self.generate(views, search, likeliest=LIKELIEST, record=record)
            seen, photos = [photo.box for photo in decoded], [photo.photo for photo in decoded]
            captions = list(self.captions(hypotheses, self.grids(views), seen, photos))
            if self.namer is not None:
                captions = self.namer(views, captions)
            if self.lens is not None:
                for caption, reading in zip(captions, self.lens.read(views, captions), strict=True):
                    caption.lens = reading
            yield from captions

    def captions(
        self,
        hypotheses: Hypotheses,
        grids: Sequence[Grid],
        seen: Sequence[Box],
        photos: Sequence[Photo] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> Iterator[Caption]:
        """Convert the hypotheses of B images to B captions, with the other candidates as their alternatives.

        Args:
            hypotheses: from `generate`.
            grids: of the views that the decoder attends to, see the method `grids`.
            seen: the part of each photo that the transform shows to the model, in the photo's pixels.
            photos: stored in the captions.
            vocabulary: of the hypotheses; None = the model's own.
        """
        vocabulary = vocabulary or self.vocabulary
        record, hypotheses = map_tensors(Tensor.cpu, (hypotheses.record, hypotheses._replace(record=None)))
        for image, part in enumerate(seen):
            photo = photos[image] if photos is not None else None
            best, *others = [
                self._caption(
                    map_tensors(itemgetter((image, rank)), hypotheses), grids, part, photo, vocabulary
                )
                for rank in range(hypotheses.words.shape[1])
            ]
            # Ranks without a hypothesis are empty and unfinished, with log-probability -inf.
            best.alternatives = [other for other in others if other.log_prob > -torch.inf]
            if record is not None:
                best.beam_tree = self._beam_tree(map_tensors(itemgetter(image), record), grids[0])
            yield best

    def _beam_tree(self, record: SearchRecord, grid: Grid) -> BeamTree:
        """The tree of one image, whose tensors have lost the dimension of images."""
        trace = record.trace.trace if isinstance(record.trace, LikeliestWords) else record.trace
        return tree_of(record, trace.weights, grid, lambda word: self.vocabulary.decode([word])[0], END)

    def _caption(
        self, one: Hypotheses, grids: Sequence[Grid], seen: Box, photo: Photo | None, vocabulary: Vocabulary
    ) -> Caption:
        """The caption of one hypothesis, whose tensors have lost the dimensions of images and ranks."""
        length = int(one.lengths)
        trace = map_tensors(itemgetter(slice(length)), one.trace)
        likeliest = None
        if isinstance(trace, LikeliestWords):
            likeliest, trace = self._likeliest(trace), trace.trace
        gate, location = trace.gate, trace.location
        words = vocabulary.decode(one.words[:length].tolist())
        rows, cols = grids[0]
        boxes = self.boxes(seen)
        map_grids = self.decoder.map_grids(grids)
        map_boxes = {
            name: boxes[view] if view < len(boxes) else boxes[0]  # a refiner may add views
            for name, view in self.decoder.map_views.items()
            if name in trace.maps
        }
        return Caption(
            text=" ".join(words),
            words=words,
            weights=trace.weights.float().view(length, rows, cols).numpy(),
            log_prob=float(one.log_probs),
            word_log_probs=one.word_log_probs[:length].float().numpy(),
            box=boxes[0],
            gates=None if gate is None else gate.float().numpy(),
            finished=bool(one.finished),
            image=photo,
            locations=_locations(location, cols),
            points=_points(location, boxes[0]),
            maps={
                name: values.float().unflatten(-1, map_grids[name]).numpy()
                for name, values in trace.maps.items()
                if name in map_grids
            },
            properties=self.decoder.properties,
            likeliest=likeliest,
            seen=seen,
            map_boxes={name: box for name, box in map_boxes.items() if box != boxes[0]} or None,
        )

    def _likeliest(self, trace: LikeliestWords) -> list[list[tuple[str, float]]]:
        """The likeliest words of each step (T, N), without those that are impossible or no words."""
        return [
            [
                ("(end)" if word == END else self.vocabulary.decode([word])[0], log_prob)
                for word, log_prob in zip(words, log_probs, strict=True)
                if log_prob > -torch.inf and word not in (PAD, START)
            ]
            for words, log_probs in zip(trace.words.tolist(), trace.log_probs.tolist(), strict=True)
        ]

    def boxes(self, seen: BoxLike) -> list[Box]:
        """The part of a photo that the grid of each view covers, in the photo's pixels.

        Args:
            seen: the part of the photo that the transform shows to the model.
        """
        height, width = self.transform.height, self.transform.width
        return [
            part_of(seen, shares_of(box, (0, 0, width, height))) for box in self.encoder.boxes(height, width)
        ]

    def grids(self, views: Views) -> list[Grid]:
        """(rows, cols) of the grids that the decoder attends to, for encoded images."""
        grids = [view.grid for view in views]
        return grids if self.refiner is None else self.refiner.grids(grids)

    def __repr__(self) -> str:
        """Five lines: parameters, encoder, attention, decoder, search. `print(captioner.decoder)` lists all layers."""
        height, width = self.transform.height, self.transform.width
        encoder = " + ".join(type(part).__name__ for part in (self.encoder, self.refiner) if part is not None)
        views = ", ".join(
            f"{rows}x{cols} regions of {size:,} numbers" for rows, cols, size in self._view_shapes()
        )
        attention = ", ".join(_outline(part.spec) for part in self.decoder.attentions.values())
        return "\n".join(
            [
                f"Captioner: {sum(weights.numel() for weights in self.parameters()):,} parameters on {self.device}",
                f"  encoder    {encoder}: {width}x{height} pixels to {views}",
                f"  attention  {attention or 'none'}",
                f"  decoder    {type(self.decoder).__name__}: {self.decoder.query_size:,} units, vocabulary of "
                f"{len(self.vocabulary):,} words",
                f"  search     {self.search!r}",
            ]
        )

    def _view_shapes(self) -> list[tuple[int, int, int]]:
        """(rows, cols, D) of the views that the decoder attends to, from a forward pass."""
        image = torch.zeros(1, 3, self.transform.height, self.transform.width, dtype=torch.uint8)
        with torch.no_grad(), eval_mode(self):
            views = self.refine(self.encoder(image.to(self.device)))
        return [(*view.grid, view.vectors.shape[2]) for view in views]

    def __dir__(self) -> list[str]:
        """What users call, without the many names that `nn.Module` needs for itself."""
        own = {name for name in (*vars(Captioner), *self._modules, *vars(self)) if name[0] != "_"}
        return sorted(own - set(vars(nn.Module())) | {"eval", "parameters", "state_dict", "to", "train"})

    def description(self) -> dict[str, Any]:
        """Everything but the weights that a checkpoint needs to rebuild this captioner, in plain types."""
        return {
            "encoder": self.encoder.spec,
            "decoder": self.decoder.spec,
            "refiner": None if self.refiner is None else self.refiner.spec,
            "vocabulary": self.vocabulary.to_dict(),
            "transform": self.transform.to_dict(),
            "search": search_spec(self.search),
        }


def _outline(spec: dict[str, Any]) -> str:
    """The class of a part, with those of the parts in its arguments: "ScoredAttention(AdditiveScore, Softmax)"."""
    arguments = spec["init_args"].values()
    parts = [_outline(value) for value in arguments if isinstance(value, dict) and "class_path" in value]
    name = spec["class_path"].rpartition(".")[2]
    return f"{name}({', '.join(parts)})" if parts else name


def search_spec(search: Search) -> dict[str, Any]:
    """A search as class path and arguments."""
    return {"class_path": public_path(type(search)), "init_args": dataclasses.asdict(search)}  # type: ignore[call-overload]


def _locations(location: Tensor | None, cols: int) -> np.ndarray | None:
    """Region numbers (T,) -> rows and columns (T, 2); None if no region was chosen."""
    if location is None or location.is_floating_point() or not has_location(location).all():
        return None
    return torch.stack((location // cols, location % cols), -1).numpy()


def _points(location: Tensor | None, box: Box) -> np.ndarray | None:
    """Points (T, 2) across the grid -> x and y in the photo's pixels; None if no point was chosen."""
    if location is None or not location.is_floating_point() or not has_location(location).all():
        return None
    left, top, right, bottom = box
    return location.double().numpy() * (right - left, bottom - top) + (left, top)
