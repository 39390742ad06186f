"""Importing models of the authors' code (kelvinxu/arctic-captions). Its equations differ from the paper's in places:

    e_i = U · tanh(P(a_i) + h[t-1] W_d) + c           P: affine, or affine and then tanh of affine (n_layers_att 2)
    α = softmax(temperature · e) ;  z = σ(h[t-1] W_sel + b_sel) Σ α_i a_i
    i, f, o, g = E y[t-1] W + h[t-1] U + z W_c + b
    h[0], c[0] = tanh of an affine layer of the mean region, behind the ReLU layers they share (n_layers_init 2)
    p = softmax(drop(tanh(L_h drop(h[t]) + E y[t-1] + L_z z)) W + b) ;  E y[0] = 0

Matrices are (in, out). The authors' dropout zeroes units in training and halves all units at test. Ours doubles the
kept units in training and changes nothing at test. With the factor 0.5 in the weights after it, both are equal in both
modes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caption.attention import AdditiveScore, Alignment, Multinoulli, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.core.errors import CheckpointError, DataError
from caption.core.runtime.inputs import MODEL, open_input
from caption.core.runtime.safe_loading import check_archive
from caption.data.text_files import read_json, read_text, read_yaml
from caption.decoders import DeepOutput, Gate, InitialState, ShowAttendAndTellDecoder
from caption.models.importers.assemble import Config, Imported, assemble, check_shapes
from caption.search import BeamSearch

ENCODER: Config = {
    "encoder": {
        "class_path": "caption.encoders.TorchvisionEncoder",
        "init_args": {"name": "vgg19", "layer": "features.35", "weights": "IMAGENET1K_V1"},
    },
    "transform": {"size": 224, "fit": "crop", "resize": 256},
}
"""VGG19's conv5_4: 14x14 regions of 512 numbers. The authors used Caffe's weights; torchvision's differ."""
SEARCH = BeamSearch(beam_size=5, max_length=30)
DROPOUT = 0.5
# Logit of the padding and start words, which their vocabulary lacks: finite, and so low that the probability is 0.
NEVER = -1e4
BOOKKEEPING = ("history_errs", "zipped_params", "train_err", "valid_err", "test_err")
END_AND_UNKNOWN = ("<eos>", "<end>", "eos", "UNK", "<unk>")
# Options that our decoder does not have: option -> the default, which switches it off, and its meaning.
REFUSED: dict[str, tuple[Any, str]] = {
    "lstm_encoder": (False, "an LSTM over the regions"),
    "n_layers_lstm": (1, "several LSTM layers"),
    "n_layers_out": (1, "further layers before the words"),
    "use_dropout_lstm": (False, "dropout on the gates of the LSTM"),
}
ATTENTION = ("deterministic", "stochastic")
# Values of an option by its type in `Options`: a check, a conversion, and their description.
VALUES: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any], str]] = {
    "bool": (lambda value: value in (0, 1), bool, "true or false"),
    "int": (lambda value: type(value) is int and value >= 1, int, "a whole number from 1 up"),
    "float": (lambda value: type(value) in (int, float), float, "a number"),
    "str": (lambda value: value in ATTENTION, str, " or ".join(ATTENTION)),
}


@dataclass(frozen=True)
class Options:
    """The options that decide what a model computes, by the names of the authors' `train()`."""

    ctx_dim: int
    """D, and the width of the attention."""
    dim: int
    """H."""
    dim_word: int
    """E."""
    n_words: int
    """V, including the end (0) and the unknown word (1)."""
    selector: bool
    """The gate β."""
    prev2out: bool
    """E y[t-1] in the read-out."""
    ctx2out: bool
    """L_z z[t] in the read-out."""
    n_layers_att: int
    """Affine layers on the regions before h[t-1] is added; all but the first end in tanh."""
    n_layers_init: int
    """Affine layers from the mean region to h[0] and c[0]; all but the last are shared."""
    use_dropout: bool
    """It also matters at test, where their dropout halves the units."""
    attn_type: str
    """"deterministic" (soft) or "stochastic" (hard)."""
    temperature: float = 1.0
    """α = softmax(temperature · e); their code reads it for stochastic attention only."""
    semi_sampling_p: float = 0.5
    """Probability of a sample instead of the expectation, in training."""


