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

The boxes are in docs/results/photo_boxes.json: 24 photos of Flickr8k's development split, in pixels of the full
resolution. Each object has the words that the captions use for it; what fills the photo (a crowd, a cliff face, the sky
behind all) has no box. docs/results/photo_boxes_unseen.json has 16 more photos of that split, drawn at random, which no
choice was made on; their pixels are those of images of 224x224. Several files are measured together, each with a folder
of its photos:

    python -m tools.photo_pointing --photos DIR --photos DIR_OF_224 \\
        --boxes docs/results/photo_boxes.json --boxes docs/results/photo_boxes_unseen.json ...

The photos are not part of the repository.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import caption
from caption.analysis.photos.pointing import MEAN, MIDDLE, OTHER, POSTERIOR
from caption.analysis.photos.study import PhotoSet, PhotoStudy, study_photos
from caption.data.photo_boxes import read_boxes
from caption.errors import UserError, first_few
from caption.metrics.caption_files import captions_of, read_captions
from caption.runtime.files import creating
from caption.runtime.outputs import new_file
from tools import make_parser
from tools.documents import table

BOXES = Path(__file__).resolve().parents[1] / "docs" / "results" / "photo_boxes.json"
KINDS = ("person", "dog", "thing")
HEAD = (
    *("model", "words", "own maps", *KINDS, POSTERIOR, "chance", MIDDLE, "above the middle", MEAN),
    *(OTHER, "entropy", "faithfulness"),
)


def row(study: PhotoStudy) -> list[str]:
    """A line of the table."""
    assert study.pointing is not None
    own, above, gain = study.pointing.accuracy, study.pointing.above_the_middle, study.faithfulness

    def accuracies(*names: str) -> list[str]:
        groundings = pointing.groundings | pointing.of_kinds
        return [f"{groundings[each].accuracy:.2f}" if each in groundings else "–" for each in names]

    pointing = study.pointing
    regions = math.prod(study.captions[0].weights.shape[1:])
    return [
        *(study.name, str(len(pointing.own)), f"{own.mean:.2f} ({own.low:.2f}–{own.high:.2f})"),
        *(*accuracies(*KINDS, POSTERIOR), f"{pointing.own.chance:.2f}", *accuracies(MIDDLE)),
        f"{above.difference:+.2f} ({above.low:+.2f} to {above.high:+.2f})",
        *accuracies(MEAN, OTHER),
        f"{study.entropy:.2f} of {math.log(regions):.2f}",
        f"{gain.difference:.3f} ({gain.low:.3f}–{gain.high:.3f})",
    ]


def numbers_of(study: PhotoStudy) -> dict[str, float]:
    """For JSON."""
    assert study.pointing is not None
    more = {"entropy": study.entropy, "faithfulness": study.faithfulness.difference}
    return study.pointing.numbers() | more


def image_set(files: Sequence[Path], folders: Sequence[Path], captions: str) -> PhotoSet:
    """The photos of files of boxes, each with a folder of its photos, and people's captions of them.

    Raises:
        UserError: a file cannot be read, or a photo is missing or has no caption.
    """
    boxed = [photo for file, folder in zip(files, folders, strict=True) for photo in read_boxes(file, folder)]
    references = captions_of(read_captions(captions), [str(photo.path) for photo in boxed])
    if without := [photo.path.name for photo in boxed if str(photo.path) not in references]:
        raise UserError(
            f"'{captions}' has no caption of {first_few(without)}: give the captions of these photos"
        )
    return PhotoSet([str(photo.path) for photo in boxed], boxed, references)


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
        help="boxes of the photos (default docs/results/photo_boxes.json); may be repeated, all photos count together",
    )  # fmt: skip
    parser.add_argument("--model", action="append", required=True, metavar="NAME=MODEL")
    parser.add_argument("--json", metavar="FILE.json", help="also write the numbers to this new file")
    options = parser.parse_args(args)
    boxes = options.boxes or [BOXES]
    if len(options.photos) != len(boxes):
        parser.error(f"{len(options.photos)} --photos for {len(boxes)} --boxes: give a folder for each file")
    try:
        out = options.json and new_file(options.json, (".json",), "--json")
        images = image_set(boxes, options.photos, options.captions)
        rows, numbers = [], {}
        for entry in options.model:
            name, _, model = entry.partition("=")
            if not name or not model:
                parser.error(f"--model {entry}: write NAME=MODEL, such as soft=runs/soft/best.ckpt")
            study = study_photos(name, caption.load(model), images)
            if study.pointing is None:
                raise UserError(
                    "no word of the captions has a box, or those of one photo alone: give other boxes"
                )
            rows.append(row(study))
            numbers[name] = numbers_of(study)
    except UserError as error:
        parser.error(str(error))
    print(table(HEAD, rows))
    if out:
        with creating(out) as file:
            file.write(f"{json.dumps(numbers, indent=1)}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
