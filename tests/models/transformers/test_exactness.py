"""Foreign models give the numbers that they give in transformers, and their maps lie where they look: models whose
decoder has cross-attention, and language models that read image tokens."""

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
import transformers
from helpers.tiny_foreign import Tiny, blip, pix2struct, vit_gpt2, wordpiece_tokenizer
from helpers.tiny_image_text import IMAGE_TEXT, IMAGE_TOWER, TEMPLATE, TEXT, gemma3, ready, with_tokens
from helpers.tiny_readers import QUERIES, florence2
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from caption.analysis.faithfulness.adversary import adversarial_maps
from caption.analysis.faithfulness.curves import faithfulness_curves
from caption.analysis.faithfulness.permutation import permute
from caption.analysis.interventions import Force, intervene
from caption.analysis.maps import maps as draw_maps
from caption.analysis.self_attention.rollout import rollout
from caption.attention.map_hooks import edit_maps
from caption.core.box import cell_box
from caption.core.errors import ImageError, UserError
from caption.core.tensor_tree import leaves
from caption.models.transformers.captioner import ForeignCaptioner
from caption.models.transformers.decoder import on_first_grid
from caption.models.transformers.loading import from_transformers
from caption.models.transformers.probe import SIZES, probe
from caption.models.transformers.search import GenerateBeam
from caption.text.vocabulary import START

# -- tiny random models whose language model reads image tokens ------------------------------------------------------


def git(layers: int = 1) -> Tiny:
    """4 x 4 patches and a class token of the centre of a photo; `layers` is of its tower, here and below."""
    torch.manual_seed(0)
    tokenizer = wordpiece_tokenizer()
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    text = {name: value for name, value in TEXT.items() if name not in ("num_key_value_heads", "head_dim")}
    special = {"bos_token_id": start, "eos_token_id": end, "pad_token_id": tokenizer.pad_token_id}
    config = transformers.GitConfig(
        vision_config={**IMAGE_TOWER, "num_hidden_layers": layers}, vocab_size=len(tokenizer),
        **{**text, **special}, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.GitForCausalLM(config).eval()
    model.generation_config.update(max_length=9, **special)
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=16)
    return Tiny(model, transformers.GitProcessor(processor, tokenizer), tokenizer)


def paligemma(layers: int = 1, **text: Any) -> Tiny:
    """4 x 4 patches, in front of the prompt."""
    torch.manual_seed(0)
    tokenizer = with_tokens("<image>")
    images = transformers.SiglipImageProcessor(size={"height": 16, "width": 16})
    images.image_seq_length = 16
    processor = transformers.PaliGemmaProcessor(images, tokenizer)
    config = transformers.PaliGemmaConfig(
        vision_config={**IMAGE_TOWER, "model_type": "siglip_vision_model", "num_hidden_layers": layers,
                       "vision_use_head": False},
        text_config={"model_type": "gemma", "vocab_size": len(tokenizer), **TEXT, **text},
        image_token_index=processor.image_token_id, projection_dim=16, hidden_size=16,
    )  # fmt: skip
    return Tiny(ready(transformers.PaliGemmaForConditionalGeneration(config)), processor, tokenizer)


def idefics3(layers: int = 1, split: bool = True, tokens: int = 4, name: str = "Idefics3") -> Tiny:
    """2 x 2 tokens, of 2 x 2 patches each, for each tile of 16 x 16 pixels, two of them along a photo; `name` may be
    SmolVLM, whose own processor needs more packages."""
    torch.manual_seed(0)
    places = [f"<row_{row}_col_{col}>" for row in (1, 2) for col in (1, 2)]
    tokenizer = with_tokens("<image>", "<fake_token_around_image>", "<global-img>", *places)
    images = transformers.Idefics3ImageProcessor(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 16}, do_image_splitting=split
    )
    processor = transformers.Idefics3Processor(
        images, tokenizer, image_seq_len=tokens, chat_template=TEMPLATE.replace("IMAGE", "<image>")
    )
    config = getattr(transformers, f"{name}Config")(
        vision_config={**IMAGE_TOWER, "num_hidden_layers": layers},
        text_config={"model_type": "llama", "vocab_size": len(tokenizer), **TEXT},
        image_token_id=processor.image_token_id, scale_factor=2,
    )  # fmt: skip
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    return Tiny(ready(model), processor, tokenizer)


