"""The image files behind a feature store: read together with what the index says of them, and compared with it.

A photo may be replaced under its name. Its stored regions are then of another picture than the one that a figure
would show; the digest of the file's bytes tells. It stays the same when files are copied or their dates change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch import Tensor

from caption.data.images import ImageTransform, open_image
from caption.data.readers.captions import CaptionedImage
from caption.errors import ImageError
from caption.features.index import Photo
from caption.features.store import FeatureStore


def read_photo(path: Path, transform: ImageTransform) -> tuple[Tensor, Photo]:
    """The pixels of an image file (3, H, W) uint8, and what the index is to say of it.

    Raises:
        ImageError: the file cannot be read or decoded.
    """
    # Digested first: of a file that is being replaced meanwhile, the index has the old digest, and it is noticed.
    digest = photo_digest(path)
    image = open_image(path)
    if digest is None:
        raise ImageError(f"'{path}' changed while it was read. Wait until it is whole, and try again.")
    return transform(image), Photo(*image.size, digest)


def photo_digest(path: Path) -> int | None:
    """BLAKE2b of a file's bytes, 64 bits; None where it cannot be read."""
    try:
        if not path.is_file():  # reading from a pipe might never end
            return None
        data = path.read_bytes()
    except (OSError, ValueError):  # ValueError: a null character in the name
        return None
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def changed_photos(
    store: FeatureStore, images: Sequence[CaptionedImage], workers: int, advance: Callable[[int], None]
) -> list[CaptionedImage]:
    """Those of the images whose file is not the one that their regions in the store were computed from.

    Args:
        store: has all these images, and knows the files.
        images: to compare; their files are read.
        workers: threads that read.
        advance: is called with the number of images just compared.
    """
    changed = []
    with ThreadPoolExecutor(workers) as readers:
        try:
            for image, digest in zip(
                images, readers.map(photo_digest, (image.path for image in images)), strict=True
            ):
                stored = store.photo(image.id)
                if stored is None or stored.digest != digest:
                    changed.append(image)
                advance(1)
        finally:
            readers.shutdown(cancel_futures=True)
    return changed
