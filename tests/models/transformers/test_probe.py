"""The probe sees where image tokens lie, and a model whose tokens lie elsewhere is refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("transformers")
import transformers
from helpers.tiny_foreign import blip, pix2struct, save
from helpers.tiny_image_text import IMAGE_TEXT, internvl, llava, mllama

import caption
from caption.cli.main import main, run_verb
from caption.core.errors import UserError
from caption.models.transformers.families import IMAGE_TEXT as IMAGE_TEXT_MODEL
from caption.models.transformers.families import family_of
from caption.models.transformers.image_text import ImageTextModel
from caption.models.transformers.loading import from_transformers
from caption.models.transformers.probe import SIZES, probe

LAYOUTS = {
    "llava": "4x4 image tokens; all have a place",
    "llava-next": "6x8 image tokens and 4x4 image tokens of a coarser view, first; 6 without a place in the photo",
    "llava-onevision": "6x8 image tokens and 4x4 image tokens of a coarser view, first; 6 without a place in the photo",
    "internvl": "4x6 image tokens in 2x3 tiles of 2x2 and 2x2 image tokens of a coarser view, last; all have a place",
    "gemma3": "2x2 image tokens; all have a place",
    "qwen3-vl": "3x4 image tokens; all have a place",
    "mllama": "8x8 image tokens in 2x2 tiles of 4x4; 4 without a place in the photo",
}


@pytest.mark.parametrize("family", IMAGE_TEXT)
def test_tokens_answer_to_their_own_cells(family: str) -> None:
    captioner = from_transformers(*IMAGE_TEXT[family]())
    assert str(captioner.transform.layout(*SIZES[0])) == LAYOUTS[family]  # type: ignore[attr-defined]
    for size in SIZES:
        for all_layers, least in ((False, 100), (True, 1)):
            for view in probe(captioner, size, all_layers):
                assert not view.wrong
                assert view.margin > least


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "caption_probes"


def test_a_model_is_probed_once_and_one_whose_tokens_are_permuted_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = save(internvl(), tmp_path / "model")
    projector = transformers.models.internvl.modeling_internvl.InternVLMultiModalProjector
    forward = projector.forward

    def turned(self: Any, image_features: Tensor) -> Any:
        return forward(self, image_features).flip(1)

    with monkeypatch.context() as patch:
        patch.setattr(projector, "forward", turned)
        with pytest.raises(
            UserError, match=r"24 of 24 answer to other parts.*row 0, column 0 to row 1, column 1"
        ):
            caption.load(f"transformers:{folder}")
    assert not cache.exists()
    assert main(["probe", f"transformers:{folder}"]) == 0
    assert "4x6 image tokens in 2x3 tiles of 2x2" in capsys.readouterr().out
    (probed,) = cache.iterdir()
    assert "24 of 24" in probed.read_text("utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(
            "caption.models.transformers.probe.probe", lambda *_: pytest.fail("it was probed again")
        )
        caption.load(f"transformers:{folder}")


def test_a_class_token_among_image_tokens_has_no_place_and_is_read() -> None:
    tiny = llava()
    tiny.model.config.vision_feature_select_strategy = "full"
    tiny.processor.vision_feature_select_strategy = "full"
    captioner = from_transformers(*tiny)
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))
    result = captioner(photo).stepwise
    asked = captioner.decoder.model.asked(photo)  # type: ignore[operator]
    theirs = tiny.model.generate(**asked, max_new_tokens=8)[0, asked["input_ids"].shape[1] :].tolist()
    ours = [captioner.vocabulary[word] - 4 for word in result.words]
    assert ours == theirs[: len(ours)]


def test_tiles_are_placed_by_the_first_one_and_permuted_ones_are_refused(cache: Path) -> None:
    captioner = from_transformers(*mllama())
    # 33 x 12 pixels in tiles of 16: the third tile shows one column of the photo.
    layout = captioner.transform.layout(33, 12)  # type: ignore[attr-defined]
    assert layout.grids == ((4, 12),)
    assert layout.box == pytest.approx((0, 0, 48 / 33, 16 / 12), abs=0.02)
    (view,) = probe(captioner, (640, 480))
    assert (view.tried, len(view.own)) == (48, 64)  # the lower quarter is padding
    tiny = mllama()
    tiny.model.model.vision_model.patch_embedding.register_forward_hook(
        lambda module, args, output: output.flip(-1)
    )
    next(cache.iterdir()).unlink()
    with pytest.raises(
        UserError, match=r"48 of 48 answer to other parts.*row 0, column 0 to row 0, column 3"
    ):
        from_transformers(*tiny)


def test_parts_of_the_contract_that_a_model_breaks_are_named() -> None:
    tiny = llava()
    layer = tiny.model.model.language_model.layers[0]
    layer.mixer = layer.self_attn
    del layer.self_attn
    with pytest.raises(UserError, match="lacks a language model whose layers have self_attn"):
        from_transformers(*tiny)
    with pytest.raises(UserError, match="is not a model of transformers"):
        run_verb("probe", ["shapes"])


def test_attention_that_is_not_followed_is_said(cache: Path) -> None:
    tiny = llava()
    attention = tiny.model.model.language_model.layers[0].self_attn

    def louder(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        return (output[0] * (1 + (output[0].shape[1] > 1)), *output[1:])

    attention.register_forward_hook(louder, with_kwargs=True)
    with pytest.raises(UserError, match="in a way that is not followed here"):
        from_transformers(*tiny)
    tiny = llava()
    own = tiny.model.model.language_model.layers[1].self_attn
    own.forward = lambda hidden_states, **_: (hidden_states, None)
    with pytest.raises(UserError, match="does not use the attention interface"):
        from_transformers(*tiny)


@pytest.mark.parametrize(
    ("name", "lacked"),
    [
        ("InstructBlipVideo", "image tokens with a place"),
        ("Kosmos2_5", "image tokens with a place"),
    ],
)
def test_models_whose_maps_cannot_be_placed_say_why(name: str, lacked: str) -> None:
    architecture = f"{name}ForConditionalGeneration"
    assert family_of(architecture) == IMAGE_TEXT_MODEL
    with torch.device("meta"):
        model = getattr(transformers, architecture)(getattr(transformers, f"{name}Config")())
    with pytest.raises(UserError, match=f"lacks {lacked}"):
        ImageTextModel.check_contract(model)


def test_models_with_a_class_are_probed_by_the_command(tmp_path: Path, capsys: Any) -> None:
    assert main(["probe", f"transformers:{save(blip(), tmp_path)}"]) == 0
    assert "16 of 16 answer to their own cell" in capsys.readouterr().out


def test_a_question_that_is_written_into_the_photo_is_refused() -> None:
    tiny = pix2struct()
    tiny.processor.is_vqa = True
    with pytest.raises(UserError, match="writes the question into the photo"):
        from_transformers(*tiny)


def test_a_question_and_a_type_are_given_when_a_model_is_loaded(tmp_path: Path, capsys: Any) -> None:
    tiny = llava()
    address, photo = f"transformers:{save(tiny, tmp_path / 'model')}", tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)).save(photo)
    asked = ["--question", "Which colour is it?", "--dtype", "bfloat16"]
    page = tmp_path / "a.html"
    assert main(["describe", "--model", address, *asked, "--html", str(page), str(photo)]) == 0
    assert "<figcaption>Which colour is it?</figcaption>" in page.read_text("utf-8")
    captioner = caption.load(address, question="Which colour is it?", dtype="bfloat16")
    assert next(captioner.parameters()).dtype == torch.bfloat16
    assert captioner.decoder.model.question == "Which colour is it?"
    assert capsys.readouterr().out.strip() == captioner(photo).text
    given = captioner.decoder.model.asked(Image.open(photo))  # type: ignore[operator]
    whole = tiny.model.to(torch.bfloat16)
    given["pixel_values"] = given["pixel_values"].to(torch.bfloat16)
    theirs = whole.generate(**given, max_new_tokens=8)[0, given["input_ids"].shape[1] :].tolist()
    ours = [captioner.vocabulary[word] - 4 for word in captioner(photo).stepwise.words]
    assert ours == theirs[: len(ours)]


FOUR_BITS = {"quant_method": "bitsandbytes", "load_in_4bit": True}


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        ("shapes", {"question": "What?"}, "question is for models of transformers.*shapes is another"),
        ("TINY", {"device_map": "auto"}, "weights cannot be used.*[Aa]ccelerate"),
        ("TINY", {"dtype": "float33"}, "weights cannot be used.*torch.dtype"),
        ("TINY", {"quantization_config": FOUR_BITS}, "weights cannot be used.*(bitsandbytes|accelerate)"),
        ("TINY", {"load_in_4bit": True}, 'give quantization_config={"quant_method": "bitsandbytes", "load_in_4bit"'),
        ("TINY", {"trust_remote_code": True}, None),
    ],
)  # fmt: skip
def test_arguments_of_transformers_that_cannot_be_used_are_said(
    model: str, arguments: dict[str, Any], sentence: str | None, tmp_path: Path
) -> None:
    address = f"transformers:{save(llava(), tmp_path)}" if model == "TINY" else model
    if sentence is None:
        assert caption.load(address, **arguments)
        return
    if "ccelerate" in sentence and find_spec("accelerate"):
        pytest.skip("accelerate is installed")
    with pytest.raises(UserError, match=sentence):
        caption.load(address, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"device_map": "cpu"},
        {"quantization_config": FOUR_BITS},
        {"quantization_config": FOUR_BITS | {"load_in_4bit": False, "load_in_8bit": True}},
    ],
    ids=["device_map", "4 bits", "8 bits"],
)
def test_placed_and_quantised_models_write_what_generate_writes(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    for package in ("accelerate", *(["bitsandbytes"] if "quantization_config" in arguments else [])):
        pytest.importorskip(package)
    folder = save(llava(wide=4), tmp_path)
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))
    captioner = caption.load(f"transformers:{folder}", **arguments)
    result = captioner(photo).stepwise
    whole = transformers.LlavaForConditionalGeneration.from_pretrained(folder, **arguments)
    asked = captioner.decoder.model.asked(photo)  # type: ignore[operator]
    asked["pixel_values"] = asked["pixel_values"].to(whole.dtype)
    theirs = whole.generate(**asked, max_new_tokens=8)[0, asked["input_ids"].shape[1] :].tolist()
    ours = [captioner.vocabulary[word] - 4 for word in result.words]
    assert ours == theirs[: len(ours)]
