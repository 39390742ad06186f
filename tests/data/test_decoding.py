"""Reading photos within bounds of memory and time: reduced while decoding, converted in strips, large ones in turn."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image

from caption.data import colours, decoding
from caption.data.decoding import ORIENTATION_TAG, decoded, open_image
from caption.data.resize import ImageTransform
from caption.errors import ImageError
from caption.runtime.prefetch import prefetch

TRANSFORMS = [ImageTransform(32, "squash"), ImageTransform((24, 40), "crop"), ImageTransform((40, 24), "pad")]


def scene(width: int, height: int) -> Image.Image:
    """Smooth, without symmetry, so that a shift or a turn is seen."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    channels = [np.sin(7 * x + 2 * y), np.cos(3 * x - 5 * y), np.sin(4 * x * y + 2 * x)]
    return Image.fromarray((127.5 + 127 * np.stack(channels, -1)).astype(np.uint8))


def plainly(path: Path, transform: ImageTransform, gap: float | None = None) -> np.ndarray:
    """Decoded whole, then resampled once; with a gap, Pillow reduces it first."""
    image = open_image(path)
    columns, rows = transform._content(*image.size)
    fitted = image.resize(
        (columns, rows), Image.Resampling.BILINEAR, transform._region(*image.size), reducing_gap=gap
    )
    whole = Image.new("RGB", (transform.width, transform.height), (128, 128, 128))
    whole.paste(fitted, ((transform.width - columns) // 2, (transform.height - rows) // 2))
    return np.asarray(whole).transpose(2, 0, 1).astype(int)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.fit)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png", "tif"])
def test_a_large_photo_is_reduced_and_looks_the_same(tmp_path, kind, orientation, transform):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    path = tmp_path / f"photo.{kind}"
    scene(901, 607).save(path, exif=exif, **({"quality": 95} if kind == "jpg" else {}))
    read = transform.read(path)
    assert (read.width, read.height) == ((607, 901) if orientation > 4 else (901, 607))
    assert np.abs(read.pixels.numpy() - plainly(path, transform)).max() <= 4
    with decoded(path, transform._excess) as photo:
        assert photo.image.size == (-(-read.width // photo.scale), -(-read.height // photo.scale))
        assert photo.scale == ((8 if transform.fit == "pad" else 4) if kind == "jpg" else 1)
    if kind != "jpg":
        assert np.array_equal(read.pixels, plainly(path, transform, gap=3))


@pytest.mark.parametrize("transform", [ImageTransform(224, fit) for fit in ("squash", "crop", "pad")])
@pytest.mark.parametrize("orientation", [1, 6])
def test_photos_of_usual_size_keep_every_bit(tmp_path, transform, orientation):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    scene(500, 375).save(tmp_path / "photo.jpg", exif=exif)
    assert np.array_equal(
        transform.read(tmp_path / "photo.jpg").pixels, plainly(tmp_path / "photo.jpg", transform)
    )


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.fit)
@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (37, 2500), (2500, 37)])
def test_long_strips(tmp_path, size, transform):
    scene(*size).save(tmp_path / "strip.png")
    read = transform.read(tmp_path / "strip.png")
    assert np.abs(read.pixels.numpy() - plainly(tmp_path / "strip.png", transform)).max() <= 4
    assert transform.read(scene(*size).convert("L")).pixels.shape == read.pixels.shape


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F"])
def test_strips_give_the_same_as_the_whole(tmp_path, monkeypatch, mode):
    image = scene(150, 110)
    if mode in ("I;16", "I", "F"):
        values = np.asarray(image.convert("L"), float) * 300 - (0 if mode == "I;16" else 5000)
        image = Image.fromarray(values.astype({"I;16": "<u2", "I": "<i4", "F": "<f4"}[mode]))
    else:
        if "A" in mode:
            image.putalpha(image.getchannel(0))
        image = image.convert(mode)
    image.save(tmp_path / "image.tif")
    if mode == "YCbCr" and int(PIL.__version__.partition(".")[0]) < 13:
        pytest.skip("Pillow before 13 does not read the YCbCr TIFF that it writes")
    whole = np.asarray(open_image(tmp_path / "image.tif"))
    monkeypatch.setattr(colours, "STRIP_PIXELS", 1000)
    assert np.array_equal(np.asarray(open_image(tmp_path / "image.tif")), whole)


