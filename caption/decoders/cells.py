"""Recurrent cells, which update a decoder's state: the paper's LSTM (eqs. 1 to 3 of Xu et al. 2015), and two GRUs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.core.parts import Part


class RecurrentCell(Part, nn.Module):
    """Base class of recurrent cells.

    The pre-activations of a cell's gates are V x + b plus terms of h[t-1] and z; x is the word's vector, and z are the
    other inputs, such as the context. Weights have a block of H rows for each gate and candidate.
    """

    blocks: int
    """Number of gates and candidates."""
    keeps: int
    """The block of the gate that keeps the previous state if it is 1; decoders add `forget_bias` to its bias."""
    states: tuple[str, ...]
    """The names of the state's vectors: "hidden", and "cell" if there is one."""

    from_word: nn.Linear
    """V and b, all blocks."""

    def build(self, word_size: int, input_size: int, hidden_size: int) -> None:
        """Create the weights. Called once.

        Args:
            word_size: length of x.
            input_size: length of z; it may be 0.
            hidden_size: H.
        """
        self.from_word = nn.Linear(word_size, self.blocks * hidden_size)
        self.create_recurrent(input_size, hidden_size)
        for weight in self.recurrent_weights():
            init_recurrent(weight, hidden_size)

    def create_recurrent(self, input_size: int, hidden_size: int) -> None:
        """Create the weights of z and h[t-1]."""
        raise NotImplementedError

    def recurrent_weights(self) -> tuple[Tensor, ...]:
        """The weights (rows, H + ...) whose first H columns multiply h[t-1]."""
        raise NotImplementedError

    def forward(
        self, word: Tensor, inputs: Tensor, hidden: Tensor, cell: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Update the state.

        Args:
            word: (B, K, ...) x, the word's vector.
            inputs: (B, K, ...) z, the other inputs.
            hidden: (B, K, H) h[t-1].
            cell: (B, K, H) c[t-1]; None for cells without one.

        Returns:
            h[t], and c[t] or None.
        """
        raise NotImplementedError


class LSTMCell(RecurrentCell):
    """c[t] = f ∘ c[t-1] + i ∘ g, h[t] = o ∘ tanh(c[t]), with i, f, o, g = σ, σ, σ, tanh of V x + W [h[t-1]; z] + b
    (eqs. 1 to 3), without peepholes."""

    blocks, keeps = 4, 1
    states = ("hidden", "cell")

    def create_recurrent(self, input_size: int, hidden_size: int) -> None:
        self.from_state = nn.Linear(hidden_size + input_size, 4 * hidden_size, bias=False)  # W

    def recurrent_weights(self) -> tuple[Tensor, ...]:
        return (self.from_state.weight,)

    def forward(
        self, word: Tensor, inputs: Tensor, hidden: Tensor, cell: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        assert cell is not None
        gates = self.from_word(word) + self.from_state(torch.cat((hidden, inputs), -1))  # eq. 1
        return lstm_update(gates, cell)


class GRUCell(RecurrentCell):
    """h[t] = (1 - u) ∘ n + u ∘ h[t-1], with r, u = σ(V x + W z + U h[t-1] + b) and
    n = tanh(V_n x + W_n z + b_n + r ∘ (U_n h[t-1] + d)).

    The reset gate r and the update gate u are those of Cho et al. 2014, "Learning Phrase Representations using RNN
    Encoder-Decoder", section 2.3. There r multiplies h[t-1], as in `ResetBeforeGRUCell`; here, as in cuDNN and
    `torch.nn.GRUCell`, it multiplies U_n h[t-1] + d. The order of the blocks is r, u, n. There is no c.
    """

    blocks, keeps = 3, 1
    states = ("hidden",)

    def create_recurrent(self, input_size: int, hidden_size: int) -> None:
        self.from_inputs = nn.Linear(input_size, 3 * hidden_size, bias=False)  # W
        self.from_hidden = nn.Linear(hidden_size, 3 * hidden_size, bias=False)  # U
        self.candidate_bias = nn.Parameter(torch.zeros(hidden_size))  # d

    def recurrent_weights(self) -> tuple[Tensor, ...]:
        return (self.from_hidden.weight,)

    def forward(
        self, word: Tensor, inputs: Tensor, hidden: Tensor, cell: Tensor | None
    ) -> tuple[Tensor, None]:
        r_inputs, u_inputs, n_inputs = (self.from_word(word) + self.from_inputs(inputs)).chunk(3, -1)
        r_hidden, u_hidden, n_hidden = self.from_hidden(hidden).chunk(3, -1)
        r, u = (r_inputs + r_hidden).sigmoid(), (u_inputs + u_hidden).sigmoid()
        n = (n_inputs + r * (n_hidden + self.candidate_bias)).tanh()
        return (1 - u) * n + u * hidden, None


class ResetBeforeGRUCell(RecurrentCell):
    """h[t] = (1 - u) ∘ n + u ∘ h[t-1], with r, u = σ(V x + W [h[t-1]; z] + b) and
    n = tanh(V_n x + W_n [r ∘ h[t-1]; z] + b_n).

    The GRU of Chung et al. 2014, "Empirical Evaluation of Gated Recurrent Neural Networks on Sequence Modeling",
    section 3.2, whose z is 1 - u. The reset gate r multiplies h[t-1] before the matrix product, so the product of the
    candidate n must wait for the gates; in `GRUCell`, r multiplies the product. The order of the blocks is r, u, n.
    There is no c.
    """

    blocks, keeps = 3, 1
    states = ("hidden",)

    def create_recurrent(self, input_size: int, hidden_size: int) -> None:
        self.gates_from_state = nn.Linear(hidden_size + input_size, 2 * hidden_size, bias=False)  # W
        self.candidate_from_state = nn.Linear(hidden_size + input_size, hidden_size, bias=False)  # W_n

    def recurrent_weights(self) -> tuple[Tensor, ...]:
        return self.gates_from_state.weight, self.candidate_from_state.weight

    def forward(
        self, word: Tensor, inputs: Tensor, hidden: Tensor, cell: Tensor | None
    ) -> tuple[Tensor, None]:
        size = hidden.shape[-1]
        gates, candidate = self.from_word(word).split((2 * size, size), -1)
        r, u = (gates + self.gates_from_state(torch.cat((hidden, inputs), -1))).sigmoid().chunk(2, -1)
        n = (candidate + self.candidate_from_state(torch.cat((r * hidden, inputs), -1))).tanh()
        return (1 - u) * n + u * hidden, None


def lstm_update(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Gates' pre-activations (..., 4H) in the order i, f, o, g, and c[t-1] (..., H) -> h[t], c[t]."""
    i, f, o, g = gates.chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()  # eq. 2
    return o.sigmoid() * cell.tanh(), cell  # eq. 3


def init_recurrent(weight: Tensor, hidden_size: int) -> None:
    """Initialise the columns for h[t-1] of a weight (blocks · H, H + ...) orthogonally, block by block, as in the
    authors' code."""
    for rows in weight.data[:, :hidden_size].split(hidden_size):
        nn.init.orthogonal_(rows)
