"""Mutated files of every kind that a verb reads, as strangers could send them: each is answered, or refused in one
sentence; within a minute, without more than 2 GiB, and without changing a file elsewhere.

The suite runs some hundred of them. To run 100,000 others:

    HOSTILE_FILES=100000 python -m pytest -n0 -rP tests/project/test_mutated_files.py

which stops at the first failure of each kind, and prints the numbers.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from helpers.confined import confined
from helpers.tiny_captioner import captioner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from caption.captioner import Captioner
from caption.cli.main import main
from caption.core.errors import LONGEST_MESSAGE, UserError
from caption.data.boxes import read_boxes
from caption.data.check import fingerprint
from caption.data.features.format import FeatureWriter, Header, PhotoFile
from caption.data.features.store import FeatureStore
from caption.data.photos import ImageTransform
from caption.data.shards import ShardIndex, stream
from caption.decoders.word_embeddings import WordVectors
from caption.encoders.weights import read_state
from caption.metrics.caption_files import read_captions
from caption.models import checkpoint
from caption.models.importers import arctic, sgrvinod
from caption.models.importers.assemble import encoder_and_transform
from caption.text.vocabulary import PAD

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("tiny_commands"),
    pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning"),
    pytest.mark.timeout(0 if "HOSTILE_FILES" in os.environ else 600),
]
MANY = int(os.environ.get("HOSTILE_FILES", "0"))
SECONDS, MEMORY = 60, 2 << 30

TOKENS = [
    *(b'"', b"'", b",", b";", b"\t", b"\r", b"\n", b"\r\n", b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\xe2\x80\xa8"),
    *(b"{", b"}", b"[", b"]", b":", b"#0\t", b"\\ud800", b"\\u0000", b'""', b"null", b"true", b"NaN", b"1e300"),
    *(b"-1", b"0", b"1.5", b"9" * 5000, b"[" * 5000, b'{"a":' * 3000, b"x" * 140_000, b"<!a" * 9000, b"../"),
    *(b'"image":"a"', b'"caption":5', b'"id":[1],'),
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
    for kind, number, length, token in changes:
        place = number % (len(content) + 1)
        before, after = content[:place], content[place:]
        content = (
            before
            + {
                "bit": bytes([after[0] ^ 1 << length % 8]) + after[1:] if after else b"",
                "overwrite": token + after[len(token) :],
                "delete": after[length:],
                "insert": token + after,
                "repeat": after[: 4 * length] * (length // 2 + 1) + after,
                "truncate": b"",
            }[kind]
        )
    return content


class File(NamedTuple):
    """A kind of file."""

    sound: Callable[[Path], list[tuple[str, bytes]]]
    """Names and contents of sound ones, given the folder of a user's files."""
    use: Callable[[Path, int], object]
    """Reads a file in a folder of its own, in a way that a number chooses; what it asserts is the right answer."""
    tokens: Sequence[bytes] = ()
    """Pieces that are put into it."""
    count: int = 30
    """How many the suite runs."""
    share: int = 1
    """Of a long run."""
    is_set: bool = False
    """Whether the other sound ones stand beside the one that is mutated."""


@contextlib.contextmanager
def measured(numbers: Counter[str]) -> Iterator[None]:
    """Count an example. A UserError is an answer; one that takes long or much memory is a failure."""
    begun, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = ""
    try:
        yield
    except UserError as error:
        message = str(error)
    numbers["refused" if message else "answered"] += 1
    assert "\n" not in message
    assert len(message) <= LONGEST_MESSAGE
    assert time.monotonic() - begun < SECONDS
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert memory == peak or memory << 10 < MEMORY


def command(*args: object) -> tuple[int, str]:
    """Exit code and stdout of a command whose stderr has nothing but its own messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(arg) for arg in args])
    assert code in (0, 1, 2)
    assert not re.search("internal error|Traceback", err.getvalue()), err.getvalue()
    assert len(err.getvalue()) <= 20 * LONGEST_MESSAGE
    if code == 2:
        raise UserError(err.getvalue().strip().splitlines()[-1])
    return code, out.getvalue()


def built(make: Callable[[Path], object]) -> dict[str, bytes]:
    """The files that are made in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file()
        }


# -- photos and captions -------------------------------------------------------------------------------------------


def images(template: Path) -> list[tuple[str, bytes]]:
    """A small picture in every format and mode that Pillow writes: suffix and content."""
    Image.init()
    files = []
    picture = Image.radial_gradient("L").resize((37, 23))
    for kind in sorted(Image.SAVE):
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "F", "I;16"):
            file = io.BytesIO()
            with contextlib.suppress(Exception):  # writers refuse modes in many ways, or need other programs
                picture.convert(mode).save(file, kind)
                files.append((f".{kind.lower()}", file.getvalue()))
    assert len({suffix for suffix, _ in files}) > 20
    return files


