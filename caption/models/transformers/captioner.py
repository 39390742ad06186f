"""A foreign model as a captioner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch.nn.functional import pad

from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.tensor_tree import map_tensors
from caption.data.photos import ImageTransform
from caption.models.transformers.decoder import ForeignDecoder
from caption.models.transformers.encoder import ForeignEncoder, cannot_be_saved
from caption.models.transformers.model import ForeignModel
from caption.models.transformers.pieces import joined, split
from caption.results.caption import Caption
from caption.search import Hypotheses, Search
from caption.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from caption.data.photos import Photo


class ForeignCaptioner(Captioner):
    """Turns photos into captions with a model of other people's code.

    Args:
        model: the model, in evaluation mode. It is not changed; its weights may require gradients.
        vocabulary: its pieces, see `PieceVocabulary`; or words, if each piece is a word.
        transform: makes the model's pixels.
        search: default search; None = `BeamSearch()`.

    Raises:
        UserError: the model is in training mode, or its image tokens are drawn at random.
    """

    decoder: ForeignDecoder

    def __init__(
        self,
        model: ForeignModel,
        vocabulary: Vocabulary,
        transform: ImageTransform,
        search: Search | None = None,
    ) -> None:
        if any(part.training for part in model.modules()):
            raise UserError(f"{type(model).__name__} is in training mode: call its eval() first")
        gradient = Image.linear_gradient("L")
        example = Image.merge("RGB", (gradient, gradient.rotate(90), gradient)).resize((64, 48))
        encoder = ForeignEncoder(model, transform.read(example).pixels[None])
        super().__init__(encoder, ForeignDecoder(model), vocabulary, transform, search)
        self.eval()

    def split(self, caption: Caption) -> Caption:
        return split(caption, self.vocabulary)

    def joined(self, caption: Caption) -> Caption:
        tokenizer = self.vocabulary.tokenizer
        return joined(replace(caption, text=tokenizer.join(caption.words)), tokenizer)

    def captions(self, *args: Any, **kwargs: Any) -> Iterator[Caption]:
        tokenizer = self.vocabulary.tokenizer
        return (joined(caption, tokenizer) for caption in super().captions(*args, **kwargs))

    def question(self, photo: Photo) -> Caption:
        """The question to a model of transformers, as a caption of the photo: the map of each of its words is that by
        which the model read the image at that word; log p is of each word given those before it.

        Args:
            photo: see `describe`.

        Raises:
            ImageError: the photo cannot be read.
            UserError: the model is not asked anything, or reads the question in an encoder.
        """
        if not getattr(self.decoder.model, "question", ""):
            raise UserError(
                "there is no question whose maps could be drawn: load a model of transformers with question=, such as "
                'question="What is left of the dog?"'
            )
        if not self.decoder.model.asks_decoder:
            raise UserError(
                f"{type(self.decoder.model).__name__} reads the words of a question all at once, in an encoder: only "
                "the words of its answer have maps"
            )
        fitted = self.read(photo)
        views = self.encode([fitted])
        words, log_probs, trace = self.decoder.question(views)
        total = log_probs.sum().view(1, 1)
        hypotheses = Hypotheses(
            words[None, None], torch.tensor([[len(words)]]), total, pad(log_probs, (0, 1))[None, None], total,
            torch.ones(1, 1, dtype=torch.bool), map_tensors(lambda tensor: tensor[None], trace),
        )  # fmt: skip
        return next(self.captions(hypotheses, self.grids(views), [fitted.box], [fitted.photo]))

    def description(self) -> dict[str, Any]:
        raise cannot_be_saved()
