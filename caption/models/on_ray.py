"""Captioning on a Ray cluster: photos in pieces, each piece captioned by one actor and written as one file.

A piece is the unit of work and of restarting. Its file gets its name only when it is complete, whichever process or
machine dies. Ray restarts an actor that has died, and gives it its piece again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from caption.core.errors import ImageError, UserError, first_few, optional_package, reported_as
from caption.core.runtime.atomic_files import creating, file_digest, make_folder
from caption.results.caption import Caption

RAY = "--engine ray", "'show-attend-and-tell[ray]'"
JOB = "job.json"
ATTEMPTS = 4
"""Number of attempts at a piece whose actor dies. A photo that kills its actor must not kill all actors in turn."""


@dataclass(frozen=True)
class Job:
    """Model, output and options, the same for all actors.

    Args:
        model: a checkpoint, at this path on every machine, or the name of an installed model.
        out: folder or URL of the results, which every machine can write to.
        form: "jsonl", lines as `caption describe --format jsonl` prints them; or "parquet", rows of the main columns.
        search: arguments of `caption.search.adjusted`, which changes the model's search.
        device: "cpu" or "cuda"; each actor takes one. "auto" = "cuda" if the cluster has GPUs, otherwise "cpu".
        trust: packages whose classes the checkpoint may name.
    """

    model: str
    out: str
    form: Literal["jsonl", "parquet"] = "jsonl"
    search: dict[str, Any] | None = None
    device: str = "cpu"
    trust: tuple[str, ...] = ()


class Piece(NamedTuple):
    """Photos that are captioned together, and the name of their file."""

    name: str
    photos: list[str]


class Progress(NamedTuple):
    """Counts of one captioned piece, or of all pieces of earlier runs."""

    photos: int
    failed: int
    pieces: int = 1
    name: str = ""


class Actor:
    """A captioner in its own process, which turns pieces into files."""

    def __init__(self, job: Job) -> None:
        from caption.models.model_zoo import load
        from caption.search import adjusted

        self.job = job
        self.captioner = load(job.model, job.device, job.trust)
        if job.search:
            self.captioner.search = adjusted(self.captioner.search, **job.search)

    def caption(self, piece: Piece) -> Progress:
        """Caption the photos of a piece, and write its file."""
        photos = piece.photos
        sources: list[Any] = [RemotePhoto(photo) if "://" in photo else photo for photo in photos]
        captions = self.captioner.describe_each(sources)
        records = [self._record(photo, caption) for photo, caption in zip(photos, captions, strict=True)]
        write_whole(self.job.out, piece.name, encoded(records, self.job.form))
        return Progress(len(photos), sum("error" in record for record in records), 1, piece.name)

    def _record(self, photo: str, caption: Caption | ImageError) -> dict[str, Any]:
        shared = {"image": photo, "model": self.job.model}
        return shared | ({"error": str(caption)} if isinstance(caption, ImageError) else caption.to_dict())


class RemotePhoto:
    """A photo at a URL, used like an open file: the thread that decodes it also fetches it."""

    def __init__(self, url: str) -> None:
        self.name = url

    def read(self) -> bytes:
        """The bytes of the file. Raises an ImageError if it cannot be read."""
        with reported_as(ImageError, f"'{self.name}' cannot be read", OSError, ValueError):
            files, path = filesystem(self.name)
            with files.open_input_stream(path) as stream:
                return stream.read()


def encoded(records: Sequence[dict[str, Any]], form: str) -> bytes:
    """The content of a piece's file."""
    if form == "jsonl":
        return "".join(json.dumps(record) + "\n" for record in records).encode()
    import pyarrow
    from pyarrow import parquet

    text, number = pyarrow.string(), pyarrow.float64()
    schema = pyarrow.schema(
        {
            "image": text,
            "model": text,
            "text": text,
            "log_prob": number,
            "finished": pyarrow.bool_(),
            "words": pyarrow.list_(text),
            "word_log_probs": pyarrow.list_(number),
            "error": text,
        }
    )
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(list(records), schema), sink)
    return sink.getvalue().to_pybytes()


# -- the driver ------------------------------------------------------------------------------------------------


def caption_photos(
    photos: Sequence[str], job: Job, actors: int | None = None, per_piece: int = 1000
) -> Iterator[Progress]:
    """Caption photos on the cluster that this process is connected to, or on this machine.

    Args:
        photos: paths or URLs that every machine can read, in an order that is the same after a restart.
        job: model, output and options.
        actors: number of captioners; None = one for each processor or GPU of the cluster.
        per_piece: photos in a piece.

    Yields:
        the counts of all pieces of earlier runs, then those of each piece when it is complete.

    Raises:
        UserError: Ray is not installed, the folder has the captions of other photos or of another model, or
            captioning failed.
    """
    pieces = in_pieces(photos, job, per_piece)
    present = prepare(job, photos, per_piece)
    pending = [piece for piece in pieces if piece.name not in present]
    yield Progress(len(photos) - sum(len(piece.photos) for piece in pending), 0, len(pieces) - len(pending))
    if pending:
        yield from _run(pending, job, actors)


