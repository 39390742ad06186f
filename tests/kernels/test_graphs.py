"""CUDA graphs of unrolls and steps, on a CPU (`helpers.cpu_graphs`): equal to the plain form, or the plain form."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import mechanisms
from helpers.cpu_graphs import CPUGraphs, address
from helpers.mechanisms import ATTENTIONS, DECODERS, OWN, OWN_DECODERS
from torch import Tensor, nn

from caption.attention.map_hooks import edit_maps
from caption.attention.stochastic import stochastic_parts
from caption.captioner import Captioner
from caption.core.batch import CaptionBatch
from caption.core.regions import Views
from caption.core.tensor_tree import leaves
from caption.decoders import GRUCell, ResetBeforeGRUCell, ShowAndTellDecoder, TopDownDecoder
from caption.decoders.base import Decoder
from caption.decoders.unroll import RecurrentDecoder
from caption.kernels import accelerate, cuda_graph, graphs, plain, recording
from caption.kernels import unroll as unrolls
from caption.objectives import LeaveOneOut, Reinforce
from caption.search import BeamSearch, Greedy

RECURRENT: dict[str, Callable[[], Decoder]] = {
    name: lambda name=name: mechanisms.decoder(name)  # type: ignore[misc]
    for name in [*ATTENTIONS, *OWN, *DECODERS, *OWN_DECODERS]
    if isinstance(mechanisms.decoder(name), RecurrentDecoder)
} | {
    "gru": lambda: mechanisms.lstm(mechanisms.scored(), cell=GRUCell()),
    "reset before": lambda: mechanisms.lstm(mechanisms.scored(), cell=ResetBeforeGRUCell()),
    "show and tell": lambda: ShowAndTellDecoder(6, 7),
    "top down": lambda: TopDownDecoder(mechanisms.scored(), 7, 7),
}
QUICK = ("additive", "hard", "show_and_tell", "top down")
"""The others are nightly."""
RECURRENT_CASES = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.nightly, id=name) for name in RECURRENT
]
BATCHES = [
    [[3, 0], [5, 2], [4, 4]],
    [[6, 1], [2, 8], [1, 3]],
    [[2, 2], [1, 0], [3, 3]],
    [[7, 7], [7, 1], [0, 2]],
]
"""Lengths of captions, two numbers of words for each of two graphs."""


LENGTHS = [[4, 4], [4, 2], [1, 3]]


@pytest.fixture
def cpu_graphs(monkeypatch: pytest.MonkeyPatch) -> CPUGraphs:
    monkeypatch.setattr(unrolls, "LARGE", 0)
    return CPUGraphs(monkeypatch)


def made(name: str = "additive", training: bool = True, **options: Any) -> Captioner:
    """A model whose decoder drops out units and samples."""
    model = mechanisms.captioner(RECURRENT[name](), **options)
    for part in model.decoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.3
    model.encoder.float()
    return model.train(training)


def regions(model: Captioner, seed: int, count: int = 3) -> Views:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    dtype = next(model.decoder.parameters()).dtype
    with torch.no_grad(), plain(model):
        views = model.encoder.eval()(images)
    return tuple(view._replace(vectors=view.vectors.to(dtype)) for view in views)


def unroll(model: Captioner, lengths: list[list[int]], seed: int) -> tuple[Tensor, list[Tensor]]:
    """A loss of random captions, and logits, maps and queries."""
    steps = torch.tensor(lengths)
    generator = torch.Generator().manual_seed(seed)
    views = regions(model, seed)
    words = torch.randint(4, 8, (*steps.shape, int(steps.max())), generator=generator)
    torch.manual_seed(seed)
    output = model.unroll(views, words, steps)
    loss = output.logits.log_softmax(-1)[:, 1].sum() + output.trace.weights.square().sum()
    if output.trace.log_prob is not None:
        loss = loss + output.trace.log_prob.sum()
    return loss, leaves((output.logits, output.trace, output.queries))


def trained(model: Captioner) -> list[list[Tensor | None]]:
    """Outputs, gradients and buffers after each batch; every second one adds to the gradients of the first."""
    results: list[list[Tensor | None]] = []
    for number, lengths in enumerate(BATCHES):
        if number % 2 == 0:
            model.zero_grad()
        loss, outputs = unroll(model, lengths, number)
        with torch.autocast("cpu", enabled=False):  # as in training; parts of it are in float32 on purpose
            loss.backward()
        grads = [weight.grad for weight in model.decoder.parameters()]
        found = [*outputs, *grads, *model.decoder.buffers(), torch.get_rng_state()]
        results.append([None if tensor is None else tensor.detach().clone() for tensor in found])
    return results


def compare(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, list):
            compare(one, other)
        elif other is None:
            assert one is None
        else:
            torch.testing.assert_close(one, other, equal_nan=True)


def expected_of(model: Captioner, run: Callable[[Captioner], Any]) -> Any:
    """The result of a copy without graphs."""
    copied = copy.deepcopy(model)
    accelerate(copied, "cuda")
    return run(copied)


@pytest.mark.parametrize("name", RECURRENT_CASES)
def test_training_is_equal(name: str, cpu_graphs: CPUGraphs, monkeypatch: pytest.MonkeyPatch):
    """With dropout and samples, over batches of several lengths, and with gradients summed over two batches.

    Unrolls are not made longer, which would draw more; the next test does so.
    """
    monkeypatch.setattr(graphs, "MULTIPLE", 1)
    model = made(name)
    first, second = expected_of(model, lambda copied: [trained(copied), trained(copied)])
    accelerate(model, "cuda", graphs=True)
    compare(trained(model), first)
    assert cpu_graphs.recorded == 2 * len(BATCHES)
    assert not graphs.recordings(model.decoder).failed
    before = cpu_graphs.replays
    compare(trained(model), second)
    assert cpu_graphs.recorded == 2 * len(BATCHES)
    assert cpu_graphs.replays == before + 2 * len(BATCHES)


@pytest.mark.parametrize("name", ["additive", "show_and_tell"])
def test_a_recording_shares_no_parameter_with_graphs_that_are_alive(
    name: str, cpu_graphs: CPUGraphs, monkeypatch: pytest.MonkeyPatch
):
    """Such as that of the projected regions: autograd waits for their streams, which no recording can."""
    model = made(name)
    accelerate(model, "cuda", graphs=True)
    recorded: list[Tensor] = []
    record = cuda_graph.record

    def watched(run: Callable[[], Any], pool: Any) -> Any:
        replay, result = record(run, pool)
        nodes: list[Any] = [tensor.grad_fn for tensor in leaves(result) if tensor.grad_fn is not None]
        seen = {*nodes}
        for node in nodes:
            recorded.extend([node.variable] if hasattr(node, "variable") else [])
            further = {following for following, _ in node.next_functions if following is not None} - seen
            nodes += further
            seen |= further
        return replay, result

    monkeypatch.setattr(cuda_graph, "record", watched)
    trained(model)
    own = {id(weight): weight.data_ptr() for weight in model.decoder.parameters()}
    assert {*own.values()} & {weight.data_ptr() for weight in recorded}  # in the same memory
    assert not own.keys() & {id(weight) for weight in recorded}
    assert [id(weight) for weight in model.decoder.parameters()] == [*own]


@pytest.mark.parametrize("name", ["additive", "hard", "gru"])
def test_a_graph_serves_captions_of_several_lengths(name: str, cpu_graphs: CPUGraphs):
    model = made(name)
    for part in model.decoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    if stochastic_parts(model):
        model.eval()
    expected = expected_of(model, trained)
    accelerate(model, "cuda", graphs=True)
    found = trained(model)
    compare([result[:-1] for result in found], [result[:-1] for result in expected])
    assert cpu_graphs.recorded == 4  # of 4 and 8 words, forward and backward


@pytest.mark.parametrize("name", RECURRENT_CASES)
def test_searches_are_equal(name: str, cpu_graphs: CPUGraphs):
    model = made(name, training=False)

    def run(model: Captioner) -> list[list[Tensor]]:
        found = []
        with torch.inference_mode():
            for search in (Greedy(6), BeamSearch(3, 6)):
                for seed in range(2):
                    result = model.generate(regions(model, seed), search)
                    found.append([result.words, result.log_probs, *leaves(result.trace)])
        return found

    expected = expected_of(model, run)
    accelerate(model, "cuda", graphs=True)
    compare(run(model), expected)
    assert cpu_graphs.replays
    assert not graphs.recordings(model.decoder).failed


@torch.no_grad()
def test_what_a_search_passes_at_each_step_is_copied_once(cpu_graphs: CPUGraphs):
    model, words = made(training=False), torch.full((3, 1), 5)
    accelerate(model, "cuda", graphs=True)
    memory = model.project(regions(model, 0))
    before = model.decoder.start(memory)
    first, after = model.decoder.step(before, words)
    shared = [own for own in graphs.recordings(model.decoder).inputs.values() if own.shape[1:] == (64, 6)]
    versions = [own._version for own in shared]
    second, _ = model.decoder.step(after, words)
    assert [own._version for own in shared] == versions
    assert not torch.equal(second, first)
    memory.views[0].vectors.mul_(2)
    changed, _ = model.decoder.step(after, words)
    assert [own._version for own in shared] != versions
    compare([changed], expected_of(model, lambda other: [other.decoder.step(after, words)[0]]))


def test_a_second_unroll_before_the_backward_pass_is_plain(cpu_graphs: CPUGraphs):
    """As with several samples of each caption."""
    model = made("hard", training=True)
    for part in model.decoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0

    def run(model: Captioner) -> list[Tensor | None]:
        model.zero_grad()
        first, _ = unroll(model, LENGTHS, 0)
        second, _ = unroll(model, LENGTHS, 1)
        with torch.no_grad():
            model.generate(regions(model, 2), Greedy(3))
        (first + second).backward()
        return [first.detach(), second.detach(), *(weight.grad for weight in model.decoder.parameters())]

    expected = expected_of(model, run)
    accelerate(model, "cuda", graphs=True)
    compare(run(model), expected)
    compare(run(model), expected)
    assert cpu_graphs.recorded == 2
    del expected
    unroll(model, LENGTHS, 2)  # whose backward pass never comes
    before = cpu_graphs.replays
    unroll(model, LENGTHS, 3)
    assert cpu_graphs.replays == before + 1


def test_reinforce_with_two_samples_is_equal(cpu_graphs: CPUGraphs):
    model = made("hard")
    for part in model.decoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    objective = Reinforce(LeaveOneOut(), samples=2)
    words, targets = torch.randint(4, 8, (2, 2, 3, 4))
    captions = CaptionBatch(words, targets, torch.tensor([[4, 2, 3], [1, 4, 4]]))

    def run(model: Captioner) -> list[Tensor | None]:
        model.zero_grad()
        torch.manual_seed(0)
        loss = objective(model, regions(model, 0, 2), captions)
        loss.value.backward()
        return [loss.value.detach(), *(weight.grad for weight in model.decoder.parameters())]

    expected = expected_of(model, run)
    accelerate(model, "cuda", graphs=True)
    compare(run(model), expected)
    assert cpu_graphs.replays


def test_autocast_belongs_to_the_graph(cpu_graphs: CPUGraphs):
    model = made(training=False).float()

    def run(model: Captioner) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            low = trained(model)
        return low, trained(model)

    expected = expected_of(model, run)
    accelerate(model, "cuda", graphs=True)
    compare(run(model), expected)
    assert cpu_graphs.recorded == 8
    weights = {address(weight) for weight in model.decoder.parameters()}
    for recorder in graphs.recordings(model.decoder).pool.recorders:
        read = [
            address(given[0]) for name, given, *_ in recorder.calls if name is torch.ops.aten._to_copy.default
        ]
        converted = [weight for weight in read if weight in weights]
        assert len(converted) == len(set(converted))


def test_a_model_that_is_not_on_a_gpu_takes_the_plain_form(caplog: pytest.LogCaptureFixture):
    model = made(training=False)
    expected = expected_of(model, trained)
    accelerate(model, "cuda", graphs=True)
    compare(trained(model), expected)
    assert not graphs.recordings(model.decoder).recorded
    assert not caplog.text


def test_a_graph_that_has_recorded_nothing_is_not_replayed(cpu_graphs: CPUGraphs, monkeypatch, caplog):
    """As if the GPU's work had gone to another stream: recording leaves the right numbers, once."""
    model = made(training=False)
    expected = expected_of(model, trained)
    monkeypatch.setattr(cuda_graph, "record", lambda run, pool: (recording.nothing, run()))
    accelerate(model, "cuda", graphs=True)
    compare(trained(model), expected)
    assert graphs.recordings(model.decoder).failed
    assert "differs from the plain form" in caplog.text


