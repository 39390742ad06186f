"""A model stays as it was when it becomes a captioner: it is trained further, saved, and used by itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL import Image

pytest.importorskip("transformers")
from helpers.tiny_foreign import Tiny, blip, vit_gpt2
from test_exactness import git, paligemma

from caption.core.errors import UserError
from caption.data.photos import ImageTransform
from caption.models.transformers.captioner import ForeignCaptioner
from caption.models.transformers.loading import from_transformers

MODELS = [vit_gpt2, blip, git, paligemma]
PHOTO = Image.new("RGB", (40, 30), "red")


def state(model: Any) -> dict[str, Any]:
    """Everything about a model that wrapping could change, its weights apart."""
    return {
        "modes": [module.training for module in model.modules()],
        "gradients": [weight.requires_grad for weight in model.parameters()],
        "hooks": [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()],
        "attention": [
            module.config._attn_implementation for module in model.modules() if hasattr(module, "config")
        ],
    }


@pytest.mark.parametrize("make", MODELS)
def test_a_model_stays_as_it_was(make: Callable[[], Tiny]) -> None:
    tiny = make()
    tiny.model.train()
    tiny.model.set_attn_implementation("eager")
    before = state(tiny.model)
    for _ in range(3):
        from_transformers(*tiny)(PHOTO)
    assert state(tiny.model) == before
    torch.save(tiny.model, io.BytesIO())


def test_its_own_attention_weights_stay() -> None:
    tiny = vit_gpt2()
    tiny.model.set_attn_implementation("eager")
    from_transformers(*tiny)
    pixels = tiny.processor(images=PHOTO, return_tensors="pt")["pixel_values"]
    output = tiny.model(pixels, decoder_input_ids=torch.zeros(1, 1, dtype=torch.long), output_attentions=True)
    assert len(output.cross_attentions) == 2


def test_training_goes_on_and_the_captioner_follows() -> None:
    tiny = vit_gpt2()
    captioner = from_transformers(*tiny)
    photo = captioner.read(PHOTO)
    before = captioner.encode([photo])[0].vectors
    optimizer = torch.optim.SGD(tiny.model.parameters(), lr=0.1)
    pixels = tiny.processor(images=PHOTO, return_tensors="pt")["pixel_values"]
    tiny.model(pixels, labels=torch.tensor([[3, 4, 0]])).loss.backward()
    optimizer.step()
    assert not torch.equal(captioner.encode([photo])[0].vectors, before)
    tied = captioner.decoder.model.decoder
    assert tied.lm_head.weight is tied.transformer.wte.weight
    captioner.double()
    assert next(tiny.model.parameters()).dtype == torch.float32


def test_a_model_of_plain_torch_in_training_mode_is_said() -> None:
    tiny = vit_gpt2()
    captioner = from_transformers(*tiny)
    model = captioner.decoder.model
    model.whole.encoder.train()
    with pytest.raises(UserError, match=r"VisionEncoderDecoder is in training mode: call its eval\(\) first"):
        ForeignCaptioner(model, captioner.vocabulary, ImageTransform(32))
