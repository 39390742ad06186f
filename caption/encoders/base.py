"""The interface of encoders, which turn an image into one or more grids of region vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.core.box import Box
from caption.core.errors import UserError
from caption.core.parts import Part
from caption.core.regions import Regions, Views
from caption.core.runtime.eval_mode import eval_mode
from caption.encoders.fine_tuning import Freezable
from caption.encoders.grid_boxes import grid_boxes


class Encoder(Part, Freezable):
    """Base class of encoders: CNNs that keep their spatial grid, and can be frozen."""

    region_sizes: tuple[int, ...]
    """Length D of the region vectors of each view. Set in the constructor."""
    trust: tuple[str, ...] | None = None
    """The user's --trust for the file that describes this encoder; None = it does not come from a file."""
    fixed_graph: bool = False
    """Whether `normalise` and `features` apply the same operations to all images, and only weights change after
    construction, so that the graph can be folded (`caption.kernels.encoder`). Derived classes must declare it again."""

    def features(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Normalised images (B, 3, H, W) float -> a feature map (B, D, rows, cols), or one for each view."""
        raise NotImplementedError

    def normalise(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) uint8 -> float, in the scale of the encoder's training."""
        raise NotImplementedError

    def load_pretrained(self) -> None:
        """Load the weights named in the configuration, if any.

        Not done at construction: a checkpoint contains the weights, so loading it must not need the file.
        """

    def forward(self, images: Tensor) -> Views:
        """Images (B, 3, H, W) uint8, the output of the image transform -> their regions, view by view."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            views = self.feature_maps(images)
        return tuple(
            Regions(maps.flatten(2).transpose(1, 2), (maps.shape[2], maps.shape[3])) for maps in views
        )

    def feature_maps(self, images: Tensor) -> tuple[Tensor, ...]:
        """Images (B, 3, H, W) uint8 -> the feature map (B, D, rows, cols) of each view."""
        maps = self.features(self.normalise(images))
        return maps if isinstance(maps, tuple) else (maps,)

    def boxes(self, height: int, width: int) -> tuple[Box, ...]:
        """The part of an input that the grid of each view covers, in the input's pixels; see `grid_boxes`.

        It is computed once for each height and width.
        """
        by_size: dict[tuple[int, int], tuple[Box, ...]] = self.__dict__.setdefault("boxes_by_size", {})
        if (height, width) not in by_size:
            devices = (tensor.device for tensor in (*self.parameters(), *self.buffers()))
            images = torch.zeros(1, 3, height, width, dtype=torch.uint8, device=next(devices, None))
            with eval_mode(self):
                try:
                    boxes = grid_boxes(
                        self._maps_or_regions, images[:0]
                    )  # an empty batch: only sizes are computed
                except Exception:  # some operations need an image
                    boxes = grid_boxes(self._maps_or_regions, images)
            by_size[height, width] = boxes
        return by_size[height, width]

    def _maps_or_regions(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The feature maps of `features`; the regions, if a class overrides `forward`."""
        if type(self).forward is not Encoder.forward:
            return tuple(view.vectors for view in self(images))
        return self.features(self.normalise(images))


def view_sizes(part: nn.Module) -> tuple[int, ...]:
    """The `region_sizes` of an encoder or refiner. Raises a UserError if a custom class has not set them."""
    sizes = getattr(part, "region_sizes", None)
    if not (isinstance(sizes, tuple) and sizes and all(isinstance(size, int) and size > 0 for size in sizes)):
        raise UserError(
            f"{type(part).__qualname__} has region_sizes {sizes!r}: set it to the length of the region vectors of "
            "each view, such as (512,)"
        )
    return sizes
