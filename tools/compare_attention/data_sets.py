"""What mechanisms are trained and measured on: Shapes, or Flickr8k with precomputed regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

import caption
from caption.data.batches import Batch, CaptionedImages, Example
from caption.data.boxes import Boxes
from caption.data.decoding import open_image
from caption.data.feature_extraction import write_features
from caption.data.module import CaptionData
from caption.data.readers.captions import CaptionedImage
from caption.data.shapes import Shapes
from caption.encoders import Encoder
from caption.errors import UserError
from caption.features.store import FeatureStore
from caption.regions import Views

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SHARED = "shapes"
"""The installed model whose encoder all mechanisms share on Shapes."""


@dataclass(frozen=True)
class Budget:
    """What all mechanisms get alike."""

    epochs: int
    images: int
    """Of the training split."""
    test_images: int
    captions_per_image: int
    """Drawn anew in every epoch of training."""
    shared_encoder: bool
    """Whether all read the regions of one frozen encoder; else each trains its own from pixels."""

    @property
    def captions(self) -> str:
        """For the document."""
        return f"{self.captions_per_image} caption{'s' if self.captions_per_image > 1 else ''} per image"


class Split(ABC):
    """Images with their captions and regions."""

    images: list[CaptionedImage]

    @abstractmethod
    def __len__(self) -> int:
        """The number of batches."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """All batches once, with their views; of a training split in random order, drawn from torch's generator."""


class Splits(NamedTuple):
    """What one mechanism is trained and tested on."""

    train: Split
    test: Split
    regions: str
    """Whose regions they are, for the table."""