def test_a_second_backward_pass_is_refused(cpu_graphs: CPUGraphs):
    model = made(training=False)
    accelerate(model, "cuda", graphs=True)
    loss, _ = unroll(model, BATCHES[0], 0)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="has one backward pass"):
        loss.backward()


def test_a_decoder_with_a_module_that_moves_its_weights_takes_the_plain_form(cpu_graphs: CPUGraphs, caplog):
    model = made(training=False)
    model.decoder.another = nn.LSTM(2, 2)
    expected = expected_of(model, trained)
    accelerate(model, "cuda", graphs=True)
    compare(trained(model), expected)
    assert "nn.LSTM" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.eval(),
        lambda model: setattr(model.decoder.dropout, "p", 0.9),
        lambda model: model.decoder.attention.score.query.weight.requires_grad_(False),
        lambda model: setattr(
            model.decoder.readout.to_words,
            "bias",
            nn.Parameter(2 * model.decoder.readout.to_words.bias.detach()),
        ),
    ],
    ids=["mode", "attribute", "frozen", "other weight"],
)
def test_settings_have_graphs_of_their_own(change: Callable[[Any], None], cpu_graphs: CPUGraphs):
    model = made()
    accelerate(model, "cuda", graphs=True)
    trained(model)
    before = cpu_graphs.recorded
    change(model)
    unroll(model, BATCHES[0], 0)
    assert cpu_graphs.recorded == before + 2


