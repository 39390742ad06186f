"""Caption files for scoring: reads the captions by image, and matches the images of candidates and references.

The format of a file is detected from its content. The images need not exist.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from caption.core.errors import DataError, first_few, number_of
from caption.core.runtime.inputs import TEXT, read_stream
from caption.data.findings import Findings, Kind
from caption.data.readers.base import CaptionText, caption_fault, oddities
from caption.data.readers.detect import detect_format
from caption.data.text_files import coco_id, read_text, short_repr, utf8_text
from caption.metrics.score import Id
from caption.text.tokenizer import nfc

STDIN = "-"


@dataclass
class CaptionFile:
    """The captions of one file."""

    name: str
    """The path as the user gave it, in quotes; or "standard input"."""
    captions: dict[Id, list[str]]
    """All captions of each image, in the order of the file."""
    files: dict[Id, str] = field(default_factory=dict)
    """The file name of each image, where the caption file has it."""
    bare: set[Id] = field(default_factory=set)
    """The images that the file names without a caption."""
    others: set[tuple[Id, str]] = field(default_factory=set)
    """Id and file of the images without captions here, such as those of other splits; the file may be ""."""
    oddities: Findings = field(default_factory=Findings)
    """What `caption check` notes about single captions, too."""

    @property
    def notes(self) -> list[str]:
        """The oddities in sentences, one for each kind."""
        kinds = {finding.kind: self.oddities.of_kind(finding.kind) for finding in self.oddities}
        return [
            f"{self.name} has {kind.counted(len(several))}: {several[0].text}. {kind.remedy}"
            for kind, several in kinds.items()
        ]


def read_captions(path: str, split: str | None = None) -> CaptionFile:
    """Read a file of captions: references or candidates.

    Args:
        path: of a format of `caption.data.readers`, of COCO's results JSON, or a JSON object of captions by image;
            "-" is standard input.
        split: keep the entries of this split; for files that have splits.

    Raises:
        DataError: the file is missing, empty or in none of these formats, or an entry is incomplete.
    """
    name = "standard input" if path == STDIN else f"'{path}'"
    if path == STDIN and sys.stdin is None:
        raise DataError("standard input is closed: give a file.")
    from_stdin = path == STDIN
    text = utf8_text(read_stream(sys.stdin.buffer, name, TEXT), name) if from_stdin else read_text(path)
    file = CaptionFile(name, {})
    content, findings = CaptionText(text, name), Findings()
    reader = detect_format(content)
    for entry in reader.entries(content, findings):
        for fault in filter(None, map(caption_fault, entry.captions)):
            raise DataError(f"{entry.where} has {fault}")
        if entry.file and split in (None, entry.split):
            known = file.files.setdefault(entry.image, entry.file)
            if _path(known) != _path(entry.file):
                raise DataError(
                    f"image {entry.image} of {name} is both '{known}' and '{entry.file}': name one split with --split, "
                    "or give each image an id of its own."
                )
        if entry.captions and split in (None, entry.split):
            for caption in entry.captions:
                for kind in oddities(caption.strip(), entry):
                    if kind is not Kind.LINES:  # a space, for all scores
                        file.oddities.add(kind, f"{entry.where}, {short_repr(caption)}")
            file.captions.setdefault(entry.image, []).extend(entry.captions)
        else:
            file.others.add((entry.image, entry.file))
            if not entry.captions:
                file.bare.add(entry.image)
    findings.refuse(name, of_dataset=False)
    file.others = {
        (image, path)
        for image, path in file.others
        if image not in file.captions or (path and _path(path) != _path(file.files.get(image, path)))
    }
    if not file.captions:
        of_split = f" of split '{split}'" if split else ""
        raise DataError(f"{name} holds no captions{of_split}. Is it the right file?")
    return file


def match_images(candidates: CaptionFile, references: CaptionFile) -> dict[Id, str]:
    """The caption of each image, by the image's name in the references.

    A number and its digits are the same name. Files match with or without folder and suffix.

    Raises:
        DataError: an image has several captions, or none in the references, or another file there.
    """
    several = [image for image, texts in candidates.captions.items() if len(texts) > 1]
    if several:
        raise DataError(
            f"{number_of(len(several), 'image has', 'images have')} several captions in "
            f"{candidates.name}: {first_few(several)}. Keep one caption for each image."
        )
    if bare := sorted(map(str, (references.bare & candidates.captions.keys()) - references.captions.keys())):
        raise DataError(
            f"{number_of(len(bare), 'image has', 'images have')} no caption in {references.name}: {first_few(bare)}. "
            "Add captions, or take the candidates out."
        )
    names = _names(references)
    captions: dict[Id, str] = {}
    for image, texts in candidates.captions.items():
        spellings = [*_spellings(image), *_spellings(candidates.files.get(image, image))]
        found = next((names[name] for name in spellings if name in names), None)
        referenced = image if found is None else found
        referenced = _of_the_same_file(image, referenced, candidates, references)
        if referenced in captions:
            raise DataError(f"{candidates.name} has two captions for image {referenced}: keep one of them.")
        captions[referenced] = texts[0]
    return captions


def _of_the_same_file(image: Id, referenced: Id, candidates: CaptionFile, references: CaptionFile) -> Id:
    """The image found for a candidate. Where both name an id and a file, and the files differ, the file decides."""
    file, other = candidates.files.get(image), references.files.get(referenced)
    if not file or not other or file == str(image) or other == str(referenced) or _alike(file, other):
        return referenced
    same = [
        known
        for known, path in references.files.items()
        if known in references.captions and _alike(file, path)
    ]
    if len(same) != 1:
        raise DataError(
            f"image {image} is '{file}' in {candidates.name}, but '{other}' in {references.name}: "
            "do the files belong together?"
        )
    return same[0]


def _alike(first: str, second: str) -> bool:
    """Whether two files have the same name, without folder and suffix, or the same COCO id."""
    return coco_id(_path(first).name) == coco_id(_path(second).name)


def captions_of(references: CaptionFile, photos: Iterable[str]) -> dict[str, list[str]]:
    """The captions of photos, by the given names, without spaces at their ends; photos without captions are left out.

    A photo is found by its name, with or without folders and suffix, or by the id in the name of a COCO image file.

    Raises:
        DataError: two photos belong to one image.
    """
    images = _images_of(references, photos)
    return {photo: [text.strip() for text in references.captions[image]] for photo, image in images.items()}


def photos_of(references: CaptionFile, photos: Iterable[str]) -> dict[Id, Path]:
    """The file of each image; images without one are left out. For names and errors see `captions_of`."""
    return {image: Path(photo) for photo, image in _images_of(references, photos).items()}


def _images_of(references: CaptionFile, photos: Iterable[str]) -> dict[str, Id]:
    """The image of each photo, by the given names; photos of no image are left out."""
    names = _names(references)
    photo_of: dict[Id, str] = {}
    for photo in photos:
        image = next((names[name] for name in _spellings(photo) if name in names), None)
        if image is not None and photo_of.setdefault(image, photo) != photo:
            raise DataError(
                f"'{photo_of[image]}' and '{photo}' are both image {image} of {references.name}: keep one."
            )
    return {photo: image for image, photo in photo_of.items()}


def _names(references: CaptionFile) -> dict[str, Id | None]:
    """The image of every name that means exactly one image of the file; None if that image has no captions here.

    An image's own name and file take precedence over the names derived from them.
    """
    captioned = {(image, references.files.get(image, "")) for image in references.captions}
    own: dict[str, set[tuple[Id, str]]] = {}
    derived: dict[str, set[tuple[Id, str]]] = {}
    for image, file in captioned | references.others:
        own.setdefault(str(_path(file or str(image))), set()).add((image, file))
        for name in (*_spellings(image), *_spellings(file or image)):
            derived.setdefault(name, set()).add((image, file))
    names: dict[str, Id | None] = {}
    for images_of in (derived, own):
        for name, images in images_of.items():
            if len(images) == 1:
                names[name] = next((image for image, _ in images & captioned), None)
    return names | {str(image): image for image in references.captions}


def _path(file: str) -> PurePath:
    return PurePath(nfc(file))


def _spellings(image: Id) -> list[str]:
    """The name itself, in NFC, without its first folders, the longest first, without suffix, and its COCO id."""
    path = PurePath(nfc(str(image)))
    tails = [str(PurePath(*path.parts[start:])) for start in range(1, len(path.parts))]
    return list(dict.fromkeys([str(image), str(path), *tails, path.stem, str(coco_id(path.name))]))
