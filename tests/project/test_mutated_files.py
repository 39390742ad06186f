"""Mutated files of every kind, as strangers could send them: each is answered, or refused in one sentence."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from caption import checkpoint
from caption.captioner import Captioner
from caption.cli.main import LONGEST_MESSAGE, main
from caption.data.check import fingerprint
from caption.data.resize import ImageTransform
from caption.errors import ImageError, UserError
from caption.features.files import FORMAT, PhotoFile, write_features_file
from caption.features.store import FeatureStore
from caption.metrics.caption_files import read_captions

TOKENS = [
    *(b'"', b"'", b",", b";", b"\t", b"\r", b"\n", b"\r\n", b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\xe2\x80\xa8"),
    *(b"{", b"}", b"[", b"]", b":", b"#0\t", b"\\ud800", b"\\u0000", b'""', b"null", b"true", b"NaN", b"1e300"),
    *(b"-1", b"0", b"1.5", b"9" * 5000, b"[" * 5000, b'{"a":' * 3000, b"x" * 140_000, b"<!a" * 9000, b"../"),
    *(b'"image":"a"', b'"caption":5', b'"id":[1],', b"!!int x", b"!!binary x", b"2001-99-99", b"&a [*a]", b"? "),
    b"a: &a [1,2,3,4,5,6,7,8]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n",
]  # fmt: skip
"""Pieces of text that have meant trouble somewhere."""
NUMBERS = [bytes([value]) * width for width in (1, 2, 4) for value in (0, 1, 0x7F, 0x80, 0xFF)]
"""Values that have meant trouble in binary fields."""
Edit = tuple[str, int, int, bytes]


def edits(tokens: Sequence[bytes]) -> st.SearchStrategy[list[Edit]]:
    """One to four changes of a file; half of them at its beginning, which holds sizes and types."""
    kinds = st.sampled_from(["bit", "overwrite", "delete", "insert", "repeat", "truncate"])
    place = st.integers(0, 200) | st.integers(0, 100_000)
    length = st.sampled_from([1, 2, 4, 16, 100])
    return st.lists(st.tuples(kinds, place, length, st.sampled_from(tokens)), min_size=1, max_size=4)


def mutated(content: bytes, changes: Sequence[Edit]) -> bytes:
    data = bytearray(content)
    for kind, number, length, token in changes:
        place = number % (len(data) + 1)
        if kind == "bit" and place < len(data):
            data[place] ^= 1 << length % 8
        elif kind == "overwrite":
            data[place : place + len(token)] = token
        elif kind == "delete":
            del data[place : place + length]
        elif kind == "insert":
            data[place:place] = token
        elif kind == "repeat":
            data[place:place] = data[place : place + 4 * length] * (length // 2 + 1)
        elif kind == "truncate":
            del data[place:]
    return bytes(data)


def examples(count: int) -> Callable[[Any], Any]:
    return settings(max_examples=count, derandomize=True, deadline=None)


@contextlib.contextmanager
def empty_folder():
    """A folder of each example; Pillow's warnings about damaged files are not errors."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield Path(folder)


def one_sentence(error: UserError) -> None:
    assert len(str(error)) <= LONGEST_MESSAGE
    assert "\n" not in str(error)


