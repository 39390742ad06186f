"""Models that keep to what transformers guarantees of models for images and text. They need no class of their own.

These are the parts of the contract: the model's `get_image_features`; `image_token_id` of its configuration, the piece
in whose places a prompt holds the image; `mm_encoder_outputs` of its `forward`; the outputs of its processor, which
`generate` takes; and a language model whose layers use the attention interface.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from transformers.cache_utils import DynamicCache

from caption.core.errors import ImageError, UserError
from caption.core.regions import Grid
from caption.data.photos import ImageTransform
from caption.models.transformers.attention import PatchMaps, maps_of_rows
from caption.models.transformers.chat_templates import limited_templates
from caption.models.transformers.families import check_processor, end_pieces
from caption.models.transformers.layout import cells_of
from caption.models.transformers.model import ImageTokens
from caption.models.transformers.packed_pixels import PackedTransform
from caption.models.transformers.prefix import Prefix, PrefixModel
from caption.models.transformers.transformers_model import NAME, QuestionMaps, routed


class Question(NamedTuple):
    """A question about photos that share their grids, as `generate` gives it to the model."""

    arguments: dict[str, Tensor]
    """Of the model, (..., 1, P)."""
    places: Tensor
    """(L,) int64, the pieces that the tokens of patches replace, in the order of the views."""
    ends: Tensor
    """(1, S, D) the image tokens that end lines, the same for all photos."""
    parts: list[tuple[int, ...]]
    """Shapes of the features of a photo: of each part of a list, or of one tensor."""
    listed: bool
    output: type[Any]
    """The class of transformers in which the model finds features."""


class _FirstCall(Exception):
    """Ends `generate` before the language model runs."""


class ImageTextModel(PrefixModel):
    """A model that keeps to the contract.

    The last piece of the prompt is fed in the first step. The others are not computed again: if they read it, too, as
    in PaliGemma, a map forced at the first step changes what that piece reads, not what was read from it.

    Args:
        model, processor, tokenizer: of transformers; the processor expands the image's place in a prompt.

    Raises:
        UserError: the model breaks the contract, or changes its attention; the message says how.
    """

    transform: PackedTransform
    processor_loader = "AutoProcessor"
    is_probed = True

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        check_processor(model, processor)
        self.check_contract(model)
        ends = end_pieces(model) or end_pieces(model, tokenizer.eos_token_id)
        super().__init__(model, processor, tokenizer, [0], ends)
        self.prompts: dict[tuple[Grid, ...], Question] = {}
        self.question = FIRST_QUESTIONS.get(type(model).__name__, FIRST_QUESTIONS[""])
        language_model = model.get_decoder()
        text = language_model.config
        language_model.set_attn_implementation(NAME)
        sites = self.reading_layers(language_model)
        self.set_sites(sites, [text.num_attention_heads] * len(sites))
        self.deep = len(getattr(model.config.vision_config, "deepstack_visual_indexes", None) or [])
        self.region_size = text.hidden_size * (1 + self.deep)
        self.views = max(len(self.transform.layout(*size).grids) for size in ((64, 48), (640, 480)))
        tower = getattr(model.base_model, "vision_tower", None)
        if tower is not None and getattr(model.config, "vision_feature_layer", -1) == -1:
            self.tower = tower

    def reading_layers(self, language_model: Any) -> list[Any]:
        """The modules whose attention reads the image."""
        return [layer.self_attn for layer in language_model.layers]

    @property
    def get_image_features(self) -> Any:
        """The model's function of that name."""
        return self.whole.base_model.get_image_features

    def patch_places(self, grids: tuple[Grid, ...]) -> Tensor:
        """(L,) int64, the keys that are those of patches, in the order of the views."""
        return self.question_on(grids).places

    def make_transform(self, processor: Any) -> ImageTransform:
        return PackedTransform(self.arguments, self.cells)

    @property
    def question(self) -> str:
        """The question to the model about a photo; may be set."""
        return self._question

    @question.setter
    def question(self, question: str) -> None:
        self._question = question
        self.prompts.clear()
        self.start = int(self.asked(Image.new("RGB", (64, 48)))["input_ids"][0, -1])
        self.prompt = (self.start,)

    def asked(self, photo: Image.Image, question: str | None = None) -> Any:
        """The processor's output for a question about a photo; None = the model's question."""
        question = self.question if question is None else question
        if not getattr(self.processor, "chat_template", None):
            text = self.processor.image_token + question
            return self.processor(images=[photo], text=[text], return_tensors="pt")
        content = [{"type": "image", "image": photo}, {"type": "text", "text": question}]
        with limited_templates():
            return self.processor.apply_chat_template(
                [{"role": "user", "content": content}],
                add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
            )  # fmt: skip

    @property
    def packs(self) -> bool:
        """Whether the model joins the tokens of tiles and ends their lines by tokens, the same for all photos."""
        return hasattr(self.whole.base_model, "pack_image_features")

    @staticmethod
    def check_contract(model: Any) -> None:
        """Raise a UserError that names the part of the contract that the model breaks."""
        language_model = model.get_decoder()
        layers = getattr(language_model, "layers", [None])
        broken = [
            part
            for part, kept in {
                "image tokens with a place (it reads the photo by queries)": not any(
                    hasattr(model.base_model, part) for part in ("qformer", "image_to_text_projection")
                ),
                "a language model without an encoder of its own": not model.config.is_encoder_decoder,
                "get_image_features": hasattr(model.base_model, "get_image_features"),
                "image_token_id in its configuration": hasattr(model.config, "image_token_id"),
                "mm_encoder_outputs as an argument": "mm_encoder_outputs" in _parameters(model.forward),
                "a language model whose layers have self_attn": all(
                    hasattr(layer, "self_attn") for layer in layers
                ),
            }.items()
            if not kept
        ]
        if broken:
            raise UserError(
                f"{type(model).__name__} does not keep to what transformers guarantees of models for images and text, "
                f"because it lacks {broken[0]}: its maps cannot be seen"
            )
        if settings := [name for name in UNSUPPORTED if getattr(language_model.config, name, None)]:
            raise UserError(
                f"the text model of {type(model).__name__} changes its attention by {settings[0]}, which is not "
                "supported: use a model without it, such as the first PaliGemma"
            )

    def arguments(self, photo: Image.Image) -> tuple[Tensor, dict[str, Tensor]]:
        """The pixels of a photo, and the other arguments of `get_image_features`, as tensors of one photo.

        Raises:
            ImageError: the processor refuses the photo.
        """
        try:
            inputs = self.asked(photo)
        except (ValueError, RuntimeError) as error:
            name, (width, height) = type(self.processor.image_processor).__name__, photo.size
            raise ImageError(f"{name} refuses a photo of {width}x{height} pixels: {error}") from error
        names = _parameters(self.get_image_features) - {"pixel_values"}
        others = {name: torch.as_tensor(inputs[name]) for name in sorted(names & set(inputs))}
        return inputs["pixel_values"], others | {"count": (inputs["input_ids"] == self.image_piece).sum()}

    @property
    def image_piece(self) -> int:
        """The piece in whose places a prompt holds the image."""
        return int(self.whole.config.image_token_id)

    def cells(self, placed: Tensor, shape: tuple[int, ...], arguments: dict[str, Tensor]) -> Tensor:
        """(N, 4), see `layout.cells_of`: the places of the image tokens on these tiles."""
        if not self.packs:
            return cells_of(placed, shape, int(arguments["count"]))
        # It also crops the tokens of padding. Places are packed as the tokens are.
        vision = self.whole.config.vision_config
        in_tiles = cells_of(placed, shape, len(placed) * (vision.image_size // vision.patch_size) ** 2)
        pack = self.whole.base_model.pack_image_features
        options = {name: getattr(self.whole.config, name) for name in PACKING & _parameters(pack)}
        ends = in_tiles.new_full(in_tiles.shape[1:], torch.nan)
        tiles_alone = in_tiles.unflatten(0, (len(placed), -1))
        packed: Tensor = pack([tiles_alone], arguments["image_sizes"], image_newline=ends, **options)[0][0]
        return packed

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        made, device = self.transform.inputs[pixels.shape[1]], pixels.device
        values = self.tower_input(pixels)
        values = values.where(
            values != 0, torch.finfo(values.dtype).tiny
        )  # Idefics3 leaves out tiles of zeros
        arguments = {
            name: torch.cat([value.to(device)] * len(pixels))
            for name, value in made.arguments.items()
            if name != "count"
        }
        output = self.get_image_features(pixel_values=values, **arguments, return_dict=True)
        tokens = _joined(output, len(pixels), self.deep)
        layout = made.layout
        if tokens.shape[1] != len(layout.order) + len(layout.others):
            names, written = (
                [type(part).__name__ for part in (self.processor, self.whole)],
                made.arguments["count"],
            )
            raise UserError(
                f"{names[0]} writes {int(written)} image tokens for a photo of which {names[1]} makes "
                f"{tokens.shape[1]}: they do not belong together; check image_seq_len in processor_config.json"
            )
        in_order = tokens[:, layout.order.to(device)]
        patches = in_order.split([rows * cols for rows, cols in layout.grids], 1)
        others = tokens[:, layout.others.to(device)]
        # Ends of lines are the same for all photos.
        return ImageTokens(tuple(patches), layout.grids, others[:, :0] if self.packs else others)

    def tower_input(self, pixels: Tensor) -> Tensor:
        made = self.transform.inputs[pixels.shape[1]]
        return pixels[:, : torch.Size(made.shape).numel()].reshape(-1, *made.shape[1:])

    def question_on(self, grids: tuple[Grid, ...]) -> Question:
        """The question about a photo on these grids."""
        if grids not in self.prompts:
            inputs = self.asked(Image.new("RGB", self.transform.examples[grids], "grey"))
            given = {name: value for name, value in inputs.items() if name in _parameters(self.whole.forward)}
            called = self.first_call(given)
            output = called["mm_encoder_outputs"]["image"]
            pieces = called["input_ids"][0]
            self.check_pieces(pieces[pieces != self.image_piece].tolist())
            features = output.pooler_output
            listed = isinstance(features, (list, tuple))
            parts = [tuple(part.shape) for part in (features if listed else [features])]
            arguments = {
                name: value
                for name, value in called.items()
                if isinstance(value, Tensor) and value.shape[-1:] == pieces.shape
            }
            layout = self.transform.layout(*self.transform.examples[grids])
            places = (pieces == self.image_piece).nonzero()[:, 0][layout.order.to(pieces.device)]
            ends = _joined(output, 1, self.deep)[:, layout.others.to(pieces.device)]
            self.prompts[grids] = Question(arguments, places, ends, parts, listed, type(output))
        return self.prompts[grids]

    def first_call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The arguments with which `generate` first calls the model."""
        called: dict[str, Any] = {}

        def hook(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            called.update(kwargs)
            raise _FirstCall

        handle = self.whole.register_forward_pre_hook(hook, with_kwargs=True)
        weight = next(self.whole.parameters())
        given = {
            name: value.to(weight.device, weight.dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
        }
        try:
            with suppress(_FirstCall), torch.no_grad():
                self.whole.generate(**given, max_new_tokens=1, num_beams=1, do_sample=False)
        finally:
            handle.remove()
        return called

    def prefix(self, tokens: ImageTokens, mask: Tensor | None) -> Prefix:
        output, arguments = self.read_prompt(tokens, mask, 1)
        output.cache.crop(-1)  # the last piece of the prompt is fed to the first step
        places = self.question_on(tokens.grids).places.to(output.logits.device)
        position = arguments["position_ids"][..., 0, -1].reshape(-1)
        return Prefix(output.cache, places, position, arguments["input_ids"][:, :-1])

    def question_maps(self, tokens: ImageTokens) -> QuestionMaps:
        example, device = Image.new("RGB", self.transform.examples[tokens.grids]), tokens.patches[0].device
        # The question's pieces are those that differ from the prompt of an empty question.
        asked, without = (self.asked(example, text)["input_ids"][0] for text in (None, ""))
        first = _common(asked, without)
        rows = torch.arange(first, len(asked) - _common(asked[first:].flip(0), without[first:].flip(0)))
        pieces, rows = asked[rows].to(device), rows.to(device)
        patches, first_view = self.patch_places(tokens.grids).to(device), tokens.patches[0].shape[1]
        numbers, layers = self.layer_numbers, dict[int, PatchMaps]()

        def route(
            module: Any, query: Tensor, key: Tensor, value: Any, window: Any, mask: Tensor | None
        ) -> None:
            if (layer := numbers.get(id(module))) is not None:
                layers[layer] = maps_of_rows(query, key, mask, rows, patches, first_view)

        with routed(route):
            output, _ = self.read_prompt(tokens, None, rows - 1)
        log_probs = output.logits[0].float().log_softmax(-1).gather(1, pieces[:, None])[:, 0]
        return QuestionMaps(pieces, log_probs, [layers[number] for number in sorted(layers)])

    def read_prompt(
        self, tokens: ImageTokens, mask: Tensor | None, keep: int | Tensor
    ) -> tuple[Any, dict[str, Tensor]]:
        """The model's output for its prompt, and the arguments that hold this.

        Args:
            tokens, mask: see `prefix`.
            keep: the places of which logits are computed, or the number of the last ones.
        """
        patches = torch.cat(tokens.patches, 1)
        asked = self.question_on(tokens.grids)
        layout, images = self.transform.layout(*self.transform.examples[tokens.grids]), len(patches)
        others = asked.ends.to(patches).expand(images, -1, -1) if self.packs else tokens.class_tokens
        back = torch.cat((layout.order, layout.others)).argsort().to(patches.device)
        features = torch.cat((patches, others), 1)[:, back]
        arguments = {
            name: value.to(patches.device).expand(*value.shape[:-2], images, -1)
            for name, value in asked.arguments.items()
        }
        if mask is not None:
            places = asked.places.to(patches.device)
            visible = torch.ones_like(arguments["input_ids"]).index_copy(1, places, mask.long())
            arguments["attention_mask"] = visible
        first, *deeper = [
            _as_listed(part, asked) for part in features.unflatten(-1, (1 + self.deep, -1)).unbind(-2)
        ]
        of_layers = {"deepstack_features": deeper} if hasattr(asked.output, "deepstack_features") else {}
        output = asked.output(pooler_output=first, **of_layers)
        cache = DynamicCache()
        return self.whole(
            **arguments,
            mm_encoder_outputs={"image": output},
            logits_to_keep=keep,
            cache=cache,
            use_cache=True,
        ), arguments


UNSUPPORTED = ("attn_logit_softcapping",)
"""Settings of a language model that change its attention."""
FIRST_QUESTIONS = {
    "PaliGemmaForConditionalGeneration": "caption en",
    "": "Describe this image in one short sentence.",
}
"""By architecture; "" = all others."""
PACKING = {"vision_feature_select_strategy", "vision_aspect_ratio"}
"""Options of `pack_image_features`."""


def _parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def _common(first: Tensor, second: Tensor) -> int:
    """The number of pieces with which both begin."""
    length = min(len(first), len(second))
    return int((first[:length] == second[:length]).cumprod(0).sum())


def _joined(output: Any, images: int, deep: int) -> Tensor:
    """(B, N, D) of the output of `get_image_features`; those for deeper layers are joined to them."""
    layers = [output.pooler_output, *(output.deepstack_features if deep else ())]
    flat = [
        torch.cat([part.flatten(0, -2) for part in layer])
        if isinstance(layer, (list, tuple))
        else layer.flatten(0, -2)
        for layer in layers
    ]
    return torch.cat(flat, -1).unflatten(0, (images, -1))


def _as_listed(features: Tensor, asked: Question) -> Tensor | list[Tensor]:
    """Features (B, N, D) in the shapes in which the model makes them."""
    if not asked.listed:
        return features.reshape(-1, *asked.parts[0][1:-1], features.shape[-1])
    sizes = [torch.Size(shape[:-1]).numel() for shape in asked.parts]
    return [
        part.reshape(*shape[:-1], -1)
        for image in features
        for part, shape in zip(image.split(sizes), asked.parts, strict=True)
    ]
