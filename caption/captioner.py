"""The captioner: an encoder, a refiner, a decoder, a vocabulary and an image transform, connected.

Training is in `caption.training`. A captioner loads from one file and captions photos:

    captioner = caption.load("model.ckpt")
    print(captioner("photo.jpg"))
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby, islice
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, overload

import torch
from PIL import Image
from torch import Tensor, nn

from caption.core.box import Box, BoxLike, part_of, shares_of
from caption.core.errors import ImageError, UserError, did_you_mean
from caption.core.regions import Grid, Views
from caption.core.runtime.eval_mode import eval_mode
from caption.core.runtime.prefetch import prefetch
from caption.data.photos import FittedPhoto, ImageTransform, open_image
from caption.decoders.base import Decoder, Memory, Unrolled
from caption.encoders import Refiner
from caption.encoders.base import Encoder, view_sizes
from caption.results.caption import Caption
from caption.results.captions import Captions
from caption.results.from_hypotheses import captions_of
from caption.search import BeamSearch, Hypotheses, Search, adjusted, search_spec
from caption.text.vocabulary import END, FORBIDDEN, PAD, START, Vocabulary

if TYPE_CHECKING:
    from caption.data.photos import Photo
    from caption.results.lens_reading import LensReading

BATCH = 128
"""Number of photos encoded and searched at once. A large batch shares the fixed cost of a search step."""
AHEAD = 2
"""Number of batches whose photos are read ahead of the batch that is encoded and searched."""
OPTIONS = ("search", "batch_size", "beam_size", "candidates", "length_normalization", "beam_tree")
"""Arguments of `Captioner.describe`."""
LIKELIEST = 5
"""Number of likeliest words of each step that a caption keeps."""


class LensReader(Protocol):
    """Reads what the encoder sees behind the words of captions; see `caption.analysis.lens.Lens`."""

    def read(self, views: Views, captions: Sequence[Caption]) -> list[LensReading]:
        """The readings of B captions, from the encoder's views of their B images."""


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
        """Adds `Caption.lens` to the captions of photos; see `caption.load`."""
        region_sizes = view_sizes(encoder)
        if refiner is not None:
            refiner.build(region_sizes)
            region_sizes = view_sizes(refiner)
        decoder.build(region_sizes, len(vocabulary), padding=PAD, start=START)

    @classmethod
    def from_pretrained(cls, name: str, revision: str | None = None, **options: Any) -> Captioner:
        """Load a captioner of the Hugging Face Hub, as `caption.load("hf://owner/name@revision")` does.

        Args:
            name: of the repository, owner/name.
            revision: a branch, tag or commit of it; None = its main branch.
            options: see `caption.models.model_zoo.load`.

        Raises:
            UserError: there is no such model, or the hub cannot be reached.
        """
        from caption.models.model_zoo import load

        return load(f"hf://{name}" + ("" if revision is None else f"@{revision}"), **options)

    def push_to_hub(self, name: str, **options: Any) -> str:
        """Write this captioner to a repository of the Hugging Face Hub, owner/name; see `caption.models.hub.push`.

        Returns:
            The URL of the commit.
        """
        from caption.models.hub import push

        return push(self, f"hf://{name}", **options)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

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
        **misspelt: NoReturn,
    ) -> Caption | Captions:
        """Caption one photo, or a list of them. `captioner(photos, ...)` is the same.

        Args:
            photos: a photo, or a list of photos. A photo is a path, a Pillow image, an array or tensor of pixels, bytes
                or an open file; see `caption.data.photos.open_image`.
            search: None = the model's default search.
            batch_size: number of photos per batch.
            beam_size: hypotheses of the beam search, 1 = greedy; None = those of the search. See
                `caption.search.adjusted` for this and what follows.
            candidates: captions of each photo, best first, those after the first in `Caption.alternatives`.
            length_normalization: exponent of the length by which log p is divided, 0 = none.
            beam_tree: record the hypotheses that a beam search kept at each step as `Caption.beam_tree`, for pages.

        Returns:
            a Caption for a photo; for a list, a list of captions, which a notebook shows as a gallery.

        Raises:
            caption.core.errors.ImageError: a photo cannot be read.
            caption.core.errors.UserError: a number is out of its range; `search` is not a search.
            TypeError: there is no such argument.
        """
        for name in misspelt:
            raise TypeError(f"describe has no argument '{name}'{did_you_mean(name, OPTIONS)}")
        if not isinstance(search, (Search, NoneType)):
            raise UserError(
                f"search is {search!r}: give a search, such as BeamSearch(5), or the number of hypotheses as beam_size"
            )
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
        """Caption photos as a stream: threads read the next photos while the current batch is captioned.

        However many photos there are, only a few batches are in memory. Encoding and searching stay in the caller's
        thread, because each uses all processors.

        The captioner is in evaluation mode until the iterator ends or is closed. Closing it stops the work.

        Args:
            photos: see `describe`; taken a few batches ahead. What an iterator yields is read before the next is taken,
                since it may change (the frames of an animation are one object) or be closed; only paths wait.
            search: None = the model's default search.
            batch_size: number of photos per batch.
            workers: number of threads that read; None = one per processor, at most 16.
            beam_tree: see `describe`.

        Yields:
            for each photo, in order, its caption, or the error if it cannot be read.
        """
        if type(batch_size) is not int or batch_size < 1:
            raise UserError(f"batch_size is {batch_size!r}: it must be a whole number of at least 1")
        search = search or self.search
        items: Iterable[Photo | FittedPhoto | ImageError]
        items = photos if isinstance(photos, list) else map(self._taken, photos)
        with closing(prefetch(self._read, items, AHEAD * batch_size, workers)) as stream, eval_mode(self):
            while batch := [result for _, result in islice(stream, batch_size)]:
                readable = [result for result in batch if isinstance(result, FittedPhoto)]
                captions = self._captions(readable, search, beam_tree)
                yield from [result if isinstance(result, ImageError) else next(captions) for result in batch]

    def _taken(self, photo: Photo) -> Photo | FittedPhoto | ImageError:
        """A photo of an iterator, read; a path."""
        if isinstance(photo, (str, os.PathLike)):
            return photo
        try:
            return self.read(open_image(photo).copy() if getattr(photo, "is_animated", False) else photo)
        except ImageError as error:
            return error

    def _read(self, item: Photo | FittedPhoto | ImageError) -> FittedPhoto:
        if isinstance(item, ImageError):
            raise item
        return item if isinstance(item, FittedPhoto) else self.read(item)

    def _captions(self, photos: Sequence[FittedPhoto], search: Search, beam_tree: bool) -> Iterator[Caption]:
        # With a transform that keeps proportions, photos may have different grids.
        for _, group in groupby(photos, lambda photo: photo.pixels.shape):
            alike = list(group)
            views = self.encode(alike)
            hypotheses = self.generate(views, search, LIKELIEST, beam_tree)
            seen, sources = [photo.box for photo in alike], [photo.photo for photo in alike]
            captions = list(self.captions(hypotheses, self.grids(views), seen, sources))
            if self.lens is not None:
                for caption, reading in zip(captions, self.lens.read(views, captions), strict=True):
                    caption.lens = reading
            yield from captions

    def read(self, photo: Photo) -> FittedPhoto:
        """Read a photo and fit it to the encoder's input; see `ImageTransform.read`.

        Raises:
            caption.core.errors.ImageError: the photo cannot be read.
        """
        # An open file may be closed, and an array changed, before the caption is drawn.
        if not isinstance(photo, (str, os.PathLike, Image.Image)):
            photo = open_image(photo)
        return self.transform.read(photo)

    @torch.no_grad()
    def encode(self, photos: Sequence[Photo | FittedPhoto]) -> Views:
        """Encode B > 0 photos to regions, without gradients.

        Args:
            photos: see `describe`; results of `read` are not read again.

        Raises:
            caption.core.errors.ImageError: a photo cannot be read.
            UserError: the transform keeps the photos' proportions, which differ.
        """
        fitted = [photo if isinstance(photo, FittedPhoto) else self.read(photo) for photo in photos]
        if len({photo.pixels.shape for photo in fitted}) > 1:
            raise UserError(
                "this model keeps the proportions of a photo, so photos of different proportions do not fit in one "
                "batch: give photos of the same proportions, or one at a time (batch size 1)"
            )
        return self.encoder(torch.stack([photo.pixels for photo in fitted]).to(self.device))

    @torch.no_grad()
    def generate(
        self,
        views: Views,
        search: Search | None = None,
        likeliest: int = 0,
        beam_tree: bool = False,
    ) -> Hypotheses:
        """Generate captions of encoded images, as word ids; `trace` holds α, β and the decoder's other records.

        Args:
            views: of B images.
            search: None = the model's default search.
            likeliest: number of likeliest words of each step to keep, see `Hypotheses.likeliest`.
            beam_tree: whether a beam search records the hypotheses of each step, see `Hypotheses.record`.
        """
        search = search or self.search
        state = self.decoder.start(self.project(views))
        record = beam_tree and isinstance(search, BeamSearch)
        return search(
            self.decoder.step,
            state,
            len(views[0].vectors),
            START,
            END,
            FORBIDDEN,
            self.vocabulary.content if search.repeat_penalty else (),
            record=record,
            likeliest=likeliest,
        )

    def project(self, views: Views) -> Memory:
        """Compute the decoder's memory of encoded images: everything that depends on the image alone."""
        return self.decoder.project(self.refine(views))

    def refine(self, views: Views) -> Views:
        """Apply the refiner to encoded regions."""
        return views if self.refiner is None else self.refiner(views)

    def unroll(self, views: Views, words: Tensor, lengths: Tensor) -> Unrolled:
        """Teacher forcing: see `Decoder.forward` for words (B, K, T) and lengths (B, K)."""
        return self.decoder(self.project(views), words, lengths)

    def captions(
        self,
        hypotheses: Hypotheses,
        grids: Sequence[Grid],
        seen: Sequence[Box],
        photos: Sequence[Photo] | None = None,
    ) -> Iterator[Caption]:
        """Convert the hypotheses of B images to B captions; see `caption.results.from_hypotheses.captions_of`.

        Args:
            hypotheses: from `generate`.
            grids: of the views that the decoder attends to, see the method `grids`.
            seen: the part of each photo that the transform shows to the model, in the photo's pixels.
            photos: stored in the captions.
        """
        return captions_of(
            hypotheses,
            self.decoder,
            self.vocabulary,
            grids,
            [self.boxes(part) for part in seen],
            seen,
            photos or [None] * len(seen),
        )

    def split(self, caption: Caption) -> Caption:
        """A caption with a word for each step of this model; itself, unless the model writes words in pieces."""
        return caption

    def joined(self, caption: Caption) -> Caption:
        """The inverse of `split`."""
        return caption

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
        sizes = " and ".join(f"{size:,}" for size in view_sizes(self.refiner or self.encoder))
        attention = ", ".join(_outline(part.spec) for part in self.decoder.attentions.values())
        return "\n".join(
            [
                f"Captioner: {sum(weights.numel() for weights in self.parameters()):,} parameters on {self.device}",
                f"  encoder    {encoder}: {width}x{height} pixels to regions of {sizes} numbers",
                f"  attention  {attention or 'none'}",
                f"  decoder    {type(self.decoder).__name__}: {self.decoder.query_size:,} units, vocabulary of "
                f"{len(self.vocabulary):,} words",
                f"  search     {self.search!r}",
            ]
        )

    def __dir__(self) -> list[str]:
        """The names for users, without the many internal names of `nn.Module`."""
        public = {
            name
            for name in (*vars(Captioner), *vars(type(self)), *self._modules, *vars(self))
            if name[0] != "_"
        }
        return sorted(public - set(vars(nn.Module())) | {"eval", "parameters", "state_dict", "to", "train"})

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
