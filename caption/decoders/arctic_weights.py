"""Initial weights as in the authors' code: `norm_weight` and `ortho_weight` of capgen.py
(github.com/kelvinxu/arctic-captions)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.scored import ScoredAttention
from caption.attention.scores.additive import AdditiveScore
from caption.decoders.cell_decoder import CellDecoder
from caption.decoders.cells import init_recurrent

DEVIATION = 0.01


@torch.no_grad()
def draw_arctic_weights(decoder: CellDecoder) -> None:
    """Initialise the weights of all affine layers and tables of a built decoder again.

    Biases are 0, square matrices are orthogonal, and all others are normal with standard deviation 0.01. The gates'
    matrices for the word and for h[t-1] are one matrix per gate. The matrix for the context, and the first one for the
    regions in the additive score, are normal even if they are square.
    """
    for module in decoder.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            _draw(module.weight)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for rows in decoder.cell.from_word.weight.chunk(decoder.cell.blocks):
        _draw(rows)
    for weight in decoder.cell.recurrent_weights():
        nn.init.normal_(weight, std=DEVIATION)
        init_recurrent(weight, decoder.hidden_size)
    for attention in decoder.attentions.values():
        if isinstance(attention, ScoredAttention) and isinstance(attention.score, AdditiveScore):
            nn.init.normal_(attention.score.region.weight, std=DEVIATION)


def _draw(weight: Tensor) -> None:
    rows, columns = weight.shape
    if rows == columns:
        nn.init.orthogonal_(weight)
    else:
        nn.init.normal_(weight, std=DEVIATION)
