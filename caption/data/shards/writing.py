"""Writing shards: the training split in a shuffled order, and the other splits as files beside them."""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from caption.data.readers.captions import CaptionedImage, Splits
from caption.data.shards.index import INDEX, Shard, ShardIndex, check_webdataset
from caption.errors import DataError
from caption.runtime.files import replacing
from caption.runtime.inputs import PHOTO, read_input
from caption.runtime.progress import progress_bar
from caption.text.tokenizer import get_tokenizer

EVALUATION, IMAGES = "evaluation.jsonl", "evaluation"


def write_shards(
    splits: Splits, folder: Path, samples_per_shard: int = 1000, tokenizer: str = "ptb", seed: int = 0
) -> ShardIndex:
    """Write the training split as shards, the other splits as files, and the index.

    The files of images are copied, not decoded. The order of the samples is shuffled once, so that a shard is not of
    one kind. A stopped run goes on where it was: a shard's name has a digest of what belongs in it, and a shard is
    renamed to it when it is whole.

    Args:
        splits: from a reader.
        folder: made if it does not exist.
        samples_per_shard: number of samples of all shards but the last.
        tokenizer: splits captions into the words that the vocabulary counts.
        seed: of the order.

    Raises:
        DataError: there is no training split, or the folder cannot be written.
        UserError: the extra webdataset is not installed.
    """
    if "train" not in splits:
        raise DataError("the data has no training split to write as shards")
    images = splits["train"]
    order = np.random.default_rng(seed).permutation(len(images))
    groups = [
        [images[i] for i in order[start : start + samples_per_shard]]
        for start in range(0, len(images), samples_per_shard)
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with progress_bar("writing", len(images)) as advance:
            shards = [_shard(folder, number, group, advance) for number, group in enumerate(groups)]
        _write_evaluation(splits, folder)
        tokenize = get_tokenizer(tokenizer)
        words = Counter(word for image in images for text in image.captions for word in tokenize(text))
        index = ShardIndex(tuple(shards), tokenizer, words, str(folder / INDEX))
        with replacing(folder / INDEX) as file:
            file.write(index.to_json().encode())
    except OSError as error:
        raise DataError(f"shards cannot be written to '{folder}': {error}") from error
    return index


def _shard(
    folder: Path, number: int, images: Sequence[CaptionedImage], advance: Callable[[int], None]
) -> Shard:
    described = [_description(image) for image in images]
    digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:12]
    path = folder / f"train-{number:06d}-{digest}.tar"
    if not path.exists():
        partial = path.with_suffix(".partial")
        _write_tar(partial, number, images)
        partial.replace(path)
    advance(len(images))
    return Shard(path.name, len(images))


def _description(image: CaptionedImage) -> dict[str, Any]:
    """What decides the content of a sample, without reading the image."""
    status = image.path.stat()
    return {"id": image.id, "captions": image.captions, "size": status.st_size, "time": status.st_mtime_ns}


def _write_tar(path: Path, number: int, images: Sequence[CaptionedImage]) -> None:
    check_webdataset()
    from webdataset import TarWriter

    with path.open("wb") as file, TarWriter(file, encoder=False, mtime=0) as writer:
        for place, image in enumerate(images):
            data = read_input(image.path, PHOTO)
            described = {"id": image.id, "captions": image.captions, "crc32": zlib.crc32(data)}
            suffix = image.path.suffix[1:].lower() or "image"
            key = f"{number:06d}{place:06d}"
            writer.write({"__key__": key, suffix: data, "json": json.dumps(described).encode()})


def _write_evaluation(splits: Splits, folder: Path) -> None:
    """Copy the other splits, for `caption.data.readers.JsonLines`."""
    (folder / IMAGES).mkdir(exist_ok=True)
    lines = []
    for split, images in splits.items():
        for number, image in enumerate(images) if split != "train" else ():
            name = f"{split}_{number:06d}{image.path.suffix.lower()}"
            target = folder / IMAGES / name
            if not target.exists() or target.stat().st_size != image.path.stat().st_size:
                partial = target.with_name(f"{name}.partial")
                shutil.copyfile(image.path, partial)
                partial.replace(target)
            entry = {"image_id": image.id, "image": name, "captions": image.captions, "split": split}
            lines.append(json.dumps(entry) + "\n")
    with replacing(folder / EVALUATION) as file:
        file.write("".join(lines).encode())
