"""Options of a generation config: our captions are those of `generate`, or the option is refused by its name."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
from helpers.tiny_foreign import Tiny, blip, vit_gpt2
from models.transformers.test_exactness import PHOTO, paligemma

from caption.analysis.explorer.requests import search_from
from caption.analysis.interventions.encoded_photo import EncodedPhoto
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.models.transformers.loading import from_transformers

FAMILIES = {"vit-gpt2": vit_gpt2, "blip": blip, "paligemma": paligemma}
END = {"vit-gpt2": 0, "blip": 3, "paligemma": 0}
OPTIONS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.7},
    {"no_repeat_ngram_size": 2},
    {"bad_words_ids": [[12], [9], [6, 7]]},
    {"suppress_tokens": [12, 97, 1130]},
    {"begin_suppress_tokens": [12, 97, 1130]},
    {"sequence_bias": [[[6], 9.0], [[12, 6], -5.0]]},
    {"min_length": 6},
    {"min_new_tokens": 5, "min_length": 7},
    {"exponential_decay_length_penalty": [2, 1.6]},
    {"forced_bos_token_id": 9},
    {"forced_eos_token_id": "end"},
    {"remove_invalid_values": True, "renormalize_logits": True},
    {"length_penalty": -1.0},
    {"length_penalty": -1.0, "early_stopping": "never"},
    {"max_length": 7, "max_new_tokens": None},
    {"eos_token_id": ["end", 6, 8]},
    {"eos_token_id": ["end", 6, 8, 12, 20], "early_stopping": True},
    {
        "repetition_penalty": 1.4,
        "no_repeat_ngram_size": 2,
        "suppress_tokens": [5],
        "forced_eos_token_id": "end",
    },
]


def configured(family: str, options: dict[str, Any]) -> tuple[Tiny, dict[str, Any]]:
    """A model whose own config has these options, and the inputs of its `generate`."""
    tiny = FAMILIES[family]()
    text = {"text": "<image>caption en"} if family == "paligemma" else {}
    inputs = tiny.processor(images=PHOTO, return_tensors="pt", **text)
    inputs.pop("labels", None)
    owner = tiny.model.text_decoder if family == "blip" else tiny.model
    config = copy.deepcopy(owner.generation_config)
    config.update(max_new_tokens=8)
    for name, value in options.items():
        listed = (
            [END[family] if item == "end" else item for item in value] if isinstance(value, list) else value
        )
        setattr(config, name, END[family] if value == "end" else listed)
    if config.max_new_tokens is None and "input_ids" in inputs:
        config.max_length += inputs["input_ids"].shape[1]
    owner.generation_config = config
    return tiny, inputs


def pieces(captioner: Captioner, words: list[str]) -> list[int]:
    return [captioner.vocabulary[word] - 4 for word in words]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ", ".join(options))
def test_pieces_and_scores_are_those_of_generate(options: dict[str, Any], beams: int) -> None:
    for family in FAMILIES:
        if (
            family == "blip" and "eos_token_id" in options
        ):  # its generate has one end piece, of the text config
            continue
        tiny, inputs = configured(family, {"num_beams": beams, **options})
        theirs = tiny.model.generate(**inputs, return_dict_in_generate=True, output_scores=True)
        written = theirs.sequences[0, inputs["input_ids"].shape[1] if "input_ids" in inputs else 1 :].tolist()
        captioner = from_transformers(*tiny)
        views = captioner.encode([PHOTO])
        best = captioner.generate(views)
        words = [captioner.vocabulary[int(word)] for word in best.words[0, 0, : best.lengths[0, 0]]]
        ours = pieces(captioner, words)
        assert ours == written[: len(ours)], family
        assert bool(best.finished[0, 0]) == (len(ours) < len(written))
        if beams > 1:
            assert float(best.scores[0, 0]) == pytest.approx(float(theirs.sequences_scores[0]), rel=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("number", [0, 8, 9, 15, 17])
def test_log_probabilities_and_analyses_are_of_the_model_without_them(number: int, beams: int) -> None:
    captioner = from_transformers(*configured("vit-gpt2", {"num_beams": beams, **OPTIONS[number]})[0])
    photo = EncodedPhoto(captioner, PHOTO)
    caption = photo.caption().caption
    fed = [float(step.log_probs[0, 0, step.word]) for step in photo.follow(caption)]
    assert caption.words == captioner(PHOTO).stepwise.words
    np.testing.assert_allclose(
        caption.word_log_probs[: len(caption.words)], fed[: len(caption.words)], atol=1e-5
    )
    if number != 15:  # the probability of ending is that of the likeliest end piece
        assert caption.log_prob == pytest.approx(sum(fed), abs=1e-4)


def test_options_change_the_captions_of_the_table() -> None:
    beam = {"num_beams": 3}
    plain, *others = (
        from_transformers(*configured("vit-gpt2", beam | options)[0])(PHOTO).text
        for options in ({}, *OPTIONS)
    )
    assert sum(text != plain for text in others) >= 8


def test_a_config_that_draws_is_drawn_from_its_distribution() -> None:
    options = {
        "do_sample": True,
        "temperature": 1.5,
        "top_k": 3,
        "repetition_penalty": 1.3,
        "max_new_tokens": 1,
    }
    tiny, inputs = configured("vit-gpt2", options)
    theirs = tiny.model.generate(**inputs, return_dict_in_generate=True, output_scores=True)
    expected = theirs.scores[0][0].softmax(-1)
    captioner = from_transformers(*tiny)
    torch.manual_seed(0)
    view = captioner.encode([PHOTO])[0]
    words = captioner.generate((view._replace(vectors=view.vectors.expand(1000, -1, -1)),)).words[:, 0]
    drawn = torch.bincount(words.flatten() - 4, minlength=len(expected)) / 1000
    assert expected.max() < 0.95
    torch.testing.assert_close(drawn, expected, atol=0.05, rtol=0)


@pytest.mark.parametrize("chosen", [{"top_k": 1}, {"temperature": 1e-6}])
def test_a_config_that_draws_the_likeliest_piece_is_greedy(chosen: dict[str, Any]) -> None:
    greedy, drawn = (
        from_transformers(*configured("vit-gpt2", options)[0])(PHOTO).text
        for options in ({}, {"do_sample": True, **chosen})
    )
    assert greedy == drawn


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"guidance_scale": 2.0}, "sets guidance_scale to 2.0, which is not supported"),
        ({"encoder_repetition_penalty": 1.5}, "encoder_repetition_penalty"),
        ({"stop_strings": ["."]}, "stop_strings"),
        ({"max_time": 2.0}, "max_time"),
        ({"num_beam_groups": 2}, "num_beam_groups"),
        ({"do_sample": True, "num_beams": 2}, "do_sample.*num_beams 2"),
        ({"repetition_penalty": -1.0}, "repetition_penalty.* is -1.0, which transformers cannot apply"),
        ({"bad_words_ids": [[9999]]}, "bad_words_ids"),
        ({"exponential_decay_length_penalty": 3}, "exponential_decay_length_penalty"),
        ({"length_penalty": -11.0}, "length_penalty .* number from -10 to 10"),
        ({"num_beams": 2000}, "num_beams .* number from 1 to 1000"),
        ({"early_stopping": "sometimes"}, "early_stopping .*sometimes"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_its_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        from_transformers(*configured("vit-gpt2", options)[0])


def test_a_wider_beam_in_the_explorer_keeps_the_options() -> None:
    options = {"length_penalty": -1.0, "repetition_penalty": 1.7}
    narrow, wide = (
        from_transformers(*configured("vit-gpt2", {"num_beams": beams, **options})[0]) for beams in (1, 3)
    )
    search = search_from({"kind": "beam", "beam_size": 3}, narrow.search)
    assert narrow(PHOTO, search).text == wide(PHOTO).text


def test_a_length_that_the_prompt_fills_is_refused() -> None:
    tiny, _ = configured("paligemma", {})
    tiny.model.generation_config.update(max_length=20, max_new_tokens=None)
    with pytest.raises(UserError, match=r"max_length .* is 20, and the prompt alone has \d+ pieces"):
        from_transformers(*tiny)(PHOTO)


def test_an_encoder_and_decoder_end_at_the_piece_of_their_config() -> None:
    tiny, inputs = configured("vit-gpt2", {"eos_token_id": 104})
    written = tiny.model.generate(**inputs)[0, 1:].tolist()
    captioner = from_transformers(*tiny)
    assert captioner.decoder.model.ends == (104,)
    assert pieces(captioner, captioner(PHOTO).stepwise.words) == written[: written.index(104)]
