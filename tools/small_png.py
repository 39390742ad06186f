"""Make the pictures of the documentation small: a PNG of more than 400 kB gets 256 colours, then fewer pixels.

    caption describe scene.png --model shapes --heatmap docs/demo.png
    python -m tools.small_png docs/demo.png

What users get is in true colour and as large as they ask for; a repository is cloned with all its history.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from caption.runtime.files import MARK, replacing_own
from caption.runtime.inputs import PHOTO, read_input
from tools import make_parser

MOST = 400_000
SMALLEST = 0.4
"""Of the width: the picture is not made smaller than this."""


def small_png(picture: bytes, most: int = MOST) -> bytes:
    """A PNG of at most so many bytes, if SMALLEST of its pixels along each side allows it."""
    if len(picture) <= most:
        return picture
    with Image.open(io.BytesIO(picture)) as opened:
        dpi = opened.info.get("dpi", (72, 72))
        image = opened.convert("RGB")
    # Median cut would spend its colours on the photo, and maps would get bands. A ninth of the pixels has all colours.
    few = image.resize([max(1, side // 3) for side in image.size], Image.Resampling.NEAREST)
    palette = few.quantize(256, Image.Quantize.MAXCOVERAGE)
    mark = PngInfo()
    mark.add_text("Software", MARK)
    share = 1.0
    while True:
        buffer = io.BytesIO()
        smaller = image.resize([max(1, round(share * side)) for side in image.size], Image.Resampling.BICUBIC)
        quantized = smaller.quantize(palette=palette)
        quantized.save(buffer, "PNG", dpi=(dpi[0] * share, dpi[1] * share), pnginfo=mark)
        if buffer.tell() <= most or share == SMALLEST:
            return buffer.getvalue()
        # The bytes grow a little more slowly than the pixels.
        share = max(SMALLEST, 0.98 * share * (most / buffer.tell()) ** 0.5)


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser("small_png", __doc__)
    parser.add_argument("pictures", nargs="+", type=Path, help="figures of this package, which are replaced")
    for path in parser.parse_args(arguments).pictures:
        before = read_input(path, PHOTO)
        after = small_png(before)
        if after != before:
            with replacing_own(path) as file:
                file.write(after)
        print(f"{path}: {len(before) / 1000:.0f} -> {len(after) / 1000:.0f} kB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
