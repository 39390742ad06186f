"""Several encoders of the same image, each with one or more views."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from caption.core.errors import UserError
from caption.encoders.base import Encoder


class SeveralEncoders(Encoder):
    """Concatenates the views of several encoders. Each gets the image normalised as in its training.

    Args:
        encoders: at least one; all are frozen or trained together.

    Raises:
        UserError: the list is empty.
    """

    fixed_graph = True

    def __init__(self, encoders: list[Encoder]) -> None:
        super().__init__()
        if not encoders:
            raise UserError("encoders is an empty list: name at least one encoder")
        self.encoders: Sequence[Encoder] = nn.ModuleList(encoders)  # type: ignore[assignment]
        self.region_sizes = tuple(size for encoder in encoders for size in encoder.region_sizes)

    def normalise(self, images: Tensor) -> Tensor:
        return images  # each encoder normalises them itself

    def features(self, images: Tensor) -> tuple[Tensor, ...]:
        views: list[Tensor] = []
        for encoder in self.encoders:
            maps = encoder.features(encoder.normalise(images))
            views += maps if isinstance(maps, tuple) else (maps,)
        return tuple(views)

    def load_pretrained(self) -> None:
        for encoder in self.encoders:
            encoder.load_pretrained()

    def freeze(self, frozen: bool = True) -> None:
        super().freeze(frozen)
        for encoder in self.encoders:
            encoder.frozen_statistics = self.frozen_statistics
            encoder.freeze(frozen)