def read_options(file: str) -> Options:
    """Options from a `.json` file or from YAML. Those that only training needs are ignored.

    Raises:
        DataError: the file cannot be read; an option is missing, has an impossible value, or asks for something that
            this package's decoder cannot represent. The message names it.
    """
    options = read_json(file) if file.endswith(".json") else read_yaml(file)
    if not isinstance(options, dict):
        raise DataError(
            f"'{file}' holds a {type(options).__name__}, not options: give an object of names and values"
        )
    for name, (off, meaning) in REFUSED.items():
        if options.get(name, off) != off:
            raise DataError(
                f"option {name} in '{file}' is {options[name]!r}: {meaning} cannot be represented by this package's "
                "decoder, so the model cannot be imported"
            )
    arguments = {}
    for field in fields(Options):
        if field.name in options:
            value = options[field.name]
            is_valid, convert_value, description = VALUES[str(field.type)]
            if not is_valid(value):
                raise DataError(f"option {field.name} in '{file}' is {value!r}: it should be {description}")
            arguments[field.name] = convert_value(value)
        elif field.default is MISSING:
            raise DataError(
                f"'{file}' lacks the option {field.name}: give all options that the model was trained with"
            )
    return Options(**arguments)


def load(
    model_file: str,
    options_file: str,
    words_file: str,
    encoder_file: str | None = None,
    encoder_weights: str | None = None,
) -> Captioner:
    """The captioner of a model of the authors' code.

    Arguments and errors are those of `read` and `assemble`. Without `encoder_weights`, torchvision's are downloaded.
    """
    imported = read(model_file, options_file, words_file)
    captioner = assemble(imported, ENCODER, SEARCH, encoder_file, encoder_weights)
    captioner.encoder.load_pretrained()
    return captioner


def read(model_file: str, options_file: str, words_file: str) -> Imported:
    """A decoder from the authors' `.npz`, their options as JSON or YAML, and their words, one a line from id 2 on.

    Raises:
        UserError: a file is missing or has another format; an option or an array is missing, unknown or cannot be
            represented here; there are too few words.
    """
    options = read_options(options_file)
    words = _read_words(words_file, options)
    arrays = _read_arrays(model_file, options)
    return Imported(decoder(options), convert(arrays, options), words, options.ctx_dim)


def decoder(options: Options) -> ShowAttendAndTellDecoder:
    """The architecture, with the switches of `presets/arctic_soft` and `arctic_hard`."""
    alignment: Alignment = Softmax()
    if options.attn_type == "stochastic":
        alignment = Multinoulli(expectation=1 - options.semi_sampling_p, share="batch")
    dropout = DROPOUT if options.use_dropout else 0.0
    return ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(options.ctx_dim, layers=options.n_layers_att), alignment),
        embedding_size=options.dim_word,
        hidden_size=options.dim,
        initial=InitialState(options.n_layers_init, dropout=dropout, shared=True),
        gate=Gate() if options.selector else None,
        readout=DeepOutput(options.prev2out, options.ctx2out, "tanh", dropout),
        first_input="zero",
    )


def convert(arrays: Mapping[str, Tensor], options: Options) -> dict[str, Tensor]:
    """The state dict of `decoder(options)`, from the authors' arrays; gradients flow back through it."""
    # The factor of their dropout at test, for which the trained weights after it compensate.
    kept = 0.5 if options.use_dropout else 1.0
    behind_dropout = kept if options.n_layers_init > 1 else 1.0
    temperature = options.temperature if options.attn_type == "stochastic" else 1.0
    score, initial = "attention.score", "initial"
    state = {
        # c_tt is left out: it is equal for all regions and cancels in the softmax.
        f"{score}.region.weight": arrays["decoder_Wc_att"].T,
        f"{score}.region.bias": arrays["decoder_b_att"],
        f"{score}.query.weight": arrays["decoder_Wd_att"].T,
        f"{score}.energy.weight": temperature * arrays["decoder_U_att"].T,
        f"{initial}.hidden.0.weight": behind_dropout * arrays["ff_state_W"].T,
        f"{initial}.hidden.0.bias": arrays["ff_state_b"],
        f"{initial}.cell.0.weight": behind_dropout * arrays["ff_memory_W"].T,
        f"{initial}.cell.0.bias": arrays["ff_memory_b"],
        "embed.weight": _by_our_ids(arrays["Wemb"]),
        "cell.from_word.weight": arrays["decoder_W"].T,
        "cell.from_word.bias": arrays["decoder_b"],
        "cell.from_state.weight": torch.cat((arrays["decoder_U"], arrays["decoder_Wc"])).T,
        "readout.from_hidden.weight": kept * arrays["ff_logit_lstm_W"].T,
        "readout.from_hidden.bias": arrays["ff_logit_lstm_b"],
        "readout.to_words.weight": _by_our_ids(kept * arrays["ff_logit_W"].T),
        "readout.to_words.bias": _by_our_ids(arrays["ff_logit_b"], fill=NEVER),
    }
    for layer in range(1, options.n_layers_att):
        state[f"{score}.deeper.{layer - 1}.weight"] = arrays[f"decoder_W_att_{layer}"].T
        state[f"{score}.deeper.{layer - 1}.bias"] = arrays[f"decoder_b_att_{layer}"]
    for layer in range(1, options.n_layers_init):  # each of our layers is a Linear, a ReLU and a Dropout
        name = f"{initial}.trunk.{3 * (layer - 1)}"
        state[f"{name}.weight"] = (kept if layer > 1 else 1.0) * arrays[f"ff_init_{layer}_W"].T
        state[f"{name}.bias"] = arrays[f"ff_init_{layer}_b"]
    if options.selector:
        state["gate.project.weight"] = arrays["decoder_W_sel"].T
        state["gate.project.bias"] = arrays["decoder_b_sel"].reshape(1)
    if options.ctx2out:
        state["readout.from_context.weight"] = arrays["ff_logit_ctx_W"].T
        state["readout.from_hidden.bias"] = arrays["ff_logit_lstm_b"] + arrays["ff_logit_ctx_b"]
    return state


