"""Parts of decoders: the first state, cells, the read-out's dropout, the authors' first weights, word vectors, and the
names, properties and grids of their attention mechanisms. test_show_attend_and_tell_equations has the equations."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.loops import parameters
from helpers.tiny_decoder import HIDDEN, PAD, WORDS, decoder, images, sentences, unroll
from helpers.tiny_views import one_row
from torch import Tensor, nn

from caption import decoders
from caption.attention import AdditiveScore, Attention, Multinoulli, ScoredAttention, Softmax
from caption.core.errors import UserError
from caption.core.regions import WeightProperties
from caption.core.runtime.trust import make
from caption.decoders import (
    ConstantState,
    DeepOutput,
    GRUCell,
    InitialState,
    LinearOutput,
    MetaEmbedding,
    WordVectors,
)
from caption.decoders.cell_decoder import CellDecoder
from caption.decoders.word_embeddings import load_word_vectors
from caption.text.vocabulary import Vocabulary

# -- the first state -----------------------------------------------------------------------------------------------


def test_shared_layers_drop_the_same_units_for_both():
    torch.manual_seed(0)
    initial = InitialState(layers=2, activation="linear", shared=True).train()
    initial.build(region_size=40, hidden_size=2)
    initial.cell.load_state_dict(initial.hidden.state_dict())
    hidden, cell = initial(*one_row(torch.randn(1, 3, 40)))
    torch.testing.assert_close(hidden, cell)


def test_a_constant_state_ignores_the_image_and_is_learned():
    initial = ConstantState()
    initial.build(region_size=3, hidden_size=2)
    hidden, cell = initial(*one_row(torch.randn(4, 5, 3), torch.ones(4, 5, dtype=torch.bool)))
    assert hidden.shape == cell.shape == (4, 1, 2)
    (hidden[:, 0, 0].sum() + 2 * cell[:, 0, 1].sum()).backward()
    assert initial.hidden.grad.tolist() == [4, 0]
    assert initial.cell.grad.tolist() == [0, 8]


# -- cells ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [GRUCell, decoders.ResetBeforeGRUCell])
def test_the_state_of_a_gru_is_h_alone_in_single_precision_even_under_autocast(
    cell: type[decoders.RecurrentCell],
) -> None:
    """Unlike an LSTM's, its h is the sum over the steps."""
    model = decoder(cell=cell(), gate=decoders.Gate()).float()
    assert {name.partition(".")[0] for name, _ in model.initial.named_parameters()} == {"hidden"}
    with torch.autocast("cpu", torch.bfloat16):
        first = model.start(model.project(one_row(images(2).float())), hypotheses=3)
        _, second = model.step(first, torch.ones(2, 3, dtype=torch.long))
    for state in (first, second):
        assert state.carried.cell is None
        assert state.carried.hidden.shape == (2, 3, HIDDEN)
        assert state.carried.hidden.dtype == torch.float32


def fresh(kind: str, bias: float) -> CellDecoder:
    torch.manual_seed(0)
    if kind == "show and tell":
        model: CellDecoder = decoders.ShowAndTellDecoder(5, HIDDEN, forget_bias=bias)
    else:
        cell, initial = (GRUCell(), InitialState(dropout=0)) if kind == "gru" else (None, ConstantState())
        attention = decoder().attention
        model = decoders.ShowAttendAndTellDecoder(attention, 5, HIDDEN, initial, forget_bias=bias, cell=cell)
    model.build((3,), 7, padding=0, start=1)
    return model


@pytest.mark.parametrize("kind", ["lstm", "gru", "show and tell"])
def test_fresh_weights(kind: str) -> None:
    """The columns of h are orthogonal block by block; the bias that is asked for is that of the gate that keeps h."""
    plain, remembering = fresh(kind, 0.0), fresh(kind, 1.5)
    for weight in plain.cell.recurrent_weights():
        for block in weight[:, :HIDDEN].split(HIDDEN):
            torch.testing.assert_close(block @ block.T, torch.eye(HIDDEN))
    added = torch.tensor([0, 1.5, 0, 0][: plain.cell.blocks]).repeat_interleave(HIDDEN)
    torch.testing.assert_close(remembering.cell.from_word.bias - plain.cell.from_word.bias, added)
    if kind != "show and tell":
        assert not plain.cell.from_word.bias.any()


