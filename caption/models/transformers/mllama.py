"""Mllama (Llama 3.2 Vision), whose layers of cross-attention read the tiles of a photo."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPooling, CausalLMOutputWithPast

from caption.core.regions import Grid
from caption.models.transformers.image_text import ImageTextModel
from caption.models.transformers.layout import cells_of
from caption.models.transformers.model import Attend, ImageTokens, Memory
from caption.models.transformers.transformers_model import layer_memories


class Mllama(ImageTextModel):
    """`MllamaForConditionalGeneration`.

    A photo is cut into up to T tiles, each with a class token and patches. The tower always reads T tiles, the last
    ones of zeros. Only the pieces before the image's piece attend to tiles of zeros. Each token therefore carries the
    tokens of tiles of zeros at its place in a tile: D = T · d, filled up with zeros.
    """

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        vision = model.config.vision_config
        self.tiles, self.tile_tokens = vision.max_num_tiles, (vision.image_size // vision.patch_size) ** 2 + 1
        super().__init__(model, processor, tokenizer)
        self.region_size *= self.tiles
        self.mixing = (type(model.base_model.vision_model.transformer.layers[0]),)

    @staticmethod
    def check_contract(model: Any) -> None:
        """It has a contract of its own."""

    def reading_layers(self, language_model: Any) -> list[Any]:
        return [language_model.layers[number].cross_attn for number in language_model.cross_attention_layers]

    def get_image_features(
        self,
        pixel_values: Tensor,
        aspect_ratio_ids: Tensor,
        aspect_ratio_mask: Tensor,
        return_dict: bool = True,
    ) -> Any:
        """The tokens of the photo's tiles (B, N, D), in the form of `get_image_features` of other models."""
        base = self.whole.base_model
        output = base.vision_model(pixel_values, aspect_ratio_ids, aspect_ratio_mask)
        tokens = base.multi_modal_projector(output.last_hidden_state)[:, 0]
        shown = int(aspect_ratio_mask[0].sum())
        padded = pad(tokens, (0, 0, 0, 0, 0, (shown - 1) * self.tiles)).unflatten(1, (self.tiles, shown))
        carried = padded.permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)
        return BaseModelOutputWithPooling(pooler_output=carried)

    def cells(self, placed: Tensor, shape: tuple[int, ...], arguments: dict[str, Tensor]) -> Tensor:
        """See `layout.cells_of`. The first tile is the fullest; the others follow it, in row order."""
        ratios = self.whole.config.vision_config.supported_aspect_ratios
        rows, cols = ratios[int(arguments["aspect_ratio_ids"]) - 1]
        steps = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).flip(1) * placed[0, 2:]
        tiles = torch.cat((placed[0, :2] + steps, placed[0, 2:].expand(len(steps), -1)), 1)
        return cells_of(tiles, shape, len(tiles) * self.tile_tokens)

    def patch_places(self, grids: tuple[Grid, ...]) -> Tensor:
        return self.transform.layout(*self.transform.examples[grids]).order

    def routed(self, attend: Attend, words: bool) -> Any:
        """Its layers of cross-attention read no words."""
        return super().routed(attend, words=False)

    def memory(self, tokens: ImageTokens, mask: Tensor | None) -> Memory:
        output, arguments = self.read_prompt(tokens, mask, 1)
        (patches,), pieces, layers = tokens.patches, arguments["input_ids"][:, :-1], output.cache.layers
        crossing = [layers[number] for number in self.whole.get_decoder().cross_attention_layers]
        shown = patches.shape[1] + tokens.class_tokens.shape[1]
        for (
            layer
        ) in layers:  # steps read no tiles of zeros, and the first one reads the last piece of the prompt
            layer.crop(shown - self.tiles * self.tile_tokens if layer in crossing else -1)
        memories = layer_memories(
            crossing, self.patch_places(tokens.grids).to(pieces.device), mask, patches.shape[1]
        )
        for layer in crossing:  # without any keys, it would be left out
            layer.keys, layer.values = layer.keys[:, :, :1], layer.values[:, :, :1]
        past = tuple((layer.keys, layer.values) for layer in layers)
        return Memory(memories, (torch.full_like(pieces[:, :1], pieces.shape[1]), past), pieces)

    def read_prompt(
        self, tokens: ImageTokens, mask: Tensor | None, keep: int | Tensor
    ) -> tuple[Any, dict[str, Tensor]]:
        size, count = self.transform.examples[tokens.grids], self.tiles * self.tile_tokens
        asked, layout = self.asked(Image.new("RGB", size)), self.transform.layout(*size)
        joined = torch.cat((*tokens.patches, tokens.class_tokens), 1)
        device = joined.device
        order = torch.cat((layout.order, layout.others)).to(device)
        carried = joined[:, order.argsort()].unflatten(-1, (self.tiles, -1))
        image = carried.transpose(1, 2).flatten(1, 2)[:, :count]

        # Which pieces read which tokens of the image.
        pieces = asked["input_ids"].to(device).expand(len(joined), -1)
        of_tiles = asked["cross_attention_mask"][:, :, 0].to(device).bool()
        visible = of_tiles.repeat_interleave(self.tile_tokens, -1)
        reads = visible.any(-1, keepdim=True)
        visible = visible | ~reads  # as in transformers, which then leaves out the layer's feed-forward part
        if mask is not None:
            others = torch.ones_like(mask[:, :1]).expand(-1, len(layout.others))
            shown = torch.cat((mask, others), 1)[:, order.argsort()].repeat(1, self.tiles)
            visible = visible & shown[:, None, :count]
        output = self.whole.get_decoder()(
            input_ids=pieces, cross_attention_states=image, cross_attention_mask=visible[:, None],
            full_text_row_masked_out_mask=reads[:, None].to(image), cache=DynamicCache(), use_cache=True,
        )  # fmt: skip
        kept = output.last_hidden_state[:, slice(-keep, None) if isinstance(keep, int) else keep]
        answer = CausalLMOutputWithPast(logits=self.whole.lm_head(kept), cache=output.cache)
        return answer, {"input_ids": pieces}
