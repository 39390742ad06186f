"""Images are decoded or refused with a reason, and the box is the part of the photo that the pixels show."""

import io
import json
import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, features

from caption.box import Box
from caption.data.decoding import open_image
from caption.data.resize import PAD_GREY, ImageTransform
from caption.errors import DataError, ImageError, UserError

PHOTOS = Path(__file__).resolve().parents[3] / "shared" / "data" / "photos"
FITS = ("squash", "crop", "pad")


def corners(height: int = 24, width: int = 40) -> np.ndarray:
    """(H, W, 3) uint8 with one colour per quarter, so that every rotation or flip changes it."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] = (255, 0, 0)
    pixels[: height // 2, width // 2 :] = (0, 255, 0)
    pixels[height // 2 :, : width // 2] = (0, 0, 255)
    return pixels


def noise(height: int = 120, width: int = 160) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


# -- colours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "La"]
)
def test_every_eight_bit_mode_becomes_rgb(mode: str) -> None:
    via = {"PA": "P", "La": "LA", "HSV": "RGB", "YCbCr": "RGB"}.get(mode)
    image = Image.fromarray(corners())
    image = (image.convert(via) if via else image).convert(mode)
    if mode == "La":
        with pytest.raises(ImageError, match="mode La"):  # Pillow raises an error
            open_image(image)
        return
    rgb = open_image(image)
    assert (rgb.mode, rgb.size) == ("RGB", (40, 24))


def test_colours_survive_palette_and_cmyk(tmp_path: Path) -> None:
    image = Image.fromarray(corners())
    palette = open_image(saved(image.quantize(8), tmp_path / "palette.png"))
    np.testing.assert_array_equal(np.asarray(palette), corners())
    cmyk = open_image(saved(image.convert("CMYK"), tmp_path / "cmyk.jpg", quality=95))
    difference = np.abs(np.asarray(cmyk, int) - corners())
    assert np.median(difference) <= 3
    assert cmyk.getpixel((5, 5))[0] > 200  # red, not the cyan of an inverted one


def test_greyscale_has_three_equal_channels(tmp_path: Path) -> None:
    grey = Image.fromarray(np.arange(200, dtype=np.uint8).reshape(10, 20))
    pixels = np.asarray(open_image(saved(grey, tmp_path / "grey.png")))
    np.testing.assert_array_equal(pixels, np.repeat(np.asarray(grey)[..., None], 3, axis=2))


def test_one_bit_becomes_black_and_white(tmp_path: Path) -> None:
    bits = np.zeros((8, 8), bool)
    bits[:, 4:] = True
    pixels = np.asarray(open_image(saved(Image.fromarray(bits), tmp_path / "bits.png")))
    np.testing.assert_array_equal(pixels[..., 0], bits * np.uint8(255))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_laid_over_white(tmp_path: Path, mode: str) -> None:
    rgba = Image.new("RGBA", (8, 4), (0, 0, 0, 255))
    rgba.paste((0, 0, 0, 0), (0, 0, 4, 4))
    image = rgba.quantize(4) if mode == "P" else rgba.convert(mode)
    pixels = open_image(saved(image, tmp_path / "clear.png"))
    assert pixels.getpixel((0, 0)) == (255, 255, 255)
    assert pixels.getpixel((7, 0)) == (0, 0, 0)


def test_half_transparency_is_a_mixture_with_white() -> None:
    assert open_image(Image.new("RGBA", (2, 2), (0, 0, 0, 128))).getpixel((0, 0)) == (127, 127, 127)


@pytest.mark.parametrize(("mode", "clear"), [("L", 10), ("RGB", (10, 10, 10)), ("P", 0)])
def test_a_transparent_colour_key_is_laid_over_white(tmp_path: Path, mode: str, clear: object) -> None:
    image = Image.new("RGB", (4, 4), (10, 10, 10))
    image.paste((90, 90, 90), (2, 0, 4, 4))
    keyed = image.quantize(2) if mode == "P" else image.convert(mode)
    if mode == "P":
        clear = keyed.getpixel((0, 0))
    pixels = open_image(saved(keyed, tmp_path / "keyed.png", transparency=clear))
    assert pixels.getpixel((0, 0)) == (255, 255, 255)
    assert pixels.getpixel((3, 0)) == (90, 90, 90)


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_sixteen_bits_are_divided_by_256_not_clipped(tmp_path: Path, name: str) -> None:
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    pixels = np.asarray(open_image(saved(Image.fromarray(values), tmp_path / name)))
    np.testing.assert_array_equal(pixels[..., 0], values // 256)


def test_big_endian_sixteen_bits() -> None:
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    image = Image.frombytes("I;16B", (8, 8), values.astype(">u2").tobytes())
    np.testing.assert_array_equal(np.asarray(open_image(image))[..., 0], values // 256)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 100, 255]], np.int32), [0, 100, 255]),  # 8 bits in 32
        (np.array([[0, 256, 65535]], np.int32), [0, 1, 255]),  # 16 bits in 32
        (np.array([[-1000, 0, 1000]], np.int32), [0, 128, 255]),  # neither: stretched
        (np.array([[0, 100_000, 200_000]], np.int32), [0, 128, 255]),
        (np.array([[0.0, 0.2, 1.0]], np.float32), [0, 51, 255]),
        (np.array([[0.0, 51.0, 255.0]], np.float32), [0, 51, 255]),
        (np.array([[0.0, 512.0, 65535.0]], np.float32), [0, 2, 255]),
        (np.array([[-0.5, 0.0, 0.5]], np.float32), [0, 128, 255]),
        (np.array([[np.nan, 0.5, np.inf]], np.float32), [0, 128, 128]),
        (np.array([[-7.0, -7.0, np.nan]], np.float32), [0, 0, 0]),
        (np.array([[np.nan, np.nan, np.nan]], np.float32), [0, 0, 0]),
    ],
)
def test_32_bit_greyscale_is_scaled(tmp_path: Path, values: np.ndarray, expected: list[int]) -> None:
    path = saved(Image.fromarray(values), tmp_path / "deep.tif")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.asarray(open_image(path))[0, :, 0].tolist() == expected


@pytest.mark.parametrize("name", ["moving.gif", "moving.png", "moving.webp", "moving.tif"])
def test_the_first_frame_of_an_animation(tmp_path: Path, name: str) -> None:
    if name.endswith("webp") and not features.check("webp"):
        pytest.skip("this Pillow is built without WebP")
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "lime")]
    path = saved(frames[0], tmp_path / name, save_all=True, append_images=frames[1:])
    red, green, blue = open_image(path).getpixel((8, 8))
    assert red > 240
    assert max(green, blue) < 15


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
def test_exif_orientation(tmp_path: Path, orientation: int, name: str) -> None:
    image = open_image(oriented(tmp_path / name, orientation))
    assert image.size == (40, 24)
    for x, y in [(5, 5), (35, 5), (5, 20), (35, 20)]:
        np.testing.assert_allclose(image.getpixel((x, y)), corners()[y, x], atol=16)


@pytest.mark.parametrize("name", ["turned.png", "turned.jpg", "turned.tif"])
def test_an_image_is_turned_once(tmp_path: Path, name: str) -> None:
    once = open_image(oriented(tmp_path / name, 6))
    assert open_image(once).tobytes() == once.tobytes()
    again = open_image(saved(once, tmp_path / "again.png"))
    assert again.tobytes() == once.tobytes()


def test_a_pillow_image_is_turned_and_not_changed(tmp_path: Path) -> None:
    with Image.open(oriented(tmp_path / "turned.png", 6)) as image:
        np.testing.assert_array_equal(np.asarray(open_image(image)), corners())
        assert image.getexif()[0x0112] == 6
        assert image.size == (24, 40)


@pytest.mark.parametrize("orientation", [0, 9, 42])
def test_an_orientation_that_does_not_exist_is_ignored(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(Image.fromarray(corners()), tmp_path / "odd.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(open_image(path)), corners())


def test_a_damaged_exif_block_does_not_cost_the_picture(tmp_path: Path) -> None:
    for name, exif in [("a.png", b"Exif\x00\x00garbage!"), ("b.png", b"II*\x00\x08"), ("c.jpg", b"garbage!")]:
        path = saved(Image.fromarray(corners()), tmp_path / name, exif=exif)
        assert open_image(path).size == (40, 24)


# -- unusable images ---------------------------------------------------------------------------------------


def refused(source: Path | Image.Image) -> str:
    """The message, which names the file."""
    with pytest.raises(ImageError) as caught:
        open_image(source)
    assert isinstance(caught.value, UserError)
    if isinstance(source, Path):
        assert str(source) in str(caught.value)
    return str(caught.value)


def test_missing_folder_and_empty(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "none.jpg")
    assert "does not exist" in refused(tmp_path / "nul\0l.jpg")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "empty.jpg").touch()
    assert "0 bytes" in refused(tmp_path / "empty.jpg")
    assert "does not exist" in refused(tmp_path / "empty.jpg" / "inside.jpg")
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "none.jpg")
    assert "does not exist" in refused(tmp_path / "dangling.jpg")
    assert "cannot be read" in refused(tmp_path / ("long" * 100))


def test_a_string_is_a_path(tmp_path: Path) -> None:
    path = saved(noise(), tmp_path / "photo.png")
    assert open_image(str(path)).tobytes() == open_image(path).tobytes()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    assert "not a regular file" in refused(tmp_path / "pipe.jpg")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read anything")
def test_no_permission(tmp_path: Path) -> None:
    path = saved(noise(), tmp_path / "secret.png")
    path.chmod(0)
    assert "ermission" in refused(path)


@pytest.mark.parametrize(
    "content", [b"dear diary\n", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\x00" * 4096]
)
def test_not_an_image(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    assert "not an image" in refused(path)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_truncated(tmp_path: Path, kind: str, share: float) -> None:
    if kind == "WEBP" and not features.check("webp"):
        pytest.skip("this Pillow is built without WebP")
    buffer = io.BytesIO()
    noise().save(buffer, kind)
    path = tmp_path / "photo.jpg"
    path.write_bytes(buffer.getvalue()[: int(share * buffer.tell())])
    assert any(reason in refused(path) for reason in ("truncated", "not an image"))
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_a_damaged_middle_is_named(tmp_path: Path) -> None:
    content = bytearray(saved(noise(), tmp_path / "photo.png").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "photo.png").write_bytes(content)
    assert "damaged" in refused(tmp_path / "photo.png")


def test_a_decompression_bomb_is_refused(tmp_path: Path) -> None:
    """A few bytes that claim to be 3.6 thousand million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99))
    (tmp_path / "bomb.png").write_bytes(content)
    assert "too large" in refused(tmp_path / "bomb.png")


