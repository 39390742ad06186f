"""Flickr8k, Flickr30k and COCO: where to get them, what they must hold, and where each file goes.

To add a data set, write a subclass of `Dataset` and put it into `DATASETS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from caption.core.errors import DataError, first_few
from caption.data.files import numbered_lines
from caption.data.findings import Findings
from caption.data.prepare.downloads import Member
from caption.data.prepare.layout import Plan
from caption.data.readers import Coco, Csv, Flickr, Karpathy
from caption.data.readers.base import CaptionText, CheckedReader, Entry

HELP = "--help says where to get it."
FLICKR8K_TEXT = f"It is in Flickr8k_text.zip; {HELP}"


@dataclass(frozen=True)
class CaptionSource:
    """The authors' captions of some photos."""

    target: str
    """The path in the folder."""
    number: int
    """Of captions."""
    photos: str = ""
    """How the names of its photos begin."""
    other: str = ""
    """Another name in the downloads: of a table with the same captions."""
    hint: str = ""
    """How to get it; "" if it is optional."""


class Dataset:
    """A published data set, and the sizes that it must have. A subclass's docstring tells users where to get it."""

    folder: str
    """Where the configurations expect it."""
    photos: Mapping[str, tuple[str, int]]
    """By folder: how the names of its photos begin, and their number."""
    captions: Sequence[CaptionSource]
    karpathy: str
    """Karpathy's file with the splits."""
    splits: Mapping[str, int]
    lists: Mapping[str, str] = MappingProxyType({})
    """The authors' list of each split, laid out in place of Karpathy's file, from which it can be made."""
    stray: str = ""
    """A name in the captions that is no photo's, a known oddity."""

    def plan(self, downloads: Sequence[Member]) -> Plan:
        """Find and check the files of the data set.

        Raises:
            DataError: files are missing, or are not as published; the message names all faults.
        """
        faults: list[str] = []
        images: dict[str, Member] = {}
        for folder, (prefix, number) in self.photos.items():
            members = _photos(downloads, prefix)
            _count(faults, f"photos {prefix}*.jpg" if prefix else "photos", len(members), number)
            images |= {f"{folder}/{name}": member for name, member in members.items()}
        photos = {member.name for member in images.values()}
        texts, stray = self._captions(downloads, photos, faults)
        splits = self._splits(downloads, texts)
        for split, number in self.splits.items():
            origin, names = splits.get(split, (self.karpathy, []))
            _count(faults, f"photos in the {split} split of {origin}", len(names), number)
            _absent(
                faults, set(names) - photos, f"photos in the {split} split of {origin}", "among the photos"
            )
        counts = Counter(chain.from_iterable(names for _, names in splits.values()))
        _absent(faults, [name for name, count in counts.items() if count > 1], "photos", "in one split only")
        if faults:
            raise DataError(
                "the download is incomplete or not as published:\n"
                + "\n".join(f"  - {fault}" for fault in faults)
            )
        sizes = ", ".join(f"{number:,} {split}" for split, number in self.splits.items())
        return Plan(images, texts, [f"{len(images):,} photos; splits: {sizes}", *stray])

    def _captions(
        self, downloads: Sequence[Member], photos: set[str], faults: list[str]
    ) -> tuple[dict[str, bytes], list[str]]:
        """The authors' captions by their paths in the folder, and what to say about the stray name."""
        texts, stray = {}, []
        for source in self.captions:
            name = source.target.rpartition("/")[2]
            member = _find(downloads, name, *filter(None, [source.other]), hint=source.hint)
            if member is None:
                continue
            captions = _read_captions(member)
            texts[source.target] = member.read() if member.name == name else _token_file(captions)
            if captions.pop(self.stray, None):
                stray = [f"{self.stray} has captions and no photo: a known oddity, in no split"]
            _count(faults, f"captions in {member.name}", sum(map(len, captions.values())), source.number)
            _absent(faults, captions.keys() - photos, f"photos named in {member.name}", "among the photos")
            unnamed = {photo for photo in photos if photo.startswith(source.photos)} - captions.keys()
            _absent(faults, unnamed, "photos", f"named in {member.name}")
        return texts, stray

    def _splits(
        self, downloads: Sequence[Member], texts: dict[str, bytes]
    ) -> dict[str, tuple[str, list[str]]]:
        """The file that gives each split, and the photos in it; the files that belong in the folder join `texts`."""
        hint = f"It is in Karpathy's caption_datasets.zip; {HELP}"
        karpathy = _find(downloads, self.karpathy, hint="" if self.lists else hint)
        splits: dict[str, tuple[str, list[str]]] = {}
        if karpathy is None or any(_find(downloads, name) for name in self.lists.values()):
            for split, name in self.lists.items():
                member = _find(downloads, name, hint=self.captions[0].hint)
                splits[split] = name, member.text().split() if member else []
        else:
            content = CaptionText(karpathy.text(), str(karpathy))
            for entry in _entries(Karpathy, content):
                _, names = splits.setdefault(entry.split or "", (self.karpathy, []))
                names.append(entry.file.rpartition("/")[2])
            if not self.lists:
                texts[self.karpathy] = karpathy.read()
        for split, name in self.lists.items():
            _, names = splits.get(split, ("", []))
            texts[name] = "".join(f"{line}\n" for line in names).encode()
        return splits


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

    folder = "data/flickr8k"
    photos = {"images": ("", 8091)}  # 91 of them are in no split
    captions = (CaptionSource("Flickr8k.token.txt", 40455, other="captions.txt", hint=FLICKR8K_TEXT),)
    karpathy = "dataset_flickr8k.json"
    splits = {"train": 6000, "val": 1000, "test": 1000}
    lists = {
        split: f"Flickr_8k.{name}Images.txt"
        for split, name in (("train", "train"), ("val", "dev"), ("test", "test"))
    }
    stray = "2258277193_586949ec62.jpg.1"