class DataSet(ABC):
    """A data set with the configuration over which the mechanisms are laid."""

    base: Path
    """The configuration."""
    names: tuple[str, ...] | None
    """The mechanisms that are compared; None = all overlays over `base`."""
    section: str
    """Of the document that holds the table."""
    suffix: str
    """Of the name of the JSON file beside the document."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """Of the command line: where the data is."""

    @abstractmethod
    def prepare(self, made: Iterable[tuple[Encoder, CaptionData]]) -> None:
        """Write what all runs read, before there are several at the same time."""

    @abstractmethod
    def splits(self, encoder: Encoder, data: CaptionData) -> Splits:
        """The splits with regions of an encoder, whose weights are set here."""

    @abstractmethod
    def boxes(self, data: CaptionData) -> Mapping[int | str, Boxes] | None:
        """Of the objects in test images; None if nobody has drawn them."""

    @abstractmethod
    def setting(self, budget: Budget) -> str:
        """What mechanisms were trained and tested on, and with which regions, for the document."""


class ShapesData(DataSet):
    """Generated scenes, which are decoded once and stay in memory with their regions.

    Args:
        budget: how many scenes, and whether the encoder is shared.
        folder: of the scenes, which are written when they are first read.
    """

    base = CONFIGS / "shapes_soft.yaml"
    names = None
    section = "mechanisms"
    suffix = ""

    def __init__(self, budget: Budget, folder: Path) -> None:
        self.budget = budget
        self.folder = folder
        self._splits: dict[str, Scenes] = {}

    @property
    def _reader_options(self) -> dict[str, Any]:
        counts = {"train": self.budget.images, "val": 1, "test": self.budget.test_images}
        return {"folder": str(self.folder), **counts}

    def reader(self) -> Shapes:
        """The scenes."""
        return Shapes(**self._reader_options)

    def arguments(self) -> list[str]:
        return [f"--data.reader.init_args.{name}={value}" for name, value in self._reader_options.items()]

    def prepare(self, made: Iterable[tuple[Encoder, CaptionData]]) -> None:
        self.reader().read()

    def boxes(self, data: CaptionData) -> Mapping[int | str, Boxes]:
        return data.reader.boxes("test")

    def setting(self, budget: Budget) -> str:
        regions = (
            f'Regions "shared": all mechanisms read the regions of one frozen encoder, that of the installed model '
            f"`{SHARED}`, which was trained together with additive attention. Refiners are trained on top of the same "
            'regions. "shared and own": a second encoder is trained with the mechanism.'
            if budget.shared_encoder
            else "Every mechanism is trained with an encoder of its own, from pixels."
        )
        return (
            f"Training: {budget.epochs} epochs over {budget.images:,} scenes of Shapes, {budget.captions} in each; "
            f"scores: {budget.test_images} test scenes.\n\n{regions}"
        )

    @cached_property
    def _shared(self) -> Encoder:
        encoder = caption.load(SHARED).encoder
        encoder.freeze()
        return encoder

    def splits(self, encoder: Encoder, data: CaptionData) -> Splits:
        keep = self.budget.shared_encoder and share(encoder, self._shared)
        some = any(not parameter.requires_grad for parameter in encoder.parameters())
        train, test = (self._split(data, split, encoder, keep) for split in ("train", "test"))
        return Splits(train, test, "shared" if keep else "shared and own" if some else "own")

    def _split(self, data: CaptionData, split: str, encoder: Encoder, keep: bool) -> Scenes:
        """With `keep`, the encoder is the shared one, and regions are computed once."""
        if split not in self._splits:
            self._splits[split] = Scenes(data, split)
        found = self._splits[split]
        found.encode_with(encoder, keep)
        return found


class Scenes(Split):
    """A split of Shapes in memory.

    Args:
        data: says how images are transformed and captions encoded.
        split: "train" or "test".
    """

    TEST_BATCH = 50

    def __init__(self, data: CaptionData, split: str) -> None:
        self.images = data.splits[split]
        self.trains = split == "train"
        self.batch_size = data.batch_size if self.trains else self.TEST_BATCH
        self.whole = self.trains and len(self.images) >= self.batch_size
        per_image = data.captions_per_image if self.trains else None
        self.examples = _InMemory(self.images, data.vocabulary, data.transform, per_image, data.max_words)
        self._regions: Views | None = None

    def __len__(self) -> int:
        return max(1, len(self.images) // self.batch_size)

    def encode_with(self, encoder: Encoder, keep: bool) -> None:
        """Set the encoder of all images; with `keep`, their regions are computed at the first call and kept."""
        self._encoder = encoder
        self._keep = keep
        if keep and self._regions is None:
            with torch.no_grad():
                self._regions = encoder.eval()(self.examples.pixels)

    def batches(self) -> Iterator[Batch]:
        loader = DataLoader(
            self.examples,
            self.batch_size,
            shuffle=self.trains,
            drop_last=self.whole,
            collate_fn=self.examples.collate,
        )
        for batch in loader:
            yield batch._replace(views=self._views(batch))

    def _views(self, batch: Batch) -> Views:
        rows = torch.tensor([self.examples.rows[each] for each in batch.ids])
        if not self._keep:
            return self._encoder(self.examples.pixels[rows])
        assert self._regions is not None
        return tuple(view._replace(vectors=view.vectors[rows]) for view in self._regions)


class _InMemory(CaptionedImages):
    """Captioned images that are decoded once."""

    def __init__(self, images: list[CaptionedImage], *args: Any) -> None:
        super().__init__(images, *args)
        photos = [open_image(image.path) for image in images]
        self.pixels = torch.stack([self.transform(photo) for photo in photos])
        self.image_boxes = [self.transform.box(*photo.size) for photo in photos]
        self.rows = {image.id: row for row, image in enumerate(images)}

    def example(self, index: int, captions: list[list[int]], random: np.random.Generator) -> Example:
        return Example(self.images[index], None, captions, self.image_boxes[index])


class Flickr8kData(DataSet):
    """Flickr8k, with the regions of frozen encoders in feature stores, one for each encoder that a mechanism has.

    Args:
        root: folder with Flickr8k.token.txt, Flickr_8k.{train,dev,test}Images.txt and images/.
        weights: state dict of MobileNetV2 (inputs in -1...1).
        folder: of the feature stores.
    """

    base = CONFIGS / "flickr8k_small.yaml"
    names = (
        "show_and_tell",
        "mean_pooling",
        "additive",
        "dot",
        "general",
        "multi_head",
        "local_predicted",
        "sparsemax",
        "cbam",
        "self_attention",
        "sentinel",
        "top_down",
        "hierarchical",
        "hard",
        "transformer",
    )
    section = "flickr8k"
    suffix = "_flickr8k"

    def __init__(self, root: Path, weights: Path, folder: Path) -> None:
        for path in (root / "Flickr8k.token.txt", root / "images", weights):
            if not path.exists():
                raise UserError(
                    f"{path} does not exist: --flickr8k takes the folder with Flickr8k.token.txt and images/, "
                    "--weights the state dict of MobileNetV2"
                )
        self.root = root
        self.weights = weights
        self.folder = folder

    def arguments(self) -> list[str]:
        reader = {"captions": self.root / "Flickr8k.token.txt", "images": self.root / "images"} | {
            f"splits.{split}": self.root / f"Flickr_8k.{name}Images.txt"
            for split, name in (("train", "train"), ("val", "dev"), ("test", "test"))
        }
        return [
            *(f"--data.reader.init_args.{name}={path}" for name, path in reader.items()),
            f"--model.encoder.init_args.weights={self.weights}",
        ]

    def prepare(self, made: Iterable[tuple[Encoder, CaptionData]]) -> None:
        done = set()
        for encoder, data in made:
            if (store := self._store(encoder)) not in done:
                done.add(store)
                encoder.load_pretrained()
                encoder.freeze()
                images = [image for split in data.splits.values() for image in split]
                write_features(encoder, data.transform, images, store)

    def _store(self, encoder: Encoder) -> Path:
        return self.folder / "_".join(str(size) for size in encoder.region_sizes)

    def splits(self, encoder: Encoder, data: CaptionData) -> Splits:
        encoder.load_pretrained()
        encoder.freeze()
        data.store = FeatureStore(self._store(encoder))
        data.store.matches(encoder, data.transform)
        views = zip(data.store.grids, encoder.region_sizes, strict=True)
        sizes = " + ".join(f"{rows}×{cols}×{size}" for (rows, cols), size in views)
        return Splits(Stored(data, "train"), Stored(data, "test"), sizes)

    def boxes(self, data: CaptionData) -> None:
        return None

    def setting(self, budget: Budget) -> str:
        return (
            f"Training: {budget.epochs} epochs over the {budget.images:,} training photos of Flickr8k, "
            f"{budget.captions} in each; scores: {budget.test_images:,} test photos. The encoder is MobileNetV2, "
            f"frozen; sizes are those of `configs/{self.base.name}`, half of `flickr8k_soft.yaml`."
        )


class Stored(Split):
    """A split whose regions are read from a feature store, batch by batch."""

    def __init__(self, data: CaptionData, split: str) -> None:
        self.images = data.splits[split]
        self.data = data
        self.loader = data.train_dataloader() if split == "train" else data.test_dataloader()

    def __len__(self) -> int:
        return len(self.loader)

    def batches(self) -> Iterator[Batch]:
        for batch in self.loader:
            yield self.data.transfer_batch_to_device(batch, torch.device("cpu"), 0)


def share(encoder: Encoder, shared: Encoder) -> bool:
    """Load the shared weights into every encoder of the same architecture, and freeze these.

    Returns:
        whether the encoder is now the shared one, with nothing else in it.
    """
    for part in [each for each in encoder.modules() if isinstance(each, Encoder)]:
        if part.spec == shared.spec:
            part.load_state_dict(shared.state_dict())
            part.freeze()
    return encoder.spec == shared.spec
