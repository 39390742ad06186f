"""Flickr8k, Flickr30k and COCO: every published form of the downloads, and the message for every fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.downloads import contents, karpathy, make_folder, make_tar, make_zip, photo, prepare, small
from helpers.shared_data import FLICKR8K, needs_flickr8k

from caption.data.prepare.datasets import Dataset
from caption.data.readers import Flickr, Karpathy
from caption.data.splits import Splits

Files = dict[str, bytes]


def inside(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": data for name, data in files.items()}


def without(files: Files, *ends: str) -> Files:
    return {name: data for name, data in files.items() if not name.endswith(ends)}


# -- the three data sets, made small ---------------------------------------------------------------------------

NAMES = [f"{number}_ab.jpg" for number in range(6)]
SPLITS = {"train": NAMES[:3], "val": NAMES[3:4], "test": NAMES[4:5]}  # the last is in none
PHOTOS = {name: photo(number) for number, name in enumerate(NAMES)}
CAPTIONS = {name: [f'A "red" dog, {k} of {name} .' for k in range(2)] for name in NAMES}
TOKENS = "".join(f"{name}#{k}\t{text}\n" for name in NAMES for k, text in enumerate(CAPTIONS[name])).encode()
STRAY = "2258277193_586949ec62.jpg.1"
LISTS = {
    f"Flickr_8k.{'dev' if split == 'val' else split}Images.txt": "\n".join(names).encode() + b"\n"
    for split, names in SPLITS.items()
}
LITTER = {"__MACOSX/Flicker8k_Dataset/._0_ab.jpg": b"fork", "Flicker8k_Dataset/.DS_Store": b"x"}
TEXTS = {"Flickr8k.token.txt": TOKENS, **LISTS, "readme.txt": b"Flickr8k"}
FLICKR8K_PHOTOS = inside("Flicker8k_Dataset", PHOTOS)
KAGGLE_CSV = b"image,caption\n" + b"".join(
    f'{name},"{text.replace(chr(34), chr(34) * 2)}"\n'.encode() for name in NAMES for text in CAPTIONS[name]
)
# The second-last row lacks a bar, like a row of Kaggle's file.
ROWS = [f"{name}| {k}| {text}\n" for name in NAMES for k, text in enumerate(CAPTIONS[name])]
ROWS[-2] = f"{NAMES[5]}| 0   {CAPTIONS[NAMES[5]][0]}\n"
KAGGLE_TABLE = "".join(["image_name| comment_number| comment\n", *ROWS]).encode()
FLICKR30K_JSON = {"dataset_flickr30k.json": karpathy(SPLITS)}
FLICKR30K_TEXTS = FLICKR30K_JSON | {"results_20130124.token": TOKENS}

TRAIN = [f"COCO_train2014_{number:012d}.jpg" for number in range(3)]
VAL = [f"COCO_val2014_{number:012d}.jpg" for number in range(3, 7)]
COCO_SPLITS = {"train": TRAIN, "restval": VAL[:1], "val": VAL[1:2], "test": VAL[2:]}
COCO_PHOTOS = {f"{name.split('_')[1]}/{name}": photo(number) for number, name in enumerate([*TRAIN, *VAL])}


def coco_karpathy(splits: dict[str, list[str]]) -> Files:
    return {"dataset_coco.json": karpathy(splits, folder=lambda name: name.split("_")[1])}


def coco_captions(names: list[str]) -> bytes:
    """COCO's own captions, two for each photo."""
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    pairs = [(image["id"], k) for image in images for k in range(2)]
    annotations = [{"id": n, "image_id": i, "caption": f"Caption {k}."} for n, (i, k) in enumerate(pairs)]
    return json.dumps({"images": images, "annotations": annotations}).encode()


COCO_ANNOTATIONS = {
    "annotations/captions_train2014.json": coco_captions(TRAIN),
    "annotations/captions_val2014.json": coco_captions(VAL),
}
COCO_JSON = coco_karpathy(COCO_SPLITS)


@dataclass
class Published:
    """A data set with the numbers of the small one."""

    small: Dataset
    files: Files
    """A whole download."""
    laid_out: Files
    read: Callable[[Path], Splits]
    """The folder, read as training does."""
    splits: dict[str, list[str]]
    numbers: str
    """Published ones."""


def read_flickr8k(folder: Path) -> Splits:
    lists = {"train": "train", "val": "dev", "test": "test"}
    splits = {split: str(folder / f"Flickr_8k.{name}Images.txt") for split, name in lists.items()}
    return Flickr(str(folder / "Flickr8k.token.txt"), splits, str(folder / "images")).read()


