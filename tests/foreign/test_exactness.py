"""Foreign models give the numbers that they give in transformers: pieces, probabilities, maps, geometry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("transformers")
from helpers.tiny_foreign import Tiny, blip, vit_gpt2
from transformers import AttentionInterface

from caption.analysis.interventions import Force, intervene
from caption.analysis.map_arithmetic import ROUNDING
from caption.foreign.captioner import ForeignCaptioner
from caption.foreign.loading import from_transformers
from caption.foreign.rollout import rollout
from caption.foreign.search import GenerateBeam

PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))
FAMILIES: dict[str, Callable[[], Tiny]] = {
    "vit-gpt2": vit_gpt2,
    "vit-bert": lambda: vit_gpt2(decoder="bert"),
    "blip": blip,
}
families = pytest.mark.parametrize("family", FAMILIES)
LENGTH = 8


@cache
def tiny(family: str) -> Tiny:
    parts = FAMILIES[family]()
    parts.model.double()
    return parts


@cache
def captioner(family: str) -> ForeignCaptioner:
    """Of the same weights; in double precision, so that differences are no rounding."""
    return from_transformers(*FAMILIES[family]()).double()


def pixels(family: str) -> Tensor:
    return tiny(family).processor(images=PHOTO, return_tensors="pt").pixel_values.double()


def pieces_of(caption: Any, family: str) -> list[int]:
    return [captioner(family).vocabulary[word] - 4 for word in caption.stepwise.words]


@torch.no_grad()
def uncached(family: str, pieces: list[int]) -> Any:
    """The output of the text model, eager and without a cache, for all pieces at once."""
    parts = tiny(family)
    ids = torch.tensor([[captioner(family).decoder.model.start, *pieces]])
    if family == "blip":
        image = parts.model.vision_model(pixel_values=pixels(family))[0]
        return parts.model.text_decoder(input_ids=ids, encoder_hidden_states=image, output_attentions=True)
    if parts.model.decoder.config._attn_implementation == "sdpa":
        parts.model.decoder.set_attn_implementation("eager")
    return parts.model(pixel_values=pixels(family), decoder_input_ids=ids, output_attentions=True)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("beams", [1, 3])
@families
def test_pieces_and_log_p_are_those_of_generate(family: str, beams: int, early_stopping: bool | str) -> None:
    search = GenerateBeam(beams, LENGTH, 1.0, early_stopping=early_stopping)
    caption = captioner(family)(PHOTO, search)
    theirs = tiny(family).model.generate(
        pixel_values=pixels(family), num_beams=beams, max_new_tokens=LENGTH, length_penalty=1.0, do_sample=False,
        early_stopping=early_stopping, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    written = theirs.sequences[0, 1:].tolist()
    ours = pieces_of(caption, family)
    assert ours == written[: len(ours)]
    assert caption.finished == (len(ours) < len(written))
    if beams > 1:
        steps = len(ours) + caption.finished
        assert caption.log_prob / steps == pytest.approx(float(theirs.sequences_scores[0]), abs=1e-5)


@families
def test_cached_steps_give_what_the_model_gives_without_a_cache(family: str) -> None:
    caption = captioner(family)(PHOTO).stepwise
    pieces = pieces_of(caption, family)
    log_probs = uncached(family, pieces).logits[0].log_softmax(-1)
    theirs = log_probs[range(len(pieces)), pieces]
    np.testing.assert_allclose(caption.word_log_probs, theirs, atol=1e-5)


@families
def test_maps_are_the_attentions_of_the_eager_model(family: str) -> None:
    caption = captioner(family)(PHOTO)
    pieces = pieces_of(caption, family)
    for layer, theirs in enumerate(uncached(family, pieces).cross_attentions):
        weights = theirs[0, :, : len(pieces), 1:].transpose(0, 1).unflatten(-1, (4, 4))
        np.testing.assert_allclose(caption.stepwise.maps[f"layer {layer} heads"], weights, atol=1e-6)
    class_token = 1 - caption.stepwise.maps["layer 0 heads"].sum((2, 3))
    np.testing.assert_allclose(
        class_token, uncached(family, pieces).cross_attentions[0][0, :, : len(pieces), 0].T, atol=1e-6
    )


def test_a_words_map_is_the_mean_of_its_pieces_and_its_log_p_their_sum() -> None:
    caption = captioner("vit-bert")(PHOTO)
    steps = caption.stepwise
    assert len(caption.words) < len(steps.words)
    lengths = [sum(1 for _ in word) for word in _grouped(steps.words)]
    start = 0
    for word, length in enumerate(lengths):
        of_word = slice(start, start + length)
        np.testing.assert_allclose(caption.weights[word], steps.weights[of_word].mean(0), atol=1e-6)
        for name, maps in caption.maps.items():
            np.testing.assert_allclose(maps[word], steps.maps[name][of_word].mean(0), atol=1e-6)
        assert caption.word_log_probs[word] == pytest.approx(steps.word_log_probs[of_word].sum(), abs=1e-5)
        start += length
    assert caption.text == tiny("vit-bert").tokenizer.decode(pieces_of(caption, "vit-bert"))


def _grouped(pieces: list[str]) -> list[list[str]]:
    words: list[list[str]] = []
    for piece in pieces:
        if piece.startswith("##") and words:
            words[-1].append(piece)
        else:
            words.append([piece])
    return words


@families
def test_maps_are_rolled_out_through_the_vision_tower(family: str) -> None:
    caption = captioner(family)(PHOTO)
    (rolled,) = rollout(captioner(family), [PHOTO], [caption])
    parts = tiny(family)
    tower = parts.model.vision_model if family == "blip" else parts.model.encoder
    tower.set_attn_implementation("eager")
    with torch.no_grad():
        first, second = tower(pixel_values=pixels(family), output_attentions=True).attentions
    mixed = [(weights[0].mean(0) + torch.eye(17)) / 2 for weights in (first, second)]
    expected = torch.from_numpy(caption.weights).double().flatten(1) @ (mixed[1] @ mixed[0])[1:, 1:]
    np.testing.assert_allclose(rolled.weights.reshape(-1, 16), expected, atol=1e-6)
    assert rolled.words == caption.words
    assert captioner(family)(PHOTO).text == caption.text


@contextmanager
def edited_by_hand(family: str, step: int, cell: int) -> Iterator[None]:
    """Within it, all heads of the eager model look at one patch at a step, with the weight that patches had."""

    def edit(weights: Tensor) -> Tensor:
        if weights.shape[-1] != 17:
            return weights
        weights = weights.clone()
        share = weights[:, :, step, 1:].sum(-1)
        share = share.where((share - 1).abs() >= ROUNDING, 1.0)
        weights[:, :, step, 1:] = 0
        weights[:, :, step, 1 + cell] = share
        return weights

    decoder = tiny(family).model.text_decoder if family == "blip" else tiny(family).model.decoder
    if family == "blip":
        hooks = [
            layer.crossattention.self.dropout.register_forward_hook(lambda module, args, output: edit(output))
            for layer in decoder.bert.encoder.layer
        ]
        yield
        for hook in hooks:
            hook.remove()
        return

    def attention(
        module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, scaling: Any = None, **_: Any
    ) -> Any:
        scores = q @ k.mT * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        if k.shape[2] != 17:
            scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1)
        weights = edit(scores.softmax(-1))
        return (weights @ v).transpose(1, 2), weights

    AttentionInterface.register("by_hand", attention)
    decoder.set_attn_implementation("by_hand")
    yield
    decoder.set_attn_implementation("eager")


@families
def test_a_forced_map_does_what_weights_edited_by_hand_do(family: str) -> None:
    result = intervene(captioner(family), PHOTO, Force((2, 1), at=1))
    pieces = pieces_of(result.original, family)
    with edited_by_hand(family, step=1, cell=2 * 4 + 1):
        log_probs = uncached(family, pieces).logits[0].log_softmax(-1)
    theirs = log_probs[range(len(pieces)), pieces]
    np.testing.assert_allclose(result.original_log_probs.under[: len(pieces)], theirs, atol=1e-5)
    assert abs(result.original_log_probs.under - result.original_log_probs.without).max() > 1e-3
