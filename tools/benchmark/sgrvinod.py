"""Training and search beside the best known re-implementation, sgrvinod's tutorial: its own code, equal weights.

Its code is not part of this repository: clone it, and give the folder with --sgrvinod. Its `models.py` and the search
of its `caption.py` are run.
"""

from __future__ import annotations

import ast
import copy
import math
import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from caption.attention import AdditiveScore
from caption.captioner import Captioner
from caption.core.batch import CaptionBatch
from caption.core.runtime.peak_memory import allocated_peak
from caption.kernels import accelerate
from caption.models.importers import sgrvinod as importer
from caption.objectives import CrossEntropy, DoublyStochastic
from caption.search import BeamSearch
from caption.text.vocabulary import END, PAD, SPECIAL_TOKENS, START, UNKNOWN
from tools.benchmark import core
from tools.benchmark.harness import Setting, say
from tools.benchmark.search import NEVER, PHOTOS, compare, find
from tools.benchmark.training import Form, batch_sizes, measure_forms
from tools.documents import table

CLONE = "git clone https://github.com/sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning"
FILES = ("models.py", "caption.py")
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
"""Of the energies: the tutorial has ReLU, the paper tanh."""
SIZES = {"attention": 512, "embedding": 512, "hidden": 512}
THEIRS, OURS = "sgrvinod", "ours"


def sgrvinod(setting: Setting) -> str:
    """A training step and beam search, with a row for each size, activation and form."""
    if setting.sgrvinod is None:
        return f"not measured: this needs its code: {CLONE}, and --sgrvinod FOLDER"
    steps, searches = [], []
    for region_size in (2048, 512):
        for activation in ACTIVATIONS:
            say(f"sgrvinod, D {region_size}, {activation}")
            decoder = their_decoder(setting.sgrvinod, region_size, activation, setting.device)
            case = [str(region_size), activation]
            captioner = our_captioner(decoder, activation)
            for images in batch_sizes(setting):
                rows = compare_steps(decoder, captioner, images, setting)
                steps += [[*case, str(images), *row] for row in rows]
            end_captions(decoder)
            captioner = our_captioner(decoder, activation)
            search = their_search(setting.sgrvinod, setting.device)
            searches += [[*case, *row] for row in compare_searches(decoder, captioner, search, setting)]
    case, times = ["D", "energies"], ["form", "time", "times as fast"]
    return (
        f"Training step:\n\n{table([*case, 'B', *times, 'peak memory', 'loss'], steps)}\n\n"
        f"Beam search:\n\n{table([*case, *times, 'same captions', 'peak memory'], searches)}"
    )


# -- the decoders --------------------------------------------------------------------------------------------------


def their_decoder(folder: Path, region_size: int, activation: str, device: torch.device) -> nn.Module:
    """Its `DecoderWithAttention`, without dropout."""
    torch.manual_seed(0)
    module = SimpleNamespace(**runpy.run_path(str(folder / "models.py")))
    module.DecoderWithAttention.forward.__globals__["device"] = device
    sizes = SIZES["attention"], SIZES["embedding"], SIZES["hidden"], core.VOCABULARY
    decoder: nn.Module = module.DecoderWithAttention(*sizes, encoder_dim=region_size, dropout=0.0)
    decoder.attention.relu = ACTIVATIONS[activation]()
    return decoder.to(device)


@torch.no_grad()
def end_captions(decoder: Any) -> None:
    """Give a decoder with random weights captions of about 12 words: its first unit counts them.

    c[t] = c[t-1] + tanh(0.05), and h[t] = tanh(c[t]) raises the logit of the end by about 2 a word.
    """
    cell, count = decoder.decode_step, decoder.decode_step.hidden_size * torch.arange(4)
    for weight in (cell.weight_ih, cell.weight_hh, cell.bias_hh):
        weight[count] = 0
    cell.bias_ih[count] = torch.tensor([20.0, 20.0, 0.05, 20.0]).to(cell.bias_ih)  # gates i, f, g, o
    for layer in (decoder.init_h, decoder.init_c):
        layer.weight[0] = layer.bias[0] = 0
    decoder.fc.weight *= 30  # some words much more probable than others
    decoder.fc.weight[END] = 0
    decoder.fc.weight[END, 0] = 60
    decoder.fc.bias[END] = -20
    decoder.fc.bias[[PAD, START, UNKNOWN]] = NEVER


def our_captioner(tutorial: nn.Module, activation: str) -> Captioner:
    """The package's form of the tutorial's decoder, with copies of its weights and without dropout."""
    state, region_size = tutorial.state_dict(), tutorial.encoder_dim
    decoder = importer.decoder({**SIZES, "region": region_size})
    decoder.attention.score = AdditiveScore(decoder.attention.score.size, activation)
    decoder.readout.dropout.p = 0.0
    captioner = core.captioner_of(decoder, region_size).to(state["fc.weight"])
    decoder.load_state_dict(importer.convert(state, range(core.VOCABULARY)))
    accelerate(captioner)
    return captioner