SETS = {
    "flickr8k": Published(
        small("flickr8k", [6], [12], [3, 1, 1]),
        FLICKR8K_PHOTOS | TEXTS,
        inside("images", PHOTOS) | {"Flickr8k.token.txt": TOKENS} | LISTS,
        read_flickr8k,
        SPLITS,
        "8,091 40,455 6,000 1,000",
    ),
    "flickr30k": Published(
        small("flickr30k", [6], [12], [3, 1, 1]),
        PHOTOS | FLICKR30K_TEXTS,
        inside("images", PHOTOS) | FLICKR30K_TEXTS,
        lambda folder: Karpathy(str(folder / "dataset_flickr30k.json"), str(folder / "images")).read(),
        SPLITS,
        "31,783 158,915 29,000 1,014 1,000",
    ),
    "coco": Published(
        small("coco", [3, 4], [6, 8], [3, 1, 1, 2]),
        COCO_PHOTOS | COCO_ANNOTATIONS | COCO_JSON,
        COCO_PHOTOS | COCO_ANNOTATIONS | COCO_JSON,
        lambda folder: Karpathy(str(folder / "dataset_coco.json"), str(folder)).read(),
        {"train": [*TRAIN, *VAL[:1]], "val": VAL[1:2], "test": VAL[2:]},
        "82,783 40,504 414,113 202,654 30,504 5,000",
    ),
}


def given(name: str, out: Path, *downloads: Path, check_only: bool = False) -> int:
    return prepare(SETS[name].small, name, out, *downloads, check_only=check_only)


# -- published forms -------------------------------------------------------------------------------------------

