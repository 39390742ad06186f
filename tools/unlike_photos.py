"""Photos unlike Flickr8k: what captions say of them, what the lens sees, and whether that is right.

    apt-get download gnome-control-center-data palapeli-data plasma-workspace-data
    for file in *.deb; do dpkg -x $file unpacked; done
    python -m tools.unlike_photos photos --root unpacked --out table.md --sheet docs/unlike_photos.webp

`unlike_photos.tsv` lists the photos: all photographs of these packages of Debian 12 that are at least 256 pixels wide
and show a thing that captions of fewer than 60 of Flickr8k's 6,000 training photos name. It also says what each shows,
written before a model had seen them.

A caption is right if a word of it is one of the listed nouns, another word for one, or a kind of one; nearly right if
it has a more general noun of the list; otherwise wrong. Of what the lens sees at the words that may name things, the
likeliest counts: of what is printed, and also where it is less likely. The likeliest thing in the whole photo is
counted, too. Each model captions twice: in its own words, and naming what its lens is sure
of (`caption.analysis.lens.naming`).
"""

from __future__ import annotations

import csv
import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from caption.captioner import Captioner
from caption.errors import UserError, first_few
from caption.lens_reading import LEAST_SEEN, LensReading, Seen, once
from caption.models.model_zoo import load
from caption.result import Caption
from caption.runtime.figure_formats import FIGURES
from caption.runtime.files import replacing_own
from caption.runtime.inputs import PHOTO, read_input
from caption.runtime.outputs import check_outputs, output_file
from caption.text.english import plural
from caption.text.mentions import longest_names
from caption.text.nouns import Nouns, imagenet_nouns
from caption.visualize import contact_sheet, save_figure
from caption.visualize.words import FUNCTION_WORDS, seen_at_words
from tools import make_parser
from tools.documents import print_report, table
from tools.unnamed_nouns import read_models

LIST = Path(__file__).with_suffix(".tsv")
RIGHT, NEARLY, WRONG = "right", "nearly", "wrong"
NAMING = ", naming"
"""Ends the title of captions that name what the lens is sure of."""
FREE = ("CC0-1.0", "public domain")
"""Licences of the photos that the sheet shows."""
WIDTH = 1000
"""Pixels of the sheet."""


class Photo(NamedTuple):
    """A photo of the list."""

    package: str
    path: Path
    licence: str
    shows: str
    right: tuple[str, ...]
    """Nouns for what it shows."""
    nearly: tuple[str, ...]
    """More general ones."""


class Told(NamedTuple):
    """What a model says of a photo."""

    caption: Caption
    seen: list[Seen]
    """At the words, likeliest first; those that are printed."""
    at_words: Seen | None
    """The likeliest of all at the words, and in the whole photo."""
    in_photo: Seen | None


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("unlike_photos", __doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="[NAME=]CKPT", help="a checkpoint or an installed model, with a name")
    help_ = "folder in which packages are unpacked, or / if they are installed; may be repeated (default /)"
    add("--root", action="append", type=Path, metavar="DIR", help=help_)
    add("--out", type=Path, metavar="FILE.md", help="where the table goes, too; default stdout alone")
    add("--sheet", metavar="FILE", help="a contact sheet of the photos whose licence allows it")
    options = parser.parse_args(args)
    try:
        sheet = None if options.sheet is None else output_file(options.sheet, FIGURES, "--sheet")
        outputs = {"--out": [options.out] if options.out else [], "--sheet": [sheet] if sheet else []}
        check_outputs(outputs, [])
        models = read_models(options.models)
        photos = find(options.root or [Path("/")])
        told = {title: of for name, path in models.items() for title, of in tell(name, path, photos).items()}
        text = report(photos, told)
        if sheet is not None:
            save_figure(draw(photos, told), sheet, opener=replacing_own, width=WIDTH)
    except UserError as error:
        print(f"unlike_photos: {error}", file=sys.stderr)
        return 2
    print_report(text, options.out)
    return 0


def find(roots: Iterable[Path]) -> list[Photo]:
    """The photos of the list, where packages have put them.

    Raises:
        UserError: a package is missing, or one of its files is another photo than that of the list.
    """
    with LIST.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    photos, missing, changed = [], set(), []
    for row in rows:
        path = next((root / row["path"] for root in roots if (root / row["path"]).is_file()), None)
        if path is None:
            missing.add(row["package"])
        elif hashlib.sha256(read_input(path, PHOTO)).hexdigest() != row["sha256"]:
            changed.append(str(path))
        else:
            nouns = (tuple(row[kind].split(", ")) for kind in (RIGHT, NEARLY))
            photos.append(Photo(row["package"], path, row["licence"], row["shows"], *nouns))
    if missing:
        names = " ".join(sorted(missing))
        raise UserError(
            f"photos of {names} are missing: run apt-get download {names}, unpack the files with dpkg -x FILE DIR, and "
            "give --root DIR"
        )
    if changed:
        raise UserError(f"these are other photos than those of {LIST.name}: {first_few(changed)}")
    return photos


