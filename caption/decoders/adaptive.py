"""The adaptive decoder (Lu et al. 2017, section 2): it attends after the LSTM's update, and may read a sentinel instead
of the image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.base import Attention, Query, QuerySizes
from caption.decoders.base import Memory, Trace, in_working_precision
from caption.decoders.initial import Initial, InitialState
from caption.decoders.lstm_cell import init_recurrent, lstm_update
from caption.decoders.unroll import Advanced, RecurrentDecoder
from caption.regions import Views, mean_region
from caption.tensor_tree import State, TensorTree


class Carried(NamedTuple):
    """The state from word to word, one entry per hypothesis."""

    hidden: Tensor
    """(B, K, H) h."""
    cell: Tensor
    """(B, K, H) c."""
    attention: TensorTree
    """The state of the attention mechanism."""


class AdaptiveDecoder(RecurrentDecoder):
    """(h[t], c[t]) = LSTM([E y[t-1]; v_g]), ĉ[t] = attention(h[t]), p ∝ exp(W_p tanh(W_h h[t] + W_c ĉ[t])).

    v_g is the mean region, projected and rectified (section 2.4). The read-out has two weights and a tanh, where the
    paper has W_p (h[t] + ĉ[t]). With `caption.attention.SentinelAttention` it is the paper's model; any other mechanism
    can be read after the update, too.

    Args:
        attention: the attention mechanism.
        embedding_size: length of the word vectors, and of v_g.
        hidden_size: length of h and c.
        initial: computes the first state from the image; None = `InitialState()`.
        dropout: on x[t] and before the output layer.
    """

    def __init__(
        self,
        attention: Attention,
        embedding_size: int = 512,
        hidden_size: int = 512,
        initial: Initial | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.embedding_size = embedding_size
        self.hidden_size = self.query_size = hidden_size
        self.initial = initial or InitialState()
        self.dropout = nn.Dropout(dropout)

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        hidden_size, embedding_size = self.hidden_size, self.embedding_size
        self.attention.build(region_sizes, QuerySizes(hidden_size, embedding_size))
        self.initial.build(region_sizes[0], hidden_size)
        self.embed = nn.Embedding(vocabulary_size, embedding_size, padding_idx=padding)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.image = nn.Sequential(nn.Linear(region_sizes[0], embedding_size), nn.ReLU())
        self.gates_from_word = nn.Linear(embedding_size, 4 * hidden_size)
        self.gates_from_state = nn.Linear(hidden_size + embedding_size, 4 * hidden_size, bias=False)
        init_recurrent(self.gates_from_state.weight, hidden_size)
        self.from_hidden = nn.Linear(hidden_size, embedding_size)
        self.from_context = nn.Linear(self.attention.context_size, embedding_size, bias=False)
        self.to_words = nn.Linear(embedding_size, vocabulary_size)

    def project(self, views: Views) -> Memory:
        views = in_working_precision(views, self.embed.weight)
        return Memory(views, (self.attention.project(views), self.image(mean_region(views[0]))))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        hidden, cell = self.initial(memory.views[0])
        shape = (hidden.shape[0], hypotheses, self.hidden_size)
        attending = self.attention.start(memory.projected[0], hypotheses)
        return State(
            memory,
            Carried(hidden.expand(shape), cell.to(self.embed.weight.dtype).expand(shape), attending),
            trace=None,
        )

    def offsets(self, embedded: Tensor) -> tuple[Tensor]:
        return (self.gates_from_word(self.dropout(embedded)),)

    def recurrent_weights(self) -> tuple[Tensor]:
        return (self.gates_from_state.weight,)

    def advance(
        self, state: State, embedded: Tensor, offsets: tuple[Tensor, ...], weights: tuple[Tensor, ...]
    ) -> Advanced:
        previous, cell, attending = state.carried
        memory, image = state.shared.projected
        joined = torch.cat((previous, image.expand(-1, previous.shape[1], -1)), -1)
        hidden, cell = lstm_update(offsets[0] + functional.linear(joined, weights[0]), cell)
        attended = self.attention(Query(hidden, cell, embedded, previous), memory, attending)
        carried = Carried(hidden, cell, attended.state)
        outputs = (hidden, attended.context)
        return Advanced(State(state.shared, carried, Trace.of(attended)), outputs, (joined,))

    def read_out(self, embedded: Tensor, outputs: TensorTree) -> Tensor:
        hidden, context = outputs
        return self.to_words(self.dropout((self.from_hidden(hidden) + self.from_context(context)).tanh()))