def _run(pending: list[Piece], job: Job, actors: int | None) -> Iterator[Progress]:
    ray = connected()
    if job.device == "auto":
        job = replace(job, device="cuda" if ray.cluster_resources().get("GPU") else "cpu")
    gpu = job.device.startswith("cuda")
    available = ray.cluster_resources().get("GPU" if gpu else "CPU", 0)
    number = min(actors or int(available), len(pending))
    if number < 1 or number > available:
        raise UserError(
            f"the cluster has {available:g} {'GPUs' if gpu else 'processors'}, too few for {number} captioners: "
            "lower --actors"
        )
    remote = ray.remote(Actor).options(
        max_restarts=-1, max_task_retries=ATTEMPTS - 1, **({"num_gpus": 1} if gpu else {"num_cpus": 1})
    )
    pool = ray.util.ActorPool([remote.remote(job) for _ in range(number)])
    missing = {piece.name: piece.photos[0] for piece in pending}
    try:
        for progress in pool.map_unordered(lambda actor, piece: actor.caption.remote(piece), pending):
            del missing[progress.name]
            yield progress
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        first = first_few(f"{name} (from {photo} on)" for name, photo in missing.items())
        raise UserError(
            f"captioning stopped: {reason[0].rstrip('.')}. Missing are {first}. Files already written are kept; the "
            "same command continues from there"
        ) from error


def connected() -> Any:
    """Ray, connected to the cluster that RAY_ADDRESS names, or started on this machine.

    Raises:
        UserError: Ray is not installed.
    """
    with optional_package(*RAY):
        import ray
        import ray.util
    if not ray.is_initialized():
        # Pieces and counts are small: without a limit, Ray reserves a third of the memory for objects.
        local: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"object_store_memory": 200 * 2**20}
        ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False, **local)
    return ray


def in_pieces(photos: Sequence[str], job: Job, per_piece: int) -> list[Piece]:
    """The pieces, each with the name of its file."""
    return [
        Piece(f"captions-{start // per_piece:06d}.{job.form}", list(photos[start : start + per_piece]))
        for start in range(0, len(photos), per_piece)
    ]


def prepare(job: Job, photos: Sequence[str], per_piece: int) -> set[str]:
    """Create the folder, or check that it belongs to the same job. Returns the names of the files in it.

    Raises:
        UserError: it has the captions of another job, or cannot be written.
    """
    digest = hashlib.sha256("\n".join(photos).encode("utf-8", "surrogateescape")).hexdigest()
    model = Path(os.path.expanduser(job.model))
    model_digest = file_digest(model) if model.is_file() else None  # None for an installed model
    described = asdict(job) | {"photos": digest, "per_piece": per_piece, "model_digest": model_digest}
    for name in ("out", "device", "trust"):  # they do not change the captions
        del described[name]
    files, folder = filesystem(job.out)
    try:
        if files.type_name == "local":
            make_folder(Path(folder), "--out")
        else:
            files.create_dir(folder, recursive=True)
        from pyarrow.fs import FileSelector

        present = {file.base_name for file in files.get_file_info(FileSelector(folder))}
        if JOB in present:
            with files.open_input_stream(f"{folder}/{JOB}") as stream:
                earlier = json.loads(stream.read())
            if not isinstance(earlier, dict):
                raise ValueError(f"{JOB} is not of this package")
            changed = [name for name in described if described[name] != earlier.get(name)]
            if changed:
                raise UserError(
                    f"'{job.out}' has captions of a job with another {' and '.join(changed)}: choose another folder"
                )
        elif present:
            raise UserError(f"'{job.out}' has other files: choose another folder")
        else:
            write_whole(job.out, JOB, json.dumps(described, indent=1).encode())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"captions cannot be written to '{job.out}': {error}") from error
    return present


# -- files here and in buckets ---------------------------------------------------------------------------------


def filesystem(place: str) -> tuple[Any, str]:
    """pyarrow's file system of a path or URL, and the path in it."""
    if "://" not in place:
        place = f"file://{Path(os.path.expanduser(place)).absolute()}"
    scheme, _, address = place.partition("://")
    host, _, _ = address.partition("/")
    files, base = _filesystem(f"{scheme}://{host}")
    return files, f"{base}{address[len(host) :]}".rstrip("/")


@cache
def _filesystem(root: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem, LocalFileSystem

    return (LocalFileSystem(), "") if root == "file://" else FileSystem.from_uri(root)


def write_whole(place: str, name: str, content: bytes) -> None:
    """Write a new file, which gets its name only when it is complete. In a local folder, an existing file is kept."""
    files, folder = filesystem(place)
    if files.type_name == "local":
        if not os.path.lexists(f"{folder}/{name}"):  # an earlier attempt may have written it
            with creating(f"{folder}/{name}") as file:
                file.write(content)
        return
    partial = f"{folder}/.{name}.{os.getpid()}.partial"
    with files.open_output_stream(partial) as stream:
        stream.write(content)
    files.move(partial, f"{folder}/{name}")


def list_photos(place: str, suffixes: frozenset[str]) -> list[str]:
    """The photos under a folder or the URL of one, in its subfolders too, sorted.

    Raises:
        UserError: it cannot be listed.
    """
    from pyarrow.fs import FileSelector

    files, folder = filesystem(place)
    with reported_as(UserError, f"'{place}' cannot be listed", OSError, ValueError):
        listed = files.get_file_info(FileSelector(folder, recursive=True))
    inside = (file.path[len(folder) :] for file in listed if file.is_file)
    return sorted(
        f"{place.rstrip('/')}{name}" for name in inside if os.path.splitext(name)[1].lower() in suffixes
    )
