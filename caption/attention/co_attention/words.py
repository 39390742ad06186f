"""Features of the words so far, the second input of co-attention: word vectors, or features that depend on order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Query
from caption.attention.options import at_least_one
from caption.core.errors import UserError
from caption.core.parts import Part
from caption.core.tensor_tree import TensorTree


class WordState(NamedTuple):
    """The words so far, the state of a co-attention. It grows by one vector per step."""

    features: Tensor
    """(B, K, T, A) of the T words so far, the query's word last."""
    recent: TensorTree = None
    """Further inputs of the next feature, tensors (B, K, ...)."""


class WordFeatures(Part, nn.Module):
    """Base class: a feature for each of the words so far, computed once, when the word is fed.

    The feature of a word depends only on this word and the preceding ones, so it does not change as the caption grows.

    Args:
        size: A, the length of a feature.

    Raises:
        UserError: the size is below 1.
    """

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def build(self, word_size: int) -> None:
        """Create the weights for word vectors of length `word_size`. Called once.

        Raises:
            UserError: the decoder does not pass words to its attention.
        """
        if word_size < 1:
            raise UserError(
                f"{type(self).__name__} reads the words so far, but this decoder does not pass words to its attention: "
                "take a decoder that does, such as ShowAttendAndTellDecoder"
            )
        self.create_weights(word_size)

    def create_weights(self, word_size: int) -> None:
        """Create the weights; see `build`."""
        raise NotImplementedError

    def start(self, like: Tensor, hypotheses: int) -> WordState:
        """The state before the first word, in the dtype and on the device of a tensor (B, ...)."""
        images = like.shape[0]
        return WordState(
            like.new_zeros(images, hypotheses, 0, self.size), self.before_first(like, (images, hypotheses))
        )

    def before_first(self, like: Tensor, shape: tuple[int, int]) -> TensorTree:
        """`WordState.recent` before the first word, for (B, K); None for most features."""
        return None

    def forward(self, query: Query, state: WordState) -> WordState:
        """Add the query's word.

        Raises:
            UserError: the query has no word.
        """
        if query.word is None:
            raise UserError(
                f"{type(self).__name__} reads the words so far, but the query has no word: give Query the vector of "
                "the word just fed"
            )
        feature, recent = self.step(query.word, state.recent)
        return WordState(torch.cat((state.features, feature[:, :, None]), 2), recent)

    def step(self, word: Tensor, recent: TensorTree) -> tuple[Tensor, TensorTree]:
        """The word's vector (B, K, E) -> its feature (B, K, A), and `recent` for the next word."""
        raise NotImplementedError


class WordProjection(WordFeatures):
    """f_t = W y_t + b: word vectors alone, without their order.

    Args:
        size: A, the length of a feature.
    """

    def create_weights(self, word_size: int) -> None:
        self.project = nn.Linear(word_size, self.size)

    def step(self, word: Tensor, recent: TensorTree) -> tuple[Tensor, TensorTree]:
        return self.project(word), None


class WordLSTM(WordFeatures):
    """f_t = h_t = LSTM(y_t, h_{t-1}): the states of an LSTM over the words (Ma et al. 2017, section 2.2).

    Args:
        size: A, the length of h.
    """

    def create_weights(self, word_size: int) -> None:
        self.cell = nn.LSTMCell(word_size, self.size)

    def before_first(self, like: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """h and c of 0."""
        zeros = like.new_zeros(*shape, self.size)
        return zeros, zeros

    def step(self, word: Tensor, recent: TensorTree) -> tuple[Tensor, TensorTree]:
        shape = word.shape[:2]
        before = tuple(tensor.flatten(0, 1) for tensor in recent)
        hidden, cell = (tensor.unflatten(0, shape) for tensor in self.cell(word.flatten(0, 1), before))
        return hidden, (hidden, cell)


class PhraseConvolutions(WordFeatures):
    """f_t = max_s tanh(W_s [y_{t-s+1}; …; y_t]): convolutions over one, two and three words, and the maximum of each
    feature (Lu et al. 2016, section 3.2, "phrase level").

    The windows end at the word, because later words are not known yet. Before the first word they contain zeros.

    Args:
        size: A, the length of a feature.
        longest: S, the number of words in the longest window; s runs from 1 to S.

    Raises:
        UserError: the size or the longest window is below 1.
    """

    def __init__(self, size: int = 256, longest: int = 3) -> None:
        super().__init__(size)
        at_least_one(self, longest=longest)
        self.longest = longest

    def create_weights(self, word_size: int) -> None:
        self.word_size = word_size
        self.windows = nn.ModuleList(
            nn.Linear(words * word_size, self.size, bias=False) for words in range(1, self.longest + 1)
        )

    def before_first(self, like: Tensor, shape: tuple[int, int]) -> Tensor:
        """(B, K, (S - 1) E) zeros, in place of earlier words."""
        return like.new_zeros(*shape, (self.longest - 1) * self.word_size)

    def step(self, word: Tensor, recent: TensorTree) -> tuple[Tensor, TensorTree]:
        latest = torch.cat((recent, word), -1)  # (B, K, S E)
        phrases = [
            window(latest[..., -words * self.word_size :]).tanh()
            for words, window in enumerate(self.windows, start=1)
        ]
        return torch.stack(phrases).amax(0), latest[..., self.word_size :]
