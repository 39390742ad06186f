"""Hard concrete gates, and how penalties that attention declares reach the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loops import close, random_views, randomise, run, sigmoid
from helpers.tiny_views import WithoutEncoder
from torch import nn

from caption import attention as library
from caption.attention import HeadGates, MultiHeadAttention, StructuredAttention, remove_closed_heads
from caption.core.errors import UserError
from caption.core.runtime.trust import make
from caption.decoders import DeepOutput, InitialState, ShowAttendAndTellDecoder, TransformerDecoder
from caption.decoders.base import Decoder
from caption.objectives import AttentionPenalty, CaptionBatch, CrossEntropy


def gates(count: int, log_odds: float, training: bool = True, **options: float) -> HeadGates:
    module = HeadGates(start=log_odds, **options)
    module.build(count)
    module.double()
    nn.init.constant_(module.weight, log_odds / module.speed)
    return module.train(training)


@pytest.mark.parametrize("log_odds", [-3.0, -0.5, 2.0])
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
    assert torch.equal(module.weight.grad != 0, inside)


def lstm(attention: library.Attention) -> Decoder:
    return ShowAttendAndTellDecoder(attention, 4, 5, InitialState(dropout=0), readout=DeepOutput(dropout=0))


def built(decoder: Decoder) -> Decoder:
    decoder.build((4,), 7, padding=0, start=1)
    randomise(decoder.double().eval())
    return decoder


def losses(decoder: Decoder, weight: float) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Loss without and with the penalty, and the maps; two images, three captions of 3, 1 and no steps each."""
    built(decoder)
    words = torch.randint(1, 7, (2, 3, 3), generator=torch.Generator().manual_seed(0))
    captions = CaptionBatch(words, words, torch.tensor([[3, 1, 0], [2, 3, 1]]))
    captioner, views = WithoutEncoder(decoder), random_views([(2, 3)])
    plain = CrossEntropy([])(captioner, views, captions)
    penalised = CrossEntropy([AttentionPenalty(weight)])(captioner, views, captions)
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
    assert (attention.gates.weight.grad > 0).all()  # descending closes them


@pytest.mark.parametrize(
    ("attention", "name"),
    [
        (StructuredAttention(3, 4, "queries"), "energy.weight"),
        (library.ScoredAttention(library.FeedForwardScore(3), library.Softmax()), "score.region.weight"),
    ],
)
def test_the_diversity_is_that_of_learned_queries_if_told(attention: library.Attention, name: str) -> None:
    """‖Q Qᵀ - I‖², whatever the maps are; its gradient is 4 (Q Qᵀ - I) Q."""
    plain, penalised, _ = losses(lstm(attention), 0.3)
    queries = attention.get_parameter(name)
    close(penalised - plain, 0.3 * diversity(queries[None]))
    (gradient,) = torch.autograd.grad(penalised - plain, queries)
    rows = queries.detach().numpy()
    close(gradient, 0.3 * 4 * (rows @ rows.T - np.eye(3)) @ rows)


def test_the_layers_of_a_transformer_add_the_penalties_of_their_maps() -> None:
    decoder = TransformerDecoder(StructuredAttention(3, 4), layers=2, hidden_size=4, heads=2, inner_size=5)
    plain, penalised, maps = losses(decoder, 0.3)
    assert len(maps["layer 0 queries"]) == 10  # real steps alone
    close(penalised - plain, 0.3 * sum(diversity(maps[f"layer {n} queries"]) for n in (0, 1)))
    (penalised - plain).backward()
    assert decoder.layers[1].attention.energy.weight.grad.abs().sum() > 1e-3


# -- removing closed heads -----------------------------------------------------------------------------------------

CLOSED, HALF_OPEN, OPEN = -9.0, 0.3, 9.0


def with_gates(attention: MultiHeadAttention, log_odds: list[float]) -> None:
    assert attention.gates is not None
    with torch.no_grad():
        attention.gates.weight.copy_(torch.tensor(log_odds) / attention.gates.speed)


@pytest.mark.parametrize(
    ("log_odds", "left"),
    [([CLOSED, HALF_OPEN, OPEN, CLOSED], [1, 2]), ([OPEN, OPEN, HALF_OPEN, HALF_OPEN], [0, 1, 2, 3])],
)
def test_without_closed_heads_the_context_is_the_same(log_odds: list[float], left: list[int]) -> None:
    attention = MultiHeadAttention(4, 12, HeadGates())
    done = run(attention, steps=2)
    with_gates(attention, log_odds)
    before = [attention(query, attention.project(done.views)) for query in done.queries]
    attention.train()  # the gates that count are those of evaluation
    attention.remove_closed_heads()
    attention.eval()
    memory = attention.project(done.views)
    assert memory.keys.shape[1] == memory.values.shape[1] == len(left)
    for query, old in zip(done.queries, before, strict=True):
        new = attention(query, memory)
        close(new.context, old.context.detach())
        close(new.maps.heads, old.maps.heads[:, :, left].detach())


def test_where_all_heads_are_closed_one_is_left_that_reads_nothing() -> None:
    attention = MultiHeadAttention(2, 4, HeadGates())
    done = run(attention)
    with_gates(attention, [CLOSED, CLOSED])
    assert remove_closed_heads(attention) == {"": (0, 2)}
    context = attention(done.queries[0], attention.project(done.views)).context
    assert attention.heads == 1
    close(context, attention.output.bias.detach().expand_as(context))


def test_the_layers_of_a_transformer_may_keep_different_heads() -> None:
    inner = MultiHeadAttention(2, 4, HeadGates())
    decoder = built(TransformerDecoder(inner, layers=2, hidden_size=4, heads=2, inner_size=5))
    for attention, log_odds in zip(decoder.attentions.values(), ([OPEN, CLOSED], [OPEN, OPEN]), strict=True):
        assert isinstance(attention, MultiHeadAttention)
        with_gates(attention, log_odds)

    def logits(model: Decoder) -> torch.Tensor:
        words = torch.tensor([[[1, 4, 5]]]).expand(2, -1, -1)
        return model(model.project(random_views([(2, 3)])), words, torch.full((2, 1), 3)).logits.detach()

    before = logits(decoder)
    assert remove_closed_heads(decoder) == {"layers.0.attention": (1, 2), "layers.1.attention": (2, 2)}
    close(logits(decoder), before)
    again = built(make(decoder.spec, Decoder))  # type: ignore[type-abstract]
    again.load_state_dict(decoder.state_dict())
    close(logits(again), before)


def test_a_model_without_gates_is_refused() -> None:
    with pytest.raises(UserError, match="gates"):
        remove_closed_heads(lstm(MultiHeadAttention(2, 4)))
