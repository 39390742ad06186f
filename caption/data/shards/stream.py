"""From shards to samples: what one worker of one process reads in one epoch."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from caption.data.decoding import open_image
from caption.data.readers.captions import CaptionedImage
from caption.data.shards.index import Shard, ShardIndex, open_url
from caption.errors import DataError


class Sample(NamedTuple):
    """The files of one sample, not decoded."""

    name: str
    """For messages: its shard and its place in it."""
    files: dict[str, bytes]
    """By suffix: "json" and the image's."""
    error: str | None = None
    """Why it cannot be read, or None."""


class Part(NamedTuple):
    """The samples `first` to `last` - 1 of a shard."""

    shard: Shard
    first: int
    last: int


def share(first: int, last: int, number: int, of: int) -> tuple[int, int]:
    """The bounds of one of `of` equal shares of a range; their sizes differ by one at most."""
    length = last - first
    return first + length * number // of, first + length * (number + 1) // of


def parts(shards: Sequence[Shard], first: int, last: int) -> Iterator[Part]:
    """The parts of shards that hold the samples `first` to `last` - 1 of their sequence."""
    start = 0
    for shard in shards:
        begin, end = max(first - start, 0), min(last - start, shard.samples)
        if begin < end:
            yield Part(shard, begin, end)
        start += shard.samples


def read_part(index: ShardIndex, part: Part) -> Iterator[Sample]:
    """The samples of a part, in order. Those that cannot be read have an error: the number is right in any case."""
    place, error = 0, "the shard ends before it"
    try:
        for number, files in enumerate(_files(index.url(part.shard))):
            if number >= part.last:
                break
            if number >= part.first:
                yield Sample(f"{part.shard.name}, sample {number}", files)
            place = number + 1
    except Exception as failure:  # webdataset and tarfile raise many kinds
        # webdataset appends the stream to the arguments.
        reason = getattr(failure, "strerror", None) or (failure.args or [type(failure).__name__])[0]
        error = " ".join(str(reason).split())
    for number in range(max(place, part.first), part.last):
        yield Sample(f"{part.shard.name}, sample {number}", {}, error)


def _files(url: str) -> Iterator[dict[str, bytes]]:
    """The samples of a shard, each as files by suffix."""
    from webdataset.tariterators import group_by_keys, tar_file_expander

    with closing(open_url(url)) as stream:
        for sample in group_by_keys(tar_file_expander([{"url": url, "stream": stream}])):
            yield {name: data for name, data in sample.items() if not name.startswith("__")}


def shuffled(samples: Iterator[Sample], buffer: int, random: np.random.Generator) -> Iterator[Sample]:
    """The samples in an order in which each is drawn from the next `buffer` ones."""
    held: list[Sample] = []
    for sample in samples:
        if len(held) < buffer:
            held.append(sample)
            continue
        place = int(random.integers(buffer))
        held[place], sample = sample, held[place]
        yield sample
    for place in random.permutation(len(held)):
        yield held[place]


def decode(sample: Sample) -> tuple[CaptionedImage, Image.Image]:
    """A sample's captions, and its image in RGB.

    Raises:
        UserError: the sample is damaged.
    """
    if sample.error is not None:
        raise DataError(sample.error)
    images = [data for suffix, data in sample.files.items() if suffix != "json"]
    if "json" not in sample.files or len(images) != 1:
        raise DataError(f"it holds {sorted(sample.files)}, not a JSON file and an image")
    described = _described(sample.files["json"])
    if zlib.crc32(images[0]) != described["crc32"]:
        raise DataError("the image's bytes are not those that were written")
    captioned = CaptionedImage(described["id"], Path(sample.name), tuple(described["captions"]))
    try:
        with Image.open(io.BytesIO(images[0])) as image:
            return captioned, open_image(image)
    except Exception as error:  # Pillow raises many kinds
        raise DataError(str(error)) from error


def _described(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
        captions = found["captions"]
        if (
            isinstance(found["id"], int | str)
            and captions
            and all(isinstance(text, str) for text in captions)
        ):
            return {"id": found["id"], "captions": captions, "crc32": found["crc32"]}
    except (ValueError, KeyError, TypeError):
        pass
    raise DataError("its JSON file does not say id, captions and crc32")
