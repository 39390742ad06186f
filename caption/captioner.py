"""The captioner: an encoder, a decoder, a vocabulary and an image transform, wired together. It owns no maths.

Training is in `caption.training`. A captioner loads from one file and captions photos:

    captioner = caption.load("model.ckpt")
    print(captioner.describe("photo.jpg"))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from caption.batch_inference import BATCH, Decoded, decode_ahead, encode
from caption.data.images import Box, ImageTransform
from caption.decoders.base import Decoder, Trace, Unrolled
from caption.encoders.base import Encoder, Regions
from caption.encoders.refine import Refiner
from caption.errors import ImageError
from caption.eval_mode import evaluating
from caption.parts import public_path
from caption.result import Caption
from caption.search import BeamSearch, Hypotheses, Search
from caption.search.prefix import begin_with
from caption.tensor_tree import Record, map_record
from caption.text.vocabulary import END, PAD, START, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from caption.result import Photo

FORBIDDEN = (PAD, START, UNKNOWN)
"""Words that search never emits."""


class Captioner(nn.Module):
    """From photos to captions.

    Args:
        encoder: image -> grid of region vectors.
        decoder: regions -> words; its weights are created here, for the encoder's regions and the vocabulary.
        vocabulary: the words by number.
        transform: how a photo becomes the encoder's input.
        search: how captions are searched for unless a call says otherwise.
        refiner: what becomes of the regions before the decoder sees them; None = nothing.
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
        region_size = encoder.region_size
        if refiner is not None:
            refiner.build(region_size)
            region_size = refiner.region_size
        decoder.build(region_size, len(vocabulary), padding=PAD, start=START)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def project(self, regions: Regions) -> Record:
        """The decoder's memory of encoded images: all that depends on the image alone."""
        vectors = regions.vectors if self.refiner is None else self.refiner(regions.vectors)
        return self.decoder.project(vectors)

    def forward(self, regions: Regions, words: Tensor, lengths: Tensor) -> Unrolled:
        """Teacher forcing: see `Decoder.forward` for words (B, K, T) and lengths (B, K)."""
        return self.decoder(self.project(regions), words, lengths)

    @torch.no_grad()
    def generate(
        self, regions: Regions, search: Search | None = None, begin: Sequence[int] = ()
    ) -> Hypotheses:
        """Captions of encoded images, as word ids; `trace` holds α, β and what else the decoder recorded.

        Args:
            regions: of B images.
            search: None = the search the model was saved with.
            begin: ids of the words that every caption begins with.
        """
        state = self.decoder.start(self.project(regions))
        search = search or self.search
        step = begin_with(self.decoder.step, begin)
        return search(step, state, len(regions.vectors), START, END, FORBIDDEN)

    @overload
    def describe(
        self, photos: list[Photo], search: Search | None = None, batch_size: int = 32
    ) -> list[Caption]: ...

    @overload
    def describe(self, photos: Photo, search: Search | None = None, batch_size: int = 32) -> Caption: ...

    def describe(
        self, photos: Photo | list[Photo], search: Search | None = None, batch_size: int = 32
    ) -> Caption | list[Caption]:
        """Caption one photo, or a list of them.

        Args:
            photos: path or PIL image, or a list of these.
            search: None = the search the model was saved with.
            batch_size: photos encoded and searched at once.

        Returns:
            a Caption for a photo, a list of them for a list. If the search returns several candidates, the others are
            in `Caption.alternatives`.

        Raises:
            caption.errors.ImageError: a photo cannot be read.
        """
        several = photos if isinstance(photos, list) else [photos]
        captions = []
        with closing(self.describe_each(several, search, batch_size)) as stream:
            for caption in stream:
                if isinstance(caption, ImageError):
                    raise caption
                captions.append(caption)
        return captions if isinstance(photos, list) else captions[0]

    def describe_each(
        self,
        photos: Iterable[Photo],
        search: Search | None = None,
        batch_size: int = BATCH,
        workers: int | None = None,
    ) -> Generator[Caption | ImageError, None, None]:
        """Caption photos as a stream: the next files are decoded while captions of the present batch are searched for.

        The captioner is in evaluation mode until the iterator ends or is closed. Closing it stops the work.

        Args:
            photos: paths or PIL images, taken a few batches ahead.
            search: None = the search the model was saved with.
            batch_size: photos encoded and searched at once.
            workers: number of threads that decode; None = one per processor, at most 16.

        Yields:
            for each photo, in order, its caption, or the reason why it cannot be read.
        """
        with closing(decode_ahead(photos, self.transform, batch_size, workers)) as batches, evaluating(self):
            for batch in batches:
                good = [(photo, decoded) for photo, decoded in batch if isinstance(decoded, Decoded)]
                captions = self._describe(good, search)
                yield from [each if isinstance(each, ImageError) else next(captions) for _, each in batch]

    def _describe(self, photos: Sequence[tuple[Photo, Decoded]], search: Search | None) -> Iterator[Caption]:
        if photos:
            names, decoded = zip(*photos, strict=True)
            regions = encode(self.encoder, decoded, self.device)
            found = self.generate(regions, search)
            yield from self.captions(found, regions.grid, [each.box for each in decoded], names)

    def captions(
        self,
        found: Hypotheses,
        grid: tuple[int, int],
        boxes: Sequence[Box],
        photos: Sequence[Photo] | None = None,
    ) -> Iterator[Caption]:
        """Hypotheses of B images as B captions, the other candidates among their alternatives."""
        found = Hypotheses(*(_to_cpu(entry) for entry in found))
        for image, box in enumerate(boxes):
            photo = photos[image] if photos is not None else None
            ranks = range(found.words.shape[1])
            best, *others = [self._caption(found, image, rank, grid, box, photo) for rank in ranks]
            # Ranks that the search could not fill are empty and unfinished with log-probability -inf.
            best.alternatives = [other for other in others if other.log_prob > -torch.inf]
            yield best

    def _caption(
        self, found: Hypotheses, image: int, rank: int, grid: tuple[int, int], box: Box, photo: Photo | None
    ) -> Caption:
        length = int(found.lengths[image, rank])
        trace: Trace = map_record(lambda entry: entry[image, rank, :length], found.trace)
        gate, location = trace.gate, trace.location
        words = self.vocabulary.decode(found.words[image, rank, :length].tolist())
        rows, cols = grid
        return Caption(
            text=" ".join(words),
            words=words,
            weights=trace.weights.float().view(length, rows, cols).numpy(),
            log_prob=float(found.log_probs[image, rank]),
            word_log_probs=found.word_log_probs[image, rank, :length].float().numpy(),
            box=box,
            gates=None if gate is None else gate.float().numpy(),
            finished=bool(found.finished[image, rank]),
            image=photo,
            locations=None if location is None or (location < 0).any() else _places(location, cols),
        )

    def description(self) -> dict[str, Any]:
        """What, beside the weights, a checkpoint must say to make this captioner again; plain types only."""
        return {
            "encoder": self.encoder.spec,
            "decoder": self.decoder.spec,
            "refiner": None if self.refiner is None else self.refiner.spec,
            "vocabulary": self.vocabulary.to_dict(),
            "transform": self.transform.to_dict(),
            "search": search_spec(self.search),
        }


def search_spec(search: Search) -> dict[str, Any]:
    """A search as class path and arguments."""
    return {"class_path": public_path(type(search)), "init_args": dataclasses.asdict(search)}  # type: ignore[call-overload]


def _places(location: Tensor, cols: int) -> np.ndarray:
    """Region numbers (T,) -> rows and columns (T, 2)."""
    return torch.stack((location // cols, location % cols), -1).numpy()


def _to_cpu(record: Any) -> Any:
    return map_record(partial(torch.Tensor.cpu), record)
