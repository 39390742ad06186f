"""Idefics3 and SmolVLM, which read a photo in tiles and as a whole."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor

from caption.core.regions import Grid
from caption.models.transformers.model import ImageTokens
from caption.models.transformers.prefix import PromptModel
from caption.models.transformers.preprocessing import WholePhotoTransform


class TileTransform(WholePhotoTransform):
    """A photo stretched to whole tiles.

    Pixels are (rows + 1, cols, 3, S, S): the tiles in their places, and in the row below, first, the whole photo. They
    are (1, 1, 3, S, S) if the processor does not split photos.
    """

    def pixels(self, image: Image.Image) -> Tensor:
        inputs = self.processor(images=[[image]], return_row_col_info=True, return_tensors="pt")
        tiles = inputs["pixel_values"][0]
        rows, cols = inputs["rows"][0][0], max(1, inputs["cols"][0][0])
        pixels = tiles.new_zeros((rows + 1) * cols, *tiles.shape[1:])
        pixels[: len(tiles)] = tiles
        return pixels.unflatten(0, (rows + 1, cols))

    def brightness(self, pixels: Tensor) -> list[Tensor]:
        *tiles, below = pixels.mean(2)
        whole_photo = below[0]
        return [torch.cat([torch.cat([*row], 1) for row in tiles]), whole_photo] if tiles else [whole_photo]


class Idefics3(PromptModel):
    """`Idefics3ForConditionalGeneration` and `SmolVLMForConditionalGeneration`: SigLIP, patches merged into fewer, and
    Llama.

    The tiles are one view, the whole photo is the second. A prompt lists the tokens tile by tile.
    """

    transform_class = TileTransform

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(model, processor, tokenizer)
        pixels = self.transform.read(Image.new("RGB", (64, 48))).pixels
        self.views = 2 if len(pixels) > 1 else 1
        self.side = pixels.shape[-1] // model.config.vision_config.patch_size // model.config.scale_factor

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        rows, cols = pixels.shape[1] - 1, pixels.shape[2]
        tiles = pixels.flatten(1, 2)[:, : rows * cols + 1]
        # Not by get_image_features, which takes a tile of zeros for padding.
        seen = self.whole.model.vision_model(pixel_values=tiles.flatten(0, 1)).last_hidden_state
        tokens = self.whole.model.connector(seen).unflatten(0, tiles.shape[:2]).flatten(1, 2)
        whole_photo = (self.side, self.side)
        grids = ((rows * self.side, cols * self.side), whole_photo) if rows else (whole_photo,)
        in_order = tokens[:, self.order(grids).to(tokens.device)]
        patches = in_order.split([down * across for down, across in grids], 1)
        return ImageTokens(tuple(patches), grids, tokens[:, :0])

    def order(self, grids: tuple[Grid, ...]) -> Tensor:
        if len(grids) == 1:
            return super().order(grids)
        rows, cols = (cells // self.side for cells in grids[0])
        tiles = torch.arange((rows * cols + 1) * self.side**2).view(-1, self.side, self.side)
        placed = tiles[:-1].unflatten(0, (rows, cols)).transpose(1, 2)  # (rows, side, cols, side)
        return torch.cat((placed.flatten(), tiles[-1].flatten()))

    def blank(self, grids: tuple[Grid, ...]) -> Image.Image:
        if len(grids) == 1:
            return super().blank(grids)
        rows, cols = (cells // self.side for cells in grids[0])
        # The longer side is always cut into the most tiles; the other, half a tile shorter, still into as many.
        width, height = (2 * cols, 2 * rows - 1) if cols >= rows else (2 * cols - 1, 2 * rows)
        return Image.new("RGB", (width * 64, height * 64))
