"""The interactive page: one self-contained file in which pointing at a word shows its weights over the photo.

A photo is embedded as a JPEG of at most 640 pixels, without the metadata of its file; its captions and maps are
embedded as described in `page_data`. The code is that of `page_script`.
"""

from __future__ import annotations

import base64
import html
import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from PIL import Image

from caption.core.runtime.atomic_files import Opener, replacing
from caption.data.photos import open_image
from caption.visualize.html_document import document
from caption.visualize.overlay import photo_names, photos_of
from caption.visualize.page_data import photo_record, style_record
from caption.visualize.page_script import page_script, page_style
from caption.visualize.styles import OverlayOptions, OverlayStyle

if TYPE_CHECKING:
    from caption.data.photos import Photo
    from caption.results.caption import Caption

    Captions = Sequence[Caption] | Mapping[str, Sequence[Caption]]

LONGEST = 640  # pixels of the longer side of an embedded photo
# Bytes before base64, which makes them a third more. Together with the script, a photo stays below 400 KB.
PHOTO_BYTES = 180_000
# In a notebook, MathJax would read "$" in a caption as a formula, and JupyterLab (`data-lm-...`) would take arrow keys.
CLASSES = "satt mathjax_ignore tex2jax_ignore"


def to_html(
    captions: Captions,
    title: str = "Where the model looked",
    *,
    images: Sequence[Photo] | None = None,
    names: Sequence[str] | None = None,
    unchanged: Mapping[str, Sequence[Caption]] | None = None,
    **options: Unpack[OverlayOptions],
) -> str:
    """The page, a complete HTML document below 400 KB for each photo of a model.

    It loads nothing: its content security policy forbids every request, and every script and style but its own.
    Without scripting it shows photos and sentences.

    Args:
        captions: one per photo, below which as many of its `maps` and `alternatives` as fit can be chosen. Or such
            captions by the name of the model; those of one photo are then side by side.
        title: plain text.
        images: their photos, in the same order; by default those that the captions carry.
        names: of the photos, in the same order; by default the names of their files.
        unchanged: for models whose captions have changed attention, the captions without changes, whose scale they
            keep. By default each caption has its own.
        options: `style`, `smooth`, `cmap` and `opacity` with which the page begins, see `styles.OverlayStyle`.

    Raises:
        ValueError: there are no captions, not one photo or name for each, or no such style.
        caption.core.errors.ImageError: a photo cannot be opened.
    """
    body = _element(captions, images, names, OverlayStyle(**options), title, unchanged)
    return document(title, body, page_style(), page_script())


def live_html(title: str, settings: dict[str, Any], **options: Unpack[OverlayOptions]) -> str:
    """The page of `caption serve`: a place to drop a photo, and the script that asks the server.

    It requests nothing but answers of its own server.

    Args:
        title: plain text.
        settings: of the script `live.js`: `models`, `largest_bytes`, `examples`.
        options: see `to_html`.
    """
    data = embedded_json({**style_record(OverlayStyle(**options)), **settings})
    body = f"""<div class="{CLASSES} satt-live">
<h1>{html.escape(title)}</h1>
<div class="satt-drop">
<p>Drop a photo here, paste one, or</p>
<div class="satt-buttons"></div>
<p class="satt-lead">Then choose a word of its caption, and where the model should look at that word: the rest of the
sentence follows.</p>
<input type="file" accept="image/*" aria-label="Photo">
</div>
<p class="satt-problem" role="alert"></p>
<noscript><p>This page needs JavaScript.</p></noscript>
<script type="application/json">{data}</script>
</div>"""
    return document(title, body, page_style("explore.css"), page_script("live.js"), "connect-src 'self'")


def to_fragment(captions: Captions, **options: Unpack[OverlayOptions]) -> str:
    """The content of `to_html` as an element for another page, such as a notebook's output.

    A page may hold several of them, and the same one twice. Arguments and errors are those of `to_html`; the photos are
    those that the captions carry.
    """
    body = _element(captions, None, None, OverlayStyle(**options))
    return f"<style>{page_style()}</style>\n{body}\n<script>{page_script()}</script>"


def save_html(page: str, path: str | os.PathLike[str], opener: Opener = replacing) -> None:
    """Write a page as UTF-8; lone surrogates, which undecodable file names contain, become question marks.

    Args:
        page: see `to_html`.
        path: the file.
        opener: which file of that name may be replaced, see `caption.core.runtime.atomic_files`; by default any.

    Raises:
        OutputError: the file cannot be written.
    """
    with opener(path) as file:
        file.write(page.encode("utf-8", "replace"))


def _element(
    captions: Captions,
    images: Sequence[Photo] | None,
    names: Sequence[str] | None,
    style: OverlayStyle,
    heading: str | None = None,
    unchanged: Mapping[str, Sequence[Caption]] | None = None,
) -> str:
    by_model = captions if isinstance(captions, Mapping) else {"": captions}
    if not by_model:
        raise ValueError("at least one model is needed")
    photos = photos_of(next(iter(by_model.values())), images)
    for of_model in by_model.values():
        photos_of(of_model, photos)  # raises if there is not one caption for each photo
    groups, records = [], []
    for index, name in enumerate(photo_names(photos, names)):
        photo = open_image(photos[index])
        small = shrunk(photo)
        figures: list[str] = []
        for model, of_model in by_model.items():
            first = not figures
            figures.append(_figure(of_model[index], small, first, name if first else "", model))
            before = unchanged[model][index] if unchanged and model in unchanged else None
            records.append(photo_record(of_model[index], name, photo.size, small.size, before))
        groups.append(f'<div class="satt-group">\n{"".join(figures)}</div>\n')
    title = "" if heading is None else f"<h1>{html.escape(heading)}</h1>\n"
    data = embedded_json({**style_record(style), "photos": records})
    return f"""<div class="{CLASSES}" data-lm-suppress-shortcuts="true">
{title}<div class="satt-gallery">
{"".join(groups)}</div>
<script type="application/json">{data}</script>
</div>"""


def _figure(caption: Caption, photo: Image.Image, embedded: bool, name: str, model: str) -> str:
    """A photo and its sentence, readable before the script has run, and without it."""
    sentence = html.escape(str(caption))
    size = 'width="{}" height="{}"'.format(*photo.size)
    source = f'src="{data_uri(photo)}" ' if embedded else ""
    above = f'<p class="satt-model">{html.escape(model)}</p>\n' if model else ""
    # An empty line aligns photos that are side by side.
    above = f'<h2 class="satt-name">{html.escape(name) or "&nbsp;"}</h2>\n{above}'
    return f"""<figure>
<div class="satt-body"><div class="satt-main">
{above}<div class="satt-photo"><img {source}{size} alt="Photo: {sentence}"></div>
</div>
<figcaption>{sentence}</figcaption></div>
</figure>
"""


def shrunk(photo: Image.Image) -> Image.Image:
    """The photo in the size that a page embeds."""
    # thumbnail() never enlarges, and keeps at least one pixel of the shorter side.
    small = photo.copy()
    small.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
    return small


def data_uri(photo: Image.Image) -> str:
    """The photo as a JPEG of at most `PHOTO_BYTES`, if possible, without EXIF, which may hold its location."""
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


def embedded_json(value: dict[str, Any]) -> str:
    """A value for a script element of type application/json."""
    # Only "<" could end a script element; JSON may write it as an escape.
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