# -- the read-out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readout", [DeepOutput(dropout=1.0), LinearOutput(dropout=1.0)])
def test_dropout_of_everything_leaves_the_bias(readout: DeepOutput | LinearOutput):
    readout.build(2, 3, 4, 5)
    logits = readout.train()(torch.randn(1, 2), torch.randn(1, 3), torch.randn(1, 4))
    torch.testing.assert_close(logits[0], readout.to_words.bias)


def test_the_state_is_left_out_as_a_whole_at_a_share_of_the_training_steps():
    readout = DeepOutput(dropout=0.0, without_hidden=0.25)
    readout.build(embedding_size=4, hidden_size=3, context_size=5, vocabulary_size=6)
    embedded, hidden, context = (torch.randn(2000, size) for size in (4, 3, 5))
    whole = readout.eval()(embedded, hidden, context)
    of_context = readout.to_words(embedded + readout.from_context(context))
    logits = readout.train()(embedded, hidden, context)
    left_out = (logits == of_context).all(-1)
    assert torch.equal(logits[~left_out], whole[~left_out])
    assert left_out.float().mean() == pytest.approx(0.25, abs=0.04)  # four standard deviations


# -- tied weights --------------------------------------------------------------------------------------------------


def top_down(embedding_size: int) -> decoders.TopDownDecoder:
    attention = ScoredAttention(AdditiveScore(6), Softmax())
    model = decoders.TopDownDecoder(attention, embedding_size, hidden_size=4, tie_weights=True)
    model.build((3,), WORDS, padding=0, start=1)
    return model


@pytest.mark.parametrize("kind", ["lstm", "top-down"])
def test_both_uses_train_one_parameter(kind: str):
    model = decoder(tie_weights=True) if kind == "lstm" else top_down(4).double()
    last = model.readout.to_words if kind == "lstm" else model.to_words
    assert last.weight is model.embed.weight
    lengths = torch.tensor([[2]])
    words = sentences(lengths)
    unroll(model, images(1), words, lengths).logits.logsumexp(-1).sum().backward()
    rows = model.embed.weight.grad.abs().sum(1)
    assert (rows > 0).all()  # the read-out uses every word, the input only two
    assert sum(parameter is last.weight for parameter in model.parameters()) == 1


def test_they_stay_one_in_copies_and_after_loading():
    model = decoder(tie_weights=True)
    made = make(model.spec, decoders.ShowAttendAndTellDecoder)
    made.build((3,), WORDS, padding=0, start=1)
    for other in (copy.deepcopy(model), made):
        other.load_state_dict(model.state_dict())
        assert other.readout.to_words.weight is other.embed.weight
        assert torch.equal(other.embed.weight.double(), model.embed.weight)
    with pytest.raises(UserError, match="embedding_size is 5 and the input has 4"):
        top_down(5)
    with pytest.raises(UserError, match="embedding_size is 5 and the input has 4"):
        decoder(tie_weights=True, readout=LinearOutput())


# -- the authors' first weights -------------------------------------------------------------------------------------

SIZE = 48
"""Of everything: region vectors, comparison, word vectors and state, so that all matrices but a few are square."""


def arctic(embedding_size: int = SIZE, **options: object) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = decoders.ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(SIZE, layers=2), Multinoulli()),
        embedding_size,
        SIZE,
        initial=InitialState(layers=2, shared=True),
        gate=decoders.Gate(),
        readout=DeepOutput(),
        **{"first_weights": "arctic", **options},  # type: ignore[arg-type]
    )
    model.build((SIZE,), 60, padding=0, start=1)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def orthogonal(weight: Tensor) -> bool:
    return torch.allclose(weight @ weight.T, torch.eye(len(weight)), atol=1e-5)


