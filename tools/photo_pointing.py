"""Does attention on photos lie on what the word names? The pointing game, with boxes drawn by eye.

    python -m tools.photo_pointing --photos DIR --captions Flickr8k.token.txt --model soft=runs/soft/best.ckpt

The model is fed people's captions of the photos word by word. For each word that names a person, a dog or a thing with
a box, the cell with the most attention hits if its centre lies in a box of that name. Beside the model's own maps stand
maps that know less: chance (a cell drawn uniformly), always the middle cell, the mean of all the model's maps, and its
maps of another photo. Posterior maps know more, the word itself (`caption.analysis.posterior`). Intervals are 95 %
bootstrap intervals over photos; "above the middle", the model's own maps less the middle cell, has a paired one.
Entropy is the mean over all words, in nats, of log L. Faithfulness is measured on the captions that the model writes
itself: how much lower a word's probability is, on the mean, while its regions lose their weight in the order of
attention instead of at random (deletion).

The boxes are in docs/photo_boxes.json: 24 photos of Flickr8k's development split, in pixels of the full resolution.
Each object has the words that the captions use for it; what fills the photo (a crowd, a cliff face, the sky behind all)
has no box. docs/photo_boxes_unseen.json has 16 more photos of that split, drawn at random, which no choice was made on;
their pixels are those of images of 224x224. Several files are measured together, each with a folder of its photos:

    python -m tools.photo_pointing --photos DIR --photos DIR_OF_224 \\
        --boxes docs/photo_boxes.json --boxes docs/photo_boxes_unseen.json ...

The photos are not part of the repository.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import caption
from caption.analysis import baseline_maps as blind
from caption.analysis.faithfulness.curves import erase
from caption.analysis.faithfulness.rankings import AtRandom, by_attention
from caption.analysis.grounding import GroundableCaption, Grounding, ground
from caption.analysis.map_statistics import entropies
from caption.analysis.per_word import difference, estimate
from caption.analysis.posterior import posterior
from caption.analysis.reference_attention import attend_references
from caption.captioner import Captioner
from caption.data.boxes import Boxes
from caption.data.decoding import open_image
from caption.errors import UserError, first_few
from caption.metrics import files
from caption.metrics.significance import Comparison
from tools import make_parser
from tools.documents import table

BOXES = Path(__file__).resolve().parents[1] / "docs" / "photo_boxes.json"
KINDS = ("person", "dog", "thing")
HEAD = (
    *(
        "model",
        "words",
        "own maps",
        *KINDS,
        "posterior",
        "chance",
        "middle cell",
        "above the middle",
        "mean map",
        "another photo",
    ),
    *("entropy", "faithfulness"),
)
DRAWS = 3
"""Random orders of deletion."""


class Drawn(NamedTuple):
    """A photo and its boxes."""

    photo: Path
    boxes: Boxes
    """By the words for what is in them."""
    kinds: Mapping[str, str]
    """Whether a word names a person, a dog or a thing."""


class Pointed(NamedTuple):
    """The pointing game of one model."""

    groundings: dict[str, Grounding]
    """By the maps that were used."""
    photos: np.ndarray
    """The number of each caption's photo."""
    entropy: float
    regions: int
    faithfulness: Comparison
    """Area under the deletion curve, at random less by attention."""


def read_drawn(file: Path, folder: Path) -> list[Drawn]:
    """The photos of a file of boxes.

    Raises:
        UserError: a photo is missing, or has another size than the one that its boxes were drawn on.
    """
    found = []
    for name, entry in json.loads(file.read_text(encoding="utf-8")).items():
        boxes: dict[str, list[Sequence[float]]] = {}
        kinds = {}
        for each in entry["objects"]:
            for word in each["names"]:
                boxes.setdefault(word, []).append(each["box"])
                kinds[word] = each["kind"]
        found.append(Drawn(folder / name, boxes, kinds))
        size = open_image(found[-1].photo).size
        if size != tuple(entry["size"]):
            raise UserError(
                f"'{folder / name}' has {'x'.join(map(str, size))} pixels, and its boxes were drawn on "
                f"{'x'.join(map(str, entry['size']))}: give the folder of these photos with --photos"
            )
    return found


def read_captions(file: str, photos: Sequence[str]) -> list[list[str]]:
    """The captions of each photo.

    Raises:
        UserError: the file cannot be read, or a photo has no caption.
    """
    captions = files.read_captions(file).captions
    if without := [name for name in photos if name not in captions]:
        raise UserError(f"'{file}' has no caption of {first_few(without)}: give the captions of these photos")
    return [[text.strip() for text in captions[name]] for name in photos]


