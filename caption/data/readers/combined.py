"""Several data sets as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from caption.core.errors import DataError
from caption.data.boxes import Boxes
from caption.data.findings import Findings
from caption.data.readers.base import CaptionReader, check_splits
from caption.data.splits import SPLIT_NAMES, Splits


@dataclass
class Combined(CaptionReader):
    """Several data sets as one, such as Flickr8k and a part of COCO: each split has the images of all of them.

    Args:
        readers: of the data sets. Within a split, every image needs its own id.
        repeats: how often an epoch has the training images of each data set, so that a small one has more weight;
            None = each once. Their words count as often, for `data.min_count` too.

    Raises:
        DataError: there is no reader; `repeats` has a different number of entries, or an entry below 1.
    """

    readers: list[CaptionReader]
    repeats: list[int] | None = None

    def __post_init__(self) -> None:
        if not self.readers:
            raise DataError(
                "a combined reader needs the readers of its data sets: list them under 'readers'."
            )
        if self.repeats is not None and (len(self.repeats) != len(self.readers) or min(self.repeats) < 1):
            raise DataError(
                f"repeats {self.repeats} do not fit {len(self.readers)} readers: give each a whole number, 1 or more."
            )

    def read(self) -> Splits:
        parts = [reader.read() for reader in self.readers]  # Shapes draws its scenes, if they are not there
        findings = Findings()
        check_splits(_joined(parts), findings, "the combined data sets")
        findings.refuse()
        return self._repeated(parts)

    def survey(self, findings: Findings) -> Splits:
        parts = [reader.survey(findings) for reader in self.readers]
        if not any(finding.kind.is_fault for finding in findings):  # shared images, if each data set is sound
            check_splits(_joined(parts), findings, "the combined data sets")
        return self._repeated(parts)

    def _repeated(self, parts: list[Splits]) -> Splits:
        for part, times in zip(parts, self.repeats or (), strict=False):
            part["train"] = part.get("train", []) * times
        return _joined(parts)

    def boxes(self, split: str) -> Mapping[int | str, Boxes] | None:
        parts = [boxes for reader in self.readers if (boxes := reader.boxes(split)) is not None]
        return {image: boxes for part in parts for image, boxes in part.items()} if parts else None


def _joined(parts: list[Splits]) -> Splits:
    """The images of each split, one data set after the other."""
    joined = {split: [image for part in parts for image in part.get(split, ())] for split in SPLIT_NAMES}
    return {split: images for split, images in joined.items() if images}
