"""Flickr8k, Flickr30k and COCO: where to get them, what they must hold, and where each file goes.

To add a data set, write a subclass of `Dataset` and put it into `DATASETS`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from caption.data.files import numbered_lines
from caption.data.prepare.downloads import Member
from caption.data.prepare.layout import Plan
from caption.data.readers.captions import Refusal
from caption.data.readers.coco import coco_entries
from caption.data.readers.flickr import flickr_entries
from caption.data.readers.karpathy import karpathy_entries
from caption.data.readers.tables import csv_entries
from caption.errors import DataError, first_few

HELP = "--help says where to get it."
KARPATHY_ZIP = f"It is in Karpathy's caption_datasets.zip; {HELP}"


class Faults:
    """The faults of a download, collected so that one message names all of them."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def count(self, kind: str, number: int, expected: int) -> None:
        """Compare a number with the one that the data set has."""
        if number != expected:
            self.messages.append(
                f"{number:,} {kind} instead of {expected:,}: something is missing, or it is another edition"
            )

    def absent(self, names: Iterable[str], of: str, where: str) -> None:
        """Report names that are missing somewhere, if there are any."""
        missing = sorted(names)
        if missing:
            self.messages.append(f"{len(missing):,} {of} not {where}: {first_few(missing)}")

    def check(self) -> None:
        """Raise a DataError with all faults, if there are any."""
        if self.messages:
            raise DataError(
                "the download is incomplete or not as published:\n"
                + "\n".join(f"  - {fault}" for fault in self.messages)
            )


class Dataset(ABC):
    """A published data set. The docstring of a subclass tells users where to get it."""

    folder: ClassVar[str]
    """Where the configurations expect it."""

    @abstractmethod
    def plan(self, downloads: Sequence[Member]) -> Plan:
        """Find and check the files of the data set.

        Raises:
            DataError: files are missing, or are not as published; the message names all faults.
        """


@dataclass(frozen=True)
class Flickr8k(Dataset):
    """Flickr8k, laid out for configs/flickr8k_*.yaml.

      caption prepare flickr8k Flickr8k_Dataset.zip Flickr8k_text.zip
      caption prepare flickr8k archive.zip caption_datasets.zip       (from Kaggle, with Karpathy's splits)

    Where to get it: the authors (Hodosh, Young and Hockenmaier 2013, University of Illinois at Urbana-Champaign) gave
    it to researchers who filled in a form: Flickr8k_Dataset.zip with the photos, Flickr8k_text.zip with captions and
    splits. Others host both files; Jason Brownlee's repository of data sets at GitHub is the best known. Kaggle has it
    as "Flickr 8k Dataset", with the captions in captions.txt and without splits: take those of Flickr8k_text.zip, or
    dataset_flickr8k.json in the caption_datasets.zip of Andrej Karpathy's page "Deep Visual-Semantic Alignments"
    (Stanford), which are the same. The photos are for research; their terms come with them.
    """

    folder: ClassVar[str] = "data/flickr8k"
    HINT: ClassVar[str] = f"It is in Flickr8k_text.zip; {HELP}"
    LISTS: ClassVar[dict[str, str]] = {
        name: f"Flickr_8k.{name}Images.txt" for name in ("train", "dev", "test")
    }
    STRAY: ClassVar[str] = "2258277193_586949ec62.jpg.1"
    """The authors' captions name it, but there is no such photo."""
    photos: int = 8091
    """91 of them are in no split."""
    captions: int = 40455
    splits: Mapping[str, int] = field(default_factory=lambda: {"train": 6000, "dev": 1000, "test": 1000})

    def plan(self, downloads: Sequence[Member]) -> Plan:
        images = _photos(downloads)
        source = _required(downloads, "Flickr8k.token.txt", "captions.txt", hint=self.HINT)
        is_token_file = source.name == "Flickr8k.token.txt"
        captions = _read_captions(source)
        splits = self._splits(downloads)
        faults = Faults()
        faults.count("photos", len(images), self.photos)
        described = captions.keys() - {self.STRAY}
        number = sum(len(captions[name]) for name in described)
        _check_captions(faults, source, number, self.captions, described, images.keys())
        for name, listed in splits.items():
            faults.count(f"photos in the {name} split", len(listed), self.splits[name])
            faults.absent(set(listed) - images.keys(), f"photos of the {name} split", "among the photos")
        repeated = [name for name, times in Counter(chain(*splits.values())).items() if times > 1]
        faults.absent(repeated, "photos of the splits", "in one split only")
        faults.check()
        texts = {"Flickr8k.token.txt": source.read() if is_token_file else _token_file(captions)}
        for name, names in splits.items():
            texts[self.LISTS[name]] = "".join(f"{line}\n" for line in names).encode()
        summary = [f"{len(images):,} photos, {self.captions:,} captions, splits: {_sizes(splits)}"]
        if self.STRAY in captions:
            summary.append(f"{self.STRAY} has captions and no photo: a known oddity, in no split")
        return Plan({f"images/{name}": member for name, member in images.items()}, texts, summary)

    def _splits(self, downloads: Sequence[Member]) -> dict[str, list[str]]:
        """Names of the photos in each split, from the authors' lists or Karpathy's file."""
        karpathy = _find(downloads, "dataset_flickr8k.json")
        if karpathy is None or any(_find(downloads, file) for file in self.LISTS.values()):
            lists = {name: _required(downloads, file, hint=self.HINT) for name, file in self.LISTS.items()}
            return {name: member.text().split() for name, member in lists.items()}
        splits = _karpathy_splits(karpathy)
        return {name: splits.get("val" if name == "dev" else name, []) for name in self.LISTS}


