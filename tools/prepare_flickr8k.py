"""Prepare Flickr8k from what you downloaded: check it, and lay it out as configs/flickr8k_*.yaml expect it.

    python tools/prepare_flickr8k.py Flickr8k_Dataset.zip Flickr8k_text.zip
    python tools/prepare_flickr8k.py archive.zip caption_datasets.zip        (from Kaggle, with Karpathy's splits)
    python tools/prepare_flickr8k.py --check-only                            (what was laid out before)

Zip and tar archives, unpacked folders and single files may be given in any number and order.

Where to get it: the authors (Hodosh, Young and Hockenmaier 2013, University of Illinois at Urbana-Champaign) gave it to
researchers who filled in a form: Flickr8k_Dataset.zip with the photos, Flickr8k_text.zip with captions and splits.
Both are kept by others; Jason Brownlee's repository of data sets at GitHub is the best known. Kaggle has it as
"Flickr 8k Dataset", with the captions in captions.txt and without splits: take those of Flickr8k_text.zip, or
dataset_flickr8k.json in the caption_datasets.zip of Andrej Karpathy's page "Deep Visual-Semantic Alignments"
(Stanford), which are the same. The photos are for research; their terms come with them.

exit code: 0 all is well; 1 some photos are damaged, they are named; 2 wrong usage, or downloads that are not complete
"""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from caption.data.prepare.common import (
    Faults,
    Plan,
    find,
    karpathy_splits,
    photos,
    read_tokens,
    required,
    tokens,
)
from caption.data.prepare.layout import run
from caption.data.prepare.sources import Member, Source
from caption.errors import DataError

TOKENS, KAGGLE, KARPATHY = "Flickr8k.token.txt", "captions.txt", "dataset_flickr8k.json"
LISTS = {name: f"Flickr_8k.{name}Images.txt" for name in ("train", "dev", "test")}
KARPATHY_NAMES = {"train": "train", "dev": "val", "test": "test"}
STRAY = "2258277193_586949ec62.jpg.1"  # stands in the authors' captions, but has no photo
GET = "It comes in Flickr8k_text.zip; --help says where that is to be had."


@dataclass(frozen=True)
class Expected:
    """What Flickr8k holds. 91 of its photos are in none of the splits."""

    photos: int = 8091
    captions: int = 40455
    splits: Mapping[str, int] = field(default_factory=lambda: {"train": 6000, "dev": 1000, "test": 1000})


def plan(sources: Sequence[Source], expected: Expected) -> Plan:
    """What goes where.

    Raises:
        DataError: something is missing, or is not as expected.
    """
    images = photos(sources)
    source = required(sources, TOKENS, KAGGLE, where=GET)
    captions = read_tokens(source) if source.name == TOKENS else _read_kaggle(source)
    described = captions.keys() - {STRAY}
    splits = _splits(sources)
    faults = Faults()
    faults.count("photos", len(images), expected.photos)
    faults.count(
        f"captions in {source.name}", sum(len(captions[name]) for name in described), expected.captions
    )
    faults.absent(described - images.keys(), f"photos named in {source.name}", "among the photos")
    faults.absent(images.keys() - described, "photos", f"named in {source.name}")
    for name, listed in splits.items():
        faults.count(f"photos in the {name} split", len(listed), expected.splits[name])
        faults.absent(set(listed) - images.keys(), f"photos of the {name} split", "among the photos")
    twice = [name for name, times in Counter(chain(*splits.values())).items() if times > 1]
    faults.absent(twice, "photos of the splits", "in one of them only")
    faults.check()
    kept = source.read() if source.name == TOKENS else tokens(captions)
    lists = {LISTS[name]: "".join(f"{line}\n" for line in names).encode() for name, names in splits.items()}
    sizes = ", ".join(f"{len(names):,} {name}" for name, names in splits.items())
    summary = [f"{len(images):,} photos, {expected.captions:,} captions, splits: {sizes}"]
    if STRAY in captions:
        summary.append(f"{STRAY} has captions and no photo: known, and of no account, as it is in no split")
    return Plan(
        {f"images/{name}": member for name, member in images.items()}, {TOKENS: kept, **lists}, summary
    )


def _read_kaggle(member: Member) -> dict[str, list[str]]:
    """Captions by file name of Kaggle's captions.txt: CSV with the columns image and caption."""
    rows = csv.reader(io.StringIO(member.text(), newline=""))
    if [cell.strip() for cell in next(rows, [])] != ["image", "caption"]:
        raise DataError(f"{member} has not the columns image,caption. Is it Kaggle's?")
    captions: dict[str, list[str]] = {}
    for row in rows:
        if len(row) != 2 or not all(cell.strip() for cell in row):
            raise DataError(
                f"line {rows.line_num} of {member} is not an image and a caption: {','.join(row)[:60]!r}."
            )
        captions.setdefault(row[0].strip(), []).append(row[1])
    return captions


def _splits(sources: Sequence[Source]) -> dict[str, list[str]]:
    """Names of the photos in each split: the authors' lists, or Karpathy's."""
    lists = {name: find(sources, file) for name, file in LISTS.items()}
    if any(lists.values()) or find(sources, KARPATHY) is None:
        members = {name: required(sources, file, where=GET) for name, file in LISTS.items()}
        return {name: member.text().split() for name, member in members.items()}
    found = karpathy_splits(required(sources, KARPATHY, where=GET))
    return {name: found.get(theirs, []) for name, theirs in KARPATHY_NAMES.items()}


def main(args: Sequence[str] | None = None, expected: Expected | None = None) -> int:
    """Check, and lay out; `expected` other than Flickr8k's own is for tests."""
    return run(args, __doc__ or "", "data/flickr8k", partial(plan, expected=expected or Expected()))


if __name__ == "__main__":
    sys.exit(main())
