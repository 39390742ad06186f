"""Images are all decoded and compared with each other."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from caption.data import check as check_images
from caption.data.check import ImageCheck, fingerprint
from caption.data.decoding import ORIENTATION_TAG
from caption.data.readers.captions import CaptionedImage, Finding, Findings, Kind, Splits
from caption.errors import ImageError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 8, 3), dtype=np.uint8)


def photo(path: Path, pixels: np.ndarray = PIXELS, **options: object) -> Path:
    Image.fromarray(pixels).save(path, **options)
    return path


def captioned(*paths: Path) -> list[CaptionedImage]:
    return [CaptionedImage(path.name, path, ("a dog",)) for path in paths]


def found(splits: Splits, findings: Findings | None = None) -> list[tuple[str, str]]:
    findings = findings or Findings()
    check = ImageCheck(splits, findings, workers=2)
    check.run(lambda images: None)
    check.report_duplicates()
    assert check.done == len(check.files)
    return [(finding.kind.label, finding.text) for finding in findings.found]


def test_fingerprints(tmp_path: Path) -> None:
    png = fingerprint(photo(tmp_path / "a.png"))
    assert fingerprint(photo(tmp_path / "b.png")) == png
    bmp = fingerprint(photo(tmp_path / "c.bmp"))
    assert (bmp.pixels, bmp.content == png.content) == (png.pixels, False)
    changed = PIXELS.copy()
    changed[4, 7, 2] ^= 1
    assert fingerprint(photo(tmp_path / "d.png", changed)).pixels != png.pixels
    assert fingerprint(photo(tmp_path / "e.png", PIXELS.reshape(8, 5, 3))).pixels != png.pixels


def test_a_photo_that_is_stored_turned_is_the_same_picture(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[ORIENTATION_TAG] = 3  # upside down
    first = fingerprint(photo(tmp_path / "a.png"))
    assert fingerprint(photo(tmp_path / "b.png", PIXELS[::-1, ::-1], exif=turned)).pixels == first.pixels


def test_a_large_file_is_hashed_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fingerprint(photo(tmp_path / "a.bmp")).content
    monkeypatch.setattr(check_images, "CHUNK", 7)
    assert fingerprint(tmp_path / "a.bmp").content == whole


def test_undecodable_images_are_named_with_their_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("no image")
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, "PNG")
    (tmp_path / "half.png").write_bytes(buffer.getvalue()[:-40])
    names = ("empty.png", "text.png", "half.png")
    splits = {"train": captioned(photo(tmp_path / "a.png"), *(tmp_path / name for name in names))}
    results = found(splits)
    assert [kind for kind, _ in results] == ["undecodable image"] * 3
    for (_, text), name, reason in zip(results, names, ("empty", "not an image", "damaged"), strict=True):
        assert text.startswith(f"image '{name}' (train): ")
        assert reason in text


def test_copies_across_splits_are_faults_and_within_one_notes(tmp_path: Path) -> None:
    other = 255 - PIXELS
    splits = {
        "train": captioned(photo(tmp_path / "a.png"), photo(tmp_path / "b.png", other)),
        "val": captioned(photo(tmp_path / "c.bmp")),
        "test": captioned(*(photo(tmp_path / f"{n}.png", PIXELS // 2) for n in "de")),
    }
    assert found(splits) == [
        ("duplicate across splits", "image 'a.png' (train) = image 'c.bmp' (val): the same pixels"),
        ("duplicate within a split", "image 'd.png' (test) = image 'e.png' (test): the same file"),
    ]


def test_three_copies_are_one_finding(tmp_path: Path) -> None:
    findings = Findings()
    paths = [photo(tmp_path / f"{name}.png") for name in "abc"]
    ((kind, text),) = found({"train": captioned(*paths[:2]), "val": captioned(paths[2])}, findings)
    assert kind == "duplicate across splits"
    assert text.count(" = ") == 2
    assert findings.found[0].images == tuple(map(str, paths))


def test_a_file_named_twice_is_not_a_duplicate_and_read_once(tmp_path: Path) -> None:
    """An image in two splits is found while reading."""
    (tmp_path / "link").symlink_to(tmp_path)
    path = photo(tmp_path / "a.png")
    splits = {"train": captioned(path, path), "test": captioned(tmp_path / "link" / "a.png")}
    assert found(splits) == []
    assert len(ImageCheck(splits, Findings()).files) == 1


def test_a_link_to_another_file_is_a_copy(tmp_path: Path) -> None:
    path = photo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(path)
    results = found({"train": captioned(path), "test": captioned(tmp_path / "b.png")})
    assert [kind for kind, _ in results] == ["duplicate across splits"]


def test_missing_images_are_passed_over_and_those_gone_since_are_named(tmp_path: Path) -> None:
    findings = Findings()
    findings.report([Finding(Kind.MISSING, "gone", (str(tmp_path / "gone.png"),))])
    splits = {"train": captioned(tmp_path / "gone.png", tmp_path / "later.png")}
    results = found(splits, findings)
    assert [kind for kind, _ in results] == ["missing image", "undecodable image"]
    assert "later.png' does not exist" in results[1][1]


def test_many_images_are_examined_in_their_order(tmp_path: Path) -> None:
    """More images than the queue holds; the threads end in any order."""
    paths = [tmp_path / f"{number}.png" for number in range(40)]
    for path in paths[::3]:
        path.touch()
    for path in set(paths) - set(paths[::3]):
        photo(path, np.random.default_rng(int(path.stem)).integers(0, 256, (4, 4, 3), dtype=np.uint8))
    assert [text.split("'")[1] for _, text in found({"val": captioned(*paths)})] == [
        p.name for p in paths[::3]
    ]


def test_no_image_starts_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(200)]
    begun: list[Path] = []

    def slow(path: Path) -> object:
        begun.append(path)
        if len(begun) > 1:
            time.sleep(0.3)
        raise ImageError("nothing")

    def press(images: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check_images, "fingerprint", slow)
    check = ImageCheck({"train": captioned(*paths)}, Findings(), workers=2)
    with pytest.raises(KeyboardInterrupt):
        check.run(press)
    assert check.done == 1
    assert len(begun) <= 3  # the first, and those in two threads


@pytest.mark.filterwarnings("error")
def test_pillow_warnings_are_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)  # 40 pixels: a warning, below twice as many
    assert found({"train": captioned(photo(tmp_path / "a.png"))}) == []