def test_weights_that_learn_are_read(cpu_graphs: CPUGraphs):
    model = made(training=False)
    accelerate(model, "cuda", graphs=True)
    trained(model)
    before = cpu_graphs.recorded
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)
    compare(trained(model)[0][:1], expected_of(model, lambda copied: unroll(copied, BATCHES[0], 0)[1][:1]))
    assert cpu_graphs.recorded == before


def test_hooks_take_the_plain_form(cpu_graphs: CPUGraphs):
    model = made(training=False)
    accelerate(model, "cuda", graphs=True)
    views = regions(model, 0, 1)
    found = model.generate(views)
    before = cpu_graphs.replays
    onto = nn.functional.one_hot(torch.tensor(5), 64).double()
    with edit_maps(model.decoder, lambda weights, step, grid: onto, [(8, 8)]):
        assert (model.generate(views).trace.weights == onto).all()
    assert cpu_graphs.replays == before
    assert torch.equal(model.generate(views).trace.weights, found.trace.weights)
    assert cpu_graphs.replays > before


class Waits(nn.Module):
    """Asks for a number."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps if float(maps.detach().sum()) > 0 else 2 * maps


class Alternates(nn.Module):
    """Computes something else the next time."""

    calls: list[None] = []

    def forward(self, maps: Tensor) -> Tensor:
        self.calls.append(None)
        return maps * (1 + len(self.calls) % 7)


@pytest.mark.parametrize(
    ("part", "reason"), [(Waits, "waits for the GPU"), (Alternates, "differs from the plain form")]
)
def test_what_cannot_be_recorded_falls_back(
    part: type[nn.Module], reason: str, cpu_graphs: CPUGraphs, caplog: pytest.LogCaptureFixture
):
    model = made("additive", training=False)
    model.decoder.attention.maps = part()
    accelerate(model, "cuda", graphs=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            loss, _ = unroll(model, BATCHES[0], 0)
            loss.backward()
    assert caplog.text.count("no CUDA graph of a decoder's unroll") == 1
    assert reason in caplog.text
    assert cpu_graphs.replays <= 2
    assert model.decoder.attention.score.query.weight.grad is not None


def test_without_a_gpu_nothing_fails():
    model = made(training=False)
    expected = expected_of(model, trained)
    accelerate(model, "cuda", graphs=True)
    if not torch.cuda.is_available():
        compare(trained(model), expected)


def test_graphs_are_left_out_by_default_and_on_a_cpu():
    for device, asked, has in (("cuda", True, True), ("cuda", False, False), ("cpu", True, False)):
        model = made()
        accelerate(model, device, graphs=asked)
        assert isinstance(model.decoder, graphs.GraphedUnroll) == has


def test_a_copy_has_graphs_of_its_own(cpu_graphs: CPUGraphs):
    model = made(training=False)
    accelerate(model, "cuda", graphs=True)
    _, expected = unroll(model, BATCHES[0], 0)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    _, found = unroll(copied, BATCHES[0], 0)
    compare(found, expected)


def test_gradients_are_not_overwritten(cpu_graphs: CPUGraphs):
    model = made(training=False)
    accelerate(model, "cuda", graphs=True)
    weight = model.decoder.attention.score.query.weight
    (first,) = torch.autograd.grad(unroll(model, LENGTHS, 0)[0], [weight])
    kept = first.clone()
    (second,) = torch.autograd.grad(unroll(model, LENGTHS, 1)[0], [weight])
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)


def test_a_resumed_run_ends_with_the_same_bits(cpu_graphs: CPUGraphs):
    """With dropout and samples. What was recorded before the stop is recorded anew."""

    def learn(model: Captioner, batches: range) -> None:
        for number in batches:
            model.zero_grad()
            unroll(model, BATCHES[number % 4], number)[0].backward()
            with torch.no_grad():
                for weight in model.decoder.parameters():
                    if weight.grad is not None:
                        weight.sub_(weight.grad, alpha=0.01)

    model = made("hard")
    accelerate(model, "cuda", graphs=True)
    learn(model, range(3))
    stopped = copy.deepcopy(model)
    learn(model, range(3, 6))
    recorded = cpu_graphs.recorded
    learn(stopped, range(3, 6))
    assert cpu_graphs.recorded > recorded
    assert all(map(torch.equal, stopped.parameters(), model.parameters()))


def test_a_second_derivative_is_refused(cpu_graphs: CPUGraphs):
    model = made(training=False)
    accelerate(model, "cuda", graphs=True)
    loss, _ = unroll(model, BATCHES[0], 0)
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(loss, list(model.decoder.parameters()), create_graph=True, allow_unused=True)
