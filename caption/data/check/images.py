"""Does every image decode, and is any picture there twice? All files of a data set, several at a time."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from caption.data.images import open_image
from caption.data.readers.captions import CaptionedImage, Splits
from caption.data.readers.captions_checks import named, real_files
from caption.data.readers.findings import LEAK, MISSING, TWIN, UNDECODABLE, Finding, Findings
from caption.errors import ImageError

CHUNK = 1 << 20
"""Bytes of a file in memory while it is hashed."""
AHEAD = 4
"""Images per thread that wait to be decoded or reported."""


@dataclass(frozen=True)
class Fingerprint:
    """What two copies of a picture have in common."""

    content: bytes
    """Hash of the file."""
    pixels: bytes
    """Hash of width, height and upright RGB pixels: the same for one picture in two lossless encodings."""


@dataclass(frozen=True)
class _File:
    """An image file, with the first place that names it."""

    path: Path
    image: CaptionedImage
    split: str


def fingerprint(path: Path) -> Fingerprint:
    """Read and decode an image file.

    Raises:
        ImageError: see `open_image`.
    """
    image = open_image(path)
    pixels = hashlib.blake2b(repr(image.size).encode(), digest_size=16)
    pixels.update(image.tobytes())
    return Fingerprint(_content(path), pixels.digest())


def _content(path: Path) -> bytes:
    content = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                content.update(chunk)
    except OSError as error:  # gone since it was decoded
        raise ImageError(f"'{path}' cannot be read: {error.strerror}.") from None
    return content.digest()


class ImageCheck:
    """Decodes and compares the images of a data set; those that are known to be missing are passed over.

    Args:
        splits: the images.
        findings: takes what is found; what is missing stands in it.
        workers: threads; None = one per processor, 16 at most.
    """

    def __init__(self, splits: Splits, findings: Findings, workers: int | None = None) -> None:
        self.findings = findings
        self.workers = workers or min(16, os.cpu_count() or 1)
        self.files = _distinct(splits, {path for f in findings.of(MISSING) for path in f.images})
        """Each file once, however often it is named."""
        self.done = 0
        """Files examined so far."""
        self._copies: dict[bytes, list[tuple[_File, Fingerprint]]] = {}

    def run(self, advance: Callable[[int], None]) -> None:
        """Examine all files; may be interrupted, and knows then what it found so far.

        Args:
            advance: called with the number of files just done.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, on oddities of files that it decodes all the same
            for file, outcome in _in_threads(self.files, self.workers):
                if isinstance(outcome, ImageError):
                    text = f"{named(file.image, file.split)}: {outcome}"
                    self.findings.report([Finding(UNDECODABLE, text, (str(file.path),))])
                else:
                    self._copies.setdefault(outcome.pixels, []).append((file, outcome))
                self.done += 1
                advance(1)

    def report_duplicates(self) -> None:
        """Report the pictures that were met in several files: a fault across splits, a note within one."""
        for copies in self._copies.values():
            if len(copies) > 1:
                kind = LEAK if len({file.split for file, _ in copies}) > 1 else TWIN
                same = (
                    "the same file" if len({print.content for _, print in copies}) == 1 else "the same pixels"
                )
                names = " = ".join(named(file.image, file.split) for file, _ in copies)
                paths = tuple(str(file.path) for file, _ in copies)
                self.findings.report([Finding(kind, f"{names}: {same}", paths)])


def _distinct(splits: Splits, missing: set[str]) -> list[_File]:
    files: dict[tuple[str, str], _File] = {}
    for split, images in splits.items():
        for image, identity in zip(images, real_files(image.path for image in images), strict=True):
            if str(image.path) not in missing:
                files.setdefault(identity, _File(image.path, image, split))
    return list(files.values())


Outcome = Fingerprint | ImageError


def _in_threads(files: Sequence[_File], workers: int) -> Iterator[tuple[_File, Outcome]]:
    """Every file with what came of it, in order. Pillow decodes, and hashlib hashes, without the interpreter's lock."""
    waiting: deque[tuple[_File, Future[Outcome]]] = deque()
    with ThreadPoolExecutor(workers) as threads:
        try:
            for file in files:
                waiting.append((file, threads.submit(_outcome, file.path)))
                if len(waiting) > workers * AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
            for first, future in waiting:
                yield first, future.result()
        finally:  # when stopped: what has not begun is not begun
            threads.shutdown(wait=True, cancel_futures=True)


def _outcome(path: Path) -> Outcome:
    try:
        return fingerprint(path)
    except ImageError as error:
        return error
