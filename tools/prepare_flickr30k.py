"""Prepare Flickr30k from what you downloaded: check it, and lay it out for `caption.data.readers.Karpathy`.

    python tools/prepare_flickr30k.py flickr30k-images.tar.gz flickr30k.tar.gz caption_datasets.zip
    python tools/prepare_flickr30k.py archive.zip caption_datasets.zip       (from Kaggle)
    python tools/prepare_flickr30k.py --check-only                           (what was laid out before)

Zip and tar archives, unpacked folders and single files may be given in any number and order. In the configuration:

    class_path: caption.data.readers.Karpathy
    init_args: {file: data/flickr30k/dataset_flickr30k.json, images: data/flickr30k/images}

Where to get it: the authors (Young, Lai, Hodosh and Hockenmaier 2014, University of Illinois at Urbana-Champaign) give
it to researchers who fill in a form on the page of the "Denotation Graph": the photos in flickr30k-images.tar.gz, the
captions, results_20130124.token, in flickr30k.tar.gz. Kaggle has it as "Flickr Image dataset", with the captions in
results.csv. Splits, with captions, are in dataset_flickr30k.json in the caption_datasets.zip of Andrej Karpathy's page
"Deep Visual-Semantic Alignments" (Stanford); they leave out 769 of the 31,783 photos. The authors' captions are
checked and kept where they are given, and not needed. The photos are for research; their terms come with them.

exit code: 0 all is well; 1 some photos are damaged, they are named; 2 wrong usage, or downloads that are not complete
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

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

TOKENS, KAGGLE, KARPATHY = "results_20130124.token", "results.csv", "dataset_flickr30k.json"
GET = "It comes in Karpathy's caption_datasets.zip; --help says where that is to be had."
# One row of Kaggle's file lacks the bar behind the number.
KAGGLE_ROW = re.compile(r"(?P<name>[^|]+?)\s*\|\s*(?P<number>\d+)\s*\|?\s*(?P<caption>.*\S)\s*")


@dataclass(frozen=True)
class Expected:
    """What Flickr30k holds: all photos and captions, and the photos in Karpathy's splits."""

    photos: int = 31783
    captions: int = 158915
    splits: Mapping[str, int] = field(default_factory=lambda: {"train": 29000, "val": 1014, "test": 1000})


def plan(sources: Sequence[Source], expected: Expected) -> Plan:
    """What goes where.

    Raises:
        DataError: something is missing, or is not as expected.
    """
    images = photos(sources)
    karpathy = required(sources, KARPATHY, where=GET)
    splits = karpathy_splits(karpathy)
    faults = Faults()
    faults.count("photos", len(images), expected.photos)
    for name, size in expected.splits.items():
        faults.count(f"photos in the {name} split of {KARPATHY}", len(splits.get(name, ())), size)
    named = {name for names in splits.values() for name in names}
    faults.absent(named - images.keys(), f"photos named in {KARPATHY}", "among the photos")
    texts = {KARPATHY: karpathy.read()}
    source = find(sources, TOKENS, KAGGLE)
    if source is not None:
        captions = read_tokens(source) if source.name == TOKENS else _read_kaggle(source)
        faults.count(f"captions in {source.name}", sum(map(len, captions.values())), expected.captions)
        faults.absent(captions.keys() - images.keys(), f"photos named in {source.name}", "among the photos")
        faults.absent(images.keys() - captions.keys(), "photos", f"named in {source.name}")
        texts[TOKENS] = source.read() if source.name == TOKENS else tokens(captions)
    faults.check()
    sizes = ", ".join(f"{len(names):,} {name}" for name, names in splits.items())
    summary = [f"{len(images):,} photos; Karpathy's splits: {sizes}"]
    return Plan({f"images/{name}": member for name, member in images.items()}, texts, summary)


def _read_kaggle(member: Member) -> dict[str, list[str]]:
    """Captions by file name of Kaggle's results.csv: rows `NAME| NUMBER| CAPTION`, below a heading."""
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(member.text().split("\n"), start=1):
        row = KAGGLE_ROW.fullmatch(line.strip())
        if row:
            captions.setdefault(row["name"].strip(), []).append(row["caption"])
        elif number > 1 and line.strip():
            raise DataError(f"line {number} of {member} is {line[:60]!r}, not NAME| NUMBER| CAPTION.")
    return captions


def main(args: Sequence[str] | None = None, expected: Expected | None = None) -> int:
    """Check, and lay out; `expected` other than Flickr30k's own is for tests."""
    return run(args, __doc__ or "", "data/flickr30k", partial(plan, expected=expected or Expected()))


if __name__ == "__main__":
    sys.exit(main())
