"""Hard concrete gates, and how penalties that attention declares reach the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loops import close, random_views, randomise, sigmoid

from caption.attention import Attention, HeadGates, MultiHeadAttention, StructuredAttention
from caption.decoders import DeepOutput, InitialState, LSTMDecoder, TransformerDecoder
from caption.decoders.base import Decoder
from caption.objectives import AttentionPenalty, CaptionBatch, CrossEntropy


def gates(count: int, log_odds: float, training: bool = True, **options: float) -> HeadGates:
    module = HeadGates(start=log_odds, **options)
    module.build(count)
    return module.double().train(training)


@pytest.mark.parametrize("log_odds", [-3.0, -0.5, 0.0, 2.0])
@pytest.mark.parametrize(("temperature", "stretch"), [(0.33, 0.1), (0.8, 0.3)])
def test_a_gate_is_open_as_often_as_expected(log_odds: float, temperature: float, stretch: float) -> None:
    torch.manual_seed(0)
    many = 40000
    module = gates(many, log_odds, temperature=temperature, stretch=stretch)
    drawn = module()
    assert ((drawn >= 0) & (drawn <= 1)).all()
    share = float((drawn > 0).double().mean())
    expected = module.expected_open().item() / many
    assert abs(share - expected) < 1.96 * np.sqrt(expected * (1 - expected) / many)
    # P(gate > 0) = σ(log odds - β log(-γ / ζ)) (Louizos et al. 2018, section 2.3)
    assert expected == pytest.approx(sigmoid(log_odds - temperature * np.log(stretch / (1 + stretch))))


@pytest.mark.parametrize(
    ("log_odds", "gate"), [(-9.0, 0.0), (0.0, 0.5), (9.0, 1.0), (1.0, sigmoid(1.0) * 1.2 - 0.1)]
)
def test_in_evaluation_a_gate_is_a_number(log_odds: float, gate: float) -> None:
    close(gates(2, log_odds, training=False)(), [gate, gate])


def test_a_sampled_gate_is_a_function_of_its_noise_and_learns_through_it() -> None:
    """s = σ((log u - log(1 - u) + log odds) / β), stretched and clipped."""
    module = gates(6, 0.5)
    torch.manual_seed(2)
    drawn = module()
    torch.manual_seed(2)
    u = torch.rand_like(module.log_odds).numpy()
    s = sigmoid((np.log(u) - np.log(1 - u) + 0.5) / 0.33)
    close(drawn, np.minimum(1, np.maximum(0, s * 1.2 - 0.1)))
    drawn.sum().backward()
    inside = (drawn > 0) & (drawn < 1)
    assert inside.any()
    assert torch.equal(module.log_odds.grad != 0, inside)


def lstm(attention: Attention) -> Decoder:
    return LSTMDecoder(attention, 4, 5, InitialState(dropout=0), readout=DeepOutput(dropout=0))


def losses(decoder: Decoder, weight: float) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Loss without and with the penalty, and the maps; two images, three captions of 3, 1 and no steps each."""
    decoder.build((4,), 7, padding=0, start=1)
    decoder.double().eval()
    randomise(decoder)
    words = torch.randint(1, 7, (2, 3, 3), generator=torch.Generator().manual_seed(0))
    captions = CaptionBatch(words, words, torch.tensor([[3, 1, 0], [2, 3, 1]]))
    memory = decoder.project(random_views([(2, 3)]))
    plain = CrossEntropy([])(decoder, memory, captions)
    penalised = CrossEntropy([AttentionPenalty(weight)])(decoder, memory, captions)
    assert "attention_penalty" not in plain.logged
    return plain.value, penalised.value, penalised.unrolled.trace.maps


def diversity(maps: torch.Tensor) -> float:
    """The mean of ‖A Aᵀ - I‖² over real steps."""
    arrays = maps.detach().numpy()
    return sum(float(((a @ a.T - np.eye(len(a))) ** 2).sum()) for a in arrays) / len(arrays)


def test_the_number_of_open_gates_reaches_the_loss_and_its_gradient_the_gates() -> None:
    attention = MultiHeadAttention(2, 4, HeadGates())
    plain, penalised, _ = losses(lstm(attention), 0.3)
    assert attention.gates is not None
    odds = attention.gates.log_odds.detach().numpy()
    close(penalised - plain, 0.3 * sum(sigmoid(odd - 0.33 * np.log(0.1 / 1.1)) for odd in odds))
    (penalised - plain).backward()
    assert (attention.gates.log_odds.grad > 0).all()  # descending closes them


def test_the_diversity_of_queries_reaches_the_loss() -> None:
    attention = StructuredAttention(3, 4)
    plain, penalised, maps = losses(lstm(attention), 0.3)
    assert len(maps["queries"]) == 10  # real steps alone
    close(penalised - plain, 0.3 * diversity(maps["queries"]))
    (penalised - plain).backward()
    assert attention.energy.weight.grad.abs().sum() > 1e-3


def test_the_diversity_is_that_of_the_learned_queries_if_told() -> None:
    """‖Q Qᵀ - I‖², whatever the maps are; its gradient is 4 (Q Qᵀ - I) Q."""
    attention = StructuredAttention(3, 4, "queries")
    plain, penalised, _ = losses(lstm(attention), 0.3)
    queries = attention.energy.weight
    close(penalised - plain, 0.3 * diversity(queries[None]))
    (gradient,) = torch.autograd.grad(penalised - plain, queries)
    rows = queries.detach().numpy()
    close(gradient, 0.3 * 4 * (rows @ rows.T - np.eye(3)) @ rows)


def test_the_layers_of_a_transformer_add_their_penalties() -> None:
    decoder = TransformerDecoder(StructuredAttention(3, 4), layers=2, hidden_size=4, heads=2, inner_size=5)
    plain, penalised, maps = losses(decoder, 0.3)
    close(penalised - plain, 0.3 * sum(diversity(maps[f"layer {n} queries"]) for n in (0, 1)))
