"""The photos and models that a command line names, and messages about them."""

from __future__ import annotations

import glob
import io
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from caption.cli.printing import say
from caption.core.errors import ImageError, UserError, first_few, printable
from caption.core.runtime.inputs import PHOTO, open_input, read_stream

CAMERA_FORMATS = frozenset(
    {".heic", ".heif", ".avif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"}
)
"""Suffixes of photos, whether Pillow reads them or not: one that it cannot read is reported, not skipped."""
STDIN = "-"
STDIN_NAME = "stdin"
"""Name of the photo on standard input, in results and file names."""
SCENE_MODELS = ("shapes", "shapes-hard")
"""Installed models that know only the scenes of the Shapes dataset."""
LARGEST_SCENE = 128
"""In pixels; the scenes are square and smaller."""


class Inputs(NamedTuple):
    """The photos that a command line names."""

    photos: list[str]
    """Their names."""
    sources: list[str | StdinPhoto]
    """What to open for each photo: its file, or standard input."""
    notes: list[str]
    """A sentence for each folder with files that are left out."""


class StdinPhoto(io.BytesIO):
    """The photo on standard input, read whole."""

    name = "standard input"

    def is_text(self) -> bool:
        """Whether it is text, such as a list of names, and not a photo."""
        content = self.getvalue()
        return b"\0" not in content and content.isascii()


def input_photos(arguments: Iterable[str], recursive: bool = False) -> Inputs:
    """The photos that arguments name: files as they are, and for each folder the images in it, sorted by name.

    The images of a folder are its files with a suffix that Pillow reads or that cameras use, and files without a
    suffix that begin like an image. Hidden files are left out silently; other files and subfolders with a note. A
    folder without images stays in the list; opening it as a photo then reports the error. A pattern such as "in/*.jpg",
    unless it is the name of a file, is expanded, since some shells do not expand it. "-" is standard input.

    Args:
        arguments: of the command line.
        recursive: whether the images of subfolders are taken, too.

    Raises:
        UserError: standard input is named twice, is closed, or cannot be read.
    """
    inputs = Inputs([], [], [])
    arguments = list(arguments)
    if arguments.count(STDIN) > 1:
        raise UserError("standard input ('-') is one photo, but it is named twice")
    for argument in arguments:
        if argument == STDIN:
            inputs.photos.append(STDIN_NAME)
            inputs.sources.append(_stdin_photo())
            continue
        for path in _matching(argument):
            images = _images(path, recursive, inputs.notes) or [path]
            inputs.photos.extend(images)
            inputs.sources.extend(images)
    return inputs


def _stdin_photo() -> StdinPhoto:
    if sys.stdin is None:
        raise UserError("standard input is closed: give a file")
    return StdinPhoto(read_stream(sys.stdin.buffer, StdinPhoto.name, PHOTO))


def is_pattern(argument: str) -> bool:
    """Whether an argument is a pattern, such as "in/*.jpg", and not the name of a file."""
    return glob.has_magic(argument) and not os.path.lexists(argument)


def _matching(argument: str) -> list[str]:
    """The matches of a pattern, sorted; the argument itself if it is not a pattern, or matches nothing."""
    matches = glob.glob(os.path.expanduser(argument), recursive=True) if is_pattern(argument) else []
    return sorted(matches) or [argument]


def _images(folder: str, recursive: bool, notes: list[str]) -> list[str]:
    """The images in a folder; none for a file. Adds a note about files that are left out. A folder to which several
    links lead is read once."""
    images: list[str] = []
    visited: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True) if os.path.isdir(folder) else ():
        if (real := os.path.realpath(parent)) in visited:
            folders[:] = []
            continue
        visited.add(real)
        names = sorted(name for name in (*folders, *files) if name[0] != ".")
        is_image = {name: _is_image(os.path.join(parent, name)) for name in names}
        images += [os.path.join(parent, name) for name in names if is_image[name]]
        folders[:] = [name for name in names if name in folders] if recursive else []
        if images and not recursive and not all(is_image.values()):
            left_out = first_few(printable(name) for name in names if not is_image[name])
            notes.append(f"'{printable(folder)}': left out {left_out} (subfolders, or not images)")
    return images


@cache
def image_suffixes() -> frozenset[str]:
    """The suffixes, in lower case, of files that Pillow reads or that cameras write."""
    from PIL import Image

    return CAMERA_FORMATS | {
        suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN
    }


def _is_image(path: str) -> bool:
    suffix = os.path.splitext(path)[1].lower()
    if os.path.isdir(path) or (suffix and suffix not in image_suffixes()):
        return False
    return bool(suffix) or _begins_like_an_image(path)


def _begins_like_an_image(path: str) -> bool:
    from PIL import Image

    try:
        with open_input(path, PHOTO) as file, Image.open(file):
            return True
    except Exception:  # Pillow's readers raise almost anything
        return False


def unreadable(photo: str | StdinPhoto, error: ImageError) -> str:
    """The message of an error. A folder among the photos is one without images."""
    if isinstance(photo, StdinPhoto):
        if photo.is_text():
            return "standard input is text, and not a photo. To give a list of names: ... | xargs caption describe"
        return str(error)
    if os.path.isdir(photo):
        return f"'{photo}' is a folder without images. Name one with images; --recursive reads subfolders."
    if is_pattern(photo):
        return f"no file matches '{photo}'. Check the pattern."
    return str(error)


def chosen_models(models: Sequence[str] | None) -> list[str]:
    """The given models, or the installed model for photos, with a note if stderr is a terminal.

    Raises:
        UserError: no model is given, and no model for photos is installed.
    """
    if models:
        return list(models)
    from caption.models.model_zoo import PHOTO_MODEL, installed_models

    if PHOTO_MODEL not in installed_models():
        raise UserError(
            "name a model with --model: a checkpoint, or an installed model "
            f"({', '.join(installed_models()) or 'none is installed'})"
        )
    if sys.stderr.isatty():  # not in scripts and logs
        about = "a small model, trained on 8,780 photos: expect mistakes; --model selects another"
        say("describe", f"uses the installed model {PHOTO_MODEL}, {about}")
    return [PHOTO_MODEL]


def scene_model_warning(models: Sequence[str], photos: Sequence[str]) -> str | None:
    """A warning if an installed model of drawn scenes is to caption a photo, else None."""
    from PIL import Image

    scene_model = next(
        (model for model in models if model in SCENE_MODELS and not Path(model).is_file()), None
    )
    for photo in photos if scene_model else ():
        try:
            with open_input(photo, PHOTO) as file, Image.open(file) as image:
                width, height = image.size
        except Exception:  # reported when the photo is captioned
            continue
        if width != height or width > LARGEST_SCENE:
            return (
                f"{scene_model} knows only drawn scenes of coloured shapes, and {photo} is not one: its caption will "
                "be wrong. Use a model for photos"
            )
    return None
