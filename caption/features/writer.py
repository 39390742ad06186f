"""Making a feature store, or adding to one: what is there already, what has changed, what is to be extracted."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from caption.data.images import ImageTransform
from caption.data.readers.captions import CaptionedImage
from caption.encoders.base import Encoder
from caption.errors import DataError, first_few
from caption.eval_mode import eval_mode
from caption.features.extractor import Extraction, Extractor
from caption.features.files import HEADER_FILE, Header
from caption.features.journal import FeatureJournal, locked
from caption.features.key import feature_key
from caption.features.photos import changed_photos
from caption.features.repair import drop, drop_damaged
from caption.features.store import FeatureStore
from caption.progress import progress_bar


@torch.no_grad()
def write_features(
    encoder: Encoder,
    transform: ImageTransform,
    images: Sequence[CaptionedImage],
    folder: str | os.PathLike[str],
    batch_size: int = 32,
    workers: int | None = None,
    device: str | torch.device = "cpu",
    progress: bool = True,
    verify: bool = False,
) -> Extraction:
    """Store the regions of all images that are not in the store yet.

    It may be killed at any moment; called again, it goes on where it was. The encoder is moved to `device`
    and runs in evaluation mode. Batches always have `batch_size` images, blank ones if need be: with the same
    batch size, an interrupted and an uninterrupted run give the same numbers to the last bit.

    Args:
        encoder: with its weights loaded.
        transform: makes pixels of an image.
        images: of all splits; one that is listed several times is stored once.
        folder: made where it does not exist.
        batch_size: images encoded at once.
        workers: threads that decode images; None = one per processor, 16 at most.
        device: where to encode.
        progress: whether to write the size of the store and a progress bar to stderr.
        verify: first compare what is stored with its checksums; extract anew what is damaged, and images whose file
            is no longer the one that was stored.

    Raises:
        DataError: the folder holds a store made with something else, or a damaged one, or one of images that have
            changed (the latter two without `verify`); two images have one id; the disk has too little room;
            another run is writing there; regions are not finite numbers in half precision.
    """
    target = _folder(folder)
    wanted = _distinct(images)
    workers = workers or min(16, os.cpu_count() or 1)
    done = Extraction()
    changed: list[CaptionedImage] = []
    with locked(target), eval_mode(encoder.to(device)):
        if (target / HEADER_FILE).exists():
            done.dropped = drop_damaged(target) if verify else 0
            store = FeatureStore(target)
            store.matches(encoder, transform)
            header = Header.load(target)
            changed = _changed(store, wanted, workers, progress)
            if changed and not verify:
                raise DataError(_changes(target, changed))
            kept = {image.id for image in wanted if image.id in store} - {image.id for image in changed}
            done.present, done.changed = len(kept), len(changed)
            wanted = [image for image in wanted if image.id not in kept]
        else:
            header = _header(encoder, transform, device)
        _check_room(target, header, len(wanted), progress)
        if changed:
            drop(target, [image.id for image in changed])
        with FeatureJournal(target, header) as journal, _bar(progress, wanted, done.present) as advance:
            extractor = Extractor(encoder, transform, device, batch_size, journal)
            extractor.run(wanted, workers, done, advance)
    return done


def _folder(folder: str | os.PathLike[str]) -> Path:
    target = Path(folder).expanduser()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"'{target}' cannot be made into a folder: {error.strerror}. Choose another."
        ) from None
    if not (target / HEADER_FILE).exists() and any(target.glob("shard-*.f16")):
        raise DataError(
            f"'{target}' holds shards of features, but no {HEADER_FILE} that says what they are: "
            "delete the folder or choose another."
        )
    return target


def _distinct(images: Sequence[CaptionedImage]) -> list[CaptionedImage]:
    """Every image once; features are filed under the id alone, so an id must mean one image."""
    by_id: dict[int | str, CaptionedImage] = {}
    for image in images:
        other = by_id.setdefault(image.id, image)
        if other.path != image.path:
            raise DataError(
                f"'{other.path}' and '{image.path}' have the same id {image.id!r}, under which only one can "
                "be stored: give every image of the data an id of its own."
            )
    return list(by_id.values())


def _changed(
    store: FeatureStore, images: Sequence[CaptionedImage], workers: int, report: bool
) -> list[CaptionedImage]:
    """Those of the images that were stored from another file than the one that is there now."""
    stored = [image for image in images if image.id in store]
    if not store.knows_photos:
        if report and stored:
            print(
                f"'{store.folder}' is of an older format, which does not tell whether photos have changed since. "
                "Made anew, in another folder, it would.",
                file=sys.stderr,
            )
        return []
    with _bar(report, stored, 0, "comparing photos") as advance:
        return changed_photos(store, stored, workers, advance)


def _changes(folder: Path, changed: list[CaptionedImage]) -> str:
    names = first_few([f"'{image.path}'" for image in changed])
    return (
        f"{len(changed)} images are no longer those whose regions are in the feature store '{folder}': {names}. Give "
        "the same command with --verify, which extracts them anew, or name another folder; or put back the photos."
    )


def _header(encoder: Encoder, transform: ImageTransform, device: str | torch.device) -> Header:
    """Header of a new store; a blank image shows what the encoder makes of this transform."""
    blank = torch.zeros(1, 3, transform.height, transform.width, dtype=torch.uint8, device=device)
    vectors, grid = encoder(blank)
    return Header.new(feature_key(encoder, transform), grid, vectors.shape[2])


def _check_room(folder: Path, header: Header, images: int, report: bool) -> None:
    """Say how large the store will be, and raise a DataError if the disk has less room."""
    needed = images * (header.image_bytes + header.entry.itemsize + 32)  # 32: about what an id takes
    free = shutil.disk_usage(folder).free
    rows, cols = header.grid
    size = f"{images:,} images of {rows}×{cols}×{header.region_size} numbers take {_readable(needed)}"
    if needed > free:
        raise DataError(
            f"{size}, but the disk of '{folder}' has {_readable(free)} left: make room, or choose a folder "
            "on another disk, another layer, or a smaller image size."
        )
    if report and images:
        print(f"{size} in '{folder}' ({_readable(free)} free)", file=sys.stderr)


def _readable(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


@contextmanager
def _bar(
    show: bool, images: Sequence[CaptionedImage], present: int, doing: str = "extracting"
) -> Iterator[Callable[[int], None]]:
    """The progress bar, or a function that does nothing where there is nothing to show."""
    if show and images:
        with progress_bar(doing, len(images), present) as advance:
            yield advance
    else:
        yield lambda done: None
