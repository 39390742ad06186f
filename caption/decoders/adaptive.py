"""The adaptive decoder (Lu et al. 2017, section 2), which attends after the LSTM's update and may read a sentinel
instead of the image."""

from __future__ import annotations

from torch import Tensor, nn

from caption.attention.base import Attention, Query, QuerySizes
from caption.core.regions import Views, mean_region
from caption.core.tensor_tree import State
from caption.decoders.base import Memory, Trace, in_working_precision
from caption.decoders.cell_decoder import CellDecoder, CellState
from caption.decoders.initial_state import Initial, InitialState
from caption.decoders.word_embeddings import word_table


class AdaptiveDecoder(CellDecoder):
    """(h[t], c[t]) = LSTM([E y[t-1]; v_g]), ĉ[t] = attention(h[t]), p ∝ exp(W_p tanh(W_h h[t] + W_c ĉ[t])).

    v_g is the mean region, projected and rectified (section 2.4). The read-out has two weights and a tanh; the paper
    has W_p (h[t] + ĉ[t]). With `caption.attention.SentinelAttention` it is the paper's model; any other mechanism can
    be used as well.

    Args:
        attention: the attention mechanism.
        embedding_size: length of the word vectors, and of v_g.
        hidden_size: length of h and c.
        initial: computes the initial state from the image; None = `InitialState()`.
        dropout: on the word vectors and before the output layer.
    """

    def __init__(
        self,
        attention: Attention,
        embedding_size: int = 512,
        hidden_size: int = 512,
        initial: Initial | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(embedding_size, hidden_size, dropout)
        self.attention = attention
        self.initial = initial or InitialState()

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        hidden_size, embedding_size = self.hidden_size, self.embedding_size
        self.attention.build(region_sizes, QuerySizes(hidden_size, embedding_size))
        self.initial.build(region_sizes[0], hidden_size)
        self.embed = word_table(vocabulary_size, embedding_size, padding)
        self.image = nn.Sequential(nn.Linear(region_sizes[0], embedding_size), nn.ReLU())
        self.cell.build(embedding_size, embedding_size, hidden_size)
        self.from_hidden = nn.Linear(hidden_size, embedding_size)
        self.from_context = nn.Linear(self.attention.context_size, embedding_size, bias=False)
        self.to_words = nn.Linear(embedding_size, vocabulary_size)

    def project(self, views: Views) -> Memory:
        views = in_working_precision(views, self.embed.weight)
        return Memory(views, (self.attention.project(views), self.image(mean_region(views[0]))))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        attention_state = self.attention.start(memory.projected[0], hypotheses)
        return self.state_before(memory, hypotheses, self.initial(memory.views[0]), attention_state)

    def advance(self, state: State, embedded: Tensor) -> tuple[State, tuple[Tensor, Tensor]]:
        before, cell, attention_state = state.carried
        memory, image = state.shared.projected
        inputs = image.expand(-1, before.shape[1], -1)
        hidden, cell = self.cell(self.dropout(embedded), inputs, before, cell)
        attended = self.attention(Query(hidden, cell, embedded, before), memory, attention_state)
        carried = CellState(hidden, cell, attended.state)
        return State(state.shared, carried, Trace.of(attended)), (hidden, attended.context)

    def read_out(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        return self.to_words(self.dropout((self.from_hidden(hidden) + self.from_context(context)).tanh()))
