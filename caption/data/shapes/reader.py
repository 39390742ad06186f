"""The embedded dataset as a data source: generated where it is not there yet, then read like any COCO data."""

from __future__ import annotations

from collections.abc import Mapping

from caption.analysis.grounding import Boxes, read_boxes
from caption.data.readers.captions import CaptionReader, Splits, located
from caption.data.readers.coco import Coco
from caption.data.shapes.dataset import ensure_shapes


class Shapes(CaptionReader):
    """Small scenes of coloured shapes, with captions and boxes; see `caption.data.shapes.dataset`.

    Args:
        folder: where the images and annotations are, or will be written.
        train: number of training scenes.
        val: number of validation scenes.
        test: number of test scenes.
        size: side of a scene in pixels.
        seed: other seeds give other scenes.
    """

    def __init__(
        self,
        folder: str = "data/shapes",
        train: int = 4000,
        val: int = 500,
        test: int = 500,
        size: int = 64,
        seed: int = 0,
    ) -> None:
        self.folder = located(folder)
        self.counts = {"train": train, "val": val, "test": test}
        self.size = size
        self.seed = seed

    def read(self) -> Splits:
        ensure_shapes(self.folder, **self.counts, size=self.size, seed=self.seed)
        captions = {split: str(self.folder / f"{split}.json") for split in self.counts}
        return Coco(captions, dict.fromkeys(captions, str(self.folder / "images"))).read()

    def boxes(self, split: str) -> Mapping[int | str, Boxes]:
        return read_boxes(self.folder / f"{split}_objects.json")
