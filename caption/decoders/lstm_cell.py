"""The LSTM's update (eqs. 1 to 3 of Xu et al. 2015), shared by several decoders."""

from __future__ import annotations

from torch import Tensor, nn


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
