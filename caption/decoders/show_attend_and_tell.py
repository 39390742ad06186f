"""The paper's decoder with attention (Xu et al. 2015, section 3.1.2): eqs. 1 to 7."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from caption.attention.base import Attention, Query, QuerySizes
from caption.core.regions import Views
from caption.core.tensor_tree import State
from caption.decoders.arctic_weights import draw_arctic_weights
from caption.decoders.base import Memory, Trace, in_working_precision
from caption.decoders.cell_decoder import CellDecoder, CellState
from caption.decoders.cells import RecurrentCell
from caption.decoders.deep_output import DeepOutput, Readout, tie_weights
from caption.decoders.gate import Gate
from caption.decoders.initial_state import Initial, InitialState
from caption.decoders.word_embeddings import MetaEmbedding, word_table


class ShowAttendAndTellDecoder(CellDecoder):
    """The paper's decoder attends with h[t-1], updates the LSTM (or another cell) with the word and the context, and
    reads out from h[t].

    Args:
        attention: the attention mechanism.
        embedding_size: length of the word vectors Ey.
        hidden_size: length of h and c.
        initial: computes the initial state from the image; None = the paper's `InitialState()`.
        gate: the gate β on the context; None = no gate.
        readout: computes logits from the state; None = the paper's `DeepOutput()`.
        dropout: on the word vectors entering the LSTM.
        forget_bias: added at initialisation to the bias of the gate that keeps the state (the forget gate of an LSTM).
        first_input: Ey[0]; "start", the learned vector of the start token, or "zero", a fixed vector of zeros, as in
            the authors' code.
        embedding: computes Ey from several tables; None = one learned table.
        tie_weights: whether E and L_o are one parameter, see `deep_output.tie_weights`; the paper has two.
        first_weights: how the weights are initialised; "pytorch", the defaults of its layers, or "arctic", as in the
            authors' code (`draw_arctic_weights`).
        cell: updates h; None = the paper's `LSTMCell()`.

    Raises:
        UserError: `first_input` or `first_weights` is another string.
        UserError: when built, the weights cannot be tied.
    """

    def __init__(
        self,
        attention: Attention,
        embedding_size: int = 512,
        hidden_size: int = 512,
        initial: Initial | None = None,
        gate: Gate | None = None,
        readout: Readout | None = None,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
        first_input: Literal["start", "zero"] = "start",
        embedding: MetaEmbedding | None = None,
        tie_weights: bool = False,
        first_weights: Literal["pytorch", "arctic"] = "pytorch",
        cell: RecurrentCell | None = None,
    ) -> None:
        super().__init__(embedding_size, hidden_size, dropout, cell)
        self.attention = attention
        self.initial = initial or InitialState()
        self.gate = gate
        self.readout = readout or DeepOutput()
        self.forget_bias = forget_bias
        self.first_input = first_input
        if embedding is not None:
            self.embed = embedding
        self.tie_weights = tie_weights
        self.first_weights = first_weights

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        hidden_size = self.hidden_size
        self.attention.build(region_sizes, QuerySizes(hidden_size, self.embedding_size))
        context_size = self.attention.context_size
        if self.gate is not None:
            self.gate.build(hidden_size, context_size)
        self.initial.build(region_sizes[0], hidden_size, self.cell.states)
        self.readout.build(self.embedding_size, hidden_size, context_size, vocabulary_size)
        self.start_id = start
        if isinstance(embedding := getattr(self, "embed", None), MetaEmbedding):
            embedding.build(vocabulary_size, self.embedding_size, padding)
        else:
            self.embed = word_table(vocabulary_size, self.embedding_size, padding)
        if self.tie_weights:
            tie_weights(self.readout.to_words, self.embed)
        self.cell.build(self.embedding_size, context_size, hidden_size)  # T of eq. 1
        nn.init.zeros_(self.cell.from_word.bias)
        if self.first_weights == "arctic":
            draw_arctic_weights(self)
        self.add_forget_bias(self.forget_bias)

    def project(self, views: Views) -> Memory:
        views = in_working_precision(views, self.cell.from_word.weight)
        return Memory(views, (self.attention.project(views),))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        attention_state = self.attention.start(memory.projected[0], hypotheses)
        return self.state_before(memory, hypotheses, self.initial(memory.views[0]), attention_state)

    def word_vectors(self, words: Tensor) -> Tensor:
        embedded = self.embed(words)
        if self.first_input == "zero":  # the start token is fed only at the first step
            embedded = embedded.masked_fill((words == self.start_id)[..., None], 0.0)
        return embedded

    def advance(self, state: State, embedded: Tensor) -> tuple[State, tuple[Tensor, Tensor]]:
        hidden, cell, attention_state = state.carried
        memory = state.shared.projected[0]
        attended = self.attention(Query(hidden, cell, embedded), memory, attention_state)  # eqs. 4 to 6
        context, beta = attended.context, None
        if self.gate is not None:
            gate = self.gate(hidden)  # section 4.2.1
            context, beta = gate * context, gate.mean(-1)
        hidden, cell = self.cell(self.dropout(embedded), context, hidden, cell)  # eqs. 1 to 3
        after = State(state.shared, CellState(hidden, cell, attended.state), Trace.of(attended, beta))
        return after, (hidden, context)

    def read_out(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        return self.readout(embedded, hidden, context)  # eq. 7
