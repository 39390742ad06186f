"""The rows of the table: trainings, captions of the dev and test splits, and their scores."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from caption.analysis.lens import Lens, make_lens
from caption.analysis.lens.calibration import fit as fit_lens
from caption.analysis.lens.calibration import read_photo
from caption.analysis.lens.file import SUFFIX, read_lens, save_lens
from caption.analysis.lens.naming import Namer
from caption.box import Box
from caption.data.files import read_text
from caption.data.readers import Flickr
from caption.data.readers.captions import CaptionedImage
from caption.features.store import FeatureStore
from caption.metrics import evaluate
from caption.models.model_zoo import load
from caption.regions import Regions, Views
from caption.result import Caption
from caption.runtime.files import replacing
from tools.reproduce.runs import CONFIGS, fit
from tools.untaught.slots import BATCH, fill, write_slots
from tools.untaught.things import SPLITS, naming

SIZES = [
    "--model.refiner.init_args.size=256",
    "--model.decoder.init_args.attention.init_args.score.init_args.size=128",
    "--model.decoder.init_args.embedding_size=128",
    "--model.decoder.init_args.hidden_size=256",
    "--model.search.init_args.beam_size=3",
    "--data.batch_size=32",
    "--trainer.enable_progress_bar=false",
]
"""Half the sizes of flickr8k_soft."""
EPOCHS, SLOT_EPOCHS, SLOT_RATE = 5, 2, 3e-4
LEAST = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Probabilities from which the lens is sure; one is chosen on the dev split."""
BASELINE, SEARCH, NAMING, SLOT, ALL = "without", "search", "naming", "slot", "all"
ROWS = {
    BASELINE: "trained without",
    SEARCH: "constrained beam search, for CIDEr",
    NAMING: "constrained beam search, for F1",
    SLOT: "slot",
    ALL: "trained with all captions",
}
Captions = dict[str, str]
"""Of photos."""
Scores = dict[str, Any]


class Places(NamedTuple):
    """Where everything lies."""

    data: Path
    """Flickr8k."""
    out: Path
    regions: Path
    """Stored regions."""

    def arguments(self, row: str, seed: int) -> list[str]:
        """The data of `caption fit`."""
        lists = {split: str(self.out / f"{split}.txt") for split in SPLITS}
        captions = self.out / "captions.txt"
        if row == ALL:
            captions = self.data / "Flickr8k.token.txt"
            lists = {split: str(self.data / f"Flickr_8k.{name}Images.txt") for split, name in SPLITS.items()}
        if row == SLOT:
            captions = self.out / f"slots_{seed}.txt"
        return [
            f"--data.reader.init_args.captions={captions}",
            f"--data.reader.init_args.images={self.data / 'images'}",
            f"--data.reader.init_args.splits={json.dumps(lists)}",
            f"--data.features={self.regions}",
            f"--seed_everything={seed}",
        ]

    def photos(self, split: str) -> list[CaptionedImage]:
        """The photos of a split with all their captions."""
        lists = {split: str(self.data / f"Flickr_8k.{SPLITS[split]}Images.txt")}
        return Flickr(str(self.data / "Flickr8k.token.txt"), lists, str(self.data / "images")).read()[split]

    def taught(self) -> dict[str, Sequence[str]]:
        """The captions of the dev photos that are taught."""
        lists = {"val": str(self.out / "val.txt")}
        photos = Flickr(str(self.out / "captions.txt"), lists, str(self.data / "images")).read()["val"]
        return {str(photo.id): photo.captions for photo in photos}


class Model:
    """A trained model, with its captions of the dev and test photos, and its lens."""

    def __init__(self, places: Places, checkpoint: Path) -> None:
        self.places, self.checkpoint = places, checkpoint
        self.captioner = load(checkpoint)
        self.store = FeatureStore(places.regions)
        self._captions: dict[str, list[Caption]] = {}

    def views(self, photos: Sequence[str]) -> Views:
        """Stored regions in single precision."""
        return tuple(v._replace(vectors=v.vectors.float()) for v in self.store.read_many(photos))

    def regions(self, photo: str) -> Regions:
        """(1, L, D) the stored regions of a photo."""
        return self.views([photo])[0]

    def batches(self, split: str) -> Iterator[list[str]]:
        names = [str(photo.id) for photo in self.places.photos(split)]
        yield from (names[first : first + BATCH] for first in range(0, len(names), BATCH))

    def captions(self, split: str) -> dict[str, Caption]:
        """The captions of all photos of a split, found once."""
        captioner, seen = self.captioner, Box(0, 0, 1, 1)
        if split not in self._captions:
            self._captions[split] = [
                caption
                for batch in self.batches(split)
                for views in [self.views(batch)]
                for caption in captioner.captions(
                    captioner.generate(views), captioner.grids(views), [seen] * len(batch)
                )
            ]
        names = (name for batch in self.batches(split) for name in batch)
        return dict(zip(names, self._captions[split], strict=True))

    @cached_property
    def lens(self) -> Lens:
        """Calibrated on the dev photos with the captions that are taught; kept beside the checkpoint."""
        path = self.checkpoint.with_suffix(SUFFIX)
        if not path.exists():
            lens, taught = make_lens(self.captioner), self.places.taught()
            captions = self.captions("val")
            readings = [
                read_photo(lens, self.regions(photo), captions[photo], references)
                for photo, references in taught.items()
            ]
            save_lens(Lens(lens.classifier, lens.nouns, fit_lens(lens, readings)), self.captioner, path)
        return read_lens(path, self.captioner)