def point(captioner: Captioner, drawn: Sequence[Drawn], references: Sequence[Sequence[str]]) -> Pointed:
    """Play the pointing game with the model's maps and with blind ones."""
    photos = [str(each.photo) for each in drawn]
    captions = attend_references(captioner, photos, references)
    numbers = [number for number, texts in enumerate(references) for _ in texts]
    maps: dict[str, Sequence[GroundableCaption]] = {
        "own maps": captions,
        "posterior": posterior(captioner, [photos[number] for number in numbers], captions),
        "middle cell": blind.middle(captions),
        "mean map": blind.mean_map(captions),
        "another photo": blind.other_image(captions, images=numbers),
    }
    boxes = [drawn[number].boxes for number in numbers]
    groundings = {name: ground(zip(given, boxes, strict=True)) for name, given in maps.items()}
    for kind in KINDS:
        of_kind = [{w: b for w, b in drawn[n].boxes.items() if drawn[n].kinds[w] == kind} for n in numbers]
        groundings[kind] = ground(zip(captions, of_kind, strict=True))
    entropy = float(np.mean(np.concatenate([entropies(each) for each in captions])))
    orders = {"attention": by_attention, "random": AtRandom(DRAWS)}
    erasure = erase(captioner, photos, orders=orders)
    gain = difference(*(erasure.area("deletion", name) for name in orders), erasure.images)
    return Pointed(groundings, np.array(numbers), entropy, math.prod(captions[0].weights.shape[1:]), gain)


def row(name: str, pointed: Pointed) -> list[str]:
    """A line of the table."""
    own, middle, mean, another = (
        pointed.groundings[each] for each in ("own maps", "middle cell", "mean map", "another photo")
    )
    photos = pointed.photos[own.captions]
    interval = estimate(own.values("hit"), photos)
    above = difference(middle.values("hit"), own.values("hit"), photos)
    gain = pointed.faithfulness
    return [
        name, str(len(own)), f"{own.accuracy:.2f} ({interval.low:.2f}–{interval.high:.2f})",
        *(f"{pointed.groundings[kind].accuracy:.2f}" for kind in KINDS),
        f"{pointed.groundings['posterior'].accuracy:.2f}", f"{own.chance:.2f}",
        f"{middle.accuracy:.2f}", f"{above.difference:+.2f} ({above.low:+.2f} to {above.high:+.2f})",
        f"{mean.accuracy:.2f}", f"{another.accuracy:.2f}",
        f"{pointed.entropy:.2f} of {math.log(pointed.regions):.2f}",
        f"{gain.difference:.3f} ({gain.low:.3f}–{gain.high:.3f})",
    ]  # fmt: skip


def main(args: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = make_parser("photo_pointing", __doc__)
    parser.add_argument(
        "--photos", type=Path, action="append", required=True, metavar="DIR",
        help="folder of the photos, at the size that the boxes were drawn on; one for each --boxes",
    )  # fmt: skip
    parser.add_argument("--captions", required=True, metavar="FILE", help="Flickr8k.token.txt")
    parser.add_argument(
        "--boxes", type=Path, action="append", metavar="FILE.json",
        help="boxes of the photos (default docs/photo_boxes.json); may be repeated, all photos count together",
    )  # fmt: skip
    parser.add_argument("--model", action="append", required=True, metavar="NAME=MODEL")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    options = parser.parse_args(args)
    boxes = options.boxes or [BOXES]
    if len(options.photos) != len(boxes):
        parser.error(f"{len(options.photos)} --photos for {len(boxes)} --boxes: give a folder for each file")
    try:
        drawn = [
            each
            for file, folder in zip(boxes, options.photos, strict=True)
            for each in read_drawn(file, folder)
        ]
        references = read_captions(options.captions, [each.photo.name for each in drawn])
        rows, numbers = [], {}
        for entry in options.model:
            name, _, model = entry.partition("=")
            if not name or not model:
                parser.error(f"--model {entry}: write NAME=MODEL, such as soft=runs/soft/best.ckpt")
            pointed = point(caption.load(model), drawn, references)
            rows.append(row(name, pointed))
            own = pointed.groundings["own maps"]
            numbers[name] = {
                **{each: found.accuracy for each, found in pointed.groundings.items()},
                "above the middle": own.accuracy - pointed.groundings["middle cell"].accuracy,
                "chance": own.chance, "mass": own.mass, "words": len(own), "entropy": pointed.entropy,
                "faithfulness": pointed.faithfulness.difference,
            }  # fmt: skip
    except UserError as error:
        parser.error(str(error))
    print(table(HEAD, rows))
    if options.json:
        options.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
