"""Maps edited between weighing and reading, in steps, unrolls and searches."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.given_scores import GivenScores
from helpers.tiny_captioner import captioner, photo
from helpers.tiny_views import one_row
from torch import Tensor

from caption.attention import (
    Alignment,
    Attention,
    GumbelSoftmax,
    MultiHeadAttention,
    Multinoulli,
    Query,
    QuerySizes,
    ScoredAttention,
    Softmax,
    edit_maps,
)
from caption.attention.map_hooks import Edit, Grid, record_self_attention
from caption.captioner import Captioner
from caption.decoders import TransformerDecoder
from caption.encoders import SelfAttentionRefiner
from caption.errors import UserError
from caption.regions import Views
from caption.search import BeamSearch
from caption.tensor_tree import TensorTree, leaves
from caption.text.vocabulary import START

REGIONS = 64
GRIDS = [(8, 8)]


def onto(region: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(region), REGIONS).float()


def build_model(alignment: Alignment | None = None) -> Captioner:
    return captioner(search=BeamSearch(beam_size=3, max_length=6, candidates=3), alignment=alignment)


def encoded(count: int = 2) -> Views:
    model = build_model()
    with torch.no_grad():
        return model.encoder(torch.stack([model.transform(photo(seed=seed)) for seed in range(count)]))


def unchanged(weights: Tensor, step: int, grid: Grid) -> Tensor:
    return weights


def attend(model: Captioner, queries: int, edit: Edit, steps: int = 1) -> list:
    """The outputs of some steps of the captioner's attention under an edit, and the regions that they read."""
    attention = model.decoder.attention
    memory = model.project(encoded()).projected[0]
    state = attention.start(memory, queries)
    outputs = []
    torch.manual_seed(3)
    with edit_maps(model.decoder, edit, GRIDS):
        for _ in range(steps):
            outputs.append(attention(Query(torch.randn(2, queries, 7)), memory, state))
            state = outputs[-1].state
    return [*outputs, memory.values]


# -- steps, unrolls and searches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [Softmax, Multinoulli, lambda: Multinoulli(at_test="argmax")])
@pytest.mark.parametrize("edit", [unchanged, lambda weights, step, grid: weights.clone()])
def test_an_edit_that_returns_its_argument_changes_nothing(alignment, edit):
    model = build_model(alignment())
    expected = model.generate(encoded())
    with edit_maps(model.decoder, edit, GRIDS):
        hypotheses = model.generate(encoded())
    for ours, theirs in zip(leaves(hypotheses), leaves(expected), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_search_reads_the_given_region_at_the_given_steps():
    model = build_model()
    with edit_maps(model.decoder, lambda w, step, grid: onto(5) if step in (0, 2) else w, GRIDS):
        hypotheses = model.generate(encoded())
    weights, lengths = hypotheses.trace.weights, hypotheses.lengths
    assert lengths.min() > 3
    for step in range(4):
        forced = (weights[:, :, step] == onto(5)).all(-1)
        assert forced.all() == (step in (0, 2))
        assert forced.any() == (step in (0, 2))


def test_an_unroll_is_edited_as_its_steps_are():
    model = build_model()

    def edit(weights: Tensor, step: int, grid: Grid) -> Tensor:
        return onto(7) if step == 1 else weights.flip(-1)

    memory = model.project(encoded())
    words = torch.tensor([[[START, 4, 5, 6], [START, 7, 0, 0]], [[START, 6, 5, 0], [START, 8, 4, 7]]])
    lengths = torch.tensor([[4, 2], [3, 4]])
    plain = model.decoder(memory, words, lengths)
    with edit_maps(model.decoder, edit, GRIDS):
        unrolled = model.decoder(memory, words, lengths)
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))
    weights = unrolled.unpack(unrolled.trace.weights)
    assert not torch.allclose(unrolled.logits, plain.logits)
    state = model.decoder.start(memory, 2)
    with edit_maps(model.decoder, edit, GRIDS):
        for step in range(4):
            stepped, state = model.decoder.step(state, words[:, :, step])
            running = lengths > step
            assert torch.allclose(log_probs[:, :, step][running], stepped[running], atol=1e-5)
            assert torch.allclose(weights[:, :, step][running], state.trace.weights[running], atol=1e-6)
    assert (weights[:, :, 1][lengths > 1] == onto(7)).all()


