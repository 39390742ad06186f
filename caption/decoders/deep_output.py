"""Read-outs, which compute the next word's logits from state, context and previous word."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from caption.core.errors import UserError
from caption.core.parts import Part


class Readout(Part, nn.Module):
    """Base class of read-outs. Inputs may have any leading shape, so training calls it once for all steps."""

    to_words: nn.Linear
    """The last layer, L_o."""

    def build(self, embedding_size: int, hidden_size: int, context_size: int, vocabulary_size: int) -> None:
        """Create the weights. Called once."""
        raise NotImplementedError

    def forward(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Ey[t-1] (..., E), h[t] (..., H), z[t] (..., D) -> logits (..., V)."""
        raise NotImplementedError


class DeepOutput(Readout):
    """p(y[t]) ∝ exp(L_o (E y[t-1] + L_h h[t] + L_z z[t])), eq. 7.

    Args:
        previous_word: include the term E y[t-1].
        context: include the term L_z z[t].
        activation: "linear" as in eq. 7, or "tanh" around the sum as in the authors' code.
        dropout: on h[t] and on the sum.
        without_hidden: share of the training steps without the term L_h h[t], so that the word must be predicted from
            the context (modality dropout, Neverova et al. 2016); 0 in the paper.
    """

    def __init__(
        self,
        previous_word: bool = True,
        context: bool = True,
        activation: Literal["linear", "tanh"] = "linear",
        dropout: float = 0.5,
        without_hidden: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= without_hidden <= 1 or (without_hidden and not context):
            raise UserError(
                f"without_hidden {without_hidden} must be between 0 and 1, and 0 for a read-out without context"
            )
        self.previous_word = previous_word
        self.context = context
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        self.without_hidden = without_hidden

    def build(self, embedding_size: int, hidden_size: int, context_size: int, vocabulary_size: int) -> None:
        self.from_hidden = nn.Linear(hidden_size, embedding_size)  # L_h
        if self.context:
            self.from_context = nn.Linear(context_size, embedding_size, bias=False)  # L_z
        self.to_words = nn.Linear(embedding_size, vocabulary_size)  # L_o

    def forward(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        joined = self.from_hidden(self.dropout(hidden))
        if self.training and self.without_hidden:
            kept = torch.rand(joined.shape[:-1], device=joined.device) >= self.without_hidden
            joined = joined * kept[..., None]
        if self.previous_word:
            joined = joined + embedded
        if self.context:
            joined = joined + self.from_context(context)
        if self.activation == "tanh":
            joined = joined.tanh()
        return self.to_words(self.dropout(joined))  # eq. 7


class LinearOutput(Readout):
    """logits = W dropout(h[t]) + b, one affine layer on the state.

    Args:
        dropout: on h[t].
    """

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def build(self, embedding_size: int, hidden_size: int, context_size: int, vocabulary_size: int) -> None:
        self.to_words = nn.Linear(hidden_size, vocabulary_size)

    def forward(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        return self.to_words(self.dropout(hidden))


def tie_weights(to_words: nn.Linear, embed: nn.Module) -> None:
    """Make the word vectors E and the weight of the last layer L_o one parameter (Press and Wolf 2017).

    Raises:
        UserError: the decoder has several tables of word vectors, or the length of a word vector differs from that of
            the last layer's input.
    """
    if not isinstance(embed, nn.Embedding):
        raise UserError("tie_weights needs one table of word vectors: leave out embedding, or tie_weights")
    if to_words.in_features != embed.embedding_dim:
        raise UserError(
            "tie_weights needs word vectors of the same length as the last layer's input, but embedding_size is "
            f"{embed.embedding_dim} and the input has {to_words.in_features}: make them equal, or leave out tie_weights"
        )
    to_words.weight = embed.weight