def command(*args: object) -> tuple[int, str]:
    """Exit code and stdout of a command whose stderr has nothing but its own messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(arg) for arg in args])
    assert code in (0, 1, 2)
    assert "internal error" not in err.getvalue()
    assert all(line.startswith(("caption", "usage: caption")) for line in err.getvalue().splitlines())
    assert len(err.getvalue()) <= 20 * LONGEST_MESSAGE
    return code, out.getvalue()


# -- images ----------------------------------------------------------------------------------------------------


@cache
def images() -> list[tuple[str, bytes]]:
    """A small picture in every format and mode that Pillow writes: suffix and content."""
    Image.init()
    files = []
    picture = Image.radial_gradient("L").resize((37, 23))
    for kind in sorted(Image.SAVE):
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "F", "I;16"):
            file = io.BytesIO()
            with contextlib.suppress(
                Exception
            ):  # writers refuse modes in many ways, and some need other programs
                picture.convert(mode).save(file, kind)
                files.append((f".{kind.lower()}", file.getvalue()))
    assert len({suffix for suffix, _ in files}) > 20
    return files


@given(st.integers(0, 10_000), edits(NUMBERS), st.sampled_from(["squash", "crop", "pad"]))
@examples(300)
def test_images(number: int, changes: list[Edit], fit: Any):
    suffix, content = images()[number % len(images())]
    with empty_folder() as folder:
        path = folder / f"photo{suffix}"
        path.write_bytes(mutated(content, changes))
        try:
            pixels = ImageTransform(64, fit).read(path).pixels
            fingerprint(path)
        except ImageError as error:
            one_sentence(error)
        else:
            assert pixels.dtype == torch.uint8
            assert pixels.shape[0] == 3


@cache
def model() -> Captioner:
    return captioner()


# -- captions -------------------------------------------------------------------------------

NOUNS = ("tiger", "house", "train", "bottle", "garden", "window")
NAMES = [f"photo{number}.jpg" for number in range(len(NOUNS))]
SENTENCES = [f"A {noun} stands, somewhere near the {noun}." for noun in NOUNS]
PAIRS = [*zip(NAMES, SENTENCES, strict=True)]
COCO = {
    "images": [{"id": number, "file_name": name} for number, name in enumerate(NAMES)],
    "annotations": [{"id": 9 + n, "image_id": n, "caption": text} for n, text in enumerate(SENTENCES)],
}
KARPATHY = {
    "images": [
        {"filename": name, "cocoid": n, "split": "train", "sentences": [{"raw": text}]}
        for n, (name, text) in enumerate(PAIRS)
    ]
}
RESULTS = [{"image_id": number, "caption": text} for number, text in enumerate(SENTENCES)]
HEADER = "image,caption"
TABLE = "\n".join([HEADER, *(f'{name},"{text}"' for name, text in PAIRS)])
CAPTIONS = [
    *((".json", json.dumps(content, indent=1)) for content in (COCO, KARPATHY, RESULTS, dict(PAIRS))),
    (".jsonl", "\n".join(json.dumps({"image": name, "caption": text}) for name, text in PAIRS)),
    (".csv", TABLE),
    (".csv", TABLE.replace('"', "").replace(", ", " ")),
    (".txt", "\n".join(f"{name}#0\t{text}" for name, text in PAIRS)),
]


@given(st.sampled_from(CAPTIONS), edits(TOKENS), st.booleans(), st.booleans())
@examples(120)
def test_captions_are_scored_and_checked(
    source: tuple[str, str], changes: list[Edit], references: bool, partial: bool
):
    suffix, content = source
    with empty_folder() as folder:
        sound, path = folder / "sound.json", folder / f"captions{suffix}"
        sound.write_text(json.dumps(dict(PAIRS)))
        path.write_bytes(mutated(content.encode(), changes))
        sides = (path, sound) if references else (sound, path)
        options = ["--format", "json", *(["--partial"] if partial else [])]
        code, out = command("score", "--references", sides[0], "--candidates", sides[1], *options)
        assert code != 0 or '"scores"' in out
        no_word_is_lost(path)
        code, report = command("check", path, "--workers", 1)
        assert code != 2 or not report


def no_word_is_lost(path: Path) -> None:
    """Every word of a table whose header is intact is in its captions or names, if it is read at all."""
    try:
        head, _, body = path.read_bytes().decode().partition("\n")
        file = read_captions(str(path))
    except (UserError, UnicodeDecodeError):
        return
    if path.suffix == ".csv" and head == HEADER:
        kept = "\n".join(f"{image} {' '.join(texts)}" for image, texts in file.captions.items())
        assert set(re.findall("[a-z]{4,}", body)) <= set(re.findall("[a-z]{4,}", kept))


# -- models and stores -----------------------------------------------------------------------------------------


@cache
def saved(suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(model(), Path(folder) / f"model{suffix}")
        return (Path(folder) / f"model{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
@given(changes=edits(NUMBERS))
@examples(25)
def test_models_have_the_weights_that_were_saved(suffix: str, changes: list[Edit]):
    with empty_folder() as folder:
        path = folder / f"model{suffix}"
        path.write_bytes(mutated(saved(suffix), changes))
        try:
            state = checkpoint.load(path).state_dict()
        except UserError as error:
            one_sentence(error)
        else:
            expected = model().state_dict()
            assert state.keys() == expected.keys()
            assert all(torch.equal(tensor, expected[name]) for name, tensor in state.items())


@given(edits(NUMBERS))
@examples(50)
def test_stores_have_the_regions_that_were_written(changes: list[Edit]):
    regions = {"view.0": np.arange(3 * 4 * 5, dtype=np.float16).reshape(3, 4, 5)}
    header: dict[str, Any] = {"format": FORMAT, "key": {"encoder": "x"}, "grids": [[2, 2]]}
    with empty_folder() as folder:
        path = folder / "features-00000.safetensors"
        write_features_file(
            path, header, NAMES[:3], [PhotoFile(40, 30, number) for number in range(3)], regions
        )
        path.write_bytes(mutated(path.read_bytes(), changes))
        try:
            store = FeatureStore(folder)
            (views,) = store.read_many(NAMES[:3])
        except UserError as error:
            one_sentence(error)
        else:
            assert [name for file in store.files for name in file.ids] == NAMES[:3]
            assert np.array_equal(views.vectors.numpy(), regions["view.0"])