# -- the input of an edit, and the context -------------------------------------------------------------------------


def test_the_context_is_the_average_under_the_edited_weights():
    received: dict[tuple[int, Grid], Tensor] = {}

    def edit(weights: Tensor, step: int, grid: Grid) -> Tensor:
        received[step, grid] = weights
        return torch.stack((onto(3), onto(4), (onto(1) + onto(2)) / 2))  # one for each of K queries

    model = build_model()
    output, values = attend(model, 3, edit)
    assert torch.allclose(output.context[:, 0], values[:, 3])
    assert torch.allclose(output.context[:, 1], values[:, 4])
    assert torch.allclose(output.context[:, 2], (values[:, 1] + values[:, 2]) / 2, atol=1e-6)
    assert output.weights.shape == output.maps.shape == (2, 3, REGIONS)
    assert torch.equal(output.weights[1, 2], (onto(1) + onto(2)) / 2)
    plain, _ = attend(model, 3, unchanged)
    assert list(received) == [(0, (8, 8))]
    assert torch.equal(received[0, (8, 8)], plain.weights)  # the mechanism's own map


# -- mechanisms that sample ----------------------------------------------------------------------------------------


def test_argmax_reads_the_best_region_of_the_edited_weights():
    def edit(weights: Tensor, step: int, grid: Grid) -> Tensor:
        return (3 * onto(9) + onto(10)) / 8 if step else weights  # of which half is left

    first, second, values = attend(build_model(Multinoulli(at_test="argmax")), 1, edit, steps=2)
    assert torch.equal(first.location, first.weights.argmax(-1))
    assert (second.location == 9).all()
    assert torch.allclose(second.log_prob, torch.tensor(3 / 4).log())
    assert torch.allclose(second.context[:, 0], values[:, 9])
    assert torch.equal(second.weights[0, 0], (3 * onto(9) + onto(10)) / 8)  # α, not the sample


@pytest.mark.parametrize("alignment", [Multinoulli, GumbelSoftmax])
def test_samples_come_from_the_edited_weights(alignment: type[Multinoulli]):
    model = build_model(alignment(expectation=0.0))
    model.decoder.attention.train()
    output, values = attend(model, 4000, lambda weights, step, grid: (3 * onto(9) + onto(10)) / 4)
    assert set(output.location.flatten().tolist()) == {9, 10}
    share = (output.location == 9).float().mean().item()
    assert share == pytest.approx(3 / 4, abs=4 * math.sqrt(3 / 16 / 8000))
    assert torch.allclose(output.context[0], values[0, output.location[0]], atol=1e-6)
    if alignment is Multinoulli:
        expected = torch.where(output.location == 9, math.log(3 / 4), math.log(1 / 4))
        assert torch.allclose(output.log_prob, expected)


@pytest.mark.parametrize("at_test", ["argmax", "sample"])
@pytest.mark.parametrize("alignment", [Multinoulli, GumbelSoftmax])
def test_where_no_weight_is_left_nothing_is_chosen_or_read(alignment: type[Multinoulli], at_test: str):
    keep = torch.tensor([1.0, 0.0])[:, None]  # the first query's weights

    output, values = attend(
        build_model(alignment(at_test=at_test)),
        2,
        lambda weights, step, grid: onto(4).expand_as(weights) * keep,
    )
    assert output.location.tolist() == [[4, -1]] * 2
    assert torch.allclose(output.context[:, 0], values[:, 4], atol=1e-6)
    assert not output.context[:, 1].any()
    if alignment is Multinoulli:
        assert not output.log_prob.any()


# -- several maps, several mechanisms ------------------------------------------------------------------------------


