"""The interface that a foreign model must implement to become a `Captioner`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from caption.core.box import Box
from caption.core.regions import Grid
from caption.core.tensor_tree import TensorTree
from caption.models.transformers.attention import LayerMemory

Attend = Callable[..., Tensor]
"""`attend(layer, query, keys=None, values=None, window=None) -> context`: attention to the image in one of the layers.

    layer: number of the layer, counted from 0 among those that attend to the image.
    query: (R, M, d) the queries of R captions, scaled: scores are their products with keys.
    keys, values: (R, M', T, d) of the words so far, if the layer attends to words and patches at once.
    window: number of tokens, the newest ones, that such a layer reads; None = all.
    context: (R, M, d).

`ForeignModel.step` calls it in place of softmax(q kᵀ) v. R = B · K: caption r belongs to image r // K.
"""


class ImageTokens(NamedTuple):
    """The output of the vision tower for B photos."""

    patches: tuple[Tensor, ...]
    """(B, L, D) for each view, in row order."""
    grids: tuple[Grid, ...]
    """(rows, cols) of each view, rows · cols = L."""
    class_tokens: Tensor
    """(B, S, D) class tokens and registers, which have no place in the photo; S may be 0."""


class Memory(NamedTuple):
    """Everything that a model needs of B images while it writes captions."""

    layers: tuple[LayerMemory, ...]
    """One for each layer that attends to the image."""
    past: TensorTree = None
    """Tensors (B, ...): the model's cache before the first word, copied for each caption and then carried by it."""
    prompt: Tensor | None = None
    """(B, P) int64, the pieces before the one that is fed first; None = none."""


class ForeignModel(nn.Module, ABC):
    """A captioner of other people's code.

    Word pieces are numbers 0 to V − 1 of the model's own tokenizer. The model is in evaluation mode.
    """

    region_size: int
    """D, the length of image tokens."""
    heads: Sequence[int]
    """M of each layer that attends to the image."""
    covered: Box = Box(0.0, 0.0, 1.0, 1.0)
    """The part of the pixels that the grids cover, in shares of their sides."""
    asks_decoder: bool = True
    """Whether the part that writes captions reads the question, too, so that the question's words have maps."""
    views: int = 1
    """Number of grids of a photo: 2 for a model that reads it as a whole and in tiles."""
    start: int
    """The piece that is fed to the first step: the last one of the prompt."""
    ends: tuple[int, ...]
    """Pieces that end a caption."""

    @abstractmethod
    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        """Encode photos: pixels (B, ...) from the model's transform."""

    @abstractmethod
    def memory(self, tokens: ImageTokens, mask: Tensor | None) -> Memory:
        """Compute keys and values of the image.

        Args:
            tokens: of B images.
            mask: (B, L) bool, over the patches of all views in their order, True for patches of the image; None = all.
                Nothing may attend to other patches. To be passed on as `LayerMemory.mask`.
        """

    @abstractmethod
    def step(self, pieces: Tensor, past: TensorTree, attend: Attend) -> tuple[Tensor, TensorTree]:
        """One step.

        Args:
            pieces: (R,) int64, the previous piece of R captions.
            past: tensors (R, ...), the cache.
            attend: the attention to the image, see `Attend`.

        Returns:
            (R, V) logits of the next piece, and the cache with this step.
        """
