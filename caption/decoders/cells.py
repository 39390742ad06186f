"""Recurrent cells, which update a decoder's state: the paper's LSTM (eqs. 1 to 3 of Xu et al. 2015), and two GRUs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.core.parts import Part
from caption.kernels.linear import linear


class Recurrence(NamedTuple):
    """y = o + W x, the part of a step that is the same for all words but for o: one of each for each product."""

    offsets: tuple[Tensor, ...]
    """(B, K, outputs) o, what depends on the word alone; see `RecurrentDecoder.offsets`."""
    weights: tuple[Tensor, ...]
    """(outputs, inputs) W; see `RecurrentDecoder.recurrent_weights`."""


class Updated(NamedTuple):
    """The result of a cell's update."""

    hidden: Tensor
    """(B, K, H) h[t]."""
    cell: Tensor | None
    """(B, K, H) c[t]; None for cells without one."""
    inputs: tuple[Tensor, ...]
    """(B, K, ...) what each of the recurrent weights was multiplied by, see `Advanced.inputs`."""


class RecurrentCell(Part, nn.Module):
    """Base class of recurrent cells.

    The pre-activations of the cell's gates are V Ey[t-1] + b and W [h[t-1]; x[t]], with x[t] the inputs beside the
    word, such as the context. The decoder holds V, b and W; the cell says how many rows they have, and uses them. The
    words' part is computed for all steps at once in training, see `RecurrentDecoder.offsets`.
    """

    blocks: int
    """Number of gates and candidates; V, b and W have so many blocks of H rows."""
    keeps: int
    """The block of the gate that keeps the previous state where it is 1; `forget_bias` of decoders goes there."""
    states: tuple[str, ...]
    """The vectors of the state, "hidden" and perhaps "cell"."""

    def build(self, hidden_size: int) -> None:
        """Create the cell's own weights, if it has any. Called once."""

    def offsets(self, from_word: Tensor) -> tuple[Tensor, ...]:
        """V Ey + b (..., blocks · H) -> the offset of each of `weights`, see `RecurrentDecoder.offsets`."""
        return (from_word,)

    def weights(self, from_state: Tensor) -> tuple[Tensor, ...]:
        """W (blocks · H, H + inputs) -> the weights used at every step."""
        return (from_state,)

    def forward(self, hidden: Tensor, cell: Tensor | None, inputs: Tensor, recurrence: Recurrence) -> Updated:
        """Update the state.

        Args:
            hidden: (B, K, H) h[t-1].
            cell: (B, K, H) c[t-1], for cells that have it.
            inputs: (B, K, ...) x[t].
            recurrence: of the methods `offsets` and `weights`.
        """
        raise NotImplementedError


class LSTMCell(RecurrentCell):
    """c[t] = f ∘ c[t-1] + i ∘ g, h[t] = o ∘ tanh(c[t]), with i, f, o, g = σ, σ, σ, tanh of V Ey + W [h[t-1]; x[t]] + b
    (eqs. 1 to 3). There are no peepholes."""

    blocks, keeps = 4, 1
    states = ("hidden", "cell")

    def forward(self, hidden: Tensor, cell: Tensor | None, inputs: Tensor, recurrence: Recurrence) -> Updated:
        assert cell is not None
        joined = torch.cat((hidden, inputs), -1)
        gates = recurrence.offsets[0] + linear(
            joined, recurrence.weights[0]
        )  # eq. 1: T [Ey[t-1]; h[t-1]; z[t]]
        return Updated(*lstm_update(gates, cell), (joined,))