def _by_our_ids(rows: Tensor, fill: float = 0.0) -> Tensor:
    """Rows by the authors' ids (end, unknown, words) -> by this package's (padding, start, end, unknown, words)."""
    return torch.cat((rows.new_full((2, *rows.shape[1:]), fill), rows))


def array_shapes(options: Options) -> dict[str, tuple[int, ...]]:
    """The shapes of the authors' arrays, by their names."""
    region, hidden, word, words = options.ctx_dim, options.dim, options.dim_word, options.n_words
    layers = {f"ff_init_{layer}": (region, region) for layer in range(1, options.n_layers_init)}
    layers |= {"ff_state": (region, hidden), "ff_memory": (region, hidden), "ff_logit_lstm": (hidden, word)}
    if options.ctx2out:
        layers["ff_logit_ctx"] = (region, word)
    layers["ff_logit"] = (word, words)
    shapes: dict[str, tuple[int, ...]] = {
        "Wemb": (words, word),
        "decoder_W": (word, 4 * hidden),
        "decoder_U": (hidden, 4 * hidden),
        "decoder_b": (4 * hidden,),
        "decoder_Wc": (region, 4 * hidden),
        "decoder_Wc_att": (region, region),
        "decoder_b_att": (region,),
        "decoder_Wd_att": (hidden, region),
        "decoder_U_att": (region, 1),
        "decoder_c_tt": (1,),
    }
    for name, (inputs, outputs) in layers.items():
        shapes |= {f"{name}_W": (inputs, outputs), f"{name}_b": (outputs,)}
    for layer in range(1, options.n_layers_att):
        shapes |= {f"decoder_W_att_{layer}": (region, region), f"decoder_b_att_{layer}": (region,)}
    if options.selector:
        shapes |= {"decoder_W_sel": (hidden, 1), "decoder_b_sel": ()}
    return shapes


def _read_arrays(file: str, options: Options) -> dict[str, Tensor]:
    path, shapes = Path(os.path.expanduser(file)), array_shapes(options)
    arrays: dict[str, np.ndarray] = {}
    name = "its archive"  # NumPy does not name the array
    with open_input(path, MODEL) as content:
        try:
            check_archive(path)
            with np.load(content, allow_pickle=False) as archive:
                for name in [name for name in archive.files if name not in BOOKKEEPING]:
                    arrays[name] = archive[name]
        except Exception as error:  # NumPy and zipfile raise many types on damaged files
            raise CheckpointError(
                f"{file} is not an .npz of arrays, as numpy.savez writes it ({name}: {error})"
            ) from error
    for name in {"decoder_b_sel", "decoder_c_tt"} & arrays.keys() & shapes.keys():
        if arrays[name].size == 1:  # a single number, saved with or without dimensions
            arrays[name] = arrays[name].reshape(shapes[name])
    check_shapes({name: array.shape for name, array in arrays.items()}, shapes, file)
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise CheckpointError(f"{name} in {file} holds numbers that are not finite or not floating-point")
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}


def _read_words(file: str, options: Options) -> list[str]:
    lines = [line.removesuffix("\r") for line in read_text(file).removesuffix("\n").split("\n")]
    for number, word in enumerate(lines, start=1):
        if word.split() != [word]:
            raise DataError(
                f"line {number} of '{file}' is {word!r}: it should hold one word and nothing else"
            )
    if lines[0] in END_AND_UNKNOWN:
        raise DataError(
            f"'{file}' begins with {lines[0]!r}: leave out ids 0 and 1, the end and the unknown word; the first "
            "line is the word with id 2"
        )
    count = options.n_words - 2
    if len(lines) < count:
        raise DataError(
            f"'{file}' has {len(lines)} words, and the model knows {count} (option n_words, without the end and the "
            "unknown word): give the words it was trained with, by id"
        )
    return lines[:count]  # the model does not know rarer words
