"""Top-down attention with two LSTMs (Anderson et al. 2018, section 3.2): the query depends on the previous word."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, Query, QuerySizes
from caption.core.regions import Views, mean_region
from caption.core.tensor_tree import State, TensorTree
from caption.decoders.base import Memory, Trace, in_working_precision
from caption.decoders.cells import init_recurrent, lstm_update
from caption.decoders.deep_output import tie_weights
from caption.decoders.unroll import RecurrentDecoder
from caption.decoders.word_embeddings import word_table


class TopDownState(NamedTuple):
    """The state from word to word, one entry per hypothesis."""

    attention_hidden: Tensor
    """(B, K, H) h¹, of the attention LSTM."""
    attention_cell: Tensor
    """(B, K, H) c¹."""
    hidden: Tensor
    """(B, K, H) h², of the language LSTM."""
    cell: Tensor
    """(B, K, H) c²."""
    attention: TensorTree
    """The state of the attention mechanism."""


class TopDownDecoder(RecurrentDecoder):
    """h¹[t] = LSTM([h²[t-1]; v̄; E y[t-1]]), v̂[t] = attention(h¹[t]), h²[t] = LSTM([v̂[t]; h¹[t]]), p ∝ exp(W h²[t]).

    v̄ is the mean region (eqs. 2 to 7). Both states start at 0.

    Args:
        attention: the attention mechanism.
        embedding_size: length of the word vectors.
        hidden_size: length of the states of both LSTMs.
        dropout: on the word vectors and before the output layer.
        tie_weights: whether the word vectors and W are one parameter; needs `embedding_size` = `hidden_size`.
    """

    def __init__(
        self,
        attention: Attention,
        embedding_size: int = 512,
        hidden_size: int = 512,
        dropout: float = 0.5,
        tie_weights: bool = False,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.embedding_size = embedding_size
        self.hidden_size = self.query_size = hidden_size
        self.dropout = nn.Dropout(dropout)
        self.tie_weights = tie_weights

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        hidden_size = self.hidden_size
        self.attention.build(region_sizes, QuerySizes(hidden_size, self.embedding_size))
        self.embed = word_table(vocabulary_size, self.embedding_size, padding)
        self.attention_gates_from_word = nn.Linear(self.embedding_size, 4 * hidden_size)
        # [h¹[t-1]; h²[t-1]; v̄]
        self.attention_gates = nn.Linear(2 * hidden_size + region_sizes[0], 4 * hidden_size, bias=False)
        # [h²[t-1]; h¹[t]; v̂[t]]
        self.language_gates = nn.Linear(2 * hidden_size + self.attention.context_size, 4 * hidden_size)
        for gates in (self.attention_gates, self.language_gates):
            init_recurrent(gates.weight, hidden_size)
        self.to_words = nn.Linear(hidden_size, vocabulary_size)
        if self.tie_weights:
            tie_weights(self.to_words, self.embed)

    def project(self, views: Views) -> Memory:
        views = in_working_precision(views, self.embed.weight)
        return Memory(views, (self.attention.project(views), mean_region(views[0])))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        weight = self.embed.weight
        zeros = weight.new_zeros(memory.views[0].vectors.shape[0], hypotheses, self.hidden_size)
        attention_state = self.attention.start(memory.projected[0], hypotheses)
        return State(memory, TopDownState(zeros, zeros, zeros, zeros, attention_state), trace=None)

    def advance(self, state: State, embedded: Tensor) -> tuple[State, tuple[Tensor]]:
        before, c1, h2, c2, attention_state = state.carried
        memory, mean = state.shared.projected
        first = torch.cat((before, h2, mean.expand(-1, before.shape[1], -1)), -1)
        gates = self.attention_gates_from_word(self.dropout(embedded)) + self.attention_gates(first)
        h1, c1 = lstm_update(gates, c1)  # eqs. 1 and 2
        attended = self.attention(Query(h1, c1, embedded, before), memory, attention_state)  # eqs. 3 to 5
        second = torch.cat((h2, h1, attended.context.to(h1.dtype)), -1)
        h2, c2 = lstm_update(self.language_gates(second), c2)  # eq. 6
        carried = TopDownState(h1, c1, h2, c2, attended.state)
        return State(state.shared, carried, Trace.of(attended)), (h2,)

    def read_out(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        return self.to_words(self.dropout(hidden))