def trained(places: Places, row: str, seed: int, more: Sequence[str]) -> Path:
    """The best checkpoint of a row; its training goes on where it was stopped."""
    epochs, slot = EPOCHS, []
    if row == SLOT:
        start, captions = trained(places, BASELINE, seed, more), places.out / f"slots_{seed}.txt"
        if not captions.exists():
            model = Model(places, start)
            token_file, photos = places.out / "captions.txt", places.out / "train.txt"
            write_slots(model.captioner, model.lens, model.store, token_file, photos, captions)
        epochs = SLOT_EPOCHS
        slot = [
            "--model.decoder.class_path=caption.decoders.SeenWordDecoder",
            f"--model.warm_start={start}",
            f"--model.optimizer.init_args.lr={SLOT_RATE}",
        ]
    schedule = [
        f"--trainer.max_epochs={epochs}",
        f"--model.scheduler.init_args.T_max={epochs}",
        f"--trainer.check_val_every_n_epoch={epochs}",
    ]
    config = ["-c", str(CONFIGS / "flickr8k_soft.yaml"), *slot, *SIZES, *schedule]
    return fit(places.out / f"{row}_{seed}", [*config, *places.arguments(row, seed), *more])


def measured(places: Places, row: str, seed: int, more: Sequence[str]) -> dict[str, Scores]:
    """The scores of a row on dev and test, with what was chosen on dev. With constrained search there are two rows.

    The captions are kept.
    """
    model = Model(places, trained(places, BASELINE if row == SEARCH else row, seed, more))
    if row == SEARCH:
        return {
            each: {"chosen": {"least": least}, **_scored(places, each, seed, texts)}
            for each, (least, texts) in searched(model).items()
        }
    if row == SLOT:
        lens = Model(places, trained(places, BASELINE, seed, more)).lens
        replaced = json.loads(read_text(places.out / f"slots_{seed}.json"))
        texts = {
            split: {
                photo: fill(lens, model.regions(photo), caption, replaced)
                for photo, caption in model.captions(split).items()
            }
            for split in ("val", "test")
        }
    else:
        texts = {
            split: {photo: caption.text for photo, caption in model.captions(split).items()}
            for split in ("val", "test")
        }
    return {row: {"chosen": {}, **_scored(places, row, seed, texts)}}


def _scored(places: Places, row: str, seed: int, texts: Mapping[str, Captions]) -> dict[str, Scores]:
    for split, captions in texts.items():
        with replacing(places.out / f"{row}_{seed}_{split}_captions.json") as file:
            file.write(json.dumps(captions, indent=0).encode())
    return {split: scores(captions, places.photos(split)) for split, captions in texts.items()}


def searched(model: Model) -> dict[str, tuple[float, dict[str, Captions]]]:
    """What gives the largest CIDEr and what the largest mean F1 on dev, and the captions of dev and test with it."""
    photos, of_dev, of_test = model.places.photos("val"), _Searched(model, "val"), _Searched(model, "test")
    tried = []
    for least in LEAST:
        numbers = scores(of_dev.texts(least), photos)
        print(f"sure from {least}: F1 {numbers['F1']:.3f}, CIDEr {numbers['CIDEr']:.3f}", flush=True)
        tried.append((least, numbers))
    chosen = {
        row: max(tried, key=lambda each: each[1][score])[0]
        for row, score in ((SEARCH, "CIDEr"), (NAMING, "F1"))
    }
    return {
        row: (least, {"val": of_dev.texts(least), "test": of_test.texts(least)})
        for row, least in chosen.items()
    }


class _Searched:
    """Captions of a split with one thing more, each searched once."""

    def __init__(self, model: Model, split: str) -> None:
        self.model, self.captions = model, model.captions(split)
        self.namer = Namer(model.captioner, model.lens, min(LEAST))
        self.missing = {
            photo: self.namer.missing(model.regions(photo), caption)
            for photo, caption in self.captions.items()
        }
        self.written: dict[tuple[str, tuple[str, ...]], str] = {}

    def texts(self, least: float) -> Captions:
        wanted = {
            photo: tuple(seen.noun for seen in things if seen.probability >= least)
            for photo, things in self.missing.items()
        }
        new = [each for each in wanted.items() if each[1] and each not in self.written]
        for first in range(0, len(new), BATCH):
            batch = new[first : first + BATCH]
            written = self.namer.write(
                self.model.views([photo for photo, _ in batch]),
                [self.captions[photo] for photo, _ in batch],
                [things for _, things in batch],
            )
            self.written |= dict(zip(batch, (caption.text for caption in written), strict=True))
        return {
            photo: self.written[photo, things] if things else self.captions[photo].text
            for photo, things in wanted.items()
        }


def scores(captions: Captions, photos: Sequence[CaptionedImage]) -> Scores:
    """F1 of naming each thing, their mean, and CIDEr of all photos, of those that show a thing, and of the others.

    The weights of n-grams are those of all photos, so that the three can be compared.
    """
    references = {str(photo.id): photo.captions for photo in photos}
    found = naming(captions, references)
    of_all = evaluate(captions, references, metrics=["CIDEr", "BLEU"])
    of_photo = of_all.score("CIDEr").per_image
    there = {photo for photo in captions if any(n.there for n in naming({photo: ""}, references).values())}
    return {
        "F1": statistics.mean(each.f1 for each in found.values()),
        "CIDEr": of_all["CIDEr"],
        "BLEU-4": of_all["BLEU-4"],
        "with": statistics.mean(of_photo[photo] for photo in there),
        "without": statistics.mean(value for photo, value in of_photo.items() if photo not in there),
        "things": {name: list(each) for name, each in found.items()},
    }