class Two:
    """The mechanisms of a decoder that attends twice at each step."""

    compiled = False

    def __init__(self) -> None:
        self.attentions = {
            "before": ScoredAttention(GivenScores(), Softmax()),
            "after": MultiHeadAttention(2, 4),
        }
        self.attentions["after"].build((3,), QuerySizes(4))


VECTORS = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
HIDDEN = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(1))


def step(attention: Attention) -> tuple[Tensor, TensorTree, Tensor]:
    memory = attention.project(one_row(VECTORS))
    output = attention(Query(HIDDEN), memory, attention.start(memory, 5))
    return output.context, output.maps, output.weights


def test_all_mechanisms_are_edited():
    two = Two()
    before = [step(attention)[0] for attention in two.attentions.values()]
    with edit_maps(two, lambda maps, step, grid: maps.flip(-1), [(1, 4)]):
        after = [step(attention)[0] for attention in two.attentions.values()]
    assert not any(torch.allclose(a, b) for a, b in zip(before, after, strict=True))


def test_a_decoder_without_attention_is_refused():
    class Blind:
        compiled = False
        attentions: dict[str, Attention] = {}

    with (
        pytest.raises(UserError, match="Blind has no attention whose maps could be edited"),
        edit_maps(Blind(), unchanged, GRIDS),
    ):
        pass


# -- the context ---------------------------------------------------------------------------------------------------


def test_steps_are_counted_from_when_the_context_is_entered():
    model = build_model()
    steps: list[int] = []

    def note(weights: Tensor, step: int, grid: Grid) -> Tensor:
        steps.append(step)
        return weights

    attend(model, 2, note, steps=3)
    attend(model, 2, note, steps=2)
    assert steps == [0, 1, 2, 0, 1]


def test_contexts_are_nested_the_inner_edit_last():
    model = build_model()
    with edit_maps(model.decoder, lambda weights, step, grid: onto(3), GRIDS):
        output, _ = attend(model, 1, lambda weights, step, grid: (weights + onto(5)) / 2)
    assert torch.equal(output.weights[0, 0], (onto(3) + onto(5)) / 2)


def test_the_decoder_is_as_before_afterwards_even_after_an_error():
    model = build_model()
    expected = model.generate(encoded())

    def fail(weights: Tensor, step: int, grid: Grid) -> Tensor:
        if step == 2:
            raise KeyError
        return onto(0)

    with pytest.raises(KeyError), edit_maps(model.decoder, fail, GRIDS):
        model.generate(encoded())
    with edit_maps(model.decoder, lambda weights, step, grid: onto(0), GRIDS):
        model.generate(encoded())
    hypotheses = model.generate(encoded())
    assert all(
        torch.equal(ours, theirs) for ours, theirs in zip(leaves(hypotheses), leaves(expected), strict=True)
    )


def test_self_attention_is_recorded_in_the_context_alone() -> None:
    model = captioner(
        refiner=SelfAttentionRefiner(None, 3, 2),
        decoder=TransformerDecoder(MultiHeadAttention(2, 8), layers=1, hidden_size=8, heads=4, inner_size=12),
    )
    views, words = encoded(), torch.full((2, 3, 5), START)
    with torch.no_grad():
        expected = model.refine(views)[0].vectors
        with record_self_attention(model) as maps:
            assert maps == {}
            refined = model.refine(views)
            model.decoder(model.decoder.project(refined), words, torch.full((2, 3), 5))
        kept = dict(maps)
        model.refine(encoded(1))
    torch.testing.assert_close(refined[0].vectors, expected)
    assert {name: tuple(weights.shape) for name, weights in maps.items()} == {
        "refiner.views.0.layers.attend.0.product": (2, 3, REGIONS, REGIONS),
        "refiner.views.0.layers.attend.1.product": (2, 3, REGIONS, REGIONS),
        "decoder.layers.0.product": (2, 3, 4, 5, 5),
    }
    assert all(weights is kept[name] for name, weights in maps.items())
