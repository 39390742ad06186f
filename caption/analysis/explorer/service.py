"""The server without the network: photos in memory, and their explorers."""

from __future__ import annotations

import io
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from PIL import Image, ImageOps

from caption.analysis.explorer.explorer import Explorer
from caption.analysis.explorer.requests import check
from caption.captioner import Captioner
from caption.core.errors import ImageError, UserError, printable
from caption.data.photos import identified, open_image
from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene
from caption.visualize.page import data_uri

KEPT_PHOTOS = 16
MOST_PIXELS = 40_000_000
"""The limit of one photo, and of all photos in memory together; the last photo always stays."""
LONGEST_NAME = 200
PREVIEW = 96
"""Width and height of an example's preview, in pixels."""
SCENES = 6
"""Number of example scenes."""
PHOTOS = {
    "photographer": ((0, 0, 512, 512), False),
    "photographer, mirrored": ((0, 0, 512, 512), True),
    "photographer, closer": ((60, 50, 370, 360), False),
    "field and buildings": ((300, 130, 512, 342), False),
}
"""Example photos: a part (left, top, right, bottom) of the one that is installed, and whether it is mirrored."""


class GoneError(UserError):
    """The photo is not in memory any more."""


class Service:
    """Photos in memory, each encoded once for each model. Not thread-safe.

    Args:
        models: by name, in the order in which a page shows them.
        kept_photos: the number of photos that stay in memory, fewer if they have more than `MOST_PIXELS` together.
            The least recently used one is dropped first.
    """

    def __init__(self, models: Mapping[str, Captioner], kept_photos: int = KEPT_PHOTOS) -> None:
        self.models = dict(models)
        self._kept_photos = kept_photos
        self._photos: OrderedDict[str, dict[str, Explorer]] = OrderedDict()

    @property
    def has_scenes(self) -> bool:
        """Whether all models know the words of the generated scenes, and few others."""
        words = {"red", "circle", "square", "triangle"}
        return all(
            words <= set(model.vocabulary.words) and len(model.vocabulary) < 100
            for model in self.models.values()
        )

    @property
    def examples(self) -> list[dict[str, str]]:
        """The name of each example picture, and a small preview as a data URI."""
        names = [f"scene {number + 1}" for number in range(SCENES)] if self.has_scenes else [*PHOTOS]
        previews = [self._example(number).resize((PREVIEW, PREVIEW)) for number in range(len(names))]
        return [
            {"name": name, "preview": data_uri(image)} for name, image in zip(names, previews, strict=True)
        ]

    def example(self, number: int) -> bytes:
        """An example picture, counted from 0: a generated scene as PNG for models of scenes, else a photo as JPEG."""
        file = io.BytesIO()
        self._example(number).save(file, "PNG" if self.has_scenes else "JPEG", quality=85)
        return file.getvalue()

    def _example(self, number: int) -> Image.Image:
        if self.has_scenes:
            return render(random_scene(0, "test", 1 + number % SCENES))
        box, mirrored = [*PHOTOS.values()][number % len(PHOTOS)]
        with files("caption.analysis.explorer").joinpath("photographer.jpg").open("rb") as file:
            part = Image.open(file).crop(box)
        return ImageOps.mirror(part) if mirrored else part

    def add(self, data: bytes, name: str, watch: Callable[[], None] | None = None) -> dict[str, Any]:
        """Caption a photo with every model.

        Args:
            data: the photo's file.
            name: of the file, for the page.
            watch: see `Explorer`.

        Raises:
            ImageError: it is not a photo, or a larger one than `MOST_PIXELS`.
        """
        name = printable(name)[:LONGEST_NAME] or "photo"
        if not data:
            raise ImageError("no photo has arrived: send the bytes of a JPEG or PNG file.")
        _check_size(data, name)
        file = io.BytesIO(data)
        file.name = name
        image = open_image(file)  # decoded once for all models
        several = len(self.models) > 1
        explorers = {
            model: Explorer(captioner, data, name, model if several else "", watch, image)
            for model, captioner in self.models.items()
        }
        photo = secrets.token_urlsafe(12)
        self._photos[photo] = explorers
        while len(self._photos) > self._kept_photos or (
            len(self._photos) > 1 and self._pixels() > MOST_PIXELS
        ):
            self._photos.popitem(last=False)
        records = [explorer.record() for explorer in explorers.values()]
        return {"photo": photo, "image": next(iter(explorers.values())).image(), "photos": records}

    def _pixels(self) -> int:
        images = [next(iter(explorers.values())).photo.image for explorers in self._photos.values()]
        return sum(image.width * image.height for image in images)

    def change(self, request: Any, watch: Callable[[], None] | None = None) -> dict[str, Any]:
        """The record of a photo under changes.

        Args:
            request: {"photo": of `add`, "model": name, "changes": [...], "search": ...}, see `Explorer.answer`.
            watch: see `Explorer`.

        Raises:
            GoneError: the photo is not in memory any more.
            UserError: the request is invalid.
        """
        # The explorer checks the changes.
        check({**request, "changes": []} if isinstance(request, dict) else request, "Request")
        photo, model = request["photo"], request.get("model", next(iter(self.models)))
        if photo not in self._photos:
            raise GoneError("this photo is not in memory any more: open it again.")
        explorers = self._photos[photo]
        if model not in explorers:
            raise UserError(
                f"there is no model {printable(str(model))[:100]!r}: there is {', '.join(explorers)}"
            )
        self._photos.move_to_end(photo)
        explorers[model].photo.watch = watch
        return explorers[model].answer(request)


def _check_size(data: bytes, name: str) -> None:
    """Refuse a photo of too many pixels by its header, before it is decoded."""
    try:
        with identified(io.BytesIO(data), name) as image:
            pixels = image.width * image.height
    except Image.DecompressionBombError as error:
        raise ImageError(f"'{name}' is too large: {error}") from error
    except Exception:  # `open_image` reports the problem
        return
    if pixels > MOST_PIXELS:
        raise ImageError(
            f"'{name}' has {pixels / 1e6:.0f} megapixels; at most {MOST_PIXELS / 1e6:.0f} are accepted. Scale it down."
        )
