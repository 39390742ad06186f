"""The textbook's decoder (`caption.textbook`) with the weights of the package's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from caption import textbook
from caption.decoders import ShowAttendAndTellDecoder


def textbook_of(decoder: ShowAttendAndTellDecoder) -> textbook.Decoder:
    """The textbook's form of a decoder, with copies of its weights and without its dropout.

    The decoder has additive soft attention, a scalar gate, `InitialState` of one layer and a linear `DeepOutput`.
    """
    weights = by_textbook_name(decoder, lambda parameter: parameter.detach())
    A, D = weights["U.weight"].shape
    V, m = weights["E.weight"].shape
    copy = textbook.Decoder(V, D, m, decoder.hidden_size, A).to(decoder.embed.weight)
    copy.load_state_dict(weights)
    return copy


def by_textbook_name(
    decoder: ShowAttendAndTellDecoder, of: Callable[[nn.Parameter], Tensor]
) -> dict[str, Tensor]:
    """A tensor of each of a decoder's parameters, such as its gradient, by the textbook's names."""
    score, initial, readout = decoder.attention.score, decoder.initial, decoder.readout
    layers = {
        "E": decoder.embed,
        "f_init_h": initial.hidden[0],
        "f_init_c": initial.cell[0],
        "U": score.region,
        "W": score.query,
        "v": score.energy,
        "f_beta": decoder.gate.project,
        "L_h": readout.from_hidden,
        "L_z": readout.from_context,
        "L_o": readout.to_words,
    }
    tensors = {
        f"{name}.{key}": of(p) for name, layer in layers.items() for key, p in layer.named_parameters()
    }
    # Of the word; of h and z.
    columns = (of(decoder.cell.from_word.weight), of(decoder.cell.from_state.weight))
    return tensors | {"T.weight": torch.cat(columns, 1), "T.bias": of(decoder.cell.from_word.bias)}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the gradients of a decoder of either form, by the textbook's names."""
    if isinstance(model, ShowAttendAndTellDecoder):
        by_name = by_textbook_name(model, lambda parameter: parameter.grad)
    else:
        by_name = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: gradient.clone() for name, gradient in by_name.items()}
