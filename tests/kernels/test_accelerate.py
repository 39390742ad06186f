"""Accelerated and plain models are equal: log-probabilities, maps and gradients, for every mechanism and decoder."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from helpers import mechanisms
from helpers.mechanisms import ATTENTIONS, DECODERS, OWN, OWN_DECODERS
from torch import Tensor, nn

from caption.attention import AdditiveScore
from caption.attention.map_hooks import edit_maps
from caption.attention.stochastic import override_draws, stochastic_parts
from caption.captioner import Captioner
from caption.core.regions import Views
from caption.core.tensor_tree import State, leaves
from caption.decoders import (
    DeepOutput,
    GRUCell,
    InitialState,
    ResetBeforeGRUCell,
    ShowAndTellDecoder,
    ShowAttendAndTellDecoder,
    TopDownDecoder,
)
from caption.decoders.base import Decoder
from caption.decoders.ensemble import in_order
from caption.kernels import accelerate, decelerate, plain
from caption.kernels import linear as products
from caption.kernels import unroll as unrolls
from caption.models import checkpoint

NAMES = [*ATTENTIONS, *OWN, *DECODERS, *OWN_DECODERS]
CELLS: dict[str, Callable[[], Decoder]] = {
    "gru": lambda: mechanisms.lstm(mechanisms.scored(), cell=GRUCell()),
    "reset before": lambda: mechanisms.lstm(mechanisms.scored(), cell=ResetBeforeGRUCell()),
    "show and tell": lambda: ShowAndTellDecoder(6, 7, dropout=0),
    "top down": lambda: TopDownDecoder(mechanisms.scored(), 7, 7, dropout=0),
}
LENGTHS = torch.tensor([[3, 0], [5, 2], [4, 4]])


@pytest.fixture(autouse=True)
def _everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every large or small weight is exchanged, on every processor."""
    monkeypatch.setattr(unrolls, "LARGE", 0)
    monkeypatch.setattr(products, "SMALL", 0)
    if products.fused_available():
        monkeypatch.setattr("caption.kernels.acceleration.least_outputs", lambda: 0)
        monkeypatch.setattr(products, "least_outputs", lambda: 0)


def made(name: str) -> Captioner:
    model = mechanisms.captioner(CELLS[name]() if name in CELLS else mechanisms.decoder(name))
    model.encoder.float()
    return model


def regions(model: Captioner, count: int, seed: int) -> Views:
    """Regions of random images, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    with torch.no_grad(), plain(model):
        return tuple(view._replace(vectors=view.vectors.double()) for view in model.encoder(images))


def unrolled(model: Captioner) -> list[Tensor]:
    """Logits, maps and a gradient of each parameter, from random captions; draws do not depend on chance."""
    generator = torch.Generator().manual_seed(0)
    views = regions(model, 3, seed=0)
    words = torch.randint(4, 8, (*LENGTHS.shape, int(LENGTHS.max())), generator=generator)
    if stochastic_parts(model):
        with override_draws(model, lambda weights: (weights[..., 0] * 1e5).long() % weights.shape[-1]):
            output = model.unroll(views, words, LENGTHS)
    else:
        output = model.unroll(views, words, LENGTHS)
    output = in_order(output)
    loss = output.unpack(output.logits.log_softmax(-1))[..., 1].sum()
    loss = loss + sum(
        (leaf.unflatten(0, (-1, 1)) ** 2).sum() for leaf in leaves(output.trace) if leaf.is_floating_point()
    )
    parameters = list(model.decoder.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    zeros = [torch.zeros_like(parameter) for parameter in parameters]
    return [
        *leaves((output.logits, output.trace, output.queries)),
        *(zero if grad is None else grad for grad, zero in zip(gradients, zeros, strict=True)),
    ]


def compare(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", [*NAMES, *CELLS])
def test_unrolls_are_equal(name: str, device: str):
    """Also the forms for a GPU, on a CPU."""
    model = made(name)
    names, expected, description = list(model.state_dict()), unrolled(model), model.description()
    accelerate(model, device)
    compare(unrolled(model), expected)
    assert list(model.state_dict()) == names
    assert model.description() == description
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    compare(unrolled(copied), expected)  # a copy has its own weights


@pytest.mark.parametrize("name", [*NAMES, *CELLS])
def test_searches_are_equal(name: str):
    model = made(name)
    views = regions(model, 2, seed=1)
    expected = model.generate(views)
    accelerate(model)
    found = model.generate(views)
    assert torch.equal(found.words, expected.words)
    compare(leaves((found.log_probs, found.trace)), leaves((expected.log_probs, expected.trace)))


def test_what_is_exchanged_is_named_and_can_be_undone():
    model = made("additive")
    before = [type(module) for module in model.modules()]
    exchanged = accelerate(model)
    assert "additive scores in tiles (1)" in exchanged
    assert "steps of running captions only (1)" in exchanged
    score = next(module for module in model.modules() if isinstance(module, AdditiveScore))
    assert type(score) is not AdditiveScore
    with plain(model):
        assert [type(module) for module in model.modules()] == before
    assert type(score) is not AdditiveScore
    decelerate(model)
    assert [type(module) for module in model.modules()] == before
    assert accelerate(nn.ReLU()) == "nothing"


def test_a_class_of_somebody_else_keeps_its_own_way():
    class Doubled(AdditiveScore):
        def forward(self, *args: Tensor, **options: Tensor) -> Tensor:
            return 2 * super().forward(*args, **options)

    torch.manual_seed(0)
    model = mechanisms.captioner(mechanisms.lstm(mechanisms.scored(Doubled(5))))
    model.encoder.float()
    expected = unrolled(model)
    accelerate(model)
    compare(unrolled(model), expected)


class WordsTwice(ShowAttendAndTellDecoder):
    """Its step applies the layer of the words to other vectors, too."""

    def advance(self, state: State, embedded: Tensor) -> tuple[State, tuple[Tensor, Tensor]]:
        return super().advance(state, embedded + self.cell.from_word(2 * embedded)[..., :6])


class Shifted(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + 1)


def test_steps_and_layers_of_somebody_else_keep_their_own_way():
    model = mechanisms.captioner(
        WordsTwice(mechanisms.scored(), 6, 7, readout=DeepOutput(dropout=0), initial=InitialState(dropout=0))
    )
    model.encoder.float()
    gate = model.decoder.attention.score.query
    shifted = Shifted(gate.in_features, gate.out_features, bias=False).double()
    shifted.load_state_dict(gate.state_dict())
    model.decoder.attention.score.query = shifted
    expected = unrolled(model)
    accelerate(model)
    compare(unrolled(model), expected)


def test_edits_of_maps_are_followed():
    model = made("additive")
    accelerate(model)
    views = regions(model, 1, seed=2)
    onto = nn.functional.one_hot(torch.tensor(5), 64).double()
    with edit_maps(model.decoder, lambda weights, step, grid: onto, [(8, 8)]):
        assert (model.generate(views).trace.weights == onto).all()


def test_a_checkpoint_of_an_accelerated_model_is_that_of_the_plain_one(tmp_path):
    model = made("additive").float()
    checkpoint.save(model, tmp_path / "plain.ckpt")
    accelerate(model)
    checkpoint.save(model, tmp_path / "accelerated.ckpt")
    files = [checkpoint.read(tmp_path / f"{name}.ckpt") for name in ("plain", "accelerated")]
    assert files[0]["captioner"] == files[1]["captioner"]
    assert list(files[0]["state_dict"]) == list(files[1]["state_dict"])
