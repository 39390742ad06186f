"""Models of the authors' code: every combination of options gives the log-probabilities, α, β and gradients of a NumPy
transcription; errors name arrays and options that do not fit.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import arctic_reference as reference
from helpers import gradients
from helpers.tiny_views import one_row

from caption.attention import Multinoulli
from caption.core.errors import UserError
from caption.decoders import ShowAttendAndTellDecoder
from caption.models.importers import arctic
from caption.models.importers.arctic import Options, read_options
from caption.text.vocabulary import PAD, START

SIZES = {"ctx_dim": 5, "dim": 4, "dim_word": 3, "n_words": 7}
SWITCHES = {
    "selector": (True, False),
    "prev2out": (True, False),
    "ctx2out": (True, False),
    "use_dropout": (True, False),
    "n_layers_att": (2, 1),
    "n_layers_init": (2, 1),
}
COMBINATIONS = [
    {
        name: values[bit]
        for (name, values), bit in zip(SWITCHES.items(), (a, b, c, a ^ b, a ^ c, b ^ c), strict=True)
    }
    for a, b, c in itertools.product((0, 1), repeat=3)
]
"""Eight, in which each pair of switches stands in all four ways."""
ALL_ON = {**SIZES, **COMBINATIONS[0], "attn_type": "deterministic"}
WORDS = ["a", "dog", "runs", "away", "now"]
REGIONS = np.random.default_rng(1).normal(size=(2, 6, SIZES["ctx_dim"]))
CAPTIONS = np.array([[2, 6, 1, 0], [3, 3, 4, 0]])  # ids of the authors' code
SHIFT = 2  # offset of this package's ids


def named(options: dict[str, Any]) -> str:
    return " ".join(f"{name}={int(value)}" for name, value in options.items())


def write(
    folder: Path, options: dict[str, Any], arrays: dict[str, Any], words: list[str] = WORDS
) -> list[str]:
    model, settings, vocabulary = folder / "model.npz", folder / "options.json", folder / "words.txt"
    np.savez(model, **arrays)
    settings.write_text(json.dumps(options))
    vocabulary.write_text("".join(f"{word}\n" for word in words))
    return [str(model), str(settings), str(vocabulary)]


def built(imported: ShowAttendAndTellDecoder) -> ShowAttendAndTellDecoder:
    imported.build((SIZES["ctx_dim"],), SIZES["n_words"] + SHIFT, padding=PAD, start=START)
    return imported.eval()


def check(decoder: ShowAttendAndTellDecoder, expected: reference.Result) -> None:
    captions = gradients.packed((CAPTIONS + SHIFT).tolist())
    memory = decoder.project(one_row(torch.tensor(REGIONS).float()))
    with torch.no_grad():
        unrolled = decoder(memory, captions.words, captions.lengths)
    log_probs = unrolled.unpack(unrolled.logits).log_softmax(-1)[:, 0]
    np.testing.assert_allclose(log_probs[..., SHIFT:], expected.log_probs, atol=1e-5)
    assert (log_probs[..., :SHIFT].exp() == 0).all()
    assert log_probs.isfinite().all()
    np.testing.assert_allclose(unrolled.unpack(unrolled.trace.weights)[:, 0], expected.alphas, atol=1e-5)
    if decoder.gate is not None:
        np.testing.assert_allclose(unrolled.unpack(unrolled.trace.gate)[:, 0], expected.betas, atol=1e-5)


def imported_from(folder: Path, options: dict[str, Any], arrays: dict[str, Any]) -> ShowAttendAndTellDecoder:
    imported = arctic.read(*write(folder, options, arrays))
    decoder = built(imported.decoder)
    decoder.load_state_dict(imported.weights)
    return decoder


DEEPER = [{**COMBINATIONS[0], name: 3} for name in ("n_layers_att", "n_layers_init")]


@pytest.mark.parametrize("switches", [*COMBINATIONS, *DEEPER], ids=named)
def test_log_probabilities_maps_and_gradients_are_theirs(switches: dict[str, Any], tmp_path: Path):
    options = {**SIZES, **switches, "attn_type": "deterministic"}
    arrays = reference.parameters(options)
    check(imported_from(tmp_path, options, arrays), reference.run(arrays, options, REGIONS, CAPTIONS))
    settings, random = Options(**options), np.random.default_rng(2)
    decoder = built(arctic.decoder(settings)).double()
    convert, captions = partial(arctic.convert, options=settings), (CAPTIONS + SHIFT).tolist()
    ours = gradients.ours(decoder, "arctic_soft", convert, arrays, REGIONS, captions)
    directions = lambda shape: [np.asarray(random.normal(size=shape))]  # noqa: E731
    gradients.check(ours, lambda p: reference.loss(p, options, REGIONS, CAPTIONS), arrays, directions)


@pytest.mark.parametrize("use_dropout", [True, False])
def test_training_is_theirs(use_dropout: bool, tmp_path: Path, monkeypatch):
    """The authors' dropout does not rescale kept units in training, this package's does: with all units kept, both must
    agree. The first input stays zero."""
    options = {**ALL_ON, "n_layers_init": 3, "use_dropout": use_dropout}
    arrays = reference.parameters(options)
    decoder = imported_from(tmp_path, options, arrays).train()
    with torch.no_grad():
        decoder.embed.weight[START] += 1
    keep_all = lambda x, p, training, inplace: x / (1 - p) if training else x  # noqa: E731
    monkeypatch.setattr(torch.nn.functional, "dropout", keep_all)
    check(decoder, reference.run(arrays, options, REGIONS, CAPTIONS, noise=1.0))


# -- hard attention ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attention", "read"), [("stochastic", 2.5), ("deterministic", 1.0)])
def test_the_temperature_is_that_of_stochastic_attention(attention: str, read: float, tmp_path: Path):
    options = {**ALL_ON, "attn_type": attention, "temperature": 2.5}
    arrays = reference.parameters(options)
    expected = reference.run(arrays, {**options, "temperature": read}, REGIONS, CAPTIONS)
    check(imported_from(tmp_path, options, arrays), expected)


def test_in_training_it_samples_as_often_as_theirs():
    options = Options(**{**ALL_ON, "attn_type": "stochastic", "semi_sampling_p": 0.25})
    alignment = arctic.decoder(options).attention.alignment
    assert isinstance(alignment, Multinoulli)
    assert (alignment.expectation, alignment.share, alignment.at_test) == (0.75, "batch", "expectation")


# -- words -------------------------------------------------------------------------------------------------------


def test_words_beyond_n_words_are_unknown_to_the_model(tmp_path: Path):
    files = write(tmp_path, ALL_ON, reference.parameters(ALL_ON))
    Path(files[2]).write_bytes("\r\n".join([*WORDS, "rare", "rarer"]).encode())
    assert arctic.read(*files).words == WORDS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (WORDS[:4], r"words\.txt' has 4 words, and the model knows 5 \(option n_words"),
        ([*WORDS[:2], "", *WORDS[2:]], r"line 3 of '.*words\.txt' is ''"),
        (["a dog", *WORDS], r"line 1 of '.*words\.txt' is 'a dog'"),
        (["<eos>", "UNK", *WORDS], "begins with '<eos>': leave out ids 0 and 1"),
    ],
)
def test_words_that_do_not_fit_are_named(words: list[str], said: str, tmp_path: Path):
    with pytest.raises(UserError, match=said):
        arctic.read(*write(tmp_path, ALL_ON, reference.parameters(ALL_ON), words))


# -- options -----------------------------------------------------------------------------------------------------


def test_options_may_be_yaml_and_may_have_those_that_only_training_needs(tmp_path: Path):
    file = tmp_path / "options.yaml"
    text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in ALL_ON.items())
    file.write_text(text + "lrate: 0.01\nlstm_encoder: false\nn_layers_out: 1\nuse_dropout_lstm: 0\n")
    assert read_options(str(file)) == Options(**ALL_ON)


UNKNOWN = {"lstm_encoder": True, "n_layers_lstm": 2, "n_layers_out": 2, "use_dropout_lstm": True}
IMPOSSIBLE = {"attn_type": "local", "n_layers_att": 0, "ctx_dim": 5.5, "use_dropout": 0.5, "n_words": True}


@pytest.mark.parametrize(("name", "value"), [*UNKNOWN.items(), *IMPOSSIBLE.items(), ("temperature", "hot")])
def test_an_option_that_has_no_place_here_is_refused_by_name(name: str, value: Any, tmp_path: Path):
    options = {**ALL_ON, name: value}
    with pytest.raises(UserError, match=rf"option {name} in '.*options\.json' is {value!r}: ") as caught:
        arctic.read(*write(tmp_path, options, reference.parameters(ALL_ON)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ALL_ON)
def test_a_missing_option_is_named(name: str, tmp_path: Path):
    file = tmp_path / "options.json"
    file.write_text(json.dumps({key: value for key, value in ALL_ON.items() if key != name}))
    with pytest.raises(UserError, match=rf"options\.json' lacks the option {name}"):
        read_options(str(file))


@pytest.mark.parametrize(("name", "said"), [("o.json", "holds a JSON list"), ("o.yaml", "holds a list, not")])
def test_invalid_options_are_named(name: str, said: str, tmp_path: Path):
    (tmp_path / name).write_text("[1]")
    with pytest.raises(UserError, match=said):
        read_options(str(tmp_path / name))


# -- arrays ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scalar", [(), (1,), (1, 1)])
def test_single_numbers_may_have_dimensions_and_the_log_of_training_does_no_harm(scalar: Any, tmp_path: Path):
    arrays = reference.parameters(ALL_ON)
    reshaped = {name: arrays[name].reshape(scalar) for name in ("decoder_b_sel", "decoder_c_tt")}
    log = {"history_errs": np.zeros((3, 2)), "zipped_params": np.array({"W": 1}, dtype=object)}
    decoder = imported_from(tmp_path, ALL_ON, {**arrays, **reshaped, **log})
    check(decoder, reference.run(arrays, ALL_ON, REGIONS, CAPTIONS))


Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: {k: v for k, v in a.items() if k != "decoder_Wd_att"}, "lacks decoder_Wd_att"),
        (lambda a: {**a, "encoder_W": np.ones(3)}, "has encoder_W, which the imported model does not have"),
        (
            lambda a: {**a, "decoder_U": a["decoder_U"].T},
            r"decoder_U in .* has the shape \(16, 4\), .* \(4, 16\)",
        ),
        (lambda a: {**a, "decoder_b_sel": np.ones(2)}, "decoder_b_sel in .* has the shape"),
        (lambda a: {**a, "Wemb": a["Wemb"] * np.nan}, "Wemb in .* not finite"),
        (lambda a: {**a, "Wemb": a["Wemb"].astype(int)}, "Wemb in .* not finite or not floating-point"),
        (lambda a: {**a, "Wemb": np.array([{}], dtype=object)}, "not an .npz of arrays.*Wemb"),
    ],
)
def test_arrays_that_do_not_fit_are_named(change: Change, said: str, tmp_path: Path):
    with pytest.raises(UserError, match=said):
        arctic.read(*write(tmp_path, ALL_ON, change(reference.parameters(ALL_ON))))


FAULTS: dict[str, Callable[[Path], object]] = {
    r"not an \.npz .*not a zip file": lambda path: path.write_bytes(b"\x80\x02}."),
    r"not an \.npz .*not a zip": lambda path: path.write_bytes(path.read_bytes()[:2000]),
    r"not an \.npz .*compressed record .* any size": lambda path: np.savez_compressed(path, Wemb=np.ones(9)),
}


@pytest.mark.parametrize(("said", "damage"), FAULTS.items(), ids=FAULTS)
def test_files_that_are_not_npz_are_named(said: str, damage: Callable[[Path], object], tmp_path: Path):
    files = write(tmp_path, ALL_ON, reference.parameters(ALL_ON))
    damage(Path(files[0]))
    with pytest.raises(UserError, match=said):
        arctic.read(*files)