def normal(weight: Tensor) -> bool:
    """Centred, with standard deviation 0.01, to three standard errors."""
    errors = 3 * 0.01 / weight.numel() ** 0.5
    return abs(weight.mean()) < errors and abs(weight.std() - 0.01) < errors


def test_square_matrices_are_orthogonal_and_others_small():
    """By capgen.py: `norm_weight` of ff_init, ff_state, ff_memory, ff_logit_lstm, ff_logit_ctx, Wd_att, and of Wemb,
    ff_logit, U_att, W_sel; `ortho_weight` of W_att_1 and U; `norm_weight` of Wc to 4 dim; Wc_att with ortho=False."""
    weights = arctic()
    gates, context = weights.pop("cell.from_state.weight").split(SIZE, 1)
    assert all(orthogonal(gate) for gate in gates.chunk(4))
    assert normal(context)
    assert all(orthogonal(gate) for gate in weights.pop("cell.from_word.weight").chunk(4))
    small = {
        "embed.weight",
        "readout.to_words.weight",
        "gate.project.weight",
        "attention.score.region.weight",
    }
    assert weights.pop("attention.score.energy.weight").abs().max() < 0.05
    assert {name for name, weight in weights.items() if weight.dim() == 2 and not orthogonal(weight)} == small
    assert all(normal(weights[name]) for name in small)
    biases = [weight for weight in weights.values() if weight.dim() == 1]
    assert len(biases) == 9
    assert not any(bias.any() for bias in biases)


def test_words_of_another_length_are_small_the_forget_bias_is_added_and_the_default_is_pytorchs():
    weights = arctic(embedding_size=20, forget_bias=1.5)
    assert normal(weights["cell.from_word.weight"])
    assert normal(weights["readout.from_hidden.weight"])
    assert weights["cell.from_word.bias"].chunk(4)[1].tolist() == [1.5] * SIZE
    assert not normal(arctic(first_weights="pytorch")["readout.to_words.weight"])
    with pytest.raises(UserError, match=r"pytorch.*arctic"):
        arctic(first_weights="theano")


# -- word vectors -------------------------------------------------------------------------------------------------


def test_it_is_the_equation_and_shares_can_be_forced():
    torch.manual_seed(0)
    embedding, words = MetaEmbedding((WordVectors(3), WordVectors(4))), torch.tensor([[3, 1, 6], [2, 2, 5]])
    embedding.build(WORDS, 5, PAD)
    p = parameters(embedding.double())
    projected = np.stack(
        [
            p[f"tables.{n}.table.weight"][words.numpy()] @ p[f"project.{n}.weight"].T + p[f"project.{n}.bias"]
            for n in range(2)
        ]
    )  # (J, 2, 3, E)
    scores = (projected @ p["score.weight"].T)[..., 0]
    shares = np.exp(scores) / np.exp(scores).sum(0)
    expected = (shares[..., None] * projected).sum(0)
    np.testing.assert_allclose(embedding(words).detach().numpy(), expected, rtol=1e-12)

    def first_only(module: object, args: object, given: Tensor) -> Tensor:
        np.testing.assert_allclose(given.detach().numpy(), np.moveaxis(shares, 0, -1))
        return torch.tensor([1.0, 0.0], dtype=given.dtype).expand_as(given)

    with embedding.shares.register_forward_hook(first_only):  # type: ignore[attr-defined]
        forced = embedding(words)
    np.testing.assert_allclose(forced.detach().numpy(), projected[0])


VOCABULARY = Vocabulary(["dog", "cat", "runs"])