def tell(name: str, model: str, photos: Sequence[Photo]) -> dict[str, list[Told]]:
    """Caption photos with a model and its lens: with the model's own words, and, if its lens is calibrated, also with
    the names of things that the lens is sure of in photos unlike those that the model knows."""
    captioner = load(model, lens=True)
    namer, captioner.namer = captioner.namer, None
    told = {name: _tell(captioner, photos)}
    if namer is not None:
        captioner.namer = namer
        told[name + NAMING] = _tell(captioner, photos)
    return told


def _tell(captioner: Captioner, photos: Sequence[Photo]) -> list[Told]:
    told = []
    for caption in captioner.describe([photo.path for photo in photos]):
        reading = caption.lens
        assert reading is not None
        seen = once(thing for _, thing in seen_at_words(caption))
        told.append(Told(caption, seen, _likeliest(caption, reading), next(iter(reading.photo), None)))
    return told


def _likeliest(caption: Caption, reading: LensReading) -> Seen | None:
    steps = [step for step, word in enumerate(caption.words) if word.lower() not in FUNCTION_WORDS]
    things = [seen for step in steps if (seen := reading.seen(step)) is not None]
    return max(things, key=lambda seen: seen.probability, default=None)


def verdict(text: str, photo: Photo, nouns: Nouns) -> str:
    """Whether a text names what a photo shows: RIGHT, NEARLY or WRONG."""
    right = set(photo.right)
    for noun in nouns.names:
        if not right.isdisjoint(nouns.chain(noun)):
            right.update(word for forms in nouns.forms[noun] for word in forms)
    kinds = {**dict.fromkeys(_forms(photo.nearly), NEARLY), **dict.fromkeys(_forms(right), RIGHT)}
    words = text.lower().split()
    names = longest_names(words, lambda gram: gram in kinds or bool(nouns.of_word(gram)))
    found = {WRONG, *(kinds.get(" ".join(words[name]), WRONG) for name in names)}
    return next(kind for kind in (RIGHT, NEARLY, WRONG) if kind in found)


def _forms(words: Iterable[str]) -> set[str]:
    return {form for word in words for form in (word, plural(word))}


def report(photos: Sequence[Photo], told: dict[str, list[Told]]) -> str:
    """Two tables: how many are right, and what each model says and sees."""
    nouns = imagenet_nouns()

    def count(texts: Iterable[str]) -> list[int]:
        counts = Counter(verdict(text, photo, nouns) for text, photo in zip(texts, photos, strict=True))
        return [counts[kind] for kind in (RIGHT, NEARLY, WRONG)]

    totals: list[list[str | int]] = []
    rows, head = [[photo.shows] for photo in photos], ["photo of"]
    for name, of in told.items():
        of_model = {
            "caption": [str(one.caption) for one in of],
            f"lens at its words, from {LEAST_SEEN}": [_noun(*one.seen[:1]) for one in of],
            "lens at its words": [_noun(one.at_words) for one in of],
            "lens, whole photo": [_noun(one.in_photo) for one in of],
        }
        kept = list(of_model.items())[: 1 if name.endswith(NAMING) else None]  # the lens sees much the same
        totals += [[f"{name}: {what}", *count(texts)] for what, texts in kept]
        for row, photo, one in zip(rows, photos, of, strict=True):
            row.append(f"{one.caption} ({verdict(str(one.caption), photo, nouns)})")
            if len(kept) > 1:
                seen = ", ".join(map(str, one.seen))
                row.append(f"{seen} ({verdict(_noun(*one.seen[:1]), photo, nouns)})" if seen else "–")
        head += [f"{name} says", f"{name} sees"][: len(kept)]
    return "\n\n".join([table([f"of {len(photos)} photos", RIGHT, NEARLY, WRONG], totals), table(head, rows)])


def _noun(seen: Seen | None = None) -> str:
    return "" if seen is None else seen.noun


def draw(photos: Sequence[Photo], told: dict[str, list[Told]]) -> Figure:
    """A contact sheet of the photos that may be shown: the last captions, and in grey the first ones."""
    first, *_, last = [next(iter(told.values())), *told.values()]
    places = [place for place, photo in enumerate(photos) if photo.licence in FREE]
    names = [photos[p].shows if len(told) == 1 else f"before: {first[p].caption}" for p in places]
    return contact_sheet([last[p].caption for p in places], [photos[p].path for p in places], names=names)


if __name__ == "__main__":
    sys.exit(main())
