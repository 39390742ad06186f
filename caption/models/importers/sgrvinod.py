"""Importing decoders of sgrvinod's "a PyTorch Tutorial to Image Captioning", a widely used re-implementation.

e_i = v · ReLU(U a_i + b + W h[t-1] + b')                   α = softmax(e)
z = σ(f_β(h[t-1])) ∘ Σ α_i a_i                              a gate for each feature
h[t], c[t] = LSTMCell([E y[t-1]; z], h[t-1], c[t-1])        gates in the order i, f, g, o
h[0] = W_h mean a + b_h ;  c[0] = W_c mean a + b_c
log p = log softmax(W dropout(h[t]) + b)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.core.errors import CheckpointError, DataError, first_few
from caption.data.text_files import read_json
from caption.decoders import Gate, InitialState, LinearOutput, ShowAttendAndTellDecoder
from caption.encoders.torchvision import TorchvisionEncoder
from caption.encoders.weights import read_state
from caption.models.importers.assemble import Config, Imported, assemble, check_shapes
from caption.search import BeamSearch
from caption.text.vocabulary import SPECIAL_TOKENS

ENCODER: Config = {
    "encoder": {
        "class_path": "caption.encoders.TorchvisionEncoder",
        "init_args": {
            "name": "resnet101",
            "layer": "layer4",
            "weights": "IMAGENET1K_V1",
            "finetune_from": "layer2",
            "grid": [14, 14],
        },
    },
    "transform": {"size": 256, "fit": "squash"},
}
"""The tutorial's `Encoder`: 8x8 regions of 256 pixels, pooled to 14x14."""
SEARCH = BeamSearch(beam_size=5, max_length=50)
DROPOUT = 0.5  # the tutorial's default; a state dict does not have it
# The children of torchvision's ResNet, in the order of the tutorial's `nn.Sequential`.
CHILDREN = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")


def load(
    state_file: str, word_map_file: str, encoder_file: str | None = None, encoder_weights: str | None = None
) -> Captioner:
    """The captioner of a decoder of the tutorial.

    Arguments and errors are those of `read` and `assemble`. `encoder_weights` is a state dict of the tutorial's
    `Encoder`, or with torchvision's names; without it, torchvision's weights are downloaded.
    """
    captioner = assemble(read(state_file, word_map_file), ENCODER, SEARCH, encoder_file, encoder_weights)
    if encoder_weights is not None and isinstance(captioner.encoder, TorchvisionEncoder):
        load_encoder_weights(captioner.encoder, encoder_weights)
    else:
        captioner.encoder.load_pretrained()
    return captioner


def read(state_file: str, word_map_file: str) -> Imported:
    """A decoder from the state dict of its `DecoderWithAttention` and its word map.

    Raises:
        UserError: a file is missing or has another format; a tensor is missing, unknown or has another shape; the
            word map does not fit.
    """
    state = _read_state(Path(os.path.expanduser(state_file)))
    sizes = _sizes(state, state_file)
    order, words = _order(read_json(word_map_file), word_map_file)
    if len(order) != sizes["vocabulary"]:
        raise DataError(
            f"'{word_map_file}' has {len(order)} words, and the decoder in {state_file} knows {sizes['vocabulary']}: "
            "give the word map it was trained with"
        )
    return Imported(decoder(sizes), convert(state, order), words, sizes["region"])


def decoder(sizes: Mapping[str, int]) -> ShowAttendAndTellDecoder:
    """The architecture, with the switches of `presets/sgrvinod`, from the sizes by name."""
    return ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(sizes["attention"], "relu"), Softmax()),
        embedding_size=sizes["embedding"],
        hidden_size=sizes["hidden"],
        initial=InitialState(activation="linear"),
        gate=Gate("vector"),
        readout=LinearOutput(DROPOUT),
    )


def convert(state: Mapping[str, Tensor], order: Sequence[int]) -> dict[str, Tensor]:
    """The state dict of `decoder()`; gradients flow back through it.

    Args:
        state: of a `DecoderWithAttention`.
        order: the tutorial's id of each word of this package's vocabulary.
    """
    rows = torch.as_tensor(order)
    embedding_size = state["embedding.weight"].shape[1]
    from_word, from_context = state["decode_step.weight_ih"].tensor_split([embedding_size], 1)
    from_state = torch.cat((state["decode_step.weight_hh"], from_context), 1)
    return {
        # The bias of the energies is left out: it is equal for all regions and cancels in the softmax.
        "attention.score.region.weight": state["attention.encoder_att.weight"],
        "attention.score.region.bias": state["attention.encoder_att.bias"]
        + state["attention.decoder_att.bias"],
        "attention.score.query.weight": state["attention.decoder_att.weight"],
        "attention.score.energy.weight": state["attention.full_att.weight"],
        "initial.hidden.0.weight": state["init_h.weight"],
        "initial.hidden.0.bias": state["init_h.bias"],
        "initial.cell.0.weight": state["init_c.weight"],
        "initial.cell.0.bias": state["init_c.bias"],
        "gate.project.weight": state["f_beta.weight"],
        "gate.project.bias": state["f_beta.bias"],
        "embed.weight": state["embedding.weight"][rows],
        "cell.from_word.weight": _gates(from_word),
        "cell.from_word.bias": _gates(state["decode_step.bias_ih"] + state["decode_step.bias_hh"]),
        "cell.from_state.weight": _gates(from_state),
        "readout.to_words.weight": state["fc.weight"][rows],
        "readout.to_words.bias": state["fc.bias"][rows],
    }


