"""What is attacked, and what counts as a failure.

A file from a stranger is answered or refused in sentences. Everything else is a failure: another exception, an internal
error, a line on stderr that is not the command's, a file that is neither answered nor named, words that disappear.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import caption
from caption import checkpoint
from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.cli.main import LONGEST_MESSAGE, main
from caption.data.check import fingerprint
from caption.data.images import ImageTransform
from caption.decoders import LSTMDecoder
from caption.encoders import SmallCNN
from caption.errors import ImageError, UserError
from caption.features.shards import PhotoFile, write_shard
from caption.features.store import FeatureStore
from caption.metrics.files import read_captions
from caption.text.vocabulary import Vocabulary
from tools.fuzz import inputs
from tools.fuzz.inputs import Input, mutated

Attack = Callable[[random.Random, Path], bool]
"""A function that makes one input in an empty folder and attacks with it. Returns whether it was answered rather than
refused; raises `Failure`."""


class Failure(Exception):
    """The input was neither answered nor refused in sentences."""


def _written(source: Input, random: random.Random, folder: Path, name: str, tokens: list[bytes]) -> Path:
    path = folder / f"{name}{source.suffix}"
    path.write_bytes(mutated(source.content, random, tokens))
    return path


def _refused(error: UserError) -> bool:
    if len(str(error)) > LONGEST_MESSAGE or "\n" in str(error):
        raise Failure(f"the message is long or has several lines: {str(error)[:300]!r}")
    return False


def _command(*args: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command, judged."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(arg) for arg in args])
    complaint = err.getvalue()
    if code not in (0, 1, 2) or "internal error" in complaint or "Traceback" in complaint:
        raise Failure(f"exit code {code}: {complaint[-600:]}")
    strange = [line for line in complaint.splitlines() if not line.startswith(("caption", "usage: caption"))]
    if strange or len(complaint) > 20 * LONGEST_MESSAGE:
        raise Failure(f"stderr has lines that are not the command's: {complaint[:600]!r}")
    return code, out.getvalue(), complaint


# -- images


def images(random: random.Random, folder: Path) -> bool:
    """A mutated image, read as the model's input and hashed for the check of a data set."""
    path = _written(random.choice(inputs.images()), random, folder, "photo", inputs.NUMBERS)
    try:
        pixels = (
            ImageTransform(random.choice((64, 224)), random.choice(("squash", "crop", "pad")))
            .read(path)
            .pixels
        )
        fingerprint(path)
    except ImageError as error:
        return _refused(error)
    if pixels.dtype != torch.uint8 or pixels.shape[0] != 3:
        raise Failure(f"pixels are {pixels.dtype} of shape {tuple(pixels.shape)}")
    return True


def photos(random: random.Random, folder: Path) -> bool:
    """A folder of mutated images between two sound ones, captioned: every one is answered or named, in order."""
    sound = [folder / "a.png", folder / "z.png"]
    for path in sound:
        Image.new("RGB", (40, 30), (200, 30, 30)).save(path)
    for number in range(6):
        _written(random.choice(inputs.images()), random, folder, f"m{number}", inputs.NUMBERS)
    paths = sorted(folder.iterdir())
    found = list(_captioner().describe_each([str(path) for path in paths]))
    if len(found) != len(paths) or isinstance(found[0], ImageError) or isinstance(found[-1], ImageError):
        raise Failure(f"{len(found)} results for {len(paths)} photos, or a sound photo refused")
    if found[0].text != found[-1].text:
        raise Failure("the caption of a sound photo depends on others")
    for path, each in zip(paths, found, strict=True):
        if isinstance(each, ImageError) and str(path) not in str(each):
            raise Failure(f"the message does not name {path}: {each}")
    return any(not isinstance(each, ImageError) for each in found[1:-1])


# -- text


def _scored(sources: list[Input], random: random.Random, folder: Path) -> bool:
    sound = folder / "sound.json"
    sound.write_bytes(inputs.JSON[random.choice((0, 3))].content)
    path = _written(random.choice(sources), random, folder, "captions", inputs.TOKENS)
    sides = (sound, path) if random.random() < 0.7 else (path, sound)
    options = ["--partial"] if random.random() < 0.5 else []
    code, out, _ = _command(
        "score", "--references", sides[0], "--candidates", sides[1], "--format", "json", *options
    )
    if code == 0 and '"scores"' not in out:
        raise Failure("exit code 0 without scores")
    _check_words(path)
    checked, report, _ = _command("check", path, "--workers", 1)
    if checked == 2 and report:
        raise Failure("a report with exit code 2")
    return code == 0


