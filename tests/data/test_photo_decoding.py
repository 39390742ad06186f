"""Images are decoded upright, within bounds of memory and time, or refused with a reason."""

from __future__ import annotations

import io
import logging
import struct
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest
from helpers.pictures import corners, noise, saved, scene
from PIL import Image, TiffImagePlugin

from caption.core.errors import ImageError
from caption.core.runtime.prefetch import prefetch
from caption.data import photos
from caption.data.photos import ImageTransform, decoded, open_image, upright_size


@pytest.mark.parametrize("name", ["moving.gif", "moving.tif"])
def test_the_first_frame_of_an_animation(tmp_path: Path, name: str):
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "lime")]
    path = saved(frames[0], tmp_path / name, save_all=True, append_images=frames[1:])
    assert open_image(path).getpixel((8, 8)) == (255, 0, 0)


def pages(path: Path, *kinds: tuple[tuple[int, int], str, int | None]) -> Path:
    """A TIFF file of pages, each of a size and a colour, and with a NewSubfileType."""
    with TiffImagePlugin.AppendingTiffWriter(str(path), new=True) as file:
        for size, colour, kind in kinds:
            tags = TiffImagePlugin.ImageFileDirectory_v2()
            if kind is not None:
                tags[254] = kind
            Image.new("RGB", size, colour).save(file, "TIFF", tiffinfo=tags)
            file.newFrame()
    return path


SMALL, LARGE = (16, 16), (64, 48)


@pytest.mark.parametrize(
    "kinds",
    [
        [(SMALL, "red", 1), (LARGE, "blue", 0)],  # a preview before its photo
        [(SMALL, "red", None), (LARGE, "blue", None), (SMALL, "lime", None)],
        [(LARGE, "blue", 0), (LARGE, "red", 1)],
    ],
)
def test_the_largest_page_of_a_file_is_the_photo(tmp_path: Path, kinds: list[Any]):
    path = pages(tmp_path / "pages.tif", *kinds)
    image = open_image(path)
    assert (image.size, image.getpixel((8, 8))) == (LARGE, (0, 0, 255))
    assert upright_size(path) == LARGE


def test_a_raw_file_of_a_camera_is_refused_and_its_preview_not_captioned(tmp_path: Path):
    raw = pages(tmp_path / "photo.nef", (SMALL, "red", 1))
    canon = tmp_path / "photo.cr2"
    content = pages(tmp_path / "canon.tif", (SMALL, "red", 0)).read_bytes()
    assert content[4:8] == b"\x08\0\0\0"  # the first directory; it moves behind Canon's mark
    count = int.from_bytes(content[8:10], "little")
    directory = content[8 : 8 + 2 + 12 * count + 4]
    canon.write_bytes(content[:4] + len(content).to_bytes(4, "little") + b"CR" + content[10:] + directory)
    for path in (raw, canon):
        with pytest.raises(ImageError, match=rf"{path.name}' has only previews .* raw file"):
            open_image(path)
        with pytest.raises(ImageError, match="raw file"):
            upright_size(path)


# -- orientation -------------------------------------------------------------------------------------------


def as_stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    """The stored rows and columns by EXIF orientation, from the standard's table of row 0 and column 0."""
    across = upright.swapaxes(0, 1)
    return {
        1: upright,  # row 0 is the top, column 0 the left
        2: upright[:, ::-1],  # top, right
        3: upright[::-1, ::-1],  # bottom, right
        4: upright[::-1],  # bottom, left
        5: across,  # left, top
        6: across[::-1],  # right, top
        7: across[::-1, ::-1],  # right, bottom
        8: across[:, ::-1],  # left, bottom
    }[orientation]


def oriented(path: Path, orientation: int) -> Path:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "a camera"
    stored = np.ascontiguousarray(as_stored(corners(), orientation))
    return saved(Image.fromarray(stored), path, exif=exif)