def use_image(path: Path, number: int) -> None:
    pixels = ImageTransform(64, ("squash", "crop", "pad")[number % 3]).read(path).pixels  # type: ignore[arg-type]
    fingerprint(path)
    assert pixels.dtype == torch.uint8
    assert pixels.shape[0] == 3


NOUNS = ("tiger", "house", "train", "bottle", "garden", "window")
PAIRS = [(f"photo{n}.jpg", f"A {noun} stands, somewhere near the {noun}.") for n, noun in enumerate(NOUNS)]
IMAGES = [{"id": number, "file_name": name} for number, (name, _) in enumerate(PAIRS)]
ANNOTATIONS = [{"id": 9 + n, "image_id": n, "caption": text} for n, (_, text) in enumerate(PAIRS)]
HEADER = "image,caption"
TABLE = "\n".join([HEADER, *(f'{name},"{text}"' for name, text in PAIRS)])
BOXES = {
    "images": [{"id": number} for number in range(3)],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [{"image_id": number, "category_id": 1, "bbox": [1, 2, 3.5, 4]} for number in range(3)],
}


def captions(template: Path) -> list[tuple[str, bytes]]:
    """In all formats: COCO, Karpathy, results, an object, JSON lines, tables, Flickr."""
    objects = ({"images": IMAGES, "annotations": ANNOTATIONS}, ANNOTATIONS, dict(PAIRS))
    texts = [*((".json", json.dumps(each, indent=1)) for each in objects)]
    texts.append((".jsonl", "\n".join(json.dumps({"image": name, "caption": text}) for name, text in PAIRS)))
    texts += [(".csv", TABLE), (".csv", TABLE.replace('"', "").replace(", ", " "))]
    texts.append((".txt", "\n".join(f"{name}#0\t{text}" for name, text in PAIRS)))
    images = [
        {"filename": name, "split": "train", "sentences": [{"raw": "One."}, {"raw": "Another."}]}
        for name, _ in PAIRS
    ]
    texts.append((".json", json.dumps({"images": images})))
    return [(suffix, text.encode()) for suffix, text in texts]


def use_captions(path: Path, number: int) -> None:
    sound = path.with_name("sound.json")
    sound.write_text(json.dumps(dict(PAIRS)))
    sides = (path, sound) if number % 2 else (sound, path)
    no_word_is_lost(path)
    with contextlib.suppress(UserError):
        options = ("--format", "json", *["--partial"] * (number % 4 > 1))
        code, out = command("score", "--references", sides[0], "--candidates", sides[1], *options)
        assert code != 0 or '"scores"' in out
    with confined(None):
        command("check", path)


def no_word_is_lost(path: Path) -> None:
    """Every word of a table whose header is intact is in its captions or names, if it is read at all."""
    with contextlib.suppress(UserError, UnicodeDecodeError):
        head, _, body = path.read_bytes().decode().partition("\n")
        file = read_captions(str(path))
        if path.suffix == ".csv" and head == HEADER:
            kept = "\n".join(f"{image} {' '.join(texts)}" for image, texts in file.captions.items())
            assert set(re.findall("[a-z]{4,}", body)) <= set(re.findall("[a-z]{4,}", kept))


def use_boxes(path: Path, number: int) -> None:
    boxes = read_boxes(path)
    assert all(len(box) == 4 for by_name in boxes.values() for each in by_name.values() for box in each)


# -- models and stores ---------------------------------------------------------------------------------------------


@cache
def model() -> Captioner:
    return captioner()


def models(template: Path) -> list[tuple[str, bytes]]:
    kinds = ("ckpt", "safetensors")
    return [*built(lambda folder: [checkpoint.save(model(), folder / f"m.{s}") for s in kinds]).items()]


def use_model(path: Path, number: int) -> None:
    state, expected = checkpoint.load(path).state_dict(), model().state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in state.items())


def states(template: Path) -> list[tuple[str, bytes]]:
    state = {"a.weight": torch.ones(4, 3), "a.bias": torch.zeros(4)}
    file, old = io.BytesIO(), io.BytesIO()
    torch.save(state, file)
    torch.save(state, old, _use_new_zipfile_serialization=False)
    tensors = safetensors.torch.save(state)
    return [("s.pth", file.getvalue()), ("s.old.pth", old.getvalue()), ("s.safetensors", tensors)]


def use_state(path: Path, number: int) -> None:
    assert all(isinstance(tensor, torch.Tensor) for tensor in read_state(path).values())


REGIONS = {"view.0": np.arange(3 * 4 * 5, dtype=np.float16).reshape(3, 4, 5)}
STORED = [name for name, _ in PAIRS[:3]]


