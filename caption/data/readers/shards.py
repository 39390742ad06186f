"""The validation and test splits that `caption prepare shards` writes beside the shards of the training split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from caption.data.files import entries, field, read_json
from caption.data.readers.captions import CaptionedImage, CheckedReader, Findings, Splits, check_split_names

EVALUATION, IMAGES = "evaluation.json", "evaluation"


@dataclass
class ShardEvaluation(CheckedReader):
    """The splits other than train of a folder of shards, whose images are files. Ids are those of the original data.

    Args:
        folder: made by `caption prepare shards`.
    """

    folder: str

    @property
    def source(self) -> str:
        return f"'{Path(self.folder) / EVALUATION}'"

    def collect(self, findings: Findings) -> Splits:
        folder = Path(self.folder).expanduser()
        splits: Splits = {}
        for number, entry in enumerate(entries(read_json(folder / EVALUATION), "images", self.source)):
            where = f"entry {number} of {self.source}"
            with findings.skipping():
                image = CaptionedImage(
                    field(entry, "id", (int, str), where),
                    folder / IMAGES / field(entry, "file", str, where),
                    tuple(field(entry, "captions", list, where)),
                )
                splits.setdefault(field(entry, "split", str, where), []).append(image)
        check_split_names(splits)
        return splits
