"""Reading samples from shards: the range of one worker of one process in one epoch."""

from __future__ import annotations

import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from caption.core.errors import DataError
from caption.core.runtime.inputs import MEMBER, read_stream
from caption.data.shards.index import Shard, ShardIndex, open_url
from caption.data.splits import CaptionedImage


class Sample(NamedTuple):
    """The files of one sample, not decoded."""

    name: str
    """Its shard and its place there, for messages."""
    files: dict[str, bytes]
    """By suffix: "json" and the image's."""
    error: str | None = None
    """Why it cannot be read, or None."""


class ShardRange(NamedTuple):
    """The samples `first` to `last` - 1 of a shard."""

    shard: Shard
    first: int
    last: int


def share(first: int, last: int, number: int, shares: int) -> tuple[int, int]:
    """The bounds of one of `shares` equal shares of a range; their sizes differ by one at most."""
    length = last - first
    return first + length * number // shares, first + length * (number + 1) // shares


def shard_ranges(shards: Sequence[Shard], first: int, last: int) -> Iterator[ShardRange]:
    """The ranges of the shards that hold the samples `first` to `last` - 1, counted over all shards."""
    start = 0
    for shard in shards:
        begin, end = max(first - start, 0), min(last - start, shard.samples)
        if begin < end:
            yield ShardRange(shard, begin, end)
        start += shard.samples


def read_range(index: ShardIndex, samples: ShardRange) -> Iterator[Sample]:
    """The samples of a range, in order. Unreadable ones have an error, so the number of samples is always right."""
    shard, first, last = samples
    end, error = 0, "the shard ends before it"
    try:
        for number, files in enumerate(_files(index.url(shard))):
            if number >= last:
                break
            if number >= first:
                yield Sample(f"{shard.name}, sample {number}", files)
            end = number + 1
    except Exception as failure:  # webdataset and tarfile raise many kinds
        error = " ".join(str(getattr(failure, "strerror", None) or failure or type(failure).__name__).split())
    for number in range(max(end, first), last):
        yield Sample(f"{shard.name}, sample {number}", {}, error)


def _files(url: str) -> Iterator[dict[str, bytes]]:
    # Not compressed, and without sparse files: a small shard could unpack to any size.
    with closing(open_url(url)) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for _, files in groupby(_members(archive), itemgetter(0)):
            yield {suffix: data for _, suffix, data in files}


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, str, bytes]]:
    """The files of an archive: key, suffix, content."""
    for member in archive:
        archive.members.clear()  # type: ignore[attr-defined]  # otherwise it keeps all members
        name = re.fullmatch(r"((?:.*/)?[^./]+)\.([^/]*)", member.name)
        if name is not None and member.isreg() and (file := archive.extractfile(member)) is not None:
            if member.issparse():
                raise DataError(f"{member.name!r} is a sparse file")
            yield name[1], name[2].lower(), read_stream(file, f"'{member.name}'", MEMBER)


def shuffled(samples: Iterator[Sample], buffer: int, random: np.random.Generator) -> Iterator[Sample]:
    """The samples in a random order; each is drawn from a buffer of `buffer` samples."""
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


def unpack(sample: Sample) -> tuple[CaptionedImage, bytes]:
    """A sample's image with its captions, and the bytes of the image file.

    Raises:
        DataError: the sample is damaged.
    """
    if sample.error is not None:
        raise DataError(sample.error)
    images = [data for suffix, data in sample.files.items() if suffix != "json"]
    if "json" not in sample.files or len(images) != 1:
        raise DataError(f"it holds {sorted(sample.files)}, not a JSON file and an image")
    try:
        entry = json.loads(sample.files["json"])
        image_id, captions, checksum = entry["id"], entry["captions"], entry["crc32"]
        valid = (
            isinstance(image_id, int | str) and captions and all(isinstance(text, str) for text in captions)
        )
    except (ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise DataError("its JSON file has no valid id, captions or crc32")
    if zlib.crc32(images[0]) != checksum:
        raise DataError("the image's bytes are not those that were written")
    return CaptionedImage(image_id, Path(sample.name), tuple(captions)), images[0]
