"""Decoders of the tutorial: log-probabilities, α, β and gradients of a NumPy transcription; errors for models that do
not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import gradients
from helpers import sgrvinod_reference as reference
from helpers.tiny_views import one_row
from torch import Tensor, nn
from torchvision import models

from caption.core.errors import UserError
from caption.decoders import ShowAttendAndTellDecoder
from caption.encoders import TorchvisionEncoder
from caption.models.importers import sgrvinod
from caption.text.vocabulary import PAD, SPECIAL_TOKENS, START

SIZES = {"region": 5, "hidden": 4, "attention": 6, "embedding": 3}
# As the tutorial writes it: words by frequency from 1, then the special ones; padding 0. Not in the order of ids here.
WORD_MAP = {"<end>": 7, "dog": 2, "a": 1, "<pad>": 0, "runs": 3, "away": 4, "<unk>": 5, "<start>": 6}
WORDS = ["a", "dog", "runs", "away"]
REGIONS = np.random.default_rng(1).normal(size=(2, 6, SIZES["region"]))
CAPTIONS = [[6, 1, 2, 5, 7], [6, 3, 7]]  # its ids
OURS = {WORD_MAP[word]: number for number, word in enumerate((*SPECIAL_TOKENS, *WORDS))}
pytestmark = pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning")


def parameters() -> dict[str, np.ndarray]:
    return reference.parameters(**SIZES, vocabulary=len(WORD_MAP))


def state() -> dict[str, Tensor]:
    return {name: torch.tensor(value).float() for name, value in parameters().items()}


def write(folder: Path, tensors: Any, word_map: Any = WORD_MAP) -> tuple[str, str]:
    torch.save(tensors, folder / "decoder.pth")
    (folder / "map.json").write_text(json.dumps(word_map))
    return str(folder / "decoder.pth"), str(folder / "map.json")


def built(decoder: ShowAttendAndTellDecoder) -> ShowAttendAndTellDecoder:
    decoder.build((SIZES["region"],), len(WORD_MAP), padding=PAD, start=START)
    return decoder.eval()


def test_log_probabilities_and_maps_are_theirs(tmp_path: Path):
    imported = sgrvinod.read(*write(tmp_path, state()))
    assert imported.words == WORDS
    decoder = built(imported.decoder)
    decoder.load_state_dict(imported.weights)
    captions = gradients.packed([[OURS[word] for word in caption[1:]] for caption in CAPTIONS])
    memory = decoder.project(one_row(torch.tensor(REGIONS).float()))
    with torch.no_grad():
        unrolled = decoder(memory, captions.words, captions.lengths)
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))[:, 0]
    alphas, betas = (unrolled.unpack(field)[:, 0] for field in (unrolled.trace.weights, unrolled.trace.gate))
    for b, caption in enumerate(CAPTIONS):
        expected = reference.run(parameters(), REGIONS[b], caption[:-1])
        steps = len(caption) - 1
        for theirs, ours in OURS.items():
            np.testing.assert_allclose(log_probs[b, :steps, ours], expected.log_probs[:, theirs], atol=1e-5)
        np.testing.assert_allclose(alphas[b, :steps], expected.alphas, atol=1e-5)
        np.testing.assert_allclose(betas[b, :steps], expected.betas.mean(1), atol=1e-5)


def test_every_number_of_the_gradient_is_theirs():
    order = [WORD_MAP[word] for word in (*SPECIAL_TOKENS, *WORDS)]
    captions = [[OURS[word] for word in caption[1:]] for caption in CAPTIONS]
    decoder = built(sgrvinod.decoder(SIZES)).double()
    assert decoder.readout.dropout.p == 0.5  # in training
    arrays, convert = parameters(), partial(sgrvinod.convert, order=order)
    ours = gradients.ours(decoder, "sgrvinod", convert, arrays, REGIONS, captions)
    gradients.check(ours, lambda p: reference.loss(p, REGIONS, CAPTIONS), arrays, gradients.axes)


Change = Callable[[dict[str, Tensor]], Any]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: {k: v for k, v in s.items() if k != "f_beta.bias"}, "lacks f_beta.bias"),
        (lambda s: {k: v for k, v in s.items() if k != "embedding.weight"}, "no matrix embedding.weight"),
        (lambda s: {**s, "attention.tanh.weight": torch.ones(1)}, "has attention.tanh.weight, which"),
        (lambda s: {**s, "fc.weight": s["fc.weight"].T}, r"fc.weight in .* shape \(4, 8\), .* \(8, 4\)"),
        (lambda s: {**s, "init_h.bias": s["init_h.bias"] * torch.nan}, "not finite, in init_h.bias"),
        (lambda s: {"decoder": s, "epoch": 3}, r"state dict .*\['decoder'\]\.state_dict\(\)"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_named(change: Change, said: str, tmp_path: Path):
    with pytest.raises(UserError, match=said) as caught:
        sgrvinod.read(*write(tmp_path, change(state())))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word_map", "said"),
    [
        ({word: n for word, n in WORD_MAP.items() if word != "<unk>"}, "lacks <unk>"),
        ({**WORD_MAP, "cat": 8}, "has 9 words, and the decoder in .* knows 8"),
        *(({**WORD_MAP, "dog": number}, "are not 0 to 7, each once") for number in (3, "2", 2.0, 12)),
    ],
)
def test_a_word_map_that_does_not_fit_is_named(word_map: Any, said: str, tmp_path: Path):
    with pytest.raises(UserError, match=said):
        sgrvinod.read(*write(tmp_path, state(), word_map))


def test_a_pickle_of_strangers_is_not_recommended(tmp_path: Path):
    files = write(tmp_path, {"decoder": nn.Linear(2, 2)})
    with pytest.raises(
        UserError, match=r"Only if you trust the file, save one .* can run any code.*weights_only=False"
    ):
        sgrvinod.read(*files)


def test_weights_of_its_encoder_go_to_the_layers_they_came_from(tmp_path: Path):
    torch.manual_seed(0)
    model = models.resnet18()
    theirs = nn.Sequential(*list(model.children())[:-2])
    state = {f"resnet.{name}": value for name, value in theirs.state_dict().items()}
    torch.save(state, tmp_path / "theirs.pth")
    torch.save(model.state_dict(), tmp_path / "whole.pth")
    pixels = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    for file in ("theirs.pth", "whole.pth"):
        encoder = TorchvisionEncoder("resnet18", "layer4", grid=(3, 3)).eval()
        sgrvinod.load_encoder_weights(encoder, str(tmp_path / file))
        with torch.no_grad():
            maps = theirs.eval()(encoder.normalise(pixels))
            expected = nn.AdaptiveAvgPool2d((3, 3))(maps).permute(0, 2, 3, 1).flatten(1, 2)
            # BatchNorm is folded into convolutions, which rounds otherwise: relative to the largest activation.
            difference = (encoder(pixels)[0].vectors - expected).abs().max()
            assert difference <= 1e-5 * expected.abs().max()

    torch.save({"resnet.9.weight": torch.ones(1)}, tmp_path / "other.pth")
    with pytest.raises(UserError, match=r"other\.pth.* resnet18.*resnet\.9\.weight"):
        sgrvinod.load_encoder_weights(TorchvisionEncoder("resnet18", "layer1"), str(tmp_path / "other.pth"))
