"""The models of `caption describe`: those named, or the one that comes with the package for photos."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from caption.errors import UserError

if TYPE_CHECKING:  # torch takes seconds to import
    from caption.captioner import Captioner

SCENE_MODELS = ("shapes", "shapes-hard")
"""Installed models that know nothing but the scenes of the Shapes dataset."""
LARGEST_SCENE = 128
"""Pixels; the scenes are square and smaller."""


def chosen_models(given: Sequence[str] | None) -> list[str]:
    """The models to use. Without any given, the installed model for photos, which is said on stderr.

    Raises:
        UserError: no model is given, and none for photos is installed.
    """
    if given:
        return list(given)
    from caption.models.model_zoo import PHOTO_MODEL, installed_models

    if PHOTO_MODEL not in installed_models():
        raise UserError(
            "name a model with --model: a checkpoint, or an installed model "
            f"({', '.join(installed_models()) or 'none is installed'})"
        )
    print(f"caption describe: uses the installed model {PHOTO_MODEL}; --model takes another", file=sys.stderr)
    return [PHOTO_MODEL]


def load_models(models: Sequence[str], device: str, trust: Sequence[str]) -> Captioner:
    """One captioner: the model, or the ensemble of several."""
    from caption.models.model_zoo import load

    loaded = [load(model, device, trust) for model in models]
    if len(loaded) == 1:
        return loaded[0]
    from caption.models.ensemble import ensemble

    return ensemble(loaded)


def scene_model_warning(models: Sequence[str], photos: Sequence[str]) -> str | None:
    """A warning if an installed model of drawn scenes is to caption a photo, else None."""
    from PIL import Image

    asked = next((model for model in models if model in SCENE_MODELS and not Path(model).is_file()), None)
    for photo in photos if asked else ():
        try:
            with Image.open(photo) as image:
                width, height = image.size
        except Exception:  # reported when it is its turn
            continue
        if width != height or width > LARGEST_SCENE:
            return (
                f"{asked} knows drawn scenes of coloured shapes and nothing else, and {photo} is not one: its caption "
                "will be wrong. Give a model of photos"
            )
    return None