@pytest.mark.parametrize("name", ["turned.png", "turned.jpg", "turned.tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_turns_an_image_once(tmp_path: Path, orientation: int, name: str):
    image = open_image(oriented(tmp_path / name, orientation))
    assert image.size == (40, 24)
    for x, y in [(5, 5), (35, 5), (5, 20), (35, 20)]:
        np.testing.assert_allclose(image.getpixel((x, y)), corners()[y, x], atol=16)
    again = open_image(saved(image, tmp_path / "again.png"))
    assert open_image(image).tobytes() == again.tobytes() == image.tobytes()


def test_a_photo_in_memory_is_not_changed_and_not_copied_where_it_is_upright_rgb(tmp_path: Path):
    photo = scene(90, 60)
    assert open_image(photo) is photo
    with Image.open(oriented(tmp_path / "turned.png", 6)) as image:
        np.testing.assert_array_equal(np.asarray(open_image(image)), corners())
        assert image.getexif()[0x0112] == 6
        assert image.size == (24, 40)


@pytest.mark.parametrize("exif", [b"Exif\x00\x00garbage!", b"II*\x00\x08", 9, 42])
def test_a_damaged_orientation_does_not_cost_the_picture(tmp_path: Path, exif: bytes | int):
    if isinstance(exif, int):
        block = Image.Exif()
        block[0x0112] = exif
        exif = block.tobytes()
    path = saved(Image.fromarray(corners()), tmp_path / "odd.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(open_image(path)), corners())


# -- unusable images ---------------------------------------------------------------------------------------


def stored(kind: str) -> bytes:
    buffer = io.BytesIO()
    noise().save(buffer, kind)
    return buffer.getvalue()


FILES = {
    "empty": (b"", "is empty"),
    "text": (b"dear diary\n", "not an image"),
    "the beginning of a JPEG": (b"\xff\xd8", "not an image"),
    **{f"half a {kind}": (stored(kind)[: len(stored(kind)) // 2], "truncated|not an image")
       for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF")},
    "a damaged middle": (stored("PNG").replace(b"IDAT", b"IDAT\xff", 1), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(tmp_path: Path, name: str):
    content, reason = FILES[name]
    (tmp_path / "photo.jpg").write_bytes(content)
    with pytest.raises(ImageError, match=rf"photo\.jpg'.* {reason}"):
        open_image(tmp_path / "photo.jpg")


def test_a_pillow_image_that_does_not_decode(tmp_path: Path):
    (tmp_path / "photo.jpg").write_bytes(stored("JPEG")[:900])
    with Image.open(tmp_path / "photo.jpg") as image, pytest.raises(ImageError, match=r"photo\.jpg"):
        open_image(image)
    with pytest.raises(ImageError, match="no pixels"):
        open_image(Image.new("RGB", (0, 5)))


def test_a_decompression_bomb_is_refused(tmp_path: Path):
    """A few bytes that claim to be 3.6 thousand million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99))
    (tmp_path / "bomb.png").write_bytes(content)
    with pytest.raises(ImageError, match=r"bomb\.png' is too large"):
        open_image(tmp_path / "bomb.png")


def run_length_encoded(width: int, height: int, data: bytes = b"\x00\x01") -> bytes:
    """A BMP, which Pillow decodes in Python; without data it says that the rest is blank."""
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", 1078 + len(data), 0, 0, 1078) + header + bytes(1024) + data


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_that_decodes_slowly_is_refused_by_its_size(tmp_path):
    (tmp_path / "small.bmp").write_bytes(run_length_encoded(40, 30, b"\x28\x05\x00\x00" * 30 + b"\x00\x01"))
    (tmp_path / "large.bmp").write_bytes(run_length_encoded(13_000, 13_000))
    started = time.monotonic()
    with pytest.raises(ImageError, match=r"large\.bmp' has 169,000,000 pixels"):
        ImageTransform().read(tmp_path / "large.bmp")
    assert time.monotonic() - started < 1
    assert ImageTransform().read(tmp_path / "small.bmp").size == (40, 30)


def test_a_program_is_not_a_photo(tmp_path):
    """Pillow would start Ghostscript, which runs it, perhaps for ever."""
    scene(20, 10).save(tmp_path / "drawing.eps")
    (tmp_path / "drawing.eps").rename(tmp_path / "drawing.jpg")
    with pytest.raises(ImageError, match=r"drawing\.jpg' is PostScript"):
        open_image(tmp_path / "drawing.jpg")


def test_one_large_image_is_decoded_at_a_time(tmp_path, monkeypatch):
    paths = {width: saved(scene(width, 20), tmp_path / f"{width}.png") for width in (30, 31)}
    monkeypatch.setattr(photos, "LARGE_PIXELS", 30 * 20)
    running: list[int] = []
    together: list[int] = []
    upright = photos._upright

    def counted(image: Image.Image, *arguments: Any) -> Image.Image:
        running.append(1)
        together.append(len(running))
        time.sleep(0.02)
        running.pop()
        return upright(image, *arguments)

    monkeypatch.setattr(photos, "_upright", counted)
    for width, expected in ((31, 1), (30, 4)):
        together.clear()
        assert len(list(prefetch(open_image, [paths[width]] * 8, ahead=8, workers=4))) == 8
        assert max(together) == expected
    with decoded(paths[31]):
        assert photos._large_image.locked()
    assert not photos._large_image.locked()


def test_one_open_image_several_times_in_a_list(tmp_path):
    """Threads that decoded its file at the same time would find it truncated, or mix its pixels."""
    path = saved(noise(600, 500), tmp_path / "photo.png")
    expected = np.asarray(open_image(path))
    with Image.open(path) as image, path.open("rb") as file:
        for source in (image, file):
            opened = [result for _, result in prefetch(open_image, [source] * 8, ahead=8, workers=4)]
            assert all(np.array_equal(np.asarray(result), expected) for result in opened)


def test_pillows_log_does_not_reach_stderr(tmp_path, monkeypatch, capsys):
    path = tmp_path / "photo.tif"
    scene(20, 10).save(path)
    # SamplesPerPixel (277) becomes 1024, which Pillow reports by logging.
    entry = struct.pack("<HHI", 277, 3, 1)
    path.write_bytes(path.read_bytes().replace(entry + b"\3\0", entry + b"\0\4"))
    monkeypatch.setattr(logging.root, "handlers", [])  # of pytest; without any, logging prints to stderr
    with pytest.raises(ImageError, match=r"photo\.tif' is not an image"):
        open_image(path)
    assert capsys.readouterr().err == ""


def test_heic_photos_are_read_where_pillow_heif_is_installed(tmp_path, monkeypatch):
    """With a stand-in for the package, whose photos begin as HEIC does and go on as PNG."""
    head = b"\0\0\0\x18ftypheic"
    png = saved(Image.new("RGB", (4, 3), "red"), tmp_path / "red.png")
    (tmp_path / "IMG_1.HEIC").write_bytes(head + png.read_bytes())

    def open_heic(file: IO[bytes], filename: object = None) -> Image.Image:
        return Image.open(io.BytesIO(file.read()[len(head) :]))

    monkeypatch.setattr(Image, "ID", list(Image.ID))
    monkeypatch.setattr(Image, "OPEN", dict(Image.OPEN))
    register = lambda: Image.register_open("HEIF", open_heic, lambda prefix: prefix[4:12] == b"ftypheic")  # noqa: E731
    monkeypatch.setitem(sys.modules, "pillow_heif", SimpleNamespace(register_heif_opener=register))
    photos._reads_heic.cache_clear()
    try:
        assert open_image(tmp_path / "IMG_1.HEIC").getpixel((1, 1)) == (255, 0, 0)
        (tmp_path / "IMG_2.HEIC").write_bytes(b"nothing")
        with pytest.raises(ImageError, match="It may be damaged"):
            open_image(tmp_path / "IMG_2.HEIC")
        monkeypatch.setitem(sys.modules, "pillow_heif", None)
        photos._reads_heic.cache_clear()
        Image.ID.remove("HEIF")
        with pytest.raises(ImageError, match=r"pip install 'show-attend-and-tell\[heif\]'"):
            open_image(tmp_path / "IMG_1.HEIC")
    finally:
        photos._reads_heic.cache_clear()
