"""The interactive page: one file that needs nothing else, in which the light follows the words.

The photo goes in as a JPEG of at most 640 pixels, without the metadata of its file. The maps go in as one
byte per cell, q = 255 · √((α − low) / (high − low)) rounded, with low and high those of the caption: α comes
back to within (high − low) / 255. The box stays in the pixels of the original photo.
"""

from __future__ import annotations

import base64
import html
import io
import json
import os
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from caption.data.images import open_image
from caption.result import OutputError
from caption.visualize.light import GLOW, OPACITY, scale_of
from caption.visualize.overlay import covers
from caption.visualize.photo import Photo, photos_of

if TYPE_CHECKING:
    from caption.result import Caption

LONGEST = 640  # pixels of the longer side of an embedded photo
# Bytes before base64, which makes them a third more. Together with the script, a photo stays below 400 KB.
PHOTO_BYTES = 200_000
MAP_BYTES = 60_000


def to_html(
    captions: Sequence[Caption],
    title: str = "Where the model looked",
    *,
    images: Sequence[Photo] | None = None,
) -> str:
    """The page, a complete HTML document below 400 KB for each photo.

    It loads nothing: its content security policy forbids the browser every request, and every script and
    style but its own. Without scripting it shows photos and sentences.

    Args:
        captions: one per photo; the `alternatives` of each can be chosen below it.
        title: plain text.
        images: their photos, in the same order; by default those that the captions carry.

    Raises:
        ValueError: no captions, or not one photo each.
        caption.errors.ImageError: a photo cannot be opened.
    """
    script, style = _resource("page.js"), _resource("page.css")
    policy = f"default-src 'none'; img-src data:; script-src {_hash(script)}; style-src {_hash(style)}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body class="satt-page">
{_element(captions, images, heading=title)}
<script>{script}</script>
</body>
</html>
"""


def to_fragment(captions: Sequence[Caption], *, images: Sequence[Photo] | None = None) -> str:
    """The same as an element to be put into another page: a notebook's output.

    Several can stand on one page, and one twice. Arguments and errors are those of `to_html`.
    """
    body = _element(captions, images)
    return f"<style>{_resource('page.css')}</style>\n{body}\n<script>{_resource('page.js')}</script>"


def save_html(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page as UTF-8; half characters, as undecodable file names give, become question marks.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        Path(path).write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _element(captions: Sequence[Caption], images: Sequence[Photo] | None, heading: str | None = None) -> str:
    figures, records = [], []
    for caption, source in zip(captions, photos_of(captions, images), strict=True):
        photo = open_image(source)
        small = _shrunk(photo)
        figures.append(_figure(caption, small))
        records.append(_record(caption, photo.size, small.size))
    title = "" if heading is None else f"<h1>{html.escape(heading)}</h1>\n"
    # In a notebook MathJax would take "$" in a caption for a formula, and JupyterLab would take arrow keys.
    classes = "satt mathjax_ignore tex2jax_ignore"
    return f"""<div class="{classes}" data-lm-suppress-shortcuts="true">
{title}<div class="satt-gallery">
{"".join(figures)}</div>
<script type="application/json">{_json({"opacity": OPACITY, "glow": GLOW, "photos": records})}</script>
</div>"""


def _figure(caption: Caption, photo: Image.Image) -> str:
    """A photo and its sentence, readable before the script has built the rest, and without it."""
    sentence = html.escape(str(caption))
    size = 'width="{}" height="{}"'.format(*photo.size)
    return f"""<figure>
<div class="satt-photo"><img src="{_data_uri(photo)}" {size} alt="Photo: {sentence}"></div>
<figcaption>{sentence}</figcaption>
</figure>
"""


def _record(caption: Caption, size: tuple[int, int], shown: tuple[int, int]) -> dict[str, Any]:
    """What the script needs to know about a photo; sizes are (width, height) in pixels."""
    kept, taken = [caption], caption.weights.size
    for alternative in caption.alternatives:
        taken += alternative.weights.size
        if taken > MAP_BYTES:
            break
        kept.append(alternative)
    left_out = 1 + len(caption.alternatives) - len(kept)
    return {
        "size": size,
        "shown": shown,
        "left_out": left_out,
        "captions": [_with_maps(one, size) for one in kept],
    }


def _with_maps(caption: Caption, size: tuple[int, int]) -> dict[str, Any]:
    low, high = scale_of(caption.weights)
    light = np.sqrt((caption.weights.astype(np.float64) - low) / (high - low))
    levels = np.rint(255 * light).astype(np.uint8)
    record = {key: value for key, value in caption.to_dict().items() if key != "alternatives"}
    maps = base64.b64encode(levels.tobytes()).decode()
    return {**record, "low": low, "high": high, "covers": covers(caption.box, size), "weights": maps}


def _shrunk(photo: Image.Image) -> Image.Image:
    # thumbnail() never enlarges, and keeps at least one pixel of the shorter side.
    small = photo.copy()
    small.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
    return small


def _data_uri(photo: Image.Image) -> str:
    """The photo as JPEG in as many bytes as it may have, without EXIF, which may say where it was taken."""
    profile = photo.info.get("icc_profile")
    photo.info.clear()
    # Colours of a wide gamut would look dull without their profile. But some profiles are larger than the
    # photo, and one of a photo that was grey or CMYK says nothing about these pixels.
    suits = profile and profile[16:20] == b"RGB " and len(profile) < 5000
    keep = {"icc_profile": profile} if suits else {}
    for quality in (88, 80, 70, 55, 40, 25):
        buffer = io.BytesIO()
        photo.save(buffer, "JPEG", quality=quality, optimize=True, **keep)
        if buffer.tell() <= PHOTO_BYTES:
            break
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _json(value: dict[str, Any]) -> str:
    # Within a script element only "<" could end it; JSON may write it as an escape.
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _resource(name: str) -> str:
    return files("caption.visualize").joinpath(name).read_text(encoding="utf-8")
