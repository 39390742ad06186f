"""Qwen2-VL and Qwen2.5-VL, which read a photo on a grid of its own proportions."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor

from caption.core.errors import ImageError
from caption.core.regions import Grid
from caption.models.transformers.model import ImageTokens
from caption.models.transformers.prefix import PromptModel
from caption.models.transformers.preprocessing import WholePhotoTransform


class PatchTransform(WholePhotoTransform):
    """A photo stretched to whole patches, whose numbers of rows and columns keep its proportions.

    Pixels are (rows, cols, n, p): for each image token its n patches of p numbers, which the model merges.
    """

    def pixels(self, image: Image.Image) -> Tensor:
        try:
            inputs = self.processor(images=[image], return_tensors="pt")
        except (ValueError, RuntimeError) as error:
            raise ImageError(
                f"{type(self.processor).__name__} refuses a photo of {image.size[0]}x{image.size[1]} pixels: {error}"
            ) from error
        merged = self.processor.merge_size
        rows, cols = (int(side) // merged for side in inputs["image_grid_thw"][0, 1:])
        pixels: Tensor = inputs["pixel_values"]
        return pixels.view(rows, cols, merged**2, -1)

    def brightness(self, pixels: Tensor) -> list[Tensor]:
        merged, patch = self.processor.merge_size, self.processor.patch_size
        patches = pixels.unflatten(-1, (-1, patch, patch)).mean(3).unflatten(2, (merged, merged))
        # (rows, cols, merged, merged, patch, patch)
        return [patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(0, 2)]


class Qwen2VL(PromptModel):
    """`Qwen2VLForConditionalGeneration` and `Qwen2_5_VLForConditionalGeneration`."""

    transform_class = PatchTransform

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        images, rows, cols, patches, _ = pixels.shape
        side = round(patches**0.5)
        grid = torch.tensor([[1, rows * side, cols * side]] * images, device=pixels.device)
        features = self.whole.model.get_image_features(pixels.flatten(0, 3), grid).pooler_output
        tokens = torch.stack(tuple(features))
        return ImageTokens((tokens,), ((rows, cols),), tokens[:, :0])

    def blank(self, grids: tuple[Grid, ...]) -> Image.Image:
        processor = self.processor.image_processor
        side = processor.patch_size * processor.merge_size
        return Image.new("RGB", (grids[0][1] * side, grids[0][0] * side))

    def positions(self, inputs: Any) -> Tensor:
        arguments = {name: value for name, value in inputs.items() if not name.startswith("pixel_values")}
        positions: Tensor = self.whole.model.get_rope_index(**arguments)[0]
        return positions

    def position_ids(self, positions: Tensor) -> Tensor:
        return positions[None, :, None].expand(3, -1, -1)
