"""A caption as an animation: the photo with the map of one word after the other, and the sentence so far below it."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from PIL import Image

from caption.core.errors import UserError
from caption.core.runtime.atomic_files import MARK, Opener, OutputError, replacing
from caption.core.runtime.outputs import ANIMATIONS, check_encoder, marked
from caption.visualize.figure_file import dpi_of, pixels
from caption.visualize.fonts import is_right_to_left, text_width
from caption.visualize.layout import add_axes, new_figure, write
from caption.visualize.tiles import TileOptions, caption_tiles

if TYPE_CHECKING:
    from caption.data.photos import Photo
    from caption.results.caption import Caption

WIDTH = 640
SECONDS = 0.8
"""Duration of a word, and of the photo alone at the beginning; at the end it is shown LAST times as long."""
LAST = 3
INCHES = 6.4  # width of the frame
LINE, MARGIN, LETTERS = 0.3, 0.1, 15.0  # height of a line, space around it, size of letters in points
WRITTEN, CURRENT = "0.15", "#d9480f"  # colours of the words so far, and of the last one


class Place(NamedTuple):
    """The place of a word of the sentence: inches from the left, and its line, counted from 0."""

    left: float
    line: int


def save_animation(
    caption: Caption,
    image: Photo,
    path: str | os.PathLike[str],
    *,
    width: int = WIDTH,
    seconds: float = SECONDS,
    opener: Opener = replacing,
    **options: Unpack[TileOptions],
) -> None:
    """Write the caption word by word under the photo, with the map of each word over it.

    Args:
        caption, image, options: see `plot_caption`. Only `words` have frames; the other words are written, too.
        path: the file; its name ends in .gif (256 colours), .webp (true colour), or .mp4, for which ffmpeg is needed.
        width: of the frames in pixels.
        seconds: for each word.
        opener: which file of that name may be replaced, see `caption.core.runtime.atomic_files`; by default any.

    Raises:
        OutputError: the name ends in something else, or the file cannot be written.
        UserError: ffmpeg is needed and missing, or fails.
        ValueError: width is less than 64, seconds is not positive, or as for `plot_caption`.
        caption.core.errors.ImageError: the photo cannot be opened.
    """
    kind = Path(path).suffix.lower()
    if kind not in ANIMATIONS:
        raise OutputError(f"cannot write {path}: an animation's name ends in {', '.join(ANIMATIONS)}")
    if width < 64 or not seconds > 0:
        raise ValueError(f"width must be at least 64 and seconds positive, not {width} and {seconds}")
    check_encoder(Path(path))
    frames = list(animation_frames(caption, image, width=width, **options))
    content = _video(frames, seconds) if kind == ".mp4" else _pictures(frames, seconds, kind)
    with opener(path) as file:
        file.write(content)


def animation_frames(
    caption: Caption, image: Photo, *, width: int = WIDTH, **options: Unpack[TileOptions]
) -> Iterator[Image.Image]:
    """The frames: the photo, then one for each word, then the photo with the whole sentence; see `save_animation`."""
    tiles = caption_tiles(caption, image, **options)
    alone, *of_words = tiles.tiles
    picture = INCHES * tiles.photo.height / tiles.photo.width
    places = _places(caption.words)
    lines = 1 + max((place.line for place in places), default=0)
    size = INCHES, picture + lines * LINE + 2 * MARGIN
    last = len(caption.words) - 1
    for tile, written in [(alone, -1), *((tile, tile.step) for tile in of_words), (alone, last)]:
        assert written is not None
        fig = new_figure(size)
        ax = add_axes(fig, size, (0, 0, INCHES, picture))
        tiles.draw_tile(ax, tile)
        ax.set_aspect("auto")
        for step, (word, place) in enumerate(zip(caption.words[: written + 1], places, strict=False)):
            top = picture + MARGIN + (place.line + 0.75) * LINE
            colour = CURRENT if step == tile.step else WRITTEN
            write(fig, size, place.left, top, word, fontsize=LETTERS, va="baseline", color=colour)
        yield Image.fromarray(pixels(fig, dpi_of(fig, width)))


def _places(words: Sequence[str]) -> list[Place]:
    """The places of words, centred in lines of the frame's width, so that no word moves when the next is written. A
    line of Arabic or Hebrew begins on the right."""
    from_right = is_right_to_left(" ".join(words))
    space = text_width("a a", LETTERS) - text_width("aa", LETTERS)
    lines: list[list[float]] = [[]]
    for width in (text_width(word, LETTERS) for word in words):
        if lines[-1] and sum(lines[-1]) + space * len(lines[-1]) + width > INCHES - 2 * MARGIN:
            lines.append([])
        lines[-1].append(width)
    places = []
    for number, widths in enumerate(lines):
        left = max(MARGIN, (INCHES - sum(widths) - space * (len(widths) - 1)) / 2)
        for width in widths:
            places.append(Place(INCHES - left - width if from_right else left, number))
            left += width + space
    return places


def _pictures(frames: Sequence[Image.Image], seconds: float, kind: str) -> bytes:
    """The frames as an animated GIF or WebP that loops."""
    durations = [round(1000 * seconds * (LAST if frame is frames[-1] else 1)) for frame in frames]
    options: dict[str, Any] = marked(kind[1:])["pil_kwargs"]
    if kind == ".gif":
        # A palette for each frame, and dithering: the maps' colours change, and a common palette would leave bands.
        frames = [frame.quantize(palette=frame.quantize(256, Image.Quantize.MEDIANCUT)) for frame in frames]
    else:
        options = {**options, "quality": 85, "method": 4}
    buffer = io.BytesIO()
    frames[0].save(
        buffer, kind[1:], save_all=True, append_images=frames[1:], duration=durations, loop=0, **options
    )
    return buffer.getvalue()


def _video(frames: Sequence[Image.Image], seconds: float) -> bytes:
    """The frames as an MP4 in H.264, or in the codec that this ffmpeg has instead.

    Raises:
        UserError: ffmpeg fails; with the last line that it prints.
    """
    frames = [*frames, *[frames[-1]] * (LAST - 1)]
    width, height = frames[0].size
    size = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # most players refuse odd numbers of pixels
    command = [
        *("ffmpeg", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"),
        *("-framerate", str(1 / seconds), "-i", "-", "-vf", size, "-r", "25", "-pix_fmt", "yuv420p"),
        # ffmpeg cannot seek back in a pipe, so the index is written in front of each part.
        *("-metadata", f"comment={MARK}", "-movflags", "frag_keyframe+empty_moov", "-f", "mp4", "-"),
    ]
    raw = b"".join(frame.tobytes() for frame in frames)
    process = subprocess.run(command, input=raw, capture_output=True)
    if process.returncode:
        messages = process.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise UserError(f"ffmpeg could not write the animation: {messages[-1]}")
    return process.stdout
