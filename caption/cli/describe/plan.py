"""What a `caption describe` is to do: read from its options, and checked before any work."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from caption.cli.describe.photos import Inputs, input_photos
from caption.cli.describe.pictures import PicturePlan, plan_pictures
from caption.cli.printing import say
from caption.core.errors import UserError
from caption.core.runtime.outputs import check_outputs, output_paths

FORMATS = ("text", "json", "jsonl", "csv", "coco")


@dataclass(frozen=True)
class Plan:
    """The options of `caption describe`, and what was made of them."""

    options: argparse.Namespace
    inputs: Inputs
    models: list[str]
    """Of one captioner: several are an ensemble."""
    read: list[str]
    """All files that are read; models may be names."""
    attention: list[Path]
    """A file of arrays for each photo; or none."""
    pictures: PicturePlan

    @property
    def model(self) -> str:
        """The models as the user named them."""
        return " + ".join(self.models)


def make_plan(options: argparse.Namespace) -> Plan:
    """Read and check the options of `caption describe`.

    Raises:
        UserError: options do not fit together, an output cannot be written, or would replace an input or a file of the
            user.
    """
    for name in ("list", "out", "per_file", "actors"):
        if name in options.given:
            raise UserError(f"{options.given[name]} is for --engine ray")
    if options.format not in (None, *FORMATS):
        raise UserError(f"--format {options.format} is for --engine ray")
    if not options.images:
        raise UserError(
            "there are no photos: name files or folders (caption describe --help lists the options)"
        )
    inputs = input_photos(options.images, options.recursive)
    models = chosen_models(options.model)
    shown = [" + ".join(models), *options.compare]
    if twice := [name for name in options.compare if shown.count(name) > 1]:
        raise UserError(f"--compare names {twice[0]}, which is shown already: name another model")
    pictures = plan_pictures(options, inputs.photos)
    attention = (
        output_paths(options.attention, inputs.photos, (".npz",), "--attention") if options.attention else []
    )
    read = [*inputs.photos, *models, *options.compare]
    check_outputs(pictures.outputs | ({"--attention": attention} if attention else {}), read)
    return Plan(options, inputs, models, read, attention, pictures)


def chosen_models(named: Sequence[str] | None) -> list[str]:
    """The models to use. Without any given, the installed model for photos, which a terminal is told.

    Raises:
        UserError: no model is given, and none for photos is installed.
    """
    if named:
        return list(named)
    from caption.models.model_zoo import PHOTO_MODEL, installed_models

    if PHOTO_MODEL not in installed_models():
        raise UserError(
            "name a model with --model: a checkpoint, or an installed model "
            f"({', '.join(installed_models()) or 'none is installed'})"
        )
    if sys.stderr.isatty():  # not in scripts and logs
        about = "a small model, trained on 8,200 photos: expect mistakes; --model takes another"
        say("describe", f"uses the installed model {PHOTO_MODEL}, {about}")
    return [PHOTO_MODEL]
