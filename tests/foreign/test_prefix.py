"""Language models that read image tokens give transformers' numbers, and their maps lie where they look."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("transformers")
from helpers.tiny_foreign import Tiny
from helpers.tiny_prefix_models import git, idefics3, paligemma, qwen2_vl
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from caption.attention.map_hooks import edit_maps
from caption.box import cell_box
from caption.errors import ImageError, UserError
from caption.foreign.captioner import ForeignCaptioner
from caption.foreign.decoder import on_first_grid
from caption.foreign.loading import from_transformers
from caption.foreign.search import GenerateBeam
from caption.search import Greedy
from caption.text.vocabulary import START

PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))
FAMILIES: dict[str, Callable[..., Tiny]] = {
    "git": git,
    "paligemma": paligemma,
    "idefics3": idefics3,
    "idefics3 whole": lambda layers=1: idefics3(layers, split=False),
    "smolvlm": lambda layers=1: idefics3(layers, name="SmolVLM"),
    "qwen2-vl": qwen2_vl,
    "qwen2.5-vl": lambda layers=1: qwen2_vl(layers, "Qwen2_5_VL"),
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


def inputs(family: str) -> dict[str, Any]:
    """All that the processor of transformers makes of the photo and the question."""
    parts = tiny(family)
    if family == "git":
        made = parts.processor(images=PHOTO, return_tensors="pt")
    elif family == "paligemma":
        made = parts.processor(images=PHOTO, text="<image>caption en", return_tensors="pt")
        made.pop("labels", None)
    else:
        question = captioner(family).decoder.model.question
        content = [{"type": "image"}, {"type": "text", "text": question}]
        text = parts.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
        made = parts.processor(images=[PHOTO], text=[text], return_tensors="pt")
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in made.items()}


def pieces_of(caption: Any, family: str) -> list[int]:
    return [captioner(family).vocabulary[word] - 4 for word in caption.stepwise.words]


@torch.no_grad()
def uncached(
    family: str, pieces: list[int], implementation: str = "eager"
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Logits (T, V) and attentions (M, T, P) of the steps of these pieces, by the model without a cache."""
    model, given = tiny(family).model, inputs(family)
    if family != "git":
        model.set_attn_implementation(implementation)
    said = torch.tensor([pieces[:-1]], dtype=torch.long)
    start = given.get("input_ids", torch.tensor([[model.generation_config.bos_token_id]]))
    given["input_ids"] = torch.cat((start, said), 1)
    for name in ("attention_mask", "token_type_ids", "mm_token_type_ids"):
        if name in given:
            new = torch.full_like(said, 0 if name == "mm_token_type_ids" else 1)
            given[name] = torch.cat((given[name], new), 1)
    output = model(**given, use_cache=False, output_attentions=implementation == "eager")
    steps = len(pieces)
    attentions = tuple(weights[0, :, -steps:] for weights in output.attentions or ())
    return output.logits[0, -steps:], attentions


def patch_places(family: str) -> dict[str, Tensor]:
    """Places of image tokens among all, on the grid of each view (rows, cols), as the prompt lists them."""
    if family == "git":
        return {"heads": torch.arange(1, 17).view(4, 4)}
    ids = inputs(family)["input_ids"][0]
    places = (ids == tiny(family).processor.image_token_id).nonzero()[:, 0]
    if family == "paligemma":
        return {"heads": places.view(4, 4)}
    if family in ("idefics3", "smolvlm"):  # two rows and two columns of tiles, then the whole
        tiles = places.view(5, 2, 2)
        placed = torch.cat([torch.cat((tiles[a], tiles[b]), 1) for a, b in ((0, 1), (2, 3))])
        return {"heads": placed, "second": tiles[4]}
    return {"heads": places.view(2, 2) if family == "idefics3 whole" else places.view(3, 4)}


