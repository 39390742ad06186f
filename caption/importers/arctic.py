"""Models of the authors' code (kelvinxu/arctic-captions), where it differs from the paper; matrices are (in, out).

    e_i = U · tanh(P(a_i) + h[t-1] W_d) + c           P: affine, or affine and then tanh of affine (n_layers_att 2)
    α = softmax(temperature · e) ;  z = σ(h[t-1] W_sel + b_sel) Σ α_i a_i
    i, f, o, g = E y[t-1] W + h[t-1] U + z W_c + b
    h[0], c[0] = tanh of an affine layer of the mean region, behind the ReLU layers they share (n_layers_init 2)
    p = softmax(drop(tanh(L_h drop(h[t]) + E y[t-1] + L_z z)) W + b) ;  E y[0] = 0

Their dropout sets units to zero in training and halves all of them at test. Ours doubles the kept units in training and
leaves them alone at test: with 0.5 taken into the weights behind it, both are equal in both modes.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caption.attention import AdditiveScore, Alignment, Multinoulli, ScoredAttention, Softmax
from caption.data.readers.captions import located, read_text
from caption.decoders import DeepOutput, Gate, InitialState, LSTMDecoder
from caption.errors import CheckpointError, DataError
from caption.importers.arctic_options import Options, read_options
from caption.importers.assemble import Imported, check_shapes
from caption.search import BeamSearch
from caption.text.vocabulary import END, UNKNOWN

ENCODER: dict[str, Any] = {
    "encoder": {
        "class_path": "caption.encoders.TorchvisionEncoder",
        "init_args": {"name": "vgg19", "layer": "features.35", "weights": "IMAGENET1K_V1"},
    },
    "transform": {"size": 224, "fit": "crop"},
}
"""VGG19's conv5_4, 14x14 regions of 512 numbers. The authors' came from Caffe's weights, torchvision has its own."""
SEARCH = BeamSearch(beam_size=5, max_length=30)
DROPOUT = 0.5
# Logit of the padding and start words, which theirs has not: finite, and so low that their probability is 0.
NEVER = -1e4
BOOKKEEPING = ("history_errs", "zipped_params", "train_err", "valid_err", "test_err")
END_AND_UNKNOWN = ("<eos>", "<end>", "eos", "UNK", "<unk>")


def read(model_file: str, options_file: str, words_file: str) -> Imported:
    """A decoder from the authors' `.npz`, their options as JSON or YAML, and their words, one a line from id 2 on.

    Raises:
        UserError: a file is missing or something else; an option or an array is missing, unknown or has no place here;
            there are too few words.
    """
    options = read_options(options_file)
    words = _read_words(words_file, options)
    arrays = _read_arrays(model_file, options)
    return Imported(decoder(options), convert(arrays, options), words, options.ctx_dim)


def decoder(options: Options) -> LSTMDecoder:
    """The architecture, with the switches of `configs/presets/arctic_soft.yaml` and `arctic_hard.yaml`."""
    alignment: Alignment = Softmax()
    if options.attn_type == "stochastic":
        alignment = Multinoulli(expectation=1 - options.semi_sampling_p, share="batch")
    dropout = DROPOUT if options.use_dropout else 0.0
    return LSTMDecoder(
        ScoredAttention(AdditiveScore(options.ctx_dim, layers=options.n_layers_att), alignment),
        embedding_size=options.dim_word,
        hidden_size=options.dim,
        initial=InitialState(options.n_layers_init, dropout=dropout, shared=True),
        gate=Gate() if options.selector else None,
        readout=DeepOutput(options.prev2out, options.ctx2out, "tanh", dropout),
        first_input="zero",
    )


def convert(arrays: Mapping[str, Tensor], options: Options) -> dict[str, Tensor]:
    """The state dict of `decoder(options)`; affine in `arrays`, so that gradients can be taken back through it.

    Args:
        arrays: by the authors' names.
        options: they were trained with.
    """
    kept = options.kept
    behind_dropout = kept if options.n_layers_init > 1 else 1.0
    score, initial = "attention.score", "initial"
    state = {
        # c_tt is left out: it is the same for all regions and cancels in the softmax.
        f"{score}.region.weight": arrays["decoder_Wc_att"].T,
        f"{score}.region.bias": arrays["decoder_b_att"],
        f"{score}.query.weight": arrays["decoder_Wd_att"].T,
        f"{score}.energy.weight": options.inverse_temperature * arrays["decoder_U_att"].T,
        f"{initial}.hidden.0.weight": behind_dropout * arrays["ff_state_W"].T,
        f"{initial}.hidden.0.bias": arrays["ff_state_b"],
        f"{initial}.cell.0.weight": behind_dropout * arrays["ff_memory_W"].T,
        f"{initial}.cell.0.bias": arrays["ff_memory_b"],
        "embed.weight": _by_our_ids(arrays["Wemb"]),
        "gates_from_word.weight": arrays["decoder_W"].T,
        "gates_from_word.bias": arrays["decoder_b"],
        "gates_from_state.weight": torch.cat((arrays["decoder_U"], arrays["decoder_Wc"])).T,
        "readout.from_hidden.weight": kept * arrays["ff_logit_lstm_W"].T,
        "readout.from_hidden.bias": arrays["ff_logit_lstm_b"],
        "readout.to_words.weight": _by_our_ids(kept * arrays["ff_logit_W"].T),
        "readout.to_words.bias": _by_our_ids(arrays["ff_logit_b"], others=NEVER),
    }
    for layer in range(1, options.n_layers_att):
        state[f"{score}.deeper.{layer - 1}.weight"] = arrays[f"decoder_W_att_{layer}"].T
        state[f"{score}.deeper.{layer - 1}.bias"] = arrays[f"decoder_b_att_{layer}"]
    for layer in range(1, options.n_layers_init):  # each layer is a Linear, a ReLU and a Dropout of ours
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