def test_an_image_of_no_pixels() -> None:
    assert "no pixels" in refused(Image.new("RGB", (0, 5)))


def test_a_pillow_image_that_does_not_decode(tmp_path: Path) -> None:
    content = saved(noise(), tmp_path / "photo.jpg").read_bytes()
    (tmp_path / "photo.jpg").write_bytes(content[: len(content) // 2])
    with Image.open(tmp_path / "photo.jpg") as image:
        assert "photo.jpg" in refused(image)


# -- transform and geometry --------------------------------------------------------------------------------


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("size", [17, (96, 160), (31, 8), 1])
@pytest.mark.parametrize("original", [(640, 301), (301, 640), (5, 5), (1, 300), (300, 1), (1, 1)])
def test_the_output_has_the_requested_size(
    fit: str, size: int | tuple[int, int], original: tuple[int, int]
) -> None:
    pixels = ImageTransform(size, fit)(Image.new("RGB", original, (200, 100, 50)))
    height, width = size if isinstance(size, tuple) else (size, size)
    assert pixels.shape == (3, height, width)
    assert pixels.dtype == torch.uint8
    assert pixels.is_contiguous()
    assert (pixels == torch.tensor([200, 100, 50], dtype=torch.uint8)[:, None, None]).all(0).any()


def with_marker(width: int, height: int, x: float, y: float, radius: float) -> Image.Image:
    """A white disc on black, its centre at (x, y) in pixels from the outer corner."""
    rows, columns = np.arange(height)[:, None] + 0.5, np.arange(width) + 0.5
    distance = np.sqrt((columns - x) ** 2 + (rows - y) ** 2)
    return Image.fromarray((255 * np.clip(radius + 0.5 - distance, 0, 1)).astype(np.uint8)).convert("RGB")


def located(pixels: torch.Tensor, box: Box) -> tuple[float, float]:
    """The marker's centre in original pixels, measured in the output and mapped back with the box."""
    light = pixels[0].double()
    light = torch.where(light == PAD_GREY[0], 0.0, light)  # padding is not the marker
    height, width = light.shape
    x = (light.sum(0) @ (torch.arange(width) + 0.5).double() / light.sum()).item()
    y = (light.sum(1) @ (torch.arange(height) + 0.5).double() / light.sum()).item()
    return (
        box.left + x / width * (box.right - box.left),
        box.top + y / height * (box.bottom - box.top),
    )


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("size", [224, (96, 161), (150, 77)])
@pytest.mark.parametrize("original", [(640, 301), (301, 517), (333, 251), (450, 450), (1001, 143), (64, 48)])
def test_a_marker_survives_the_round_trip(
    fit: str, size: int | tuple[int, int], original: tuple[int, int]
) -> None:
    """Exact to a quarter of a resized pixel, at any position."""
    width, height = original
    transform = ImageTransform(size, fit)
    box = transform.box(width, height)
    across = (box.right - box.left) / transform.width
    down = (box.bottom - box.top) / transform.height
    radius = 2.5 * max(across, down, 1)
    left, right = max(box.left, 0) + 2 * radius, min(box.right, width) - 2 * radius
    top, bottom = max(box.top, 0) + 2 * radius, min(box.bottom, height) - 2 * radius
    for x, y in [(left, top), (right, top), (left, bottom), ((left + right) / 2, (top + bottom) / 2)]:
        found_x, found_y = located(transform(with_marker(width, height, x, y, radius)), box)
        assert abs(found_x - x) < max(across / 4, 0.1)
        assert abs(found_y - y) < max(down / 4, 0.1)


@pytest.mark.parametrize("original", [(640, 301), (301, 640), (333, 251), (64, 48), (999, 10)])
def test_the_padding_matches_the_box(original: tuple[int, int]) -> None:
    """Grey begins exactly at the row where the box leaves the image, and is centred to whole pixels."""
    transform = ImageTransform((97, 120), "pad")
    grey = (transform(Image.new("RGB", original, "white")) == PAD_GREY[0]).all(0)
    box = transform.box(*original)
    across, down = (box.right - box.left) / 120, (box.bottom - box.top) / 97
    columns, rows = (~grey).any(0).nonzero().flatten(), (~grey).any(1).nonzero().flatten()
    assert columns[0].item() == pytest.approx(-box.left / across)
    assert rows[0].item() == pytest.approx(-box.top / down)
    assert columns[-1].item() + 1 == pytest.approx((original[0] - box.left) / across)
    assert rows[-1].item() + 1 == pytest.approx((original[1] - box.top) / down)
    assert abs(columns[0] - (119 - columns[-1])) <= 1
    assert abs(rows[0] - (96 - rows[-1])) <= 1


def test_padding_is_middle_grey() -> None:
    pixels = ImageTransform((4, 8), "pad")(Image.new("RGB", (4, 4), "white"))
    assert pixels[0, 0].tolist() == [128, 128, 255, 255, 255, 255, 128, 128]
    assert (pixels == pixels[:1]).all()


@pytest.mark.parametrize(
    ("original", "content"),
    [((500, 300), (100, 167)), ((400, 300), (100, 133)), ((300, 500), (167, 100)), ((300, 400), (133, 100))],
)
def test_the_padded_image_is_scaled_like_a_squashed_one_of_its_rounded_size(
    original: tuple[int, int], content: tuple[int, int]
) -> None:
    image = noise(original[1], original[0])
    size = (100, 200) if content[0] == 100 else (200, 100)
    padded = ImageTransform(size, "pad")(image)
    top, left = ((whole - part) // 2 for whole, part in zip(size, content, strict=True))
    inside = padded[:, top : top + content[0], left : left + content[1]]
    assert torch.equal(inside, ImageTransform(content, "squash")(image))
    outside = padded.float().sum() - inside.float().sum()
    assert outside == PAD_GREY[0] * (padded.numel() - inside.numel())


@given(
    width=st.integers(1, 6000),
    height=st.integers(1, 6000),
    rows=st.integers(1, 512),
    columns=st.integers(1, 512),
)
@settings(deadline=None)
def test_area_that_each_fit_covers(width: int, height: int, rows: int, columns: int) -> None:
    """Squash: all of the image. Crop: a centred part, undistorted, touching two edges. Pad: all and more."""
    squash, crop, pad = (ImageTransform((rows, columns), fit).box(width, height) for fit in FITS)
    assert squash == (0, 0, width, height)
    left, top, right, bottom = crop
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert left == 0 or top == 0
    assert left + right == pytest.approx(width)
    assert top + bottom == pytest.approx(height)
    assert (right - left) * rows == pytest.approx((bottom - top) * columns)
    slack = 1e-9 * max(width, height)
    assert pad.left <= 0
    assert pad.top <= 0
    assert pad.right >= width - slack
    assert pad.bottom >= height - slack
    assert pad.left == 0 or pad.top == 0


def test_crop_is_resize_then_centre_crop() -> None:
    """If the resized sides are whole numbers, a plain resize gives the same pixels."""
    image = noise(300, 480)
    plain = image.resize((160, 100), Image.Resampling.BILINEAR).crop((30, 0, 130, 100))
    got = ImageTransform(100, "crop")(image).permute(1, 2, 0).numpy().astype(int)
    assert np.abs(got - np.asarray(plain, int)).max() <= 1


def test_crop_does_not_distort_and_squash_does() -> None:
    disc = with_marker(400, 200, 200, 100, 60)

    def aspect(fit: str) -> float:
        inside = ImageTransform(100, fit)(disc)[0] > 160  # padding is darker
        return (inside.any(0).sum() / inside.any(1).sum()).item()

    assert aspect("crop") == pytest.approx(1, abs=0.05)
    assert aspect("pad") == pytest.approx(1, abs=0.05)
    assert aspect("squash") == pytest.approx(0.5, abs=0.05)


def test_large_images_are_antialiased() -> None:
    """A fine checkerboard becomes even grey, not a moiré."""
    board = np.indices((1000, 1000)).sum(0) % 2 * np.uint8(255)
    pixels = ImageTransform(100)(Image.fromarray(board.astype(np.uint8)))
    assert pixels.float().std() < 3


def test_the_transform_turns_an_image_the_caller_has_not(tmp_path: Path) -> None:
    path = oriented(tmp_path / "turned.png", 6)
    transform = ImageTransform(16)
    with Image.open(path) as image:
        assert torch.equal(transform(image), transform(open_image(path)))


def test_channels_and_rows_are_in_order() -> None:
    pixels = ImageTransform((24, 40))(Image.fromarray(corners()))
    np.testing.assert_array_equal(pixels.permute(1, 2, 0).numpy(), corners())


@pytest.mark.parametrize("fit", FITS)
def test_real_photos(fit: str) -> None:
    if not PHOTOS.is_dir():
        pytest.skip("the photos of ../shared/data are not here")
    for path in sorted(PHOTOS.glob("*.jpg"))[:4]:
        image = open_image(path)
        pixels = ImageTransform(64, fit)(image)
        left, top, right, bottom = ImageTransform(64, fit).box(*image.size)
        size = (64, 64)
        plain = image.transform(
            size,
            Image.Transform.EXTENT,
            (left, top, right, bottom),
            Image.Resampling.BILINEAR,
            fillcolor=PAD_GREY,
        )
        alike = np.corrcoef(pixels.permute(1, 2, 0).flatten().numpy(), np.asarray(plain).flatten())[0, 1]
        assert alike > 0.8  # the plain resize does not antialias


@pytest.mark.parametrize(
    "transform", [ImageTransform(), ImageTransform((96, 128), "pad"), ImageTransform(7, "squash")]
)
def test_round_trip_through_plain_types(transform: ImageTransform) -> None:
    data = json.loads(json.dumps(transform.to_dict()))
    assert ImageTransform.from_dict(data) == transform
    assert data == transform.to_dict()


@pytest.mark.parametrize("size", [0, -3, (0, 5), (1, 2, 3), 2.5, "224"])
def test_a_size_that_is_none(size: object) -> None:
    with pytest.raises(DataError, match="size"):
        ImageTransform(size)  # type: ignore[arg-type]


def test_an_unknown_fit_or_key() -> None:
    with pytest.raises(DataError, match="squash, crop, pad"):
        ImageTransform(224, "stretch")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="'size' and 'fit'"):
        ImageTransform.from_dict({"size": 224})
