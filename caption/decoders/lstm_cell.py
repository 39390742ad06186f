"""The LSTM's update (eqs. 1 to 3 of Xu et al. 2015), and the base class of decoders with one LSTM."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from caption.decoders.base import Memory
from caption.decoders.unroll import RecurrentDecoder
from caption.kernels.linear import Linear
from caption.tensor_tree import State, TensorTree


class LSTMState(NamedTuple):
    """The state from word to word, one entry per hypothesis."""

    hidden: Tensor
    """(B, K, H) h."""
    cell: Tensor
    """(B, K, H) c."""
    attention: TensorTree = None
    """The state of the attention mechanism."""


class LSTMCellDecoder(RecurrentDecoder):
    """Base class of decoders with one LSTM.

    The pre-activations of its gates have two parts: that of the word, computed for all steps at once in training, and
    that of h[t-1] and other inputs.

    Args:
        embedding_size: length of the word vectors.
        hidden_size: length of h and c.
        dropout: on the word vectors.
    """

    def __init__(self, embedding_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.hidden_size = self.query_size = hidden_size
        self.dropout = nn.Dropout(dropout)

    def build_gates(self, inputs: int) -> None:
        """Create the weights of the gates, for so many inputs beside the word and h[t-1]."""
        self.gates_from_word = Linear(self.embedding_size, 4 * self.hidden_size)
        self.gates_from_state = Linear(self.hidden_size + inputs, 4 * self.hidden_size, bias=False)
        init_recurrent(self.gates_from_state.weight, self.hidden_size)

    def state_before(
        self, memory: Memory, hypotheses: int, hidden: Tensor, cell: Tensor, attention: TensorTree = None
    ) -> State:
        """The state before the first word, given h[0] and c[0] (B, 1, H) and the attention's own state."""
        shape = (hidden.shape[0], hypotheses, self.hidden_size)
        # c sums over all steps, so it keeps full precision under autocast.
        cell = cell.to(self.gates_from_word.weight.dtype)
        return State(memory, LSTMState(hidden.expand(shape), cell.expand(shape), attention), trace=None)

    def offsets(self, embedded: Tensor) -> tuple[Tensor]:
        """The previous word's part of the gates' pre-activations, (..., 4H)."""
        return (self.gates_from_word(self.dropout(embedded)),)

    def recurrent_weights(self) -> tuple[Tensor]:
        """The weight of the other part, (4H, H + inputs)."""
        return (self.gates_from_state.weight,)


def lstm_update(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Gates' pre-activations (..., 4H) in the order i, f, o, g, and c[t-1] (..., H) -> h[t], c[t]."""
    i, f, o, g = gates.chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def add_forget_bias(bias: Tensor, value: float) -> None:
    """Add to the forget gate's part of the gates' biases (4H,), when they are initialised."""
    bias.data.chunk(4)[1].add_(value)


def init_recurrent(weight: Tensor, hidden_size: int) -> None:
    """Initialise the columns of h[t-1] in a weight (4H, H + ...) orthogonally, gate by gate, as in the authors'
    code."""
    for rows in weight.data[:, :hidden_size].chunk(4):
        nn.init.orthogonal_(rows)
