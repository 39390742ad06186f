"""Language models that read image tokens among their own, before the words or inside a prompt.

The tokens before the words are read once. Their keys and values are the memory of the image: those of the photo's
patches, and those without a place in the photo, class tokens and the text of the prompt.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

from torch import Tensor
from transformers.cache_utils import DynamicCache

from caption.core.tensor_tree import TensorTree
from caption.models.transformers.model import Attend, ImageTokens, Memory
from caption.models.transformers.transformers_model import TransformersModel, layer_memories


class Prefix(NamedTuple):
    """The tokens before the words, for B images."""

    cache: Any  # a DynamicCache, whose layers are declared with several types
    """Its keys and values in each layer."""
    patches: Tensor
    """(L,) int64, which of its tokens are patches, in the order of the views."""
    position: Tensor
    """(n,) int64, position of the next piece on each of n axes."""
    pieces: Tensor
    """(B, P) int64, the pieces among them, those in the place of image tokens included, but the last."""
    shares: Tensor | None = None
    """See `LayerMemory.shares`; if given, `patches` are the query tokens."""


class PrefixModel(TransformersModel):
    """A language model whose layers attend to image tokens and to words at once."""

    @property
    def language_model(self) -> Any:
        """The part that reads pieces and a cache, and gives logits."""
        return self.whole

    @abstractmethod
    def prefix(self, tokens: ImageTokens, mask: Tensor | None) -> Prefix:
        """Read the tokens before the words.

        Args:
            tokens: of B images.
            mask: see `memory`.
        """

    def position_ids(self, positions: Tensor) -> Tensor:
        """The model's argument for one piece of R captions at positions (R, n): (R, 1), or (n, R, 1) if n > 1."""
        return positions if positions.shape[1] == 1 else positions.mT[..., None]

    def memory(self, tokens: ImageTokens, mask: Tensor | None) -> Memory:
        cache, patches, position, pieces, shares = self.prefix(tokens, mask)
        first_view = tokens.patches[0]
        layers = layer_memories(cache.layers, patches, mask, first_view.shape[1], shares)
        no_words = tuple((layer.keys[:, :, :0], layer.values[:, :, :0]) for layer in cache.layers)
        positions = position.to(first_view.device).expand(len(first_view), -1)
        return Memory(layers, (positions, no_words), pieces)

    def step(self, pieces: Tensor, past: TensorTree, attend: Attend) -> tuple[Tensor, TensorTree]:
        positions, words = past
        cache: Any = DynamicCache(words)
        with self.routed(attend, words=True):
            output = self.language_model(
                input_ids=pieces[:, None],
                position_ids=self.position_ids(positions),
                cache=cache,
                use_cache=True,
            )
        extended = tuple((layer.keys, layer.values) for layer in cache.layers)
        return output.logits[:, -1], (positions + 1, extended)