@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_the_colour_profile_is_kept(tmp_path, mode, orientation):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    scene(90, 60).convert(mode).save(tmp_path / "photo.jpg", icc_profile=b"wide gamut", exif=exif)
    assert open_image(tmp_path / "photo.jpg").info["icc_profile"] == b"wide gamut"


def test_a_photo_in_memory_that_is_rgb_is_not_copied():
    photo = scene(90, 60)
    assert open_image(photo) is photo


# -- refusals --------------------------------------------------------------------------------------------------


def run_length_encoded(width: int, height: int, data: bytes = b"\x00\x01") -> bytes:
    """A BMP, which Pillow decodes in Python; without data it says that the rest is blank."""
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", 1078 + len(data), 0, 0, 1078) + header + bytes(1024) + data


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_that_decodes_slowly_is_refused_by_its_size(tmp_path):
    (tmp_path / "small.bmp").write_bytes(run_length_encoded(40, 30, b"\x28\x05\x00\x00" * 30 + b"\x00\x01"))
    (tmp_path / "large.bmp").write_bytes(run_length_encoded(13_000, 13_000))
    started = time.monotonic()
    with pytest.raises(
        ImageError, match=r"large\.bmp' has 169,000,000 pixels in a form that decodes slowly \(BMP\)"
    ):
        ImageTransform().read(tmp_path / "large.bmp")
    assert time.monotonic() - started < 1
    assert ImageTransform().read(tmp_path / "small.bmp").width == 40


def test_a_program_is_not_a_photo(tmp_path):
    """Pillow would start Ghostscript, which runs it, perhaps for ever."""
    scene(20, 10).save(tmp_path / "drawing.eps")
    (tmp_path / "drawing.eps").rename(tmp_path / "drawing.jpg")
    with pytest.raises(ImageError, match=r"drawing\.jpg' is PostScript"):
        open_image(tmp_path / "drawing.jpg")


def test_a_heic_photo_gets_its_own_advice(tmp_path):
    (tmp_path / "IMG_1.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(
        ImageError, match=r"IMG_1\.HEIC' is a HEIC photo, which Pillow does not read\. Save it as JPEG"
    ):
        open_image(tmp_path / "IMG_1.HEIC")


def test_one_large_image_is_decoded_at_a_time(tmp_path, monkeypatch):
    for name, width in (("small", 30), ("large", 31)):
        scene(width, 20).save(tmp_path / f"{name}.png")
    monkeypatch.setattr(decoding, "LARGE_PIXELS", 30 * 20)
    decoders, most, lock, upright = 0, 0, threading.Lock(), decoding._upright

    def counted(image: Image.Image, *arguments: Any) -> decoding.Decoded:
        nonlocal decoders, most
        with lock:
            decoders, most = decoders + 1, max(most, decoders + 1)
        time.sleep(0.02)
        result = upright(image, *arguments)
        with lock:
            decoders -= 1
        return result

    monkeypatch.setattr(decoding, "_upright", counted)
    for name, expected in (("large", 1), ("small", 4)):
        most = 0
        assert len(list(prefetch(open_image, [tmp_path / f"{name}.png"] * 8, ahead=8, workers=4))) == 8
        assert most == expected
    with pytest.raises(ZeroDivisionError), decoded(scene(31, 20)):
        _ = 1 / 0
    with decoded(tmp_path / "large.png"):
        assert decoding._large_image.locked()
    assert not decoding._large_image.locked()


def test_pillows_log_does_not_reach_stderr(tmp_path):
    """In a process of its own, because pytest handles log messages."""
    file = tmp_path / "photo.tif"
    scene(20, 10).save(file)
    # SamplesPerPixel (277) becomes 1024, which Pillow reports by logging.
    entry = struct.pack("<HHI", 277, 3, 1)
    file.write_bytes(file.read_bytes().replace(entry + b"\3\0", entry + b"\0\4"))
    program = "import sys; from caption.data.decoding import open_image; open_image(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, check=False)
    assert "photo.tif' is not an image" in done.stderr
    assert "More samples per pixel" not in done.stderr
