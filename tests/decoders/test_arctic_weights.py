"""The first weights of the authors' code: which matrices are orthogonal, how large the others are, biases of 0."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from caption.attention import AdditiveScore, Multinoulli, ScoredAttention
from caption.decoders import DeepOutput, Gate, InitialState, ShowAttendAndTellDecoder

SIZE = 48
"""Of everything: region vectors, comparison, word vectors and state, so that all matrices but a few are square."""


def built(words: int = 60, embedding_size: int = SIZE, **options: object) -> dict[str, Tensor]:
    torch.manual_seed(0)
    decoder = ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(SIZE, layers=2), Multinoulli()),
        embedding_size,
        SIZE,
        initial=InitialState(layers=2, shared=True),
        gate=Gate(),
        readout=DeepOutput(),
        **{"first_weights": "arctic", **options},  # type: ignore[arg-type]
    )
    decoder.build((SIZE,), words, padding=0, start=1)
    return {name: parameter.detach() for name, parameter in decoder.named_parameters()}


def orthogonal(weight: Tensor) -> bool:
    return torch.allclose(weight @ weight.T, torch.eye(len(weight)), atol=1e-5)


def normal(weight: Tensor) -> bool:
    """Centred, with standard deviation 0.01, to three standard errors."""
    errors = 3 * 0.01 / weight.numel() ** 0.5
    return abs(weight.mean()) < errors and abs(weight.std() - 0.01) < errors


def test_square_matrices_are_orthogonal_and_others_small():
    """By capgen.py: `norm_weight` of ff_init, ff_state, ff_memory, ff_logit_lstm, ff_logit_ctx, Wd_att, and of Wemb,
    ff_logit, U_att, W_sel; `ortho_weight` of W_att_1 and U; `norm_weight` of Wc to 4 dim; Wc_att with ortho=False."""
    weights = built()
    gates, context = weights.pop("gates_from_state.weight").split(SIZE, 1)
    assert all(orthogonal(gate) for gate in gates.chunk(4))
    assert normal(context)
    assert all(orthogonal(gate) for gate in weights.pop("gates_from_word.weight").chunk(4))
    small = {
        *("embed.weight", "readout.to_words.weight", "attention.score.energy.weight", "gate.project.weight"),
        "attention.score.region.weight",
    }
    assert {name for name, weight in weights.items() if weight.dim() == 2 and not orthogonal(weight)} == small
    assert all(normal(weights.pop(name)) for name in small - {"attention.score.energy.weight"})
    assert weights["attention.score.energy.weight"].abs().max() < 0.05
    biases = {name: weight for name, weight in weights.items() if weight.dim() == 1}
    assert len(biases) == 9
    assert all((bias == 0).all() for bias in biases.values())


def test_words_of_another_length_are_small():
    weights = built(embedding_size=20)
    assert normal(weights["gates_from_word.weight"])
    assert normal(weights["readout.from_hidden.weight"])


def test_the_forget_bias_is_added_as_ever_and_the_default_is_pytorchs():
    forget = built(forget_bias=1.5)["gates_from_word.bias"].chunk(4)[1]
    assert forget.tolist() == [1.5] * SIZE
    assert not normal(built(first_weights="pytorch")["readout.to_words.weight"])


def test_another_name():
    with pytest.raises(ValueError, match=r"pytorch.*arctic"):
        built(first_weights="theano")