KAGGLE_FLICKR30K = PHOTOS | {"results.csv": KAGGLE_TABLE}
FORMS: dict[str, Callable[[Path], list[Path]]] = {
    "flickr8k by its authors": lambda folder: [
        make_zip(folder / "Flickr8k_Dataset.zip", FLICKR8K_PHOTOS | LITTER),
        make_zip(folder / "Flickr8k_text.zip", TEXTS),
    ],
    "flickr8k of Kaggle": lambda folder: [
        make_zip(folder / "archive.zip", inside("Images", PHOTOS) | {"captions.txt": KAGGLE_CSV}),
        make_zip(folder / "splits.zip", {"dataset_flickr8k.json": karpathy(SPLITS)} | COCO_JSON),
    ],
    "flickr30k by its authors": lambda folder: [
        make_tar(folder / "flickr30k-images.tar.gz", inside("flickr30k-images", PHOTOS)),
        make_tar(folder / "flickr30k.tar.gz", {"results_20130124.token": TOKENS, "readme.txt": b""}),
        make_zip(folder / "caption_datasets.zip", FLICKR30K_JSON),
    ],
    "flickr30k of Kaggle, with everything twice": lambda folder: [
        make_zip(
            folder / "archive.zip", inside("photos", KAGGLE_FLICKR30K) | inside("photos/2", KAGGLE_FLICKR30K)
        ),
        make_folder(folder / "files", FLICKR30K_JSON) / "dataset_flickr30k.json",
    ],
    "coco by its authors": lambda folder: [
        make_zip(folder / "train2014.zip", {n: d for n, d in COCO_PHOTOS.items() if n[0] == "t"}),
        make_zip(folder / "val2014.zip", {n: d for n, d in COCO_PHOTOS.items() if n[0] == "v"}),
        make_zip(folder / "a.zip", COCO_ANNOTATIONS | {"annotations/instances_val2014.json": b"{}"}),
        make_zip(folder / "caption_datasets.zip", COCO_JSON | {"dataset_flickr8k.json": b"{}"}),
    ],
}
for each in SETS:
    FORMS[f"{each} unpacked"] = lambda folder, name=each: [make_folder(folder / "given", SETS[name].files)]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_comes_to_the_same(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    name = form.split()[0]
    dataset, out = SETS[name], tmp_path / "out"
    downloads = FORMS[form](tmp_path)
    before = contents(tmp_path)
    assert given(name, out, *downloads, check_only=True) == 0
    assert contents(tmp_path) == before
    assert given(name, out, *downloads) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "photos; splits: 3 train" in printed.err
    assert contents(out) == dataset.laid_out
    splits = dataset.read(out)
    assert {
        split: [image.path.name for image in images] for split, images in splits.items()
    } == dataset.splits
    if name == "flickr8k":
        assert splits["test"][0].captions == tuple(CAPTIONS[NAMES[4]])
    assert given(name, out, check_only=True) == 0


@pytest.mark.parametrize("name", SETS)
def test_the_published_numbers_are_the_default(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert prepare(None, name, tmp_path / "out", make_folder(tmp_path / "given", SETS[name].files)) == 2
    printed = capsys.readouterr().err
    assert all(f"instead of {number}" in printed for number in SETS[name].numbers.split())


@pytest.mark.parametrize(
    ("name", "optional"), [("flickr30k", ("results_20130124.token",)), ("coco", tuple(COCO_ANNOTATIONS))]
)
def test_the_authors_captions_are_not_needed(name: str, optional: tuple[str, ...], tmp_path: Path):
    download = make_folder(tmp_path / "given", without(SETS[name].files, *optional))
    assert given(name, tmp_path / "out", download) == 0
    assert contents(tmp_path / "out") == without(SETS[name].laid_out, *optional)


# -- faults ----------------------------------------------------------------------------------------------------

F8, F30, COCO = (SETS[name].files for name in ("flickr8k", "flickr30k", "coco"))
F8_TOKENS, COCO_TRAIN = "Flickr8k.token.txt", "annotations/captions_train2014.json"
CUT_TOKENS = TOKENS[: TOKENS.index(b"5_ab.jpg#1")]
FAULTS: list[tuple[str, Files, list[str]]] = [
    (
        "flickr8k",
        without(F8, NAMES[2]),
        [
            "5 photos instead of 6",
            f"1 photos named in {F8_TOKENS} not among the photos: {NAMES[2]}",
            f"in the train split of Flickr_8k.trainImages.txt not among the photos: {NAMES[2]}",
        ],
    ),
    (
        "flickr8k",
        F8 | {"more/stranger.jpg": photo(9)},
        ["7 photos instead of 6", f"1 photos not named in {F8_TOKENS}: stranger.jpg"],
    ),
    ("flickr8k", F8 | {"more/0_ab.jpg": photo(9)}, ["are not the same: give one of them"]),
    ("flickr8k", F8 | {f"other/{F8_TOKENS}": TOKENS + b"\n"}, ["are not the same"]),
    ("flickr8k", without(F8, F8_TOKENS), [f"{F8_TOKENS} or captions.txt is not in the downloads. It is in"]),
    ("flickr8k", without(F8, "devImages.txt"), ["Flickr_8k.devImages.txt is not in the downloads"]),
    ("flickr8k", F8 | {F8_TOKENS: CUT_TOKENS}, [f"11 captions in {F8_TOKENS}"]),
    ("flickr8k", F8 | {"Flickr_8k.devImages.txt": NAMES[0].encode()}, [f"in one split only: {NAMES[0]}"]),
    ("flickr8k", F8 | {"Flickr_8k.testImages.txt": b""}, ["0 photos in the test split of Flickr_8k.test"]),
    ("flickr30k", without(F30, ".json"), ["dataset_flickr30k.json is not in the downloads. It is in"]),
    (
        "flickr30k",
        without(F30, ".token") | {"results.csv": b"heading\nno row\n"},
        ["line 2 of 'results.csv'"],
    ),
    (
        "coco",
        without(COCO, VAL[3]) | {COCO_TRAIN: coco_captions(TRAIN[:2])},
        [
            "3 photos COCO_val2014_*.jpg instead of 4",
            f"in the test split of dataset_coco.json not among the photos: {VAL[3]}",
            f"named in captions_val2014.json not among the photos: {VAL[3]}",
            "4 captions in captions_train2014.json instead of 6",
            f"1 photos not named in captions_train2014.json: {TRAIN[2]}",
        ],
    ),
]


@pytest.mark.parametrize(("name", "files", "messages"), FAULTS)
def test_faults_are_named_and_nothing_is_written(
    name: str, files: Files, messages: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert given(name, tmp_path / "out", make_folder(tmp_path / "given", files)) == 2
    printed = capsys.readouterr().err
    assert all(message in printed for message in messages)
    assert "Traceback" not in printed
    assert not (tmp_path / "out").exists()


def test_the_captions_of_a_photo_that_never_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tokens = TOKENS + f"{STRAY}#0\tA dog .\n".encode()
    download = make_folder(tmp_path / "files", F8 | {"Flickr8k.token.txt": tokens})
    assert given("flickr8k", tmp_path / "out", download) == 0
    assert f"{STRAY} has captions and no photo: a known oddity" in capsys.readouterr().err
    assert (tmp_path / "out" / "Flickr8k.token.txt").read_bytes() == tokens  # the authors' file, unchanged


def test_damaged_photos_are_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    spoiled = inside("Flicker8k_Dataset", {NAMES[0]: b"no photo", NAMES[3]: b""})
    download = make_zip(tmp_path / "all.zip", F8 | spoiled)
    for check_only in (True, False):
        assert given("flickr8k", tmp_path / "out", download, check_only=check_only) == 1
        printed = capsys.readouterr().err
        assert f"{NAMES[0]}' of '{download}': its header cannot be decoded" in printed
        assert f"{NAMES[3]}' of '{download}': it is empty" in printed
        assert "4 images" in printed
    assert len(list((tmp_path / "out" / "images").iterdir())) == 4


@pytest.mark.nightly
@needs_flickr8k
def test_flickr8k_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert prepare(None, "flickr8k", FLICKR8K.parent, check_only=True) == 0
    printed = capsys.readouterr().err
    assert "8,091 photos; splits: 6,000 train, 1,000 val, 1,000 test" in printed
    assert "8,091 images checked, 0 damaged" in printed
