"""Reading photos within bounds of memory and time: reduced, cut and converted in tiles, one after the other."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from caption.data import colours, decoding
from caption.data.check import fingerprint
from caption.data.decoding import ORIENTATION_TAG, _reserved, _turned, read_image
from caption.data.images import ImageTransform, open_image
from caption.errors import ImageError
from caption.runtime.prefetch import prefetch

TRANSFORMS = [ImageTransform(32, "squash"), ImageTransform((24, 40), "crop"), ImageTransform((40, 24), "pad")]


def scene(width: int, height: int) -> Image.Image:
    """Smooth, without symmetry, so that a shift or a turn is seen."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    channels = [np.sin(7 * x + 2 * y), np.cos(3 * x - 5 * y), np.sin(4 * x * y + 2 * x)]
    return Image.fromarray((127.5 + 127 * np.stack(channels, -1)).astype(np.uint8))


def plainly(path: Path, transform: ImageTransform) -> np.ndarray:
    """Decoded whole, then resampled once."""
    image = open_image(path)
    needed = transform._needed(*image.size)
    fitted = image.resize((needed.width, needed.height), Image.Resampling.BILINEAR, box=needed.region)
    whole = Image.new("RGB", (transform.width, transform.height), (128, 128, 128))
    whole.paste(fitted, ((transform.width - needed.width) // 2, (transform.height - needed.height) // 2))
    return np.asarray(whole).transpose(2, 0, 1).astype(int)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda each: each.fit)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png", "tif"])
def test_a_large_photo_is_reduced_and_looks_the_same(tmp_path, kind, orientation, transform):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    scene(901, 607).save(tmp_path / f"photo.{kind}", exif=exif, **({"quality": 95} if kind == "jpg" else {}))
    read = transform.read(tmp_path / f"photo.{kind}")
    assert (read.width, read.height) == ((607, 901) if orientation > 4 else (901, 607))
    difference = np.abs(read.pixels.numpy() - plainly(tmp_path / f"photo.{kind}", transform))
    assert difference.max() <= 4
    assert read_image(tmp_path / f"photo.{kind}", transform._needed).image.width < 500


@pytest.mark.parametrize("transform", [ImageTransform(224, fit) for fit in ("squash", "crop", "pad")])
@pytest.mark.parametrize("orientation", [1, 6])
def test_photos_of_usual_size_keep_every_bit(tmp_path, transform, orientation):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    scene(500, 375).save(tmp_path / "photo.jpg", exif=exif)
    assert np.array_equal(
        transform.read(tmp_path / "photo.jpg").pixels, plainly(tmp_path / "photo.jpg", transform)
    )


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda each: each.fit)
@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (37, 2500), (2500, 37)])
def test_long_strips(tmp_path, size, transform):
    scene(*size).save(tmp_path / "strip.png")
    read = transform.read(tmp_path / "strip.png")
    assert np.abs(read.pixels.numpy() - plainly(tmp_path / "strip.png", transform)).max() <= 4
    assert transform.read(scene(*size).convert("L")).pixels.shape == read.pixels.shape


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F"])
def test_tiles_give_the_same_as_the_whole(tmp_path, monkeypatch, mode):
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
    whole, reduced, print = (
        np.asarray(open_image(tmp_path / "image.tif")),
        [transform.read(tmp_path / "image.tif").pixels for transform in TRANSFORMS],
        fingerprint(tmp_path / "image.tif"),
    )
    monkeypatch.setattr(decoding, "WHOLE", 1000)
    monkeypatch.setattr(decoding, "TILE", 16)
    monkeypatch.setattr(colours, "TILE", 16)
    assert np.array_equal(np.asarray(open_image(tmp_path / "image.tif")), whole)
    assert fingerprint(tmp_path / "image.tif") == print
    for transform, expected in zip(TRANSFORMS, reduced, strict=True):
        found = transform.read(tmp_path / "image.tif").pixels
        assert (found.int() - expected.int()).abs().max() <= 1


def test_a_photo_in_tiles_keeps_its_colour_profile(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "WHOLE", 1000)
    for mode in ("RGB", "CMYK"):
        scene(90, 60).convert(mode).save(tmp_path / "photo.jpg", icc_profile=b"wide gamut")
        assert open_image(tmp_path / "photo.jpg").info["icc_profile"] == b"wide gamut"


def test_a_large_photo_in_memory_that_is_rgb_is_not_copied(monkeypatch):
    monkeypatch.setattr(decoding, "WHOLE", 1000)
    photo = scene(90, 60)
    assert open_image(photo) is photo


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_box_turns_with_its_image(orientation):
    image = Image.new("L", (9, 5))
    image.paste(255, (1, 2, 4, 3))
    turn = decoding.UPRIGHT.get(orientation)
    turned = image if turn is None else image.transpose(turn)
    assert turned.getbbox() == _turned((1, 2, 4, 3), image.size, orientation)


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


def test_an_image_that_takes_more_than_the_budget_is_refused(tmp_path, monkeypatch):
    scene(300, 200).save(tmp_path / "photo.png")
    monkeypatch.setattr(decoding, "BUDGET", 300 * 200 * 4 - 1)
    with pytest.raises(
        ImageError, match=r"photo\.png' is too large to open safely: decoding its 60,000 pixels"
    ):
        ImageTransform().read(tmp_path / "photo.png")


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


def test_images_wait_until_there_is_room(tmp_path, monkeypatch):
    scene(30, 20).save(tmp_path / "photo.png")
    monkeypatch.setattr(decoding, "BUDGET", 30 * 20 * 4 * 2)
    now, most, lock, load = 0, 0, threading.Lock(), decoding._load

    def counted(image: Image.Image, name: str) -> None:
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        time.sleep(0.02)
        load(image, name)
        with lock:
            now -= 1

    monkeypatch.setattr(decoding, "_load", counted)
    found = list(prefetch(open_image, [tmp_path / "photo.png"] * 12, ahead=12, workers=6))
    assert len(found) == 12
    assert most == 2
    assert decoding._budget.used == 0


def test_room_is_free_again_after_an_error():
    with pytest.raises(ZeroDivisionError), _reserved(100):
        _ = 1 / 0
    assert decoding._budget.used == 0


def test_pillows_log_does_not_reach_stderr(tmp_path):
    """In a process of its own, because pytest handles log messages."""
    file = tmp_path / "photo.tif"
    scene(20, 10).save(file)
    # SamplesPerPixel (277) becomes 1024, which Pillow reports by logging.
    entry = struct.pack("<HHI", 277, 3, 1)
    file.write_bytes(file.read_bytes().replace(entry + b"\3\0", entry + b"\0\4"))
    program = "import sys; from caption.data.images import open_image; open_image(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, check=False)
    assert "photo.tif' is not an image" in done.stderr
    assert "More samples per pixel" not in done.stderr
