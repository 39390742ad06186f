"""Show and Tell (Vinyals et al. 2015), the baseline without attention: the image is the LSTM's first input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.core.errors import UserError
from caption.core.regions import Views, check_views, mean_region
from caption.core.tensor_tree import State
from caption.decoders.base import Memory, Trace, in_working_precision
from caption.decoders.cell_decoder import CellDecoder, CellState
from caption.decoders.cells import lstm_update


class ShowAndTellDecoder(CellDecoder):
    """x[-1] = W_I mean(a), x[t] = E y[t-1], (h[t], c[t]) = LSTM(x[t]), p ∝ exp(W h[t]) (eqs. 10 to 12).

    Its trace has uniform weights for every word, because there is no attention.

    Args:
        embedding_size: length of the word vectors and of the projected image.
        hidden_size: length of h and c.
        dropout: on the inputs and before the output layer.
        forget_bias: added to the forget gate's bias at initialisation; 1 in the authors' code. With 0 the LSTM forgets
            the image, which it reads only once, before training has learned to use it.
        normalise_image: whether BatchNorm scales the projected image. Mean regions of different images are nearly
            equal; without it, a training with few steps hardly distinguishes them.
    """

    def __init__(
        self,
        embedding_size: int = 512,
        hidden_size: int = 512,
        dropout: float = 0.5,
        forget_bias: float = 0.0,
        normalise_image: bool = False,
    ) -> None:
        super().__init__(embedding_size, hidden_size, dropout)
        self.forget_bias = forget_bias
        self.normalise_image = normalise_image

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        self.embed = nn.Embedding(vocabulary_size, self.embedding_size, padding_idx=padding)
        self.image = nn.Linear(region_sizes[0], self.embedding_size)
        self.image_norm = nn.BatchNorm1d(self.embedding_size) if self.normalise_image else nn.Identity()
        self.cell.build(self.embedding_size, 0, self.hidden_size)
        self.add_forget_bias(self.forget_bias)
        self.to_words = nn.Linear(self.hidden_size, vocabulary_size)

    def project(self, views: Views) -> Memory:
        check_views(views)
        return Memory(in_working_precision(views, self.embed.weight), ())

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        image = self.image(mean_region(memory.views[0])).squeeze(1)
        if self.training and len(image) == 1 and isinstance(self.image_norm, nn.BatchNorm1d):
            raise UserError(
                "a batch of one image cannot be normalised: take data.batch_size 2 or more, or normalise_image false"
            )
        image = self.image_norm(image).unsqueeze(1)
        zeros = image.new_zeros(image.shape[0], 1, self.hidden_size)
        state = lstm_update(self.cell.from_word(self.dropout(image)), zeros)
        return self.state_before(memory, hypotheses, state)

    def advance(self, state: State, embedded: Tensor) -> tuple[State, tuple[Tensor]]:
        hidden, cell, _ = state.carried
        hidden, cell = self.cell(self.dropout(embedded), hidden[..., :0], hidden, cell)
        vectors, _, mask = state.shared.views[0]
        real = torch.ones_like(vectors[..., 0]) if mask is None else mask.to(vectors.dtype)
        uniform = (real / real.sum(-1, keepdim=True))[:, None].expand(-1, hidden.shape[1], -1)
        return State(state.shared, CellState(hidden, cell), Trace(uniform, {})), (hidden,)

    def read_out(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        return self.to_words(self.dropout(hidden))
