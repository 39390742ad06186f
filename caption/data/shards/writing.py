"""Writing shards: the training split in a shuffled order, with the other splits as files beside them."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from caption.core.errors import DataError
from caption.core.runtime.atomic_files import OwnFolder, locked
from caption.core.runtime.inputs import PHOTO, read_input
from caption.core.runtime.progress import progress_bar
from caption.data.photos import identified
from caption.data.shards.index import INDEX, Shard, ShardIndex, check_webdataset
from caption.data.splits import CaptionedImage, Splits
from caption.text.tokenizer import get_tokenizer

EVALUATION, IMAGES = "evaluation.jsonl", "evaluation"


def write_shards(
    splits: Splits, folder: Path, samples_per_shard: int = 1000, tokenizer: str = "ptb", seed: int = 0
) -> ShardIndex:
    """Write the training split as shards, the other splits as files, and the index.

    The files of images are copied. Only their headers are decoded, to make sure that they are images: other files may
    not be meant for publishing. The samples are shuffled once, so that a shard has images of all kinds. A stopped run
    can be continued: a shard's name has a digest of its intended content, and the shard gets this name when it is
    complete.

    Args:
        splits: from a reader.
        folder: created if it does not exist.
        samples_per_shard: number of samples of all shards but the last.
        tokenizer: splits captions into the words that the vocabulary counts.
        seed: of the order.

    Raises:
        DataError: there is no training split, or no other one, or a file cannot be read or is not an image.
        UserError: the extra webdataset is not installed; the folder cannot be written, or has files under the names
            needed that this package did not write.
    """
    if "train" not in splits:
        raise DataError("the data has no training split to write as shards")
    if not any(images for split, images in splits.items() if split != "train"):
        raise DataError(
            "the data has training images alone, and training from shards reads other splits beside them: give it "
            "some of the images, such as with data.reader.init_args.fractions {train: 0.9, val: 0.1}"
        )
    images = splits["train"]
    order = np.random.default_rng(seed).permutation(len(images))
    groups = [
        [images[i] for i in order[start : start + samples_per_shard]]
        for start in range(0, len(images), samples_per_shard)
    ]
    check_webdataset()
    with locked(folder, "--out"):
        output = OwnFolder(folder, "--out")
        try:
            shards = [Shard(_name(number, group), len(group)) for number, group in enumerate(groups)]
            copied = _evaluation(splits)
            output.claim([*(shard.name for shard in shards), *copied, EVALUATION, INDEX])
            with progress_bar("writing", len(images)) as advance:
                for number, (shard, group) in enumerate(zip(shards, groups, strict=True)):
                    # An existing shard is kept unread: training finds damaged ones.
                    if not (folder / shard.name).exists():
                        with output.write(shard.name) as file:
                            _write_tar(file, number, group)
                    advance(len(group))
            _write_evaluation(copied, output)
        except OSError as error:
            raise DataError(f"an image cannot be read: {error}") from error
        tokenize = get_tokenizer(tokenizer)
        words = Counter(word for image in images for text in image.captions for word in tokenize(text))
        index = ShardIndex(tuple(shards), tokenizer, words, str(folder / INDEX))
        with output.write(INDEX) as file:
            file.write(index.to_json().encode())
    return index


def _name(number: int, images: Sequence[CaptionedImage]) -> str:
    digest = hashlib.sha256(json.dumps([_description(image) for image in images]).encode()).hexdigest()
    return f"train-{number:06d}-{digest[:12]}.tar"


def _description(image: CaptionedImage) -> dict[str, Any]:
    """The properties that identify the content of a sample without reading the image."""
    status = image.path.stat()
    return {"id": image.id, "captions": image.captions, "size": status.st_size, "time": status.st_mtime_ns}


def _write_tar(file: BinaryIO, number: int, images: Sequence[CaptionedImage]) -> None:
    from webdataset import TarWriter

    with TarWriter(file, encoder=False, mtime=0) as writer:
        for place, image in enumerate(images):
            data = _photo(image.path)
            described = {"id": image.id, "captions": image.captions, "crc32": zlib.crc32(data)}
            suffix = image.path.suffix[1:].lower() or "image"
            key = f"{number:06d}{place:06d}"
            writer.write({"__key__": key, suffix: data, "json": json.dumps(described).encode()})


def _photo(path: Path) -> bytes:
    """The bytes of an image file. Raises a DataError for any other file, which may not be meant for publishing."""
    data = read_input(path, PHOTO)
    if fault := _image_fault(data, path):
        raise DataError(f"'{path}' is not an image: {fault}. `caption check` names all such files.")
    return data


def _image_fault(data: bytes, path: Path) -> str | None:
    """Why these bytes are not an image; None if they are one. Only the header is decoded."""
    if not data:
        return "it is empty"
    try:
        with identified(io.BytesIO(data), path) as image:
            return None if min(image.size) > 0 else "it has no pixels"
    except Exception as error:  # Pillow's decoders raise almost anything
        return f"its header cannot be decoded ({type(error).__name__})"


def _evaluation(splits: Splits) -> dict[str, CaptionedImage]:
    """The images of the other splits by the names of their copies."""
    return {
        f"{IMAGES}/{split}_{number:06d}{image.path.suffix.lower()}": image
        for split, images in splits.items()
        for number, image in enumerate(images if split != "train" else ())
    }


def _write_evaluation(copied: dict[str, CaptionedImage], output: OwnFolder) -> None:
    """Copy the other splits, for `caption.data.readers.JsonLines`."""
    lines = []
    for name, image in copied.items():
        target = output.path / name
        data = _photo(image.path)
        # The data may have changed since an earlier run, and files of two photos may be of equal size.
        if not target.exists() or read_input(target, PHOTO) != data:
            with output.write(name, durable=False) as file:
                file.write(data)
        _, _, file_name = name.partition("/")
        split = file_name.partition("_")[0]
        entry = {"image_id": image.id, "image": file_name, "captions": image.captions, "split": split}
        lines.append(json.dumps(entry) + "\n")
    with output.write(EVALUATION) as file:
        file.write("".join(lines).encode())
