"""Prepare MS COCO (2014) from what you downloaded: check it, and lay it out as configs/coco_*.yaml expect it.

    python tools/prepare_coco.py train2014.zip val2014.zip annotations_trainval2014.zip caption_datasets.zip
    python tools/prepare_coco.py --check-only                                (what was laid out before)

Zip and tar archives, unpacked folders and single files may be given in any number and order.

Where to get it: the photos (train2014.zip, 13 GB; val2014.zip, 6 GB) and the captions (annotations_trainval2014.zip)
are on the download page of the COCO project ("Common Objects in Context"). The splits of the literature, with
captions, are in dataset_coco.json in the caption_datasets.zip of Andrej Karpathy's page "Deep Visual-Semantic
Alignments" (Stanford). COCO's own captions are checked and kept where they are given, and not needed for Karpathy's
splits. The edition of 2017 has the same photos under other names, which Karpathy's file does not know.

exit code: 0 all is well; 1 some photos are damaged, they are named; 2 wrong usage, or downloads that are not complete
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from caption.data.prepare.common import Faults, Plan, find, karpathy_splits, photos, required
from caption.data.prepare.layout import run
from caption.data.prepare.sources import Member, Source
from caption.errors import DataError

KARPATHY = "dataset_coco.json"
GET = "It comes in Karpathy's caption_datasets.zip; --help says where that is to be had."


@dataclass(frozen=True)
class Expected:
    """What COCO holds: photos and captions by folder, and the photos in Karpathy's splits."""

    photos: Mapping[str, int] = field(default_factory=lambda: {"train2014": 82783, "val2014": 40504})
    captions: Mapping[str, int] = field(default_factory=lambda: {"train2014": 414113, "val2014": 202654})
    splits: Mapping[str, int] = field(
        default_factory=lambda: {"train": 82783, "restval": 30504, "val": 5000, "test": 5000}
    )


def plan(sources: Sequence[Source], expected: Expected) -> Plan:
    """What goes where.

    Raises:
        DataError: something is missing, or is not as expected.
    """
    faults = Faults()
    images: dict[str, Member] = {}
    texts: dict[str, bytes] = {}
    for folder, number in expected.photos.items():
        found = photos(sources, prefix=f"COCO_{folder}_")
        faults.count(f"photos COCO_{folder}_*.jpg", len(found), number)
        images |= {f"{folder}/{name}": member for name, member in found.items()}
        captions = find(sources, f"captions_{folder}.json")
        if captions is not None:
            _check_captions(captions, set(found), expected.captions[folder], faults)
            texts[f"annotations/{captions.name}"] = captions.read()
    karpathy = required(sources, KARPATHY, where=GET)
    texts[KARPATHY] = karpathy.read()
    splits = karpathy_splits(karpathy)
    for name, size in expected.splits.items():
        faults.count(f"photos in the {name} split of {KARPATHY}", len(splits.get(name, ())), size)
    named = {name for names in splits.values() for name in names}
    faults.absent(named - images.keys(), f"photos named in {KARPATHY}", "among the photos")
    faults.check()
    sizes = ", ".join(f"{len(names):,} {name}" for name, names in splits.items())
    return Plan(images, texts, [f"{len(images):,} photos; Karpathy's splits: {sizes}"])


def _check_captions(member: Member, found: set[str], expected: int, faults: Faults) -> None:
    """COCO's own captions of a folder: their number, and that they are of its photos."""
    data = member.json()
    try:
        by_id = {image["id"]: image["file_name"] for image in data["images"]}
        described = {by_id[annotation["image_id"]] for annotation in data["annotations"]}
        number = len(data["annotations"])
    except (KeyError, TypeError):
        raise DataError(
            f"{member} has not the images and annotations of COCO's captions. Get it anew."
        ) from None
    faults.count(f"captions in {member.name}", number, expected)
    faults.absent(described - found, f"photos named in {member.name}", "among the photos")
    faults.absent(found - described, "photos", f"described in {member.name}")


def main(args: Sequence[str] | None = None, expected: Expected | None = None) -> int:
    """Check, and lay out; `expected` other than COCO's own is for tests."""
    return run(args, __doc__ or "", "data/coco", partial(plan, expected=expected or Expected()))


if __name__ == "__main__":
    sys.exit(main())