def _check_words(path: Path) -> None:
    """Every word of a table whose header is intact must be in its captions or names, if it is read at all."""
    try:
        head, _, body = path.read_bytes().decode().partition("\n")
        file = read_captions(str(path))
    except (UserError, UnicodeDecodeError):
        return
    if path.suffix == ".csv" and head == inputs.HEADER:
        kept = "\n".join(f"{image} {' '.join(texts)}" for image, texts in file.captions.items())
        if lost := set(re.findall("[a-z]{4,}", body)) - set(re.findall("[a-z]{4,}", kept)):
            raise Failure(f"words disappeared: {sorted(lost)[:5]}")


def json_(random: random.Random, folder: Path) -> bool:
    """Mutated JSON of captions, scored and checked."""
    return _scored(inputs.JSON, random, folder)


def jsonl(random: random.Random, folder: Path) -> bool:
    """Mutated JSON lines of captions, scored and checked."""
    return _scored(inputs.JSONL, random, folder)


def csv(random: random.Random, folder: Path) -> bool:
    """Mutated tables and token files of captions, scored and checked."""
    return _scored(inputs.CSV, random, folder)


def yaml(random: random.Random, folder: Path) -> bool:
    """A mutated configuration, checked."""
    (folder / "captions.csv").write_text(inputs.TABLE)
    path = _written(random.choice(inputs.YAML), random, folder, "config", inputs.TOKENS)
    return _command("check", path, "--workers", 1)[0] < 2


# -- models and stores


@cache
def _captioner() -> Captioner:
    torch.manual_seed(0)
    decoder = LSTMDecoder(ScoredAttention(AdditiveScore(8), Softmax()), 8, 12)
    return Captioner(SmallCNN([4, 4, 8]), decoder, Vocabulary(["a", "dog", "cat"]), ImageTransform(48)).eval()


@cache
def _checkpoint(folder: Path) -> bytes:
    checkpoint.save(_captioner(), folder / "sound.ckpt")
    return (folder / "sound.ckpt").read_bytes()


def checkpoints(random: random.Random, folder: Path) -> bool:
    """A mutated checkpoint: refused, or loaded with the weights that were saved."""
    path = _written(Input(".ckpt", _checkpoint(folder.parent)), random, folder, "model", inputs.NUMBERS)
    try:
        loaded = caption.load(str(path)).state_dict()
    except UserError as error:
        return _refused(error)
    expected = _captioner().state_dict()
    if loaded.keys() != expected.keys() or not all(
        torch.equal(loaded[name], expected[name]) for name in loaded
    ):
        raise Failure("it loads with other weights")
    return True


def stores(random: random.Random, folder: Path) -> bool:
    """A mutated shard of a feature store: refused, or read as it was written."""
    regions = {"view.0": np.arange(3 * 4 * 5, dtype=np.float16).reshape(3, 4, 5)}
    header: dict[str, Any] = {"format": 3, "key": {"encoder": "x"}, "grids": [[2, 2]]}
    path = folder / "shard-00000.safetensors"
    write_shard(path, header, NAMES, [PhotoFile(40, 30, number) for number in range(3)], regions)
    path.write_bytes(mutated(path.read_bytes(), random, inputs.NUMBERS))
    try:
        store = FeatureStore(folder)
        (found,) = store.read_many(NAMES)
    except UserError as error:
        return _refused(error)
    if store.ids() != NAMES or not np.array_equal(found.vectors.numpy(), regions["view.0"]):
        raise Failure("it is read with other regions or names")
    return True


NAMES = inputs.NAMES[:3]
TARGETS: dict[str, Attack] = {
    "images": images,
    "photos": photos,
    "json": json_,
    "jsonl": jsonl,
    "csv": csv,
    "yaml": yaml,
    "checkpoints": checkpoints,
    "stores": stores,
}