def qwen2_vl(layers: int = 1, name: str = "Qwen2VL") -> Tiny:
    """Tokens of 2 x 2 patches of 4 x 4 pixels each, 2 to 16 of a photo."""
    torch.manual_seed(0)
    tokenizer = with_tokens("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    images = transformers.Qwen2VLImageProcessor(
        patch_size=4, size={"shortest_edge": 2 * 64, "longest_edge": 16 * 64}
    )
    template = TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    videos = transformers.Qwen2VLVideoProcessor()
    processor = transformers.Qwen2VLProcessor(images, tokenizer, videos, chat_template=template)
    names = ("image_token", "video_token", "vision_start_token", "vision_end_token")
    numbers = (len(tokenizer) - 4 + place for place in range(4))
    tower: dict[str, Any] = {"depth": layers, "num_heads": 2, "patch_size": 4}
    if name == "Qwen2VL":
        tower["embed_dim"] = 16
    else:  # windows of 2 x 2 tokens, which the tower sorts together
        tower |= {
            "intermediate_size": 32,
            "out_hidden_size": 16,
            "window_size": 16,
            "fullatt_block_indexes": [],
        }
    tower |= {"hidden_size": 16, "initializer_range": 0.5}
    config = getattr(transformers, f"{name}Config")(
        vision_config=tower,
        text_config={"vocab_size": len(tokenizer), **TEXT,
                     "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}},
        **{f"{name}_id": number for name, number in zip(names, numbers, strict=True)},
    )  # fmt: skip
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    return Tiny(ready(model), processor, tokenizer)


# -- the families -----------------------------------------------------------------------------------------------------

PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))
CROSS: dict[str, Callable[..., Tiny]] = {
    "vit-gpt2": vit_gpt2,
    "vit-bert": lambda: vit_gpt2(decoder="bert"),
    "blip": blip,
    "pix2struct": pix2struct,
}
PREFIX: dict[str, Callable[..., Tiny]] = {
    "git": git,
    "paligemma": paligemma,
    "idefics3": idefics3,
    "idefics3 whole": lambda layers=1: idefics3(layers, split=False),
    "smolvlm": lambda layers=1: idefics3(layers, name="SmolVLM"),
    "qwen2-vl": qwen2_vl,
    "qwen2.5-vl": lambda layers=1: qwen2_vl(layers, "Qwen2_5_VL"),
    **IMAGE_TEXT,
    "gemma3 with a window": lambda layers=1: gemma3(layers, window=24),
    **QUERIES,
}
ENCODED = {"florence2": florence2}  # an encoder reads the image tokens and the question
FAMILIES = CROSS | PREFIX | ENCODED
families = pytest.mark.parametrize("family", FAMILIES)
LENGTH = 8