def _by_our_ids(rows: Tensor, others: float = 0.0) -> Tensor:
    """Rows by their ids (end, unknown, words) -> by ours (padding, start, end, unknown, words)."""
    assert (END, UNKNOWN) == (2, 3)
    return torch.cat((rows.new_full((2, *rows.shape[1:]), others), rows))


def _shapes(options: Options) -> dict[str, tuple[int, ...]]:
    region, hidden, word, words = options.ctx_dim, options.dim, options.dim_word, options.n_words
    layers = {f"ff_init_{layer}": (region, region) for layer in range(1, options.n_layers_init)}
    layers |= {"ff_state": (region, hidden), "ff_memory": (region, hidden), "ff_logit_lstm": (hidden, word)}
    if options.ctx2out:
        layers["ff_logit_ctx"] = (region, word)
    layers["ff_logit"] = (word, words)
    shapes: dict[str, tuple[int, ...]] = {"Wemb": (words, word)}
    for name, (inputs, outputs) in layers.items():
        shapes |= {f"{name}_W": (inputs, outputs), f"{name}_b": (outputs,)}
    inside: dict[str, tuple[int, ...]] = {
        "W": (word, 4 * hidden),
        "U": (hidden, 4 * hidden),
        "b": (4 * hidden,),
        "Wc": (region, 4 * hidden),
        "Wc_att": (region, region),
        "b_att": (region,),
        "Wd_att": (hidden, region),
        "U_att": (region, 1),
        "c_tt": (1,),
    }
    for layer in range(1, options.n_layers_att):
        inside |= {f"W_att_{layer}": (region, region), f"b_att_{layer}": (region,)}
    if options.selector:
        inside |= {"W_sel": (hidden, 1), "b_sel": ()}
    return shapes | {f"decoder_{name}": shape for name, shape in inside.items()}


def _read_arrays(file: str, options: Options) -> dict[str, Tensor]:
    wanted = _shapes(options)
    try:
        with np.load(located(file), allow_pickle=False) as archive:
            arrays = {name: _array(archive, name) for name in archive.files if name not in BOOKKEEPING}
    except FileNotFoundError:
        raise CheckpointError(f"there is no file {file} with the model's arrays") from None
    # At a plain array there is no `with`; at pickles and damage NumPy raises whatever it stumbles over.
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{file} is no .npz of arrays, as numpy.savez writes it: {error}") from error
    _check_arrays(arrays, wanted, file)
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}


def _array(archive: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(archive[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error  # NumPy does not say which


def _check_arrays(arrays: dict[str, np.ndarray], wanted: Mapping[str, tuple[int, ...]], file: str) -> None:
    for name in ("decoder_b_sel", "decoder_c_tt"):  # one number, saved with or without a dimension
        if name in arrays and arrays[name].size == 1 and name in wanted:
            arrays[name] = arrays[name].reshape(wanted[name])
    check_shapes({name: array.shape for name, array in arrays.items()}, wanted, file)
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise CheckpointError(
                f"{name} in {file} holds numbers that are not finite, or no floating-point numbers"
            )


def _read_words(file: str, options: Options) -> list[str]:
    lines = [line.removesuffix("\r") for line in read_text(located(file)).split("\n")]
    if lines[-1] == "":
        lines.pop()
    for number, word in enumerate(lines, start=1):
        if word.split() != [word]:
            raise DataError(
                f"line {number} of '{file}' is {word!r}: it should hold one word and nothing else"
            )
    if lines and lines[0] in END_AND_UNKNOWN:
        raise DataError(
            f"'{file}' begins with {lines[0]!r}: leave out ids 0 and 1, the end and the unknown word; the first "
            "line is the word with id 2"
        )
    wanted = options.n_words - 2
    if len(lines) < wanted:
        raise DataError(
            f"'{file}' has {len(lines)} words, and the model knows {wanted} (option n_words, without the end and the "
            "unknown word): give the words it was trained with, by id"
        )
    return lines[:wanted]  # rarer words are unknown to it
