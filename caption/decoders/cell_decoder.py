"""The base class of decoders with one recurrent cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from caption.core.tensor_tree import State, TensorTree
from caption.decoders.base import Memory
from caption.decoders.cells import LSTMCell, RecurrentCell
from caption.decoders.unroll import RecurrentDecoder


class CellState(NamedTuple):
    """The state from word to word, one entry per hypothesis."""

    hidden: Tensor
    """(B, K, H) h."""
    cell: Tensor | None = None
    """(B, K, H) c; None for cells without one."""
    attention: TensorTree = None
    """The state of the attention mechanism."""


class CellDecoder(RecurrentDecoder):
    """Base class of decoders with one recurrent cell.

    Args:
        embedding_size: length of the word vectors.
        hidden_size: length of h and c.
        dropout: on the word vectors.
        cell: updates the state; None = `LSTMCell()`.
    """

    def __init__(
        self, embedding_size: int, hidden_size: int, dropout: float, cell: RecurrentCell | None = None
    ) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.hidden_size = self.query_size = hidden_size
        self.dropout = nn.Dropout(dropout)
        self.cell = cell or LSTMCell()

    def add_forget_bias(self, value: float) -> None:
        """Add a value to the bias of the gate that keeps the state, when the weights are initialised."""
        self.cell.from_word.bias.data.chunk(self.cell.blocks)[self.cell.keeps].add_(value)

    def state_before(
        self, memory: Memory, hypotheses: int, vectors: Sequence[Tensor], attention: TensorTree = None
    ) -> State:
        """The state before the first word, given the vectors (B, 1, H) of `RecurrentCell.states` and the state of the
        attention."""
        # The state sums over all steps, so it keeps full precision under autocast.
        dtype = self.cell.from_word.weight.dtype
        shape = (vectors[0].shape[0], hypotheses, self.hidden_size)
        initial = {
            name: vector.to(dtype).expand(shape)
            for name, vector in zip(self.cell.states, vectors, strict=True)
        }
        return State(memory, CellState(**initial, attention=attention), trace=None)