@pytest.fixture(autouse=True)
def masks_in_double_precision(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kosmos-2 makes its masks in the default type, which must hold the least number of the model's."""
    of_test = getattr(request.node, "callspec", None)
    if of_test is None or of_test.params.get("family") != "kosmos2":
        yield
        return
    torch.set_default_dtype(torch.double)
    yield
    torch.set_default_dtype(torch.float32)


@cache
def tiny(family: str) -> Tiny:
    parts = FAMILIES[family]()
    parts.model.double()
    return parts


@cache
def captioner(family: str) -> ForeignCaptioner:
    """Of the same weights; in double precision, so that differences are no rounding."""
    return from_transformers(*FAMILIES[family]()).double()


def search(beams: int = 1, early_stopping: bool | str = False) -> GenerateBeam:
    return GenerateBeam(beams, LENGTH, 1.0, early_stopping=early_stopping)


def inputs(family: str) -> dict[str, Any]:
    """All that the processor of transformers makes of the photo and the question."""
    parts = tiny(family)
    if family in CROSS or family == "git":
        made = parts.processor(images=PHOTO, return_tensors="pt")
    elif family == "paligemma":
        made = parts.processor(images=PHOTO, text="<image>caption en", return_tensors="pt")
        made.pop("labels", None)
    elif family in QUERIES or family in ENCODED:
        made = parts.processor(
            images=PHOTO, text=captioner(family).decoder.model.question, return_tensors="pt"
        )
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
    family: str, pieces: list[int], implementation: str = "eager", steps: int | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Logits (T, V) and attentions (M, T, P) of the steps of these pieces, or of the last `steps`, by the model without
    a cache."""
    model, given = tiny(family).model, inputs(family)
    said = torch.tensor([pieces[:-1]], dtype=torch.long)
    if family in CROSS or family in ENCODED:
        ids = torch.cat((torch.tensor([[captioner(family).decoder.model.start]]), said), 1)
        if family == "blip":
            image = model.vision_model(**given)[0]
            output = model.text_decoder(input_ids=ids, encoder_hidden_states=image, output_attentions=True)
        else:
            decoder = model.decoder if family in CROSS else model.model.language_model.decoder
            decoder.set_attn_implementation(implementation)
            output = model(**given, decoder_input_ids=ids, output_attentions=True)
        return output.logits[0], tuple(weights[0] for weights in output.cross_attentions)
    if family in QUERIES:
        model.get_decoder().set_attn_implementation(implementation)
    elif family != "git":
        masks = {"text_config": implementation, "vision_config": "sdpa"}
        model.set_attn_implementation(implementation if implementation == "eager" else masks)
    start = given.get("input_ids", torch.tensor([[model.generation_config.bos_token_id]]))
    given["input_ids"] = torch.cat((start, said), 1)
    for name in ("attention_mask", "token_type_ids", "mm_token_type_ids", "image_embeds_position_mask"):
        if name in given:
            of_text = 0 if name[:2] in ("mm", "im") or "gemma3" in family else 1
            new = torch.full_like(said, 1 if name == "attention_mask" else of_text)
            given[name] = torch.cat((given[name], new), 1)
    if "cross_attention_mask" in given:
        mask = given["cross_attention_mask"]
        given["cross_attention_mask"] = torch.cat((mask, mask[:, -1:].expand(-1, said.shape[1], -1, -1)), 1)
    output = model(**given, use_cache=False, output_attentions=implementation == "eager")
    output = getattr(output, "language_model_outputs", output)
    steps = steps or len(pieces)
    attentions = output.attentions or ()
    if family == "mllama":
        attentions = attentions[1::2]  # the layers of cross-attention
    return output.logits[0, -steps:], tuple(weights[0, :, -steps:] for weights in attentions)


def log_probs(family: str, pieces: list[int], implementation: str = "eager") -> Tensor:
    """Of these pieces (T,)."""
    logits, _ = uncached(family, pieces, implementation)
    return logits.log_softmax(-1)[range(len(pieces)), pieces]


@torch.no_grad()
def shares(family: str) -> Tensor:
    """(Q, 1 + L) of class token and patches in what each query token has read: a rollout over the attention that the
    Q-Former's own code returns, or Kosmos-2's attention itself."""
    model, given, layers = tiny(family).model, inputs(family), list[Tensor]()
    if family == "kosmos2":  # one layer, in which latent queries read the photo and each other
        model.text_model.set_attn_implementation("eager")
        return model.get_image_features(given["pixel_values"]).projection_attentions[0].mean(0)[:, :17]
    model.qformer.set_attn_implementation("eager")
    hooks = [
        module.register_forward_hook(lambda module, args, output: layers.append(output[1][0].mean(0)))
        for name, module in model.qformer.named_modules()
        if name.endswith("attention.attention")
    ]
    model.get_image_features(**{name: given[name] for name in given if "qformer" in name or "pixel" in name})
    for hook in hooks:
        hook.remove()
    assert [weights.shape[1] == 17 for weights in layers] == [False, True, False, False, True]
    read = torch.zeros(len(layers[0]), 17, dtype=torch.double)
    for weights in layers:
        if weights.shape[1] == 17:
            read[:3] += weights / 2  # one of two such layers
        else:
            read = (read + weights @ read) / 2
    return read[:3]


def of_patches(family: str, maps: Tensor) -> Tensor:
    """The maps on patches (..., rows, cols) of those on `patch_places`."""
    return (maps[..., 0, :] @ shares(family)[:, 1:]).unflatten(-1, (4, 4)) if family in QUERIES else maps


def patch_places(family: str) -> dict[str, Tensor]:
    """Places of image tokens among all, on the grid of each view (rows, cols), as the prompt lists them."""
    if family == "pix2struct":
        return {"heads": torch.arange(24).view(4, 6)}
    if family in CROSS or family in ENCODED or family == "git":
        return {"heads": torch.arange(1, 17).view(4, 4)}
    if family in QUERIES:
        first = 2 if family == "kosmos2" else 0  # after two pieces
        return {"heads": torch.arange(first, first + 3).view(1, 3)}
    if family == "mllama":  # two rows and two columns of tiles, each with a class token
        tiles = torch.arange(4 * 17).view(4, 17)[:, 1:].unflatten(1, (4, 4))
        return {"heads": torch.cat([torch.cat((*tiles[row : row + 2],), 1) for row in (0, 2)])}
    ids = inputs(family)["input_ids"][0]
    places = (ids == tiny(family).model.config.image_token_id).nonzero()[:, 0]
    if family in ("paligemma", "llava"):
        return {"heads": places.view(4, 4)}
    if "gemma3" in family:
        return {"heads": places.view(2, 2)}
    if family in ("llava-next", "llava-onevision"):  # the whole, then lines of all tiles, with an end
        return {"heads": places[16:].view(6, 9)[:, :8], "second": places[:16].view(4, 4)}
    if family == "internvl":  # two rows and three columns of tiles, then the whole
        tiles = places.view(7, 2, 2)
        placed = torch.cat([torch.cat((*tiles[row : row + 3],), 1) for row in (0, 3)])
        return {"heads": placed, "second": tiles[6]}
    if family in ("idefics3", "smolvlm"):  # two rows and two columns of tiles, then the whole
        tiles = places.view(5, 2, 2)
        placed = torch.cat([torch.cat((tiles[a], tiles[b]), 1) for a, b in ((0, 1), (2, 3))])
        return {"heads": placed, "second": tiles[4]}
    return {"heads": places.view(2, 2) if family == "idefics3 whole" else places.view(3, 4)}


@pytest.mark.parametrize(("beams", "early_stopping"), [(1, False), (3, False), (3, True), (3, "never")])
@families
def test_pieces_and_log_p_are_those_of_generate(family: str, beams: int, early_stopping: bool | str) -> None:
    caption = captioner(family)(PHOTO, search(beams, early_stopping))
    given = inputs(family)
    theirs = tiny(family).model.generate(
        **given, num_beams=beams, max_new_tokens=LENGTH, length_penalty=1.0, do_sample=False,
        early_stopping=early_stopping, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    fed = given["input_ids"].shape[1] if "input_ids" in given and family not in ENCODED else 1
    written = theirs.sequences[0, fed:].tolist()
    ours = pieces_of(caption, family)
    assert ours == written[: len(ours)]
    assert caption.finished == (len(ours) < len(written))
    if beams > 1:
        of_each_step = caption.log_prob / (len(ours) + caption.finished)
        assert of_each_step == pytest.approx(float(theirs.sequences_scores[0]), abs=1e-5)


@families
def test_cached_steps_and_maps_are_those_of_the_eager_model_without_a_cache(family: str) -> None:
    caption = captioner(family)(PHOTO, search()).stepwise
    pieces = pieces_of(caption, family)
    np.testing.assert_allclose(caption.word_log_probs, log_probs(family, pieces), atol=1e-5)
    _, attentions = uncached(family, pieces)
    assert len(attentions) == 2
    totals: list[Tensor] = []
    for layer, weights in enumerate(attentions):
        totals.append(torch.zeros(len(pieces), dtype=torch.double))
        for view, places in patch_places(family).items():
            expected = of_patches(family, weights[..., places].transpose(0, 1))
            np.testing.assert_allclose(caption.maps[f"layer {layer} {view}"], expected, atol=1e-6)
            totals[-1] += expected.sum((-1, -2)).mean(1)
    elsewhere = 1 - torch.stack(totals).mean(0)
    assert elsewhere.max() > 1e-3 or family == "pix2struct"  # which has patches alone


@pytest.mark.parametrize("family", CROSS | PREFIX)
def test_maps_of_the_questions_words_are_those_of_the_eager_model(family: str) -> None:
    ours = captioner(family)
    before = ours.decoder.model.question
    if (continues := family in CROSS or family == "git") or family in QUERIES:
        ours.decoder.model.question = "a red circle"
    question = ours.question(PHOTO)
    assert question.text == ours.decoder.model.question
    pieces = pieces_of(question, family)
    if continues:
        ours.decoder.model.question = ""
        logits, attentions = uncached(family, [*pieces, 0])
        rows = torch.arange(1, len(logits))
    else:
        prompt = inputs(family)["input_ids"][0].tolist()
        logits, attentions = uncached(family, [0], steps=len(prompt))
        first = next(n for n in range(len(prompt)) if prompt[n : n + len(pieces)] == pieces)
        rows = torch.arange(first, first + len(pieces))
    expected_log_probs = logits[rows - 1].log_softmax(-1)[range(len(pieces)), pieces]
    np.testing.assert_allclose(question.stepwise.word_log_probs, expected_log_probs, atol=1e-5)
    for layer, weights in enumerate(attentions):
        for view, places in patch_places(family).items():
            expected = of_patches(family, weights[:, rows][..., places].transpose(0, 1))
            np.testing.assert_allclose(question.stepwise.maps[f"layer {layer} {view}"], expected, atol=5e-6)
            assert expected.max() > 1e-3
    ours.decoder.model.question = before


def test_a_question_needs_words() -> None:
    with pytest.raises(UserError, match="no question whose maps"):
        captioner("blip").question(PHOTO)


def test_a_words_map_is_the_mean_of_its_pieces_and_its_log_p_their_sum() -> None:
    caption = captioner("vit-bert")(PHOTO)
    steps = caption.stepwise
    begins = [n for n, piece in enumerate(steps.words) if not piece.startswith("##") or n == 0]
    assert len(caption.words) == len(begins) < len(steps.words)
    for word, (start, end) in enumerate(zip(begins, [*begins[1:], None], strict=True)):
        of_word = slice(start, end)
        np.testing.assert_allclose(caption.weights[word], steps.weights[of_word].mean(0), atol=1e-6)
        for name, maps in caption.maps.items():
            np.testing.assert_allclose(maps[word], steps.maps[name][of_word].mean(0), atol=1e-6)
        assert caption.word_log_probs[word] == pytest.approx(steps.word_log_probs[of_word].sum(), abs=1e-5)
    assert caption.text == tiny("vit-bert").tokenizer.decode(pieces_of(caption, "vit-bert"))


@pytest.mark.parametrize("family", ["vit-gpt2", "vit-bert", "blip", "kosmos2"])
def test_maps_are_rolled_out_through_the_vision_tower(family: str) -> None:
    caption = captioner(family)(PHOTO)
    (rolled,) = rollout(captioner(family), [PHOTO], [caption])
    parts = tiny(family)
    tower = parts.model.encoder if "vit" in family else parts.model.vision_model
    tower.set_attn_implementation("eager")
    with torch.no_grad():
        first, second = tower(inputs(family)["pixel_values"], output_attentions=True).attentions
    mixed = [(weights[0].mean(0) + torch.eye(17)) / 2 for weights in (first, second)]
    expected = torch.from_numpy(caption.weights).double().flatten(1) @ (mixed[1] @ mixed[0])[1:, 1:]
    np.testing.assert_allclose(rolled.weights.reshape(-1, 16), expected, atol=1e-6)
    assert rolled.words == caption.words
    assert captioner(family)(PHOTO).text == caption.text


@pytest.mark.parametrize("family", ["vit-gpt2", "vit-bert"])
def test_relevance_is_that_of_the_whole_model_by_its_own_code(family: str) -> None:
    """Chefer et al. 2021, eqs. 5 to 10, written in NumPy over the attentions of transformers."""
    result = draw_maps(captioner(family), PHOTO, method="relevance")
    parts, step = tiny(family), 1
    for part in (parts.model.encoder, parts.model.decoder):
        part.set_attn_implementation("eager")
    pieces = torch.tensor([[captioner(family).decoder.model.start, *pieces_of(result, family)]])
    output = parts.model(**inputs(family), decoder_input_ids=pieces[:, :-1], output_attentions=True)
    layers = [*output.encoder_attentions, *output.decoder_attentions, *output.cross_attentions]
    log_probs = output.logits[0].log_softmax(-1)
    np.testing.assert_allclose(
        log_probs[range(len(log_probs)), pieces[0, 1:]].detach(), result.stepwise.word_log_probs, atol=1e-4
    )
    gradients = torch.autograd.grad(log_probs[step, pieces[0, step + 1]], layers)
    read = [(a * g).clamp_min(0)[0].mean(0).numpy(force=True) for a, g in zip(layers, gradients, strict=True)]

    def normalised(relevance: np.ndarray) -> np.ndarray:
        rest = relevance - np.eye(len(relevance))
        sums = rest.sum(1, keepdims=True)
        return np.eye(len(rest)) + rest / np.where(sums > 0, sums, 1)

    among_regions = (np.eye(17) + read[1]) @ (np.eye(17) + read[0])
    to_words, to_regions = np.eye(len(pieces[0]) - 1), np.zeros((len(pieces[0]) - 1, 17))
    for spoken, of_image in zip(read[2:4], read[4:], strict=True):
        to_words, to_regions = to_words + spoken @ to_words, to_regions + spoken @ to_regions
        to_regions = to_regions + normalised(to_words).T @ of_image @ normalised(among_regions)
    np.testing.assert_allclose(result.stepwise.weights[step].flatten(), to_regions[step, 1:], atol=1e-5)
    assert result.weights.max() > 1e-4
    assert captioner(family)(PHOTO).text == result.text


def test_relevance_needs_every_layer() -> None:
    with pytest.raises(UserError, match="Git does not give: take attention-x-gradient"):
        draw_maps(captioner("git"), PHOTO, method="relevance")


@pytest.mark.parametrize("family", FAMILIES)
def test_methods_of_maps_work_for_all_families(family: str) -> None:
    for method in ("mean", "gradcam", "attention-x-gradient", "occlusion"):
        result = draw_maps(captioner(family), PHOTO, method=method)
        assert np.isfinite(result.weights).all()
        assert result.weights.max() > 0


@families
def test_the_default_summary_is_the_map_of_its_name(family: str) -> None:
    """Also of models that read a coarser view of the photo, whose weights are added to those of the finer one."""
    given = captioner(family)(PHOTO)
    drawn = draw_maps(captioner(family), [PHOTO], [given], method="concentrated")[0]
    np.testing.assert_allclose(drawn.weights, given.weights, atol=1e-6)


# -- edits ---------------------------------------------------------------------------------------------------------


@contextmanager
def edited_by_hand(family: str, steps: int) -> Iterator[str]:
    """Within it, all heads of the eager model give the last cell of each grid that grid's share of step 1."""
    places = patch_places(family)
    length = {"pix2struct": 26}.get(family, 17) if family in CROSS else None
    if family in ENCODED:
        length = inputs(family)["input_ids"].shape[1]
    if family == "mllama":
        length = 4 * 17
    by_mask = family in PREFIX or family == "pix2struct"
    read = shares(family) if family in QUERIES else torch.empty(0)

    def edit(weights: Tensor) -> Tensor:
        if (
            length not in (None, weights.shape[-1]) or weights.shape[-2] == length
        ):  # among words, in an encoder
            return weights
        weights, row = weights.clone(), weights.shape[-2] - steps + 1
        if family in QUERIES:
            # The share of the patches is divided among query tokens by how much of the last patch was read through
            # each; the rest of each token is read as before.
            queries = places["heads"][0]
            own = weights[:, :, row, queries]
            rest = own * (1 - read[:, 1:].sum(-1))
            of_last = own * read[:, -1]
            given = (own - rest).sum(-1, keepdim=True)
            weights[:, :, row, queries] = rest + given * of_last / of_last.sum(-1, keepdim=True)
            return weights
        for view in places.values():
            cells = view.flatten()
            share = weights[:, :, row, cells].sum(-1)
            weights[:, :, row, cells] = 0
            weights[:, :, row, cells[-1]] = share
        return weights

    model = tiny(family).model
    if family in ("blip", "git"):
        parts = (
            [layer.crossattention.self for layer in model.text_decoder.bert.encoder.layer]
            if family == "blip"
            else [layer.attention.self for layer in model.git.encoder.layer]
        )
        hooks = [
            part.dropout.register_forward_hook(lambda module, args, output: edit(output)) for part in parts
        ]
        yield "eager"
        for hook in hooks:
            hook.remove()
        return

    def attention(
        module: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any,
        scaling: Any = None,
        position_bias: Any = 0,
        **_: Any,
    ) -> Any:
        k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
        scores = q @ k.mT * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        if by_mask and mask is None:  # Kosmos-2's queries read the photo
            return (scores.softmax(-1) @ v).transpose(1, 2), None
        if by_mask:
            scores = scores + mask + position_bias
        elif k.shape[2] != length:
            scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1)
        weights = scores.softmax(-1)
        of_text = family not in PREFIX or family in QUERIES or hasattr(module, "num_key_value_groups")
        weights = edit(weights) if of_text else weights
        return (weights @ v).transpose(1, 2), weights

    AttentionInterface.register("by_hand", attention)
    if by_mask:
        AttentionMaskInterface.register("by_hand", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    yield "by_hand"


@families
def test_a_forced_map_does_what_weights_edited_by_hand_do(family: str) -> None:
    caption = captioner(family)(PHOTO, search()).stepwise
    pieces, views = pieces_of(caption, family), captioner(family).encode([PHOTO])

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
    with edit_maps(decoder, force, [view.grid for view in views]):
        for piece in pieces:
            of_words, state = decoder.step(state, torch.tensor([[word]]))
            word = piece + 4
            ours.append(float(of_words[0, 0, word]))
    with edited_by_hand(family, len(pieces)) as implementation:
        theirs = log_probs(family, pieces, implementation)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert abs(caption.word_log_probs - theirs.numpy()).max() > 1e-3


@pytest.mark.parametrize("family", PREFIX | ENCODED)
def test_hidden_patches_are_read_by_nothing(family: str) -> None:
    model = captioner(family)
    one, *others = model.encode([PHOTO])
    mask = torch.ones(1, one.vectors.shape[1], dtype=torch.bool)
    mask[0, 2:] = False
    vectors = one.vectors.clone()
    vectors[:, 2:, : model.decoder.model.region_size] += 1

    def answer(**changes: Tensor) -> Tensor:
        state = model.decoder.start(model.project((one._replace(mask=mask, **changes), *others)))
        of_words, state = model.decoder.step(state, torch.tensor([[START]]))
        assert not state.trace.maps["layer 0 heads"][..., 2:].any()
        return of_words

    torch.testing.assert_close(answer(), answer(vectors=vectors))


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("question", ["a red circle", "two"])
@pytest.mark.parametrize("family", [*CROSS, "git", *QUERIES])
def test_a_caption_continues_a_text_as_in_generate(family: str, question: str, beams: int) -> None:
    model = captioner(family).decoder.model
    before, model.question = model.question, question
    given, fed = inputs(family), torch.tensor([model.prompt])
    with_end = torch.cat((fed, torch.tensor([[model.ends[0]]])), 1)  # which BLIP's `generate` removes
    name = "input_ids" if family in ("blip", "git", *QUERIES) else "decoder_input_ids"
    if family in QUERIES:
        fed = given[name]
    given[name] = with_end if family == "blip" else fed
    whole = FAMILIES[family]().model.double()  # not `tiny`, whose attention other tests exchange
    written = whole.generate(**given, num_beams=beams, max_new_tokens=LENGTH)[0, fed.shape[1] :]
    ours = pieces_of(captioner(family)(PHOTO, search(beams)), family)
    views = captioner(family).encode([PHOTO])
    mask = torch.ones(1, views[0].vectors.shape[1], dtype=torch.bool)
    mask[0, 2:] = False
    vectors = views[0].vectors.clone()
    vectors[:, 2:, : model.region_size] += 1
    one, other = (
        captioner(family).project((views[0]._replace(mask=mask, vectors=seen),))
        for seen in (views[0].vectors, vectors)
    )
    model.question = before
    assert ours == written[: len(ours)].tolist()
    read_by_text = [
        (memory.past, [layer.other_keys for layer in memory.projected]) for memory in (one, other)
    ]
    for before, after in zip(*map(leaves, read_by_text), strict=True):
        torch.testing.assert_close(before, after)  # the text does not read hidden patches


def test_a_map_forced_at_paligemmas_first_step_changes_what_its_last_piece_reads() -> None:
    parts = paligemma(num_hidden_layers=3)
    ours = from_transformers(*parts).double()
    given = dict(inputs("paligemma"))
    model, ids = parts.model.double(), given.pop("input_ids")

    def first(maps: Tensor, step: int, grid: tuple[int, int]) -> Tensor:
        forced = torch.zeros_like(maps)
        forced[..., 0] = maps.sum(-1)
        return forced

    def attention(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, scaling: float, **_: Any) -> Any:
        k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
        weights = (q @ k.mT * scaling).softmax(-1)
        weights = torch.cat((first(weights[..., :16], 0, (4, 4)), weights[..., 16:]), -1)
        return (weights @ v).transpose(1, 2), weights

    AttentionInterface.register("first", attention)
    AttentionMaskInterface.register("first", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    views = ours.encode([PHOTO])
    with torch.no_grad(), edit_maps(ours.decoder, first, [view.grid for view in views]):
        log_p, _ = ours.decoder.step(ours.decoder.start(ours.project(views)), torch.tensor([[START]]))
    with torch.no_grad():
        kept = model(input_ids=ids, **given, use_cache=True).cache
        kept.crop(-1)
        model.model.language_model.set_attn_implementation("first")
        expected = model(
            input_ids=ids[:, -1:], position_ids=torch.tensor([[ids.shape[1]]]), cache=kept, use_cache=True
        ).logits[0, -1]
    pieces = log_p[0, 0, 4:]
    shown = pieces > -torch.inf
    np.testing.assert_allclose(pieces[shown], expected.log_softmax(-1)[shown], atol=1e-5)


# -- geometry ------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("family", [*PREFIX, *ENCODED, "pix2struct"])
def test_tokens_lie_where_they_see_the_photo(family: str) -> None:
    # A tower without layers: a token sees its own patches alone.
    captioner = from_transformers(*FAMILIES[family](layers=0)).double()
    transform, rng = captioner.transform, np.random.default_rng(0)
    for width, height in [(48, 32), (31, 77), (64, 64), (90, 21)]:
        boxes = captioner.boxes(transform.box(width, height))
        for _ in range(2):
            left, top = int(rng.integers(0, width * 3 // 4)), int(rng.integers(0, height * 3 // 4))
            block = (left, top, left + width // 4, top + height // 4)
            photo = Image.new("RGB", (width, height))
            photo.paste((255, 255, 255), block)
            for cells, box in zip(lit(captioner.decoder.model, transform, photo), boxes, strict=True):
                for place, bright in np.ndenumerate(cells):
                    cell = cell_box(cells.shape, box, place)
                    overlap = min(min(block[a + 2], cell[a + 2]) - max(block[a], cell[a]) for a in (0, 1))
                    reach = max(cell.right - cell.left, cell.bottom - cell.top)  # of the resampling's filters
                    assert bright or overlap <= 1, (block, cell)
                    assert not bright or overlap >= -reach, (block, cell)


@pytest.mark.parametrize("family", [*CROSS, "git"])
def test_tokens_of_models_with_a_class_of_their_own_answer_to_their_own_cells(family: str) -> None:
    for size in SIZES:
        for view in probe(captioner(family), size):
            assert not view.wrong
            assert view.margin > 100


@families
def test_photos_are_captioned_together_as_one_by_one(family: str) -> None:
    model, random = captioner(family), np.random.default_rng(1)
    sizes = [(60, 40), (60, 40), (40, 60), (90, 20), (90, 20), (60, 40)]
    photos = [Image.fromarray(random.integers(0, 255, (*size[::-1], 3), dtype=np.uint8)) for size in sizes]
    photos.append(Image.new("RGB", (60, 40)))
    for together, photo in zip(model(photos, search(2)), photos, strict=True):
        alone = model(photo, search(2))
        assert together.text == alone.text
        assert together.log_prob == pytest.approx(alone.log_prob, abs=1e-5)
        np.testing.assert_allclose(together.weights, alone.weights, atol=1e-6)


def test_a_tile_of_zeros_is_not_padding() -> None:
    parts = idefics3()
    parts.processor.image_processor.do_normalize = False
    assert from_transformers(*parts)(Image.new("RGB", (60, 40))).weights.shape[1:] == (4, 4)


def test_photos_of_several_proportions_are_analysed_in_one_call() -> None:
    photos = [PHOTO, PHOTO.rotate(90, expand=True), PHOTO, PHOTO.transpose(Image.Transpose.ROTATE_180)]
    model = captioner("qwen2-vl")
    for together, photo in zip(draw_maps(model, photos, method="posterior"), photos, strict=True):
        np.testing.assert_allclose(
            together.weights, draw_maps(model, photo, method="posterior").weights, atol=1e-6
        )
    exchanged = permute(model, photos, model(photos), draws=1)
    assert set(exchanged.images[np.isnan(exchanged.falls["other image"])]) == {0, 1}  # alone on their grids
    alone = permute(model, photos[1], draws=1)
    np.testing.assert_allclose(exchanged.log_probs[exchanged.images == 1], alone.log_probs, atol=1e-6)


@pytest.mark.parametrize("measure", [faithfulness_curves, adversarial_maps])
def test_measures_that_count_regions_need_one_grid(measure: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="give photos of one grid at a time"):
        measure(captioner("pix2struct"), [PHOTO, PHOTO.resize((40, 90))])


def test_photos_of_other_proportions_are_captioned_in_one_call() -> None:
    tall, model = PHOTO.rotate(90, expand=True), captioner("qwen2-vl")
    captions = model([PHOTO, tall, PHOTO])
    assert [caption.weights.shape[1:] for caption in captions] == [(3, 4), (4, 3), (3, 4)]
    np.testing.assert_array_equal(captions[0].weights, captions[2].weights)
    assert captions[1].text == model(tall).text
    with pytest.raises(UserError, match="proportions"):
        model.encode([PHOTO, tall])
    with pytest.raises(ImageError, match="1x300"):
        model(Image.new("RGB", (1, 300)))
    parts = qwen2_vl()
    parts.processor.image_processor.do_resize = False
    with pytest.raises(ImageError, match="Qwen2VLImageProcessor refuses a photo of 60x44 pixels"):
        from_transformers(*parts)(Image.new("RGB", (60, 44)))


def test_a_photo_that_fits_in_one_tile_has_one_view() -> None:
    ours, photo = captioner("internvl"), PHOTO.resize((16, 16))
    whole = FAMILIES["internvl"]().model.double()  # not `tiny`, whose attention other tests exchange
    caption = ours(photo, search())
    assert {name: maps.shape[2:] for name, maps in caption.stepwise.maps.items()} == {
        "layer 0 heads": (2, 2),
        "layer 1 heads": (2, 2),
    }
    given = ours.decoder.model.asked(photo)  # type: ignore[operator]
    given["pixel_values"] = given["pixel_values"].double()
    written = whole.generate(**given, max_new_tokens=LENGTH)[0, given["input_ids"].shape[1] :].tolist()
    pieces = pieces_of(caption, "internvl")
    assert pieces == written[: len(pieces)]
    forced = intervene(ours, photo, Force((1, 1), at=0)).changed.stepwise
    np.testing.assert_allclose(forced.weights[0], [[0, 0], [0, forced.weights[0].sum()]], atol=1e-6)
    assert [each.weights.shape[1:] for each in ours([photo, PHOTO])] == [(2, 2), (4, 6)]


@pytest.mark.parametrize(("size", "grid"), [((16, 16), (4, 4)), ((32, 16), (4, 8)), ((16, 48), (12, 4))])
@torch.no_grad()
def test_tiles_of_zeros_are_read_by_what_stands_before_the_image_alone(
    size: tuple[int, int], grid: tuple[int, int]
) -> None:
    ours, photo = captioner("mllama"), PHOTO.resize(size)
    result = ours(photo, search())
    caption, pieces = result.stepwise, pieces_of(result, "mllama")
    whole = FAMILIES["mllama"]().model.double()  # not `tiny`, whose attention other tests exchange
    whole.set_attn_implementation("eager")
    given = ours.decoder.model.asked(photo)  # type: ignore[operator]
    given["pixel_values"] = given["pixel_values"].double()
    theirs = whole.generate(
        **given, max_new_tokens=LENGTH, return_dict_in_generate=True, output_logits=True, output_attentions=True
    )  # fmt: skip
    written = theirs.sequences[0, given["input_ids"].shape[1] :].tolist()
    assert pieces == written[: len(pieces)]
    for step, piece in enumerate(pieces):
        log_p = theirs.logits[step][0].log_softmax(-1)[piece]
        assert caption.word_log_probs[step] == pytest.approx(float(log_p), abs=1e-5)
        for layer in (0, 1):
            read = theirs.attentions[step][1 + 2 * layer][0, :, -1].unflatten(-1, (4, 17))
            tiles = read[:, :, 1:].unflatten(2, (4, 4))[:, : grid[0] * grid[1] // 16]
            joined = torch.cat((*tiles.unbind(1),), 2 if grid[0] == 4 else 1)
            np.testing.assert_allclose(caption.maps[f"layer {layer} heads"][step], joined, atol=1e-6)


def test_the_summary_puts_tiles_and_the_whole_on_one_grid() -> None:
    assert captioner("idefics3")(PHOTO, search()).box == (0, 0, 60, 40)
    heads, second = torch.rand(1, 1, 1, 16), torch.tensor([1.0, 0, 0, 0]).view(1, 1, 1, 4)
    joined = on_first_grid(heads, second, [(4, 4), (2, 2)]) - heads
    expected = torch.zeros(4, 4)
    expected[:2, :2] = 0.25
    torch.testing.assert_close(joined.view(4, 4), expected)


def test_what_cannot_be_followed_says_so_and_another_question_makes_another_prompt() -> None:
    parts = paligemma()
    with pytest.raises(UserError, match="AutoProcessor"):
        from_transformers(parts.model, parts.processor.image_processor, parts.tokenizer)
    parts.model.model.language_model.config.attn_logit_softcapping = 50.0
    with pytest.raises(UserError, match="attn_logit_softcapping"):
        from_transformers(*parts)
    with pytest.raises(UserError, match="image_seq_len"):
        from_transformers(*idefics3(tokens=5))(PHOTO)
    model = from_transformers(*qwen2_vl())
    before = model(PHOTO)
    model.decoder.model.question = "Which colour is it?"
    assert model(PHOTO).log_prob != before.log_prob