def load_encoder_weights(encoder: TorchvisionEncoder, file: str) -> None:
    """Load the state dict of the tutorial's `Encoder`, or one with torchvision's own names.

    Raises:
        CheckpointError: the file is missing, has another format, or belongs to another encoder.
    """
    state = read_state(Path(os.path.expanduser(file)))
    encoder.load_weights({_torchvision_name(name): tensor for name, tensor in state.items()}, file)


def _torchvision_name(name: str) -> str:
    first, _, path = name.partition(".")
    number, _, inner = path.partition(".")
    if first == "resnet" and number.isdecimal() and int(number) < len(CHILDREN):
        return f"{CHILDREN[int(number)]}.{inner}"
    return name


def _gates(rows: Tensor) -> Tensor:
    """torch's gates i, f, g, o -> i, f, o, g."""
    i, f, g, o = rows.chunk(4)
    return torch.cat((i, f, o, g))


def _read_state(path: Path) -> dict[str, Tensor]:
    try:
        return read_state(path)
    except CheckpointError as error:
        if not path.is_file():
            raise
        raise CheckpointError(
            f"{error}. Only if you trust the file, save one where the tutorial's code is installed "
            "(loading it there can run any code): "
            f"torch.save(torch.load({path.name!r}, map_location='cpu', weights_only=False)['decoder'].state_dict(), "
            "'decoder.pth')"
        ) from error


def _sizes(state: Mapping[str, Tensor], source: str) -> dict[str, int]:
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    sides = {
        "attention.encoder_att.weight": ("attention", "region"),
        "attention.decoder_att.weight": ("attention", "hidden"),
        "embedding.weight": ("vocabulary", "embedding"),
    }
    sizes: dict[str, int] = {}
    for name, names in sides.items():
        if len(shapes.get(name, ())) != 2:
            raise CheckpointError(
                f"{source} has no matrix {name}: it is not a state dict of the tutorial's DecoderWithAttention"
            )
        sizes |= zip(names, shapes[name], strict=True)
    check_shapes(shapes, tensor_shapes(sizes), source)
    not_finite = [name for name, tensor in state.items() if not tensor.isfinite().all()]
    if not_finite:
        raise CheckpointError(f"{source} has numbers that are not finite, in {first_few(not_finite)}")
    return sizes


def tensor_shapes(sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tutorial's state dict."""
    attention, region, hidden = sizes["attention"], sizes["region"], sizes["hidden"]
    vocabulary, embedding = sizes["vocabulary"], sizes["embedding"]
    weights = {
        "attention.encoder_att.weight": (attention, region),
        "attention.decoder_att.weight": (attention, hidden),
        "attention.full_att.weight": (1, attention),
        "decode_step.weight_ih": (4 * hidden, embedding + region),
        "decode_step.weight_hh": (4 * hidden, hidden),
        "init_h.weight": (hidden, region),
        "init_c.weight": (hidden, region),
        "f_beta.weight": (region, hidden),
        "fc.weight": (vocabulary, hidden),
    }
    biases = {name.replace("weight", "bias"): shape[:1] for name, shape in weights.items()}
    return {**weights, **biases, "embedding.weight": (vocabulary, embedding)}


def _order(word_map: Mapping[str, Any], source: str) -> tuple[list[int], list[str]]:
    """The tutorial's id of each word of this package's vocabulary, and the ordinary words in that order."""
    missing = [word for word in SPECIAL_TOKENS if word not in word_map]
    if missing:
        raise DataError(f"'{source}' lacks {first_few(missing)}: it is not a word map of the tutorial")
    ids = list(word_map.values())
    if any(type(word_id) is not int for word_id in ids) or sorted(ids) != list(range(len(ids))):
        raise DataError(
            f"the ids in '{source}' are not 0 to {len(word_map) - 1}, each once: give the word map that the decoder "
            "was trained with"
        )
    words = sorted((word for word in word_map if word not in SPECIAL_TOKENS), key=word_map.__getitem__)
    return [word_map[word] for word in (*SPECIAL_TOKENS, *words)], words
