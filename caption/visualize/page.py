"""The interactive page: one self-contained file in which pointing at a word shows its weights over the photo.

The photo is embedded as a JPEG of at most 640 pixels, without the metadata of its file. A map is embedded as one byte q
per cell. With low and high those of the caption's scale (see `scale_of`),

    q = 255 · √((α − low) / (high − low))        weights that are never negative
    q = 128 + 127 · sign(α) · √(|α| / high)      signed weights

rounded, so α comes back to within (high − low) / 255, or high / 127 for signed weights. The box stays in the pixels of
the original photo.
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
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from caption.data.images import open_image
from caption.outputs import MARK
from caption.result import open_output
from caption.visualize.overlay import covers, photos_of
from caption.visualize.scale import scale_of
from caption.visualize.styles import ABOVE, BELOW, SIGNED_TINT, STYLES

if TYPE_CHECKING:
    from caption.result import Caption, Photo

LONGEST = 640  # pixels of the longer side of an embedded photo
# Bytes before base64, which makes them a third more. Together with the script, a photo stays below 400 KB.
PHOTO_BYTES = 200_000
MAP_BYTES = 60_000  # of all maps of a photo
COLOURS = {
    "opacity": STYLES["cells"].opacity,
    "tint": STYLES["cells"].tint,
    "signed_tint": SIGNED_TINT,
    "above": [round(255 * part) for part in ABOVE],
    "below": [round(255 * part) for part in BELOW],
}


def to_html(
    captions: Sequence[Caption],
    title: str = "Where the model looked",
    *,
    images: Sequence[Photo] | None = None,
    smooth: bool = False,
) -> str:
    """The page, a complete HTML document below 400 KB for each photo.

    It loads nothing: its content security policy forbids every request, and every script and style but its own.
    Without scripting it shows photos and sentences.

    Args:
        captions: one per photo. Its `maps` and `alternatives` can be chosen below it, as many as there is room for.
        title: plain text.
        images: their photos, in the same order; by default those that the captions carry.
        smooth: begin with maps that are interpolated between cells.

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
<meta name="generator" content="{MARK}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body class="satt-page">
{_element(captions, images, title, smooth)}
<script>{script}</script>
</body>
</html>
"""


def to_fragment(captions: Sequence[Caption], *, images: Sequence[Photo] | None = None) -> str:
    """The content of `to_html` as an element for another page, such as a notebook's output.

    A page may hold several of them, and the same one twice. Arguments and errors are those of `to_html`.
    """
    body = _element(captions, images)
    return f"<style>{_resource('page.css')}</style>\n{body}\n<script>{_resource('page.js')}</script>"


def save_html(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page as UTF-8; lone surrogates, which undecodable file names contain, become question marks.

    Raises:
        OutputError: the file cannot be written.
    """
    with open_output(path) as file:
        file.write(page.encode("utf-8", "replace"))


def _element(
    captions: Sequence[Caption],
    images: Sequence[Photo] | None,
    heading: str | None = None,
    smooth: bool = False,
) -> str:
    figures, records = [], []
    for caption, source in zip(captions, photos_of(captions, images), strict=True):
        photo = open_image(source)
        small = _shrunk(photo)
        figures.append(_figure(caption, small))
        records.append(_record(caption, photo.size, small.size))
    title = "" if heading is None else f"<h1>{html.escape(heading)}</h1>\n"
    # In a notebook, MathJax would read "$" in a caption as a formula, and JupyterLab would intercept arrow keys.
    classes = "satt mathjax_ignore tex2jax_ignore"
    return f"""<div class="{classes}" data-lm-suppress-shortcuts="true">
{title}<div class="satt-gallery">
{"".join(figures)}</div>
<script type="application/json">{_json({**COLOURS, "smooth": smooth, "photos": records})}</script>
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
    first, *others = [_caption_record(each, size) for each in (caption, *caption.alternatives)]
    first["maps"] = [{"name": name, **_map_record(each)} for name, each in caption.single_maps().items()]
    room = MAP_BYTES - caption.weights.size
    maps, room = _fitting(first["maps"], room)
    captions, _ = _fitting(others, room)
    left_out = {
        "left_out": len(others) - len(captions),
        "maps_left_out": len(first["maps"]) - len(maps),
    }
    first["maps"] = maps
    return {"size": size, "shown": shown, **left_out, "captions": [first, *captions]}


def _fitting(records: list[dict[str, Any]], room: int) -> tuple[list[dict[str, Any]], int]:
    """The first records whose maps fit into so many bytes, and the bytes that remain; none after one that does not."""
    kept: list[dict[str, Any]] = []
    for record in records:
        bytes_taken = 3 * len(record["weights"]) // 4
        if bytes_taken > room:
            return kept, 0
        kept.append(record)
        room -= bytes_taken
    return kept, room


def _caption_record(caption: Caption, size: tuple[int, int]) -> dict[str, Any]:
    record = {key: value for key, value in caption.to_dict().items() if key != "alternatives"}
    shares = caption.sentinel_shares
    sentinel = None if shares is None else [float(share) for share in shares]
    return {
        **record,
        **_map_record(caption),
        "sentinel": sentinel,
        "covers": covers(caption.box, size),
        "maps": [],
    }


def _map_record(caption: Caption) -> dict[str, Any]:
    """The caption's weights as bytes, and what the script needs to know to draw them."""
    properties = caption.properties
    scale = scale_of(caption.weights, signed=properties.signed)
    weights = caption.weights.astype(np.float64)
    if scale.signed:
        levels = 128 + 127 * np.sign(weights) * np.sqrt(np.abs(weights) / scale.high)
    else:
        levels = 255 * np.sqrt((weights - scale.low) / (scale.high - scale.low))
    return {
        "grid": list(weights.shape[1:]),
        **scale._asdict(),
        "even": 1 / weights[0].size if len(weights) and properties.is_distribution else None,
        "sums_to_one": properties.sums_to_one,
        "weights": base64.b64encode(np.rint(levels).astype(np.uint8).tobytes()).decode(),
    }


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
    # photo, and the profile of a photo that was grey or CMYK does not apply to these pixels.
    suits = profile and profile[16:20] == b"RGB " and len(profile) < 5000
    keep = {"icc_profile": profile} if suits else {}
    for quality in (88, 80, 70, 55, 40, 25):
        buffer = io.BytesIO()
        photo.save(buffer, "JPEG", quality=quality, optimize=True, **keep)
        if buffer.tell() <= PHOTO_BYTES:
            break
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _json(value: dict[str, Any]) -> str:
    # Only "<" could end a script element; JSON may write it as an escape.
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _resource(name: str) -> str:
    return files("caption.visualize").joinpath(name).read_text(encoding="utf-8")