# -- a training step -----------------------------------------------------------------------------------------------


def compare_steps(
    tutorial: nn.Module, captioner: Captioner, images: int, setting: Setting
) -> list[list[str]]:
    """Forward and backward of a batch, with the loss of its `train.py`."""
    vectors = core.make_vectors(images, tutorial.encoder_dim, setting.device)
    captions = core.make_captions(images, setting.device)
    forms = {
        THEIRS: Form(tutorial.train(), partial(their_loss, tutorial, vectors, captions)),
        OURS: Form(captioner.decoder.train(), partial(our_loss, captioner, vectors, captions)),
    }
    if setting.device.type == "cuda":
        recorded = copy.deepcopy(captioner)
        accelerate(recorded, graphs=True)
        loss = partial(our_loss, recorded, vectors, captions)
        forms[f"{OURS}, graphs"] = Form(recorded.decoder.train(), loss)
    measured = measure_forms(forms, setting, lambda model: {})
    return [[name, *form.times, form.memory, form.loss] for name, form in measured.items()]


def their_loss(decoder: nn.Module, vectors: Tensor, captions: CaptionBatch) -> Tensor:
    """As in its `train.py`: means over words, and over images and regions, with alpha_c 1."""
    words, targets, lengths = (tensor.to(vectors.device)[:, 0] for tensor in captions)
    sequences = torch.cat((words[:, :1], targets), 1)  # START, words, END, padding
    scores, ordered, steps, weights, _ = decoder(vectors, sequences, lengths[:, None] + 1)
    packed = [
        pack_padded_sequence(tensor, steps, batch_first=True).data for tensor in (scores, ordered[:, 1:])
    ]
    return functional.cross_entropy(*packed) + ((1 - weights.sum(1)) ** 2).mean()


def our_loss(captioner: Captioner, vectors: Tensor, captions: CaptionBatch) -> Tensor:
    """The objective of configs/presets/sgrvinod.yaml."""
    objective = CrossEntropy([DoublyStochastic(per=("caption", "region"))], per=("word",))
    return objective(captioner, core.views_of(vectors), captions).value


# -- beam search ---------------------------------------------------------------------------------------------------


def compare_searches(
    tutorial: nn.Module, captioner: Captioner, search: Callable[..., Any], setting: Setting
) -> list[list[str]]:
    """Its search, photo by photo, and ours, for all photos at once."""
    images = core.SEARCHED // 8 if setting.quick else core.SEARCHED
    vectors = core.make_vectors(images, tutorial.encoder_dim, setting.device)
    beam_search = BeamSearch(core.BEAM, importer.SEARCH.max_length)
    forms = {
        THEIRS: partial(find_their_captions, tutorial.eval(), search, vectors[:PHOTOS]),
        OURS: partial(find, captioner.decoder.eval(), vectors, beam_search, low=False),
    }
    rows = compare(forms, images, setting)
    memory = [allocated_peak(run, setting.device) for run in forms.values()]
    return [[*row, f"{peak / 1e6:.0f} MB"] for row, peak in zip(rows, memory, strict=True)]


def their_search(folder: Path, device: torch.device) -> Callable[..., Any]:
    """The function `caption_image_beam_search` of its `caption.py`, for region vectors in the place of a photo.

    The rest of the file imports functions that no longer exist. In PyTorch, `/` was then an integer division.
    """
    name = "caption_image_beam_search"
    text = (folder / "caption.py").read_text(encoding="utf-8")
    tree = ast.parse(text.replace("top_k_words / vocab_size", "top_k_words // vocab_size"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]

    class Transforms:
        Normalize = staticmethod(lambda mean, std: None)
        Compose = staticmethod(lambda parts: lambda image: image)

    names: dict[str, Any] = {"torch": torch, "F": functional, "np": np, "device": device}
    names |= {"imread": lambda path: np.zeros((1, 1, 3)), "imresize": lambda image, size: image}
    names["transforms"] = Transforms
    exec(compile(tree, name, "exec"), names)
    search: Callable[..., Any] = names[name]
    return search


@torch.no_grad()
def find_their_captions(decoder: nn.Module, search: Callable[..., Any], vectors: Tensor) -> list[list[int]]:
    """Its captions, without START and END."""
    numbers = (*SPECIAL_TOKENS, *range(len(SPECIAL_TOKENS), core.VOCABULARY))
    word_map = {word: number for number, word in enumerate(numbers)}
    side = math.isqrt(vectors.shape[1])
    grids = (regions.view(1, side, side, -1) for regions in vectors)
    results = (search(lambda image, grid=grid: grid, decoder, None, word_map, core.BEAM) for grid in grids)
    return [sequence[1:-1] for sequence, _ in results]