def stores(template: Path) -> list[tuple[str, bytes]]:
    def write(folder: Path) -> None:
        writer = FeatureWriter(folder, Header({"encoder": "x"}, [(2, 2)]))
        writer.add(STORED, [PhotoFile(40, 30, number) for number in range(3)], REGIONS)
        writer.flush()

    name = "features-00000.safetensors"
    return [(name, built(write)[name])]


def use_store(path: Path, number: int) -> None:
    store = FeatureStore(path.parent)
    (views,) = store.read_many(STORED)
    assert store.ids == STORED
    assert np.array_equal(views.vectors.numpy(), REGIONS["view.0"])


VECTORS = "".join(f"{word} 0.5 -1e-3\n" for word in ("a", "cat", "dog", "sits"))


def use_vectors(path: Path, number: int) -> None:
    table = WordVectors(2, str(path))
    table.build(len(model().vocabulary), PAD)
    assert table.load(model().vocabulary) >= 1


# -- models of other codebases, shards ------------------------------------------------------------------------


def files_of(template: Path, *patterns: str) -> list[tuple[str, bytes]]:
    """By their last names."""
    paths = [path for pattern in patterns for path in sorted((template / "here").glob(pattern))]
    return [(path.name, path.read_bytes()) for path in paths]


def imported(template: Path) -> list[tuple[str, bytes]]:
    """The files of a model of each codebase."""
    names = ("model.npz", "options.json", "words.txt", "decoder.pth", "map.json", "encoder.yaml")
    files = files_of(template, *names)
    return [*files, ("options.yaml", yaml.safe_dump(json.loads(dict(files)["options.json"])).encode())]


def shards(template: Path) -> list[tuple[str, bytes]]:
    return files_of(template, "shards/*.tar", "shards/*.json")


def use_imported(path: Path, number: int) -> None:
    folder = path.parent
    if path.name == "encoder.yaml":
        encoder_and_transform({}, str(path))
    elif path.name in ("decoder.pth", "map.json"):
        sgrvinod.read(str(folder / "decoder.pth"), str(folder / "map.json"))
    else:
        options = path if path.name == "options.yaml" else folder / "options.json"
        arctic.read(str(folder / "model.npz"), str(options), str(folder / "words.txt"))


def use_shards(path: Path, number: int) -> None:
    index = ShardIndex.read(str(path.parent))
    index.vocabulary(1, "ptb")
    # One that promises more than there is, is named as missing.
    for shard in (shard for shard in index.shards if shard.samples <= 100):
        samples = list(stream.read_range(index, stream.ShardRange(shard, 0, shard.samples)))
        assert len(samples) == shard.samples
        for sample in samples:
            with contextlib.suppress(UserError):
                image, data = stream.unpack(sample)
                assert image.captions
                Image.open(io.BytesIO(data)).load()  # its checksum is right


FILES = {
    "photos": File(images, use_image, NUMBERS, 300, 10),
    "captions": File(captions, use_captions, TOKENS, 100, 10),
    "boxes": File(lambda _: [("boxes.json", json.dumps(BOXES, indent=1).encode())], use_boxes, TOKENS, 30, 2),
    "models": File(models, use_model, NUMBERS, 50, 6),
    "weights": File(states, use_state, NUMBERS, 40, 3),
    "stores": File(stores, use_store, NUMBERS, 40, 3),
    "vectors": File(lambda _: [("v.txt", VECTORS.encode())], use_vectors, TOKENS, 20),
    "imported": File(imported, use_imported, [*TOKENS, *NUMBERS], 60, 3, is_set=True),
    "shards": File(shards, use_shards, [*TOKENS, *NUMBERS], 40, 3, is_set=True),
}


@pytest.mark.parametrize("kind", FILES)
def test_every_file_is_answered_or_refused(kind: str, template: Path):
    file, numbers = FILES[kind], Counter[str]()
    count = MANY * file.share // sum(other.share for other in FILES.values()) if MANY else file.count
    sound = file.sound(template)

    def run(name: str, content: bytes, number: int) -> None:
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about oddities of files that it can decode
            path = Path(place).resolve() / name
            for other, whole in sound if file.is_set else ():
                path.with_name(other).write_bytes(whole)
            path.write_bytes(content)
            with measured(numbers):
                file.use(path, number)

    for name, content in sound:  # also imports whatever is needed
        run(name, content, 0)

    @settings(
        max_examples=count,
        phases=(Phase.generate, *[Phase.shrink] * (not MANY)),
        derandomize=not MANY,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(st.integers(0, 10_000), st.integers(0, 10**6), edits(file.tokens))
    def mutants(which: int, number: int, changes: list[Edit]) -> None:
        name, content = sound[which % len(sound)]
        run(name, mutated(content, changes), number)

    mutants()
    print(kind, dict(numbers))
