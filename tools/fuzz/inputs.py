"""Inputs of the fuzzer: sound files of every kind, and their mutation by a seeded generator."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from PIL import Image

TOKENS = [
    *(
        b'"',
        b"'",
        b",",
        b";",
        b"\t",
        b"\r",
        b"\n",
        b"\r\n",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xe2\x80\xa8",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"#0\t",
        b"\\ud800",
        b"\\u0000",
        b'""',
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
    ),
    *(b"1e300", b"-1", b"0", b"1.5", b"9" * 5000, b"[" * 5000, b'{"a":' * 3000, b"x" * 300, b"x" * 140_000),
    *(b"<!a" * 9000, b"../", b"/dev/zero", b"~x/", b"a\0b", b'"image":"a"', b'"caption":5', b'"id":[1],'),
    *(
        b"!!int x",
        b"!!timestamp x",
        b"!!binary x",
        b"2001-99-99",
        b"&a [",
        b"*a",
        b"<<: *a",
        b"? ",
        b"- ",
        b"|\n",
    ),
    b"&a [*a]",
    b"a: &a [1,2,3,4,5,6,7,8,9]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n",
]
"""Pieces of text that have meant trouble somewhere."""
NUMBERS = [bytes([value]) * width for width in (1, 2, 4) for value in (0, 1, 0x7F, 0x80, 0xFF)]
"""Values that have meant trouble in binary fields."""


class Input(NamedTuple):
    """One file."""

    suffix: str
    content: bytes


def mutated(content: bytes, random: random.Random, tokens: Sequence[bytes], times: int = 4) -> bytes:
    """`content` after one to `times` changes: bits, bytes, blocks, tokens, lost and repeated parts."""
    data = bytearray(content)
    for _ in range(random.randint(1, times)):
        place = random.randrange(len(data) + 1)
        # Beginnings hold sizes and types; half of all changes are there.
        if random.random() < 0.5:
            place = min(place, random.randrange(200))
        length = random.choice((1, 1, 2, 4, 16, 100))
        match random.randrange(7):
            case 0 if place < len(data):
                data[place] ^= 1 << random.randrange(8)
            case 1:
                data[place : place + length] = random.randbytes(length)
            case 2:
                data[place : place + length] = b""
            case 3:
                data[place:place] = random.choice(tokens)
            case 4:
                value = random.choice(tokens)
                data[place : place + len(value)] = value
            case 5:
                data[place:place] = data[place : place + 4 * length] * random.choice((1, 2, 50))
            case 6 if random.random() < 0.3:
                del data[place:]
    return bytes(data)


# -- images ----------------------------------------------------------------------------------------------------

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F", "I;16")


@cache
def images() -> list[Input]:
    """A small picture in every format and mode that Pillow writes."""
    Image.init()
    found = []
    picture = Image.radial_gradient("L").resize((37, 23))
    for kind in sorted(Image.SAVE):
        for mode in MODES:
            file = io.BytesIO()
            try:
                picture.convert(mode).save(file, kind)
            except Exception:  # Pillow's writers refuse modes in many ways, and some need other programs
                continue
            found.append(Input(f".{kind.lower()}", file.getvalue()))
    return found


# -- text ------------------------------------------------------------------------------------------------------

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
JSON = [
    Input(".json", json.dumps(each, indent=1).encode()) for each in (COCO, KARPATHY, RESULTS, dict(PAIRS))
]
JSONL = [Input(".jsonl", "\n".join(json.dumps({"image": i, "caption": c}) for i, c in PAIRS).encode())]
CSV = [
    Input(".csv", TABLE.encode()),
    Input(".csv", TABLE.replace('"', "").replace(", ", " ").encode()),
    Input(".txt", "\n".join(f"{name}#0\t{text}" for name, text in PAIRS).encode()),
]
YAML = [
    Input(
        ".yaml", f"model: {{}}\ndata:\n  tokenizer: ptb\n  min_count: 1\n  reader:\n    {reader}\n".encode()
    )
    for reader in (
        "class_path: caption.data.readers.Csv\n    init_args: {file: captions.csv, fractions: {train: 1}}",
        "class_path: caption.data.readers.Coco\n    init_args: &a {captions: {train: x}, images: {train: x}}",
        "caption.data.readers.Karpathy",
    )
]