@pytest.mark.parametrize("beams", [1, 3])
@families
def test_pieces_and_log_p_are_those_of_generate(family: str, beams: int) -> None:
    search = Greedy(LENGTH) if beams == 1 else GenerateBeam(beams, LENGTH, 1.0)
    caption = captioner(family)(PHOTO, search)
    given = inputs(family)
    theirs = tiny(family).model.generate(
        **given, num_beams=beams, max_new_tokens=LENGTH, length_penalty=1.0, do_sample=False,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    written = theirs.sequences[0, given["input_ids"].shape[1] if "input_ids" in given else 1 :].tolist()
    ours = pieces_of(caption, family)
    assert ours == written[: len(ours)]
    assert caption.finished == (len(ours) < len(written))
    if beams > 1:
        assert caption.log_prob / (len(ours) + caption.finished) == pytest.approx(
            float(theirs.sequences_scores[0]), abs=1e-5
        )


@families
def test_cached_steps_and_maps_are_those_of_the_eager_model_without_a_cache(family: str) -> None:
    caption = captioner(family)(PHOTO, Greedy(LENGTH)).stepwise
    pieces = pieces_of(caption, family)
    logits, attentions = uncached(family, pieces)
    theirs = logits.log_softmax(-1)[range(len(pieces)), pieces]
    np.testing.assert_allclose(caption.word_log_probs, theirs, atol=1e-5)
    assert len(attentions) == 2
    shares = []
    for layer, weights in enumerate(attentions):
        for view, places in patch_places(family).items():
            expected = weights[..., places.flatten()].transpose(0, 1).unflatten(-1, places.shape)
            np.testing.assert_allclose(caption.maps[f"layer {layer} {view}"], expected, atol=1e-6)
        all_places = torch.cat([places.flatten() for places in patch_places(family).values()])
        shares.append(weights[..., all_places].sum(-1).mean(0))
    captioner(family).decoder.summary = "mean"
    summed = captioner(family)(PHOTO, Greedy(LENGTH)).stepwise
    captioner(family).decoder.summary = "concentrated"
    elsewhere = 1 - torch.stack(shares).mean(0)
    np.testing.assert_allclose(summed.sentinel_shares, elsewhere, atol=1e-6)
    assert elsewhere.max() > 1e-2


@families
def test_a_forced_map_does_what_weights_edited_by_hand_do(family: str) -> None:
    caption = captioner(family)(PHOTO, Greedy(LENGTH)).stepwise
    pieces, places = pieces_of(caption, family), patch_places(family)
    views = captioner(family).encode([PHOTO])
    grids = [view.grid for view in views]

    def force(maps: Tensor, step: int, grid: tuple[int, int]) -> Tensor:
        """The share of this grid goes to its last cell at step 1."""
        if step != 1:
            return maps
        forced = torch.zeros_like(maps)
        forced[..., -1] = maps.sum(-1)
        return forced

    decoder = captioner(family).decoder
    state = decoder.start(captioner(family).project(views))
    ours, word = [], START
    with edit_maps(decoder, force, grids):
        for piece in pieces:
            log_probs, state = decoder.step(state, torch.tensor([[word]]))
            ours.append(float(log_probs[0, 0, piece + 4]))
            word = piece + 4

    def by_hand(weights: Tensor) -> Tensor:
        weights, row = weights.clone(), weights.shape[-2] - len(pieces) + 1
        for view in places.values():
            cells = view.flatten()
            share = weights[:, :, row, cells].sum(-1)
            weights[:, :, row, cells] = 0
            weights[:, :, row, cells[-1]] = share
        return weights

    def attention(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, scaling: Any, **_: Any) -> Any:
        k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
        weights = (q @ k.mT * scaling + mask).softmax(-1)
        weights = by_hand(weights) if hasattr(module, "num_key_value_groups") else weights
        return (weights @ v).transpose(1, 2), weights

    if family == "git":
        layers = tiny(family).model.git.encoder.layer
        hooks = [
            layer.attention.self.dropout.register_forward_hook(lambda module, args, output: by_hand(output))
            for layer in layers
        ]
        logits, _ = uncached(family, pieces)
        for hook in hooks:
            hook.remove()
    else:
        AttentionInterface.register("by_hand", attention)
        AttentionMaskInterface.register("by_hand", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
        logits, _ = uncached(family, pieces, {"text_config": "by_hand", "vision_config": "sdpa"})
    theirs = logits.log_softmax(-1)[range(len(pieces)), pieces]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert abs(caption.word_log_probs - theirs.numpy()).max() > 1e-3


@families
def test_hidden_patches_are_read_by_nothing(family: str) -> None:
    model = captioner(family)
    views = model.encode([PHOTO])
    mask = torch.ones(1, views[0].vectors.shape[1], dtype=torch.bool)
    mask[0, 2:] = False
    one = views[0]._replace(mask=mask)
    vectors = one.vectors.clone()
    vectors[:, 2:, : model.decoder.model.region_size] += 1
    start = torch.tensor([[START]])

    def answer(first: Any) -> Tensor:
        state = model.decoder.start(model.project((first, *views[1:])))
        log_probs, state = model.decoder.step(state, start)
        assert not state.trace.maps["layer 0 heads"][..., 2:].any()
        return log_probs

    torch.testing.assert_close(answer(one), answer(one._replace(vectors=vectors)))


def lit(model: Any, transform: Any, photo: Image.Image) -> list[np.ndarray]:
    """Of each view, the cells (rows, cols) whose tokens are not those of a black photo."""
    black = Image.new("RGB", photo.size)
    with torch.no_grad():
        seen, dark = (
            model.image_tokens(transform.read(image).pixels[None].double()) for image in (photo, black)
        )
    return [
        ((ours - blank).abs().amax(-1)[0] > 1e-2).view(grid).numpy()
        for ours, blank, grid in zip(seen.patches, dark.patches, seen.grids, strict=True)
    ]


SIZES = [(48, 32), (31, 77), (64, 64), (90, 21)]


@families
def test_tokens_lie_where_they_see_the_photo(family: str) -> None:
    # A tower without layers: a token sees its own patches alone.
    captioner = from_transformers(*FAMILIES[family](layers=0)).double()
    transform, rng = captioner.transform, np.random.default_rng(0)
    for width, height in SIZES:
        boxes = captioner.boxes(transform.box(width, height))
        for _ in range(2):
            left, top = int(rng.integers(0, width * 3 // 4)), int(rng.integers(0, height * 3 // 4))
            block = (left, top, left + width // 4, top + height // 4)
            photo = Image.new("RGB", (width, height))
            photo.paste((255, 255, 255), block)
            for cells, box in zip(lit(captioner.decoder.model, transform, photo), boxes, strict=True):
                for place, bright in np.ndenumerate(cells):
                    cell = cell_box(cells.shape, box, place)
                    overlap = min(
                        min(block[axis + 2], cell[axis + 2]) - max(block[axis], cell[axis]) for axis in (0, 1)
                    )
                    reach = max(cell.right - cell.left, cell.bottom - cell.top)  # of the resampling's filters
                    assert bright or overlap <= 1, (block, cell)
                    assert not bright or overlap >= -reach, (block, cell)


def test_photos_of_other_proportions_are_captioned_in_one_call() -> None:
    tall = PHOTO.rotate(90, expand=True)
    captions = captioner("qwen2-vl")([PHOTO, tall, PHOTO])
    assert [caption.weights.shape[1:] for caption in captions] == [(3, 4), (4, 3), (3, 4)]
    np.testing.assert_array_equal(captions[0].weights, captions[2].weights)
    assert captions[1].text == captioner("qwen2-vl")(tall).text
    with pytest.raises(UserError, match="proportions"):
        captioner("qwen2-vl").encode([PHOTO, tall])


def test_the_summary_puts_tiles_and_the_whole_on_one_grid() -> None:
    caption = captioner("idefics3")(PHOTO, Greedy(3)).stepwise
    assert caption.box == (0, 0, 60, 40)
    maps = type("", (), {})()
    maps.heads = torch.rand(1, 1, 1, 16)
    maps.second = torch.tensor([1.0, 0, 0, 0]).view(1, 1, 1, 4)
    joined = on_first_grid(maps, [(4, 4), (2, 2)]) - maps.heads
    expected = torch.zeros(4, 4)
    expected[:2, :2] = 0.25
    torch.testing.assert_close(joined.view(4, 4), expected)


def test_what_cannot_be_followed_says_so() -> None:
    parts = paligemma()
    with pytest.raises(UserError, match="AutoProcessor"):
        from_transformers(parts.model, parts.processor.image_processor, parts.tokenizer)
    parts.model.model.language_model.config.attn_logit_softcapping = 50.0
    with pytest.raises(UserError, match="attn_logit_softcapping"):
        from_transformers(*parts)
    with pytest.raises(UserError, match="image_seq_len"):
        from_transformers(*idefics3(tokens=5))(PHOTO)
    with pytest.raises(ImageError, match="1x300"):
        captioner("qwen2-vl")(Image.new("RGB", (1, 300)))


def test_another_question_makes_another_prompt() -> None:
    model = from_transformers(*qwen2_vl())
    before = model(PHOTO)
    model.decoder.model.question = "Which colour is it?"
    assert model(PHOTO).log_prob != before.log_prob