@pytest.mark.parametrize("head", ["", "3 2\n"], ids=["GloVe", "word2vec"])
def test_vectors_are_read_for_the_words_that_the_file_has(tmp_path: Path, head: str):
    (tmp_path / "vectors.txt").write_text(head + "cat 1 2\nbird 3 4\ndog -1e-1 .5\n", encoding="utf-8")
    table = WordVectors(2, str(tmp_path / "vectors.txt"), frozen=True)
    table.build(len(VOCABULARY), PAD)
    before = table.table.weight.clone()
    assert load_word_vectors(torch.nn.ModuleList([table]), VOCABULARY) == {table.file: 2}
    weight = table.table.weight
    assert not weight.requires_grad
    torch.testing.assert_close(weight[VOCABULARY["cat"]], torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(weight[VOCABULARY["dog"]], torch.tensor([-0.1, 0.5]))
    assert torch.equal(weight[VOCABULARY["runs"]], before[VOCABULARY["runs"]])


def test_words_with_spaces_blank_lines_tabs_and_a_byte_order_mark_of_files_of_vectors(tmp_path: Path):
    lines = ["\ufeffcat 1 2", "", ". . 3 4", "\x85 5 6", "at name@domain 7 8", "dog\t9\t10"]
    (tmp_path / "vectors.txt").write_text("\n".join(lines), encoding="utf-8")
    table = WordVectors(2, str(tmp_path / "vectors.txt"))
    table.build(len(VOCABULARY), PAD)
    assert table.load(VOCABULARY) == 2
    rows = table.table.weight[[VOCABULARY["cat"], VOCABULARY["dog"]]]
    torch.testing.assert_close(rows, torch.tensor([[1.0, 2.0], [9.0, 10.0]]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat 1 2 3\n", r"line 1 of .* has 3 numbers, but size is 2: give the length"),
        ("cat 1 x\n", "cannot be read as a file of word vectors"),
        ("bird 1 2\n", "has no vector for any of the"),
        (None, "does not exist"),
    ],
)
def test_a_file_of_vectors_that_does_not_fit_is_refused(tmp_path: Path, text: str | None, message: str):
    path = tmp_path / "vectors.txt"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    table = WordVectors(2, str(path))
    table.build(len(VOCABULARY), PAD)
    with pytest.raises(UserError, match=message):
        table.load(VOCABULARY)


# -- attention mechanisms -----------------------------------------------------------------------------------------


class Named(Attention):
    """An attention that declares given properties; its penalty is the mean of its map."""

    def __init__(self, map_name: str = "weights", view: int = 0, **properties: bool) -> None:
        super().__init__()
        self.map_name, self.map_views = map_name, {map_name: view}
        self.properties = WeightProperties(**properties)

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor | None:
        return maps[self.map_name].mean() if self.map_name in maps else None


class Several(decoders.Decoder):
    """A decoder with the given parts."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def test_attentions_are_listed_by_dotted_name_in_order_without_those_inside_others():
    layers = nn.ModuleList(nn.ModuleDict({"cross": Named(), "feed": nn.Linear(1, 1)}) for _ in range(2))
    model = Several(top=Named(), layers=layers, readout=nn.Linear(1, 1), top_2=Named())
    model.top.steps = nn.ModuleList([Named(signed=True)])
    assert list(model.attentions) == [
        "top",
        "layers.0.cross",
        "layers.1.cross",
        "top_2",
    ]  # "top" is a prefix of it
    assert model.attentions["layers.1.cross"] is layers[1]["cross"]
    assert not model.properties.signed


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ([{}], WeightProperties()),
        ([{}, {"sums_to_one": False}], WeightProperties(sums_to_one=False)),
        ([{}, {"sentinel": True}, {"signed": True}], WeightProperties(signed=True, sentinel=True)),
    ],
)
def test_properties_are_combined_over_attentions(declared: list[dict[str, bool]], expected: WeightProperties):
    model = Several(**{f"attention_{i}": Named(**properties) for i, properties in enumerate(declared)})
    assert model.properties == expected


def test_maps_are_given_their_grids_and_penalties_are_summed():
    model = Several(fine=Named("heads"), coarse=Named("level 2", view=1))
    assert model.map_grids([(14, 14), (7, 7)]) == {"heads": (14, 14), "level 2": (7, 7)}
    assert model.map_views == {"heads": 0, "level 2": 1}
    maps = {"heads": torch.full((5, 2, 6), 3.0), "level 2": torch.full((5, 4), 4.0)}
    assert model.penalty(maps) == 7
    assert Several(fine=Named("heads"), other=Named()).penalty(maps) == 3
    assert Several(only=Named()).penalty(maps) is None