@dataclass(frozen=True)
class Flickr30k(Dataset):
    """Flickr30k, laid out for `caption.data.readers.Karpathy`.

      caption prepare flickr30k flickr30k-images.tar.gz flickr30k.tar.gz caption_datasets.zip
      caption prepare flickr30k archive.zip caption_datasets.zip      (from Kaggle)

    In the configuration:

      class_path: caption.data.readers.Karpathy
      init_args: {file: data/flickr30k/dataset_flickr30k.json, images: data/flickr30k/images}

    Where to get it: the authors (Young, Lai, Hodosh and Hockenmaier 2014, University of Illinois at Urbana-Champaign)
    give it to researchers who fill in a form on the page of the "Denotation Graph": the photos in
    flickr30k-images.tar.gz, the captions, results_20130124.token, in flickr30k.tar.gz. Kaggle has it as "Flickr Image
    dataset", with the captions in results.csv. Splits, with captions, are in dataset_flickr30k.json in the
    caption_datasets.zip of Andrej Karpathy's page "Deep Visual-Semantic Alignments" (Stanford); they leave out 769 of
    the 31,783 photos. The authors' captions are optional; they are checked and kept. The photos are for research; their
    terms come with them.
    """

    folder: ClassVar[str] = "data/flickr30k"
    photos: int = 31783
    captions: int = 158915
    splits: Mapping[str, int] = field(default_factory=lambda: {"train": 29000, "val": 1014, "test": 1000})

    def plan(self, downloads: Sequence[Member]) -> Plan:
        images = _photos(downloads)
        faults = Faults()
        faults.count("photos", len(images), self.photos)
        plan = _karpathy_plan(downloads, "dataset_flickr30k.json", self.splits, images, faults)
        source = _find(downloads, tokens := "results_20130124.token", "results.csv")
        if source is not None:
            captions = _read_captions(source)
            number = sum(map(len, captions.values()))
            _check_captions(faults, source, number, self.captions, captions.keys(), images.keys())
            plan.texts[tokens] = source.read() if source.name == tokens else _token_file(captions)
        faults.check()
        plan.images = {f"images/{name}": member for name, member in images.items()}
        return plan


@dataclass(frozen=True)
class Coco2014(Dataset):
    """MS COCO of 2014, laid out for configs/coco_*.yaml.

      caption prepare coco train2014.zip val2014.zip annotations_trainval2014.zip caption_datasets.zip

    Where to get it: the photos (train2014.zip, 13 GB; val2014.zip, 6 GB) and the captions
    (annotations_trainval2014.zip) are on the download page of the COCO project ("Common Objects in Context"). The
    splits of the literature, with captions, are in dataset_coco.json in the caption_datasets.zip of Andrej Karpathy's
    page "Deep Visual-Semantic Alignments" (Stanford). COCO's own captions are optional, because Karpathy's file has
    captions; they are checked and kept. The edition of 2017 has the same photos under other names, which Karpathy's
    file does not know.
    """

    folder: ClassVar[str] = "data/coco"
    photos: Mapping[str, int] = field(default_factory=lambda: {"train2014": 82783, "val2014": 40504})
    """By folder."""
    captions: Mapping[str, int] = field(default_factory=lambda: {"train2014": 414113, "val2014": 202654})
    splits: Mapping[str, int] = field(
        default_factory=lambda: {"train": 82783, "restval": 30504, "val": 5000, "test": 5000}
    )
    """Karpathy's."""

    def plan(self, downloads: Sequence[Member]) -> Plan:
        faults = Faults()
        images: dict[str, Member] = {}
        texts: dict[str, bytes] = {}
        for folder, photos in self.photos.items():
            members = _photos(downloads, prefix=f"COCO_{folder}_")
            faults.count(f"photos COCO_{folder}_*.jpg", len(members), photos)
            images |= {f"{folder}/{name}": member for name, member in members.items()}
            source = _find(downloads, f"captions_{folder}.json")
            if source is not None:
                entries = coco_entries(source.json(), str(source), Refusal(""))
                described = [entry.file for entry in entries if entry.captions]
                number = self.captions[folder]
                _check_captions(faults, source, len(described), number, set(described), members.keys())
                texts[f"annotations/{source.name}"] = source.read()
        plan = _karpathy_plan(downloads, "dataset_coco.json", self.splits, images, faults)
        faults.check()
        plan.texts |= texts
        return plan