class Flickr30k(Dataset):
    """Flickr30k, laid out for `caption.data.readers.Karpathy`.

      caption prepare flickr30k flickr30k-images.tar.gz flickr30k.tar.gz caption_datasets.zip
      caption prepare flickr30k archive.zip caption_datasets.zip      (from Kaggle)

    In the configuration:

      class_path: caption.data.readers.Karpathy
      init_args: {captions: data/flickr30k/dataset_flickr30k.json, images: data/flickr30k/images}

    Where to get it: the authors (Young, Lai, Hodosh and Hockenmaier 2014, University of Illinois at Urbana-Champaign)
    give it to researchers who fill in a form on the page of the "Denotation Graph": the photos in
    flickr30k-images.tar.gz, the captions, results_20130124.token, in flickr30k.tar.gz. Kaggle has it as "Flickr Image
    dataset", with the captions in results.csv. Splits, with captions, are in dataset_flickr30k.json in the
    caption_datasets.zip of Andrej Karpathy's page "Deep Visual-Semantic Alignments" (Stanford); they leave out 769 of
    the 31,783 photos. The authors' captions are optional; they are checked and kept. The photos are for research; their
    terms come with them.
    """

    folder = "data/flickr30k"
    photos = {"images": ("", 31783)}
    captions = (CaptionSource("results_20130124.token", 158915, other="results.csv"),)
    karpathy = "dataset_flickr30k.json"
    splits = {"train": 29000, "val": 1014, "test": 1000}


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

    folder = "data/coco"
    photos = {"train2014": ("COCO_train2014_", 82783), "val2014": ("COCO_val2014_", 40504)}
    captions = (
        CaptionSource("annotations/captions_train2014.json", 414113, photos="COCO_train2014_"),
        CaptionSource("annotations/captions_val2014.json", 202654, photos="COCO_val2014_"),
    )
    karpathy = "dataset_coco.json"
    splits = {"train": 82783, "restval": 30504, "val": 5000, "test": 5000}


DATASETS: dict[str, Dataset] = {"flickr8k": Flickr8k(), "flickr30k": Flickr30k(), "coco": Coco2014()}
"""Every data set by its name on the command line."""


def _count(faults: list[str], kind: str, number: int, expected: int) -> None:
    if number != expected:
        faults.append(
            f"{number:,} {kind} instead of {expected:,}: something is missing, or it is another edition"
        )


def _absent(faults: list[str], names: Iterable[str], kind: str, where: str) -> None:
    if missing := sorted(names):
        faults.append(f"{len(missing):,} {kind} not {where}: {first_few(missing)}")


def _find(downloads: Sequence[Member], *names: str, hint: str = "") -> Member | None:
    """The first file with one of these names, in the order of the names.

    Raises:
        DataError: there are two that differ; or there is none, and a hint says how to get it.
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
    if hint:
        raise DataError(f"{' or '.join(names)} is not in the downloads. {hint}")
    return None


def _photos(downloads: Sequence[Member], prefix: str) -> dict[str, Member]:
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
    """Captions by file name: COCO's JSON, a token file of the authors, or Kaggle's captions.txt (CSV) or results.csv
    (a table).

    Raises:
        DataError: a line or entry has another form.
    """
    content = CaptionText(member.text(), str(member))
    captions: dict[str, list[str]] = {}
    if member.name == "results.csv":
        for number, line in list(numbered_lines(content.text))[1:]:
            match = KAGGLE_ROW.fullmatch(line)
            if match is None:
                raise DataError(f"line {number} of {member} is {line[:60]!r}, not NAME| NUMBER| CAPTION.")
            captions.setdefault(match["name"].strip(), []).append(match["caption"])
        return captions
    reader = Coco if member.name.endswith(".json") else Csv if member.name == "captions.txt" else Flickr
    for entry in _entries(reader, content):
        if entry.captions:
            captions.setdefault(entry.file, []).extend(entry.captions)
    return captions


def _entries(reader: type[CheckedReader], content: CaptionText) -> list[Entry]:
    """The entries of a file. Raises a DataError if one is malformed."""
    findings = Findings()
    entries = list(reader.entries(content, findings))
    findings.refuse()
    return entries
