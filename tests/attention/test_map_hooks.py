"""Maps edited between weighing and reading, in steps, unrolls and searches."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from helpers import mechanisms
from helpers.tiny_captioner import captioner, photo
from torch import Tensor

from caption import attention as library
from caption.attention import Alignment, GumbelSoftmax, Multinoulli, Query, edit_maps
from caption.attention.map_hooks import Edit, Grid
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.core.tensor_tree import leaves
from caption.search import BeamSearch, Greedy
from caption.text.vocabulary import START

REGIONS = 64
GRIDS = [(8, 8)]


def onto(region: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(region), REGIONS).float()


def build_model(alignment: Alignment | None = None) -> Captioner:
    return captioner(search=BeamSearch(beam_size=3, max_length=6, candidates=3), alignment=alignment)


def encoded() -> Views:
    return build_model().encode([photo(seed=seed) for seed in range(2)])


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


@pytest.mark.parametrize("alignment", [library.Softmax, lambda: Multinoulli(at_test="argmax")])
@pytest.mark.parametrize(
    ("edit", "error"), [(unchanged, 0.0), (lambda weights, step, grid: weights.clone(), 1e-5)]
)
def test_an_edit_that_returns_its_argument_changes_nothing(alignment, edit, error):
    model = build_model(alignment())
    expected = model.generate(encoded())
    with edit_maps(model.decoder, edit, GRIDS):
        hypotheses = model.generate(encoded())
    for ours, theirs in zip(leaves(hypotheses), leaves(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=error, atol=error)


def test_a_search_reads_the_given_region_at_the_given_steps_and_later_ones_read_their_own():
    model = build_model()
    expected = model.generate(encoded())
    with edit_maps(model.decoder, lambda w, step, grid: onto(5) if step in (0, 2) else w, GRIDS):
        hypotheses = model.generate(encoded())
    assert hypotheses.lengths.min() > 3
    for step in range(4):
        forced = (hypotheses.trace.weights[:, :, step] == onto(5)).all(-1)
        assert forced.all() == forced.any() == (step in (0, 2))

    def fail(weights: Tensor, step: int, grid: Grid) -> Tensor:
        raise KeyError

    with pytest.raises(KeyError), edit_maps(model.decoder, fail, GRIDS):
        model.generate(encoded())
    again = model.generate(encoded())
    assert all(torch.equal(one, other) for one, other in zip(leaves(again), leaves(expected), strict=True))


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
    output, values = attend(model, 2000, lambda weights, step, grid: (3 * onto(9) + onto(10)) / 4)
    assert set(output.location.flatten().tolist()) == {9, 10}
    share = (output.location == 9).float().mean().item()
    assert share == pytest.approx(3 / 4, abs=4 * math.sqrt(3 / 16 / 4000))
    assert torch.allclose(output.context[0], values[0, output.location[0]], atol=1e-6)
    if alignment is Multinoulli:
        expected = torch.where(output.location == 9, math.log(3 / 4), math.log(1 / 4))
        assert torch.allclose(output.log_prob, expected)


@pytest.mark.parametrize("at_test", ["argmax", "sample"])
@pytest.mark.parametrize("alignment", [Multinoulli, GumbelSoftmax])
def test_where_no_weight_is_left_nothing_is_chosen_or_read(alignment: type[Multinoulli], at_test: str):
    keep = torch.tensor([1.0, 0.0])[:, None]  # the first query's weights
    model = build_model(alignment(at_test=at_test))
    output, values = attend(model, 2, lambda weights, step, grid: onto(4).expand_as(weights) * keep)
    assert output.location.tolist() == [[4, -1]] * 2
    assert torch.allclose(output.context[:, 0], values[:, 4], atol=1e-6)
    assert not output.context[:, 1].any()
    if alignment is Multinoulli:
        assert not output.log_prob.any()


def test_all_mechanisms_are_edited_and_a_decoder_without_any_is_refused():
    model = mechanisms.captioner(mechanisms.decoder("two attentions")).float()
    dimensions: list[int] = []

    def note(maps: Tensor, step: int, grid: Grid) -> Tensor:
        dimensions.append(maps.dim())
        return maps

    with edit_maps(model.decoder, note, GRIDS):
        model.generate(model.encode([photo()]), Greedy(1))
    assert dimensions == [3, 4]  # one map, and one of each head
    blind = SimpleNamespace(attentions={})
    refused = pytest.raises(UserError, match="has no attention whose maps could be edited")
    with refused, edit_maps(blind, unchanged, GRIDS):
        pass


def test_steps_are_counted_from_when_the_context_is_entered_and_the_inner_edit_comes_last():
    model = build_model()
    steps: list[int] = []

    def note(weights: Tensor, step: int, grid: Grid) -> Tensor:
        steps.append(step)
        return (weights + onto(5)) / 2

    attend(model, 2, note, steps=3)
    with edit_maps(model.decoder, lambda weights, step, grid: onto(3), GRIDS):
        output, *_ = attend(model, 1, note, steps=2)
    assert steps == [0, 1, 2, 0, 1]
    assert torch.equal(output.weights[0, 0], (onto(3) + onto(5)) / 2)
