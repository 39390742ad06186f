"""`caption prepare flickr8k`: every published form of the download, and the message for every fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.downloads import contents, karpathy, make_folder, make_tar, make_zip, photo
from helpers.downloads import prepare as prepare_as

from caption.data.prepare import datasets
from caption.data.readers.flickr import Flickr

FLICKR8K = Path(__file__).resolve().parents[3] / "shared" / "data" / "flickr8k"

NAMES = [f"{number}_ab.jpg" for number in range(6)]
SPLITS = {"train": NAMES[:3], "dev": NAMES[3:4], "test": NAMES[4:5]}  # the last is in none
EXPECTED = datasets.Flickr8k(photos=6, captions=12, splits={"train": 3, "dev": 1, "test": 1})
PHOTOS = {f"Flicker8k_Dataset/{name}": photo(number) for number, name in enumerate(NAMES)}
CAPTIONS = {name: [f'A "red" dog, {k} of {name} .' for k in range(2)] for name in NAMES}
STRAY = "2258277193_586949ec62.jpg.1"
TOKENS = "".join(f"{name}#{k}\t{text}\n" for name in NAMES for k, text in enumerate(CAPTIONS[name])).encode()
LISTS = {f"Flickr_8k.{split}Images.txt": "\n".join(names).encode() + b"\n" for split, names in SPLITS.items()}
LITTER = {"__MACOSX/Flicker8k_Dataset/._0_ab.jpg": b"fork", "Flicker8k_Dataset/.DS_Store": b"x"}
TEXTS = {"Flickr8k.token.txt": TOKENS, **LISTS, "readme.txt": b"Flickr8k"}
KAGGLE = b"image,caption\n" + b"".join(
    f'{name},"{text.replace(chr(34), chr(34) * 2)}"\n'.encode() for name in NAMES for text in CAPTIONS[name]
)


def prepare(out: Path, *downloads: object, check_only: bool = False) -> int:
    return prepare_as(EXPECTED, "flickr8k", out, *downloads, check_only=check_only)


def as_archives(folder: Path) -> list[Path]:
    return [
        make_zip(folder / "Flickr8k_Dataset.zip", PHOTOS | LITTER),
        make_zip(folder / "Flickr8k_text.zip", TEXTS),
    ]


def as_tars(folder: Path) -> list[Path]:
    return [make_tar(folder / "photos.tar.gz", PHOTOS | LITTER), make_tar(folder / "texts.tar", TEXTS)]


def as_folders(folder: Path) -> list[Path]:
    return [make_folder(folder / "unpacked", PHOTOS | TEXTS | LITTER)]


def as_files(folder: Path) -> list[Path]:
    made = make_folder(folder / "files", TEXTS)
    return [make_zip(folder / "Flickr8k_Dataset.zip", PHOTOS), *(made / name for name in TEXTS)]


def as_kaggle(folder: Path) -> list[Path]:
    files = {f"Images/{Path(name).name}": data for name, data in PHOTOS.items()} | {"captions.txt": KAGGLE}
    splits = {"train": SPLITS["train"], "val": SPLITS["dev"], "test": SPLITS["test"]}
    sets = {"dataset_flickr8k.json": karpathy(splits), "dataset_coco.json": b"{}"}
    return [make_zip(folder / "archive.zip", files), make_zip(folder / "caption_datasets.zip", sets)]


LAYOUTS = [as_archives, as_tars, as_folders, as_files, as_kaggle]


def laid_out() -> dict[str, bytes]:
    images = {f"images/{Path(name).name}": data for name, data in PHOTOS.items()}
    return images | {"Flickr8k.token.txt": TOKENS} | LISTS


@pytest.mark.parametrize("downloaded", LAYOUTS)
def test_every_layout_comes_to_the_same(
    downloaded: Callable[[Path], list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    downloads = downloaded(tmp_path)
    before = contents(tmp_path)
    out = tmp_path / "data" / "flickr8k"
    assert prepare(out, *downloads, check_only=True) == 0
    assert contents(tmp_path) == before
    assert prepare(out, *downloads) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "6 photos, 12 captions, splits: 3 train, 1 dev, 1 test" in said.err
    assert contents(out) == laid_out()
    reader = Flickr(
        str(out / "Flickr8k.token.txt"),
        {split: str(out / f"Flickr_8k.{split}Images.txt") for split in ("train", "test")},
        str(out / "images"),
    )
    assert [image.captions for image in reader.read()["test"]] == [tuple(CAPTIONS[NAMES[4]])]
    assert prepare(out, check_only=True) == 0


def test_a_second_run_writes_nothing_and_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    downloads, out = as_archives(tmp_path), tmp_path / "out"
    assert prepare(out, *downloads) == 0
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert prepare(out, *downloads) == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == stamps
    (out / "images" / NAMES[1]).unlink()
    (out / "images" / f"{NAMES[1]}.partial").write_bytes(b"half of i")
    (out / "Flickr8k.token.txt").unlink()
    assert prepare(out, *downloads) == 0
    assert contents(out) == laid_out()


def test_the_captions_of_a_photo_that_never_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = TOKENS + f"{STRAY}#0\tA dog .\n".encode()
    download = make_folder(tmp_path / "files", PHOTOS | LISTS | {"Flickr8k.token.txt": tokens})
    assert prepare(tmp_path / "out", download) == 0
    assert f"{STRAY} has captions and no photo: a known oddity" in capsys.readouterr().err
    assert (tmp_path / "out" / "Flickr8k.token.txt").read_bytes() == tokens  # the authors' file, unchanged


def without(files: dict[str, bytes], *ends: str) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.endswith(ends)}


ALL = PHOTOS | TEXTS
FAULTS: list[tuple[dict[str, bytes], str]] = [
    (without(ALL, NAMES[2]), "5 photos instead of 6"),
    (without(ALL, NAMES[2]), f"1 photos named in Flickr8k.token.txt not among the photos: {NAMES[2]}"),
    (without(ALL, NAMES[2]), f"1 photos of the train split not among the photos: {NAMES[2]}"),
    (ALL | {"more/stranger.jpg": photo(9)}, "1 photos not named in Flickr8k.token.txt: stranger.jpg"),
    (ALL | {"more/0_ab.jpg": photo(9)}, "are not the same: give one of them"),
    (
        without(ALL, "token.txt"),
        "Flickr8k.token.txt or captions.txt is not in the downloads. It is in",
    ),
    (without(ALL, "devImages.txt"), "Flickr_8k.devImages.txt is not in the downloads"),
    (without(ALL, *LISTS), "Flickr_8k.trainImages.txt is not in the downloads"),
    (
        ALL | {"Flickr8k.token.txt": TOKENS[: TOKENS.index(b"5_ab.jpg#1")]},
        "11 captions in Flickr8k.token.txt",
    ),
    (ALL | {"Flickr8k.token.txt": TOKENS + b"no line of captions"}, "line 13 of 'Flickr8k.token.txt'"),
    (ALL | {"Flickr8k.token.txt": b"\xff\xfe"}, "is not UTF-8 text"),
    (ALL | {"other/Flickr8k.token.txt": TOKENS + b"\n"}, "are not the same"),
    (
        ALL | {"Flickr_8k.devImages.txt": NAMES[0].encode()},
        f"1 photos of the splits not in one split only: {NAMES[0]}",
    ),
    (ALL | {"Flickr_8k.testImages.txt": b""}, "0 photos in the test split instead of 1"),
    (without(ALL, "token.txt") | {"captions.txt": b"a,b\n1,2\n"}, "does not have the columns image,caption"),
    (without(ALL, "token.txt") | {"captions.txt": KAGGLE + b"0_ab.jpg\n"}, "line 14 of 'captions.txt'"),
    (without(ALL, *LISTS) | {"dataset_flickr8k.json": b"[1"}, "is not JSON"),
    (
        without(ALL, *LISTS) | {"dataset_flickr8k.json": b'{"images": [{}]}'},
        "no list of images with filename",
    ),
]


@pytest.mark.parametrize(("files", "message"), FAULTS)
def test_faults_are_named_and_nothing_is_written(
    files: dict[str, bytes], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(tmp_path / "out", make_folder(tmp_path / "given", files)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_the_published_numbers_are_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare_as(None, "flickr8k", tmp_path / "out", *as_archives(tmp_path)) == 2
    said = capsys.readouterr().err
    for fault in (
        "6 photos instead of 8,091",
        "12 captions in Flickr8k.token.txt instead of 40,455",
        "of 6,000",
    ):
        assert fault in said


def test_damaged_photos_are_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoiled = {f"Flicker8k_Dataset/{NAMES[0]}": b"no photo", f"Flicker8k_Dataset/{NAMES[3]}": b""}
    download = make_zip(tmp_path / "all.zip", PHOTOS | spoiled | TEXTS)
    for check_only in (True, False):
        assert prepare(tmp_path / "out", download, check_only=check_only) == 1
        said = capsys.readouterr().err
        assert f"{NAMES[0]}' of '{download}': its header cannot be decoded" in said
        assert f"{NAMES[3]}' of '{download}': it is empty" in said
        assert "4 images" in said
    assert len(list((tmp_path / "out" / "images").iterdir())) == 4


def test_nothing_to_do_is_wrong_usage(tmp_path: Path) -> None:
    assert prepare(tmp_path) == 2
    assert prepare(tmp_path / "out", tmp_path / "missing.zip") == 2


@pytest.mark.slow
def test_flickr8k_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not FLICKR8K.exists():
        pytest.skip("Flickr8k is not in ../shared/data")
    assert prepare_as(None, "flickr8k", FLICKR8K, check_only=True) == 0
    said = capsys.readouterr().err
    assert "8,091 photos, 40,455 captions, splits: 6,000 train, 1,000 dev, 1,000 test" in said
    assert "8,091 images checked, 0 damaged" in said