DATASETS: dict[str, Dataset] = {"flickr8k": Flickr8k(), "flickr30k": Flickr30k(), "coco": Coco2014()}
"""Every data set by its name on the command line."""


def _find(downloads: Sequence[Member], *names: str) -> Member | None:
    """The first file with one of these names, in the order of the names.

    Raises:
        DataError: there are two that differ.
    """
    for name in names:
        members = [member for member in downloads if member.name == name]
        if members:
            if (
                len({member.size for member in members}) > 1
                or len({member.read() for member in members[:2]}) > 1
            ):
                raise DataError(f"{members[0]} and {members[1]} are not the same: give one of them.")
            return members[0]
    return None


def _required(downloads: Sequence[Member], *names: str, hint: str) -> Member:
    """As `_find`, with a DataError if there is no such file; the hint tells how to get it."""
    member = _find(downloads, *names)
    if member is None:
        raise DataError(f"{' or '.join(names)} is not in the downloads. {hint}")
    return member


def _photos(downloads: Sequence[Member], prefix: str = "") -> dict[str, Member]:
    """All JPEG files by name, of those with this prefix. Some archives hold a photo twice; it counts once.

    Raises:
        DataError: two of one name differ in size.
    """
    by_name: dict[str, Member] = {}
    for member in downloads:
        if member.name.lower().endswith((".jpg", ".jpeg")) and member.name.startswith(prefix):
            other = by_name.setdefault(member.name, member)
            if other.size != member.size:
                raise DataError(f"{other} and {member} are not the same: give one of them.")
    return by_name


def _check_captions(
    faults: Faults,
    source: Member,
    number: int,
    expected: int,
    described: Iterable[str],
    photos: Iterable[str],
) -> None:
    described, photos = set(described), set(photos)
    faults.count(f"captions in {source.name}", number, expected)
    faults.absent(described - photos, f"photos named in {source.name}", "among the photos")
    faults.absent(photos - described, "photos", f"named in {source.name}")


def _karpathy_plan(
    downloads: Sequence[Member],
    file: str,
    expected: Mapping[str, int],
    images: dict[str, Member],
    faults: Faults,
) -> Plan:
    """The photos with the splits of one of Karpathy's files, compared with the expected sizes."""
    karpathy = _required(downloads, file, hint=KARPATHY_ZIP)
    splits = _karpathy_splits(karpathy)
    for name, size in expected.items():
        faults.count(f"photos in the {name} split of {file}", len(splits.get(name, ())), size)
    named = set(chain.from_iterable(splits.values()))
    faults.absent(named - images.keys(), f"photos named in {file}", "among the photos")
    summary = [f"{len(images):,} photos; Karpathy's splits: {_sizes(splits)}"]
    return Plan(images, {file: karpathy.read()}, summary)


def _karpathy_splits(member: Member) -> dict[str, list[str]]:
    """Names of the images in each split of one of Karpathy's files; COCO's with their folder."""
    splits: dict[str, list[str]] = {}
    for entry in karpathy_entries(member.json(), str(member), Refusal("")):
        splits.setdefault(entry.split or "", []).append(entry.file)
    return splits


def _sizes(splits: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{len(names):,} {name}" for name, names in splits.items())


def _token_file(captions: Mapping[str, Sequence[str]]) -> bytes:
    lines = (
        f"{name}#{number}\t{' '.join(text.split())}\n"
        for name, texts in captions.items()
        for number, text in enumerate(texts)
    )
    return "".join(lines).encode()


# One row of Kaggle's table lacks the bar after the number.
KAGGLE_ROW = re.compile(r"(?P<name>[^|]+?)\s*\|\s*\d+\s*\|?\s*(?P<caption>.*\S)\s*")


def _read_captions(member: Member) -> dict[str, list[str]]:
    """Captions by file name: a token file of the authors, or Kaggle's captions.txt (CSV) or results.csv (a table).

    Raises:
        DataError: a line has another form.
    """
    text, name, refusal = member.text(), str(member), Refusal("")
    captions: dict[str, list[str]] = {}
    if member.name == "results.csv":
        for number, line in list(numbered_lines(text))[1:]:
            match = KAGGLE_ROW.fullmatch(line)
            if match is None:
                raise DataError(f"line {number} of {name} is {line[:60]!r}, not NAME| NUMBER| CAPTION.")
            captions.setdefault(match["name"].strip(), []).append(match["caption"])
        return captions
    read = csv_entries if member.name == "captions.txt" else flickr_entries
    for entry in read(text, name, refusal):
        captions.setdefault(entry.file, []).extend(entry.captions)
    return captions