class GRUCell(RecurrentCell):
    """h[t] = (1 - u) ∘ n + u ∘ h[t-1], with r, u = σ(V Ey + W [h[t-1]; x[t]] + b) and
    n = tanh(V_n Ey + W_nx x[t] + b_n + r ∘ (W_nh h[t-1] + d)).

    The reset gate r and the update gate u are those of Cho et al. 2014, "Learning Phrase Representations using RNN
    Encoder-Decoder", section 2.3. There r multiplies h[t-1], as in `ResetBeforeGRUCell`; here, as in cuDNN and
    `torch.nn.GRUCell`, it multiplies W_nh h[t-1] + d, so that one product with h[t-1] serves all blocks. Their order is
    r, u, n. There is no c.
    """

    blocks, keeps = 3, 1
    states = ("hidden",)

    def build(self, hidden_size: int) -> None:
        self.candidate_bias = nn.Parameter(torch.zeros(hidden_size))  # d

    def offsets(self, from_word: Tensor) -> tuple[Tensor, Tensor]:
        bias = functional.pad(self.candidate_bias, (2 * len(self.candidate_bias), 0))
        return from_word, bias.expand(from_word.shape)

    def weights(self, from_state: Tensor) -> tuple[Tensor, Tensor]:
        hidden_size = len(self.candidate_bias)
        return from_state[:, hidden_size:], from_state[:, :hidden_size]

    def forward(self, hidden: Tensor, cell: Tensor | None, inputs: Tensor, recurrence: Recurrence) -> Updated:
        (of_inputs, of_hidden), (w_inputs, w_hidden) = recurrence
        r_inputs, u_inputs, n_inputs = (of_inputs + linear(inputs, w_inputs)).chunk(3, -1)
        r_hidden, u_hidden, n_hidden = (of_hidden + linear(hidden, w_hidden)).chunk(3, -1)
        r, u = (r_inputs + r_hidden).sigmoid(), (u_inputs + u_hidden).sigmoid()
        n = (n_inputs + r * n_hidden).tanh()
        return Updated((1 - u) * n + u * hidden, None, (inputs, hidden))


class ResetBeforeGRUCell(RecurrentCell):
    """h[t] = (1 - u) ∘ n + u ∘ h[t-1], with r, u = σ(V Ey + W [h[t-1]; x[t]] + b) and
    n = tanh(V_n Ey + W_n [r ∘ h[t-1]; x[t]] + b_n).

    The GRU of Chung et al. 2014, "Empirical Evaluation of Gated Recurrent Neural Networks on Sequence Modeling",
    section 3.2, whose z is 1 - u: the reset gate r multiplies h[t-1] itself, so the candidate n needs a product after
    the gates are known. `GRUCell` has r behind the product. The order of the blocks is r, u, n. There is no c.
    """

    blocks, keeps = 3, 1
    states = ("hidden",)

    def offsets(self, from_word: Tensor) -> tuple[Tensor, ...]:
        size = from_word.shape[-1] // 3
        return from_word.split([2 * size, size], -1)

    def weights(self, from_state: Tensor) -> tuple[Tensor, ...]:
        size = len(from_state) // 3
        return from_state.split([2 * size, size])

    def forward(self, hidden: Tensor, cell: Tensor | None, inputs: Tensor, recurrence: Recurrence) -> Updated:
        (of_gates, of_candidate), (w_gates, w_candidate) = recurrence
        joined = torch.cat((hidden, inputs), -1)
        r, u = (of_gates + linear(joined, w_gates)).sigmoid().chunk(2, -1)
        reset = torch.cat((r * hidden, inputs), -1)
        n = (of_candidate + linear(reset, w_candidate)).tanh()
        return Updated((1 - u) * n + u * hidden, None, (joined, reset))


def lstm_update(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Gates' pre-activations (..., 4H) in the order i, f, o, g, and c[t-1] (..., H) -> h[t], c[t]."""
    i, f, o, g = gates.chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()  # eq. 2
    return o.sigmoid() * cell.tanh(), cell  # eq. 3


def init_recurrent(weight: Tensor, hidden_size: int) -> None:
    """Initialise the columns of h[t-1] in a weight (blocks · H, H + ...) orthogonally, block by block, as in the
    authors' code."""
    for rows in weight.data[:, :hidden_size].split(hidden_size):
        nn.init.orthogonal_(rows)
