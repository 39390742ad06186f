"""Finding a data set among what was downloaded, and comparing it with what it is known to hold.

A tool in `tools/` knows one data set. It says in a `Plan` what goes where; `caption.data.prepare.layout` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from caption.data.prepare.sources import Member, Source
from caption.data.readers.captions import enumerated
from caption.errors import DataError


@dataclass
class Plan:
    """What goes where in the folder of the data set. Keys are paths below it, with slashes."""

    images: dict[str, Member] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    summary: list[str] = field(default_factory=list)
    """What was found, in words."""


class Faults:
    """What is wrong with a download, collected so that all of it is said at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def count(self, what: str, found: int, expected: int) -> None:
        """A number that is known for the data set."""
        if found != expected:
            self.found.append(
                f"{found:,} {what} instead of {expected:,}: something is missing, or it is another edition"
            )

    def absent(self, names: Iterable[str], of: str, where: str) -> None:
        """Names that should be somewhere and are not."""
        missing = sorted(names)
        if missing:
            self.found.append(f"{len(missing):,} {of} not {where}: {enumerated(missing)}")

    def check(self) -> None:
        """Raise a DataError that has all of them, if there are any."""
        if self.found:
            raise DataError(
                "the download is not as it should be:\n" + "\n".join(f"  - {fault}" for fault in self.found)
            )


def find(sources: Sequence[Source], *names: str) -> Member | None:
    """The first file with one of these names, in the order of the names.

    Raises:
        DataError: there are two that differ.
    """
    for name in names:
        found = [member for source in sources for member in source.members if member.name == name]
        if found:
            _one_content(found)
            return found[0]
    return None


def required(sources: Sequence[Source], *names: str, where: str) -> Member:
    """As `find`, for what must be there.

    Raises:
        DataError: there is none, or two that differ; `where` says how to get it.
    """
    found = find(sources, *names)
    if found is None:
        raise DataError(f"{' or '.join(names)} is not among what was given. {where}")
    return found


def _one_content(found: list[Member]) -> None:
    if len({member.size for member in found}) > 1 or len({member.read() for member in found[:2]}) > 1:
        raise DataError(f"{found[0]} and {found[1]} are not the same: give one of them.")


def photos(sources: Sequence[Source], prefix: str = "") -> dict[str, Member]:
    """All JPEG files whose name begins so, by name. One that comes twice, as in some archives, counts once.

    Raises:
        DataError: two of one name differ in size.
    """
    by_name: dict[str, Member] = {}
    for source in sources:
        for member in source.members:
            if member.name.lower().endswith((".jpg", ".jpeg")) and member.name.startswith(prefix):
                other = by_name.setdefault(member.name, member)
                if other.size != member.size:
                    raise DataError(f"{other} and {member} are not the same: give one of them.")
    return by_name


def tokens(captions: Mapping[str, Sequence[str]]) -> bytes:
    """Captions by file name in the format of Flickr8k.token.txt."""
    lines = (
        f"{name}#{number}\t{' '.join(text.split())}\n"
        for name, texts in captions.items()
        for number, text in enumerate(texts)
    )
    return "".join(lines).encode()


def read_tokens(member: Member) -> dict[str, list[str]]:
    """Captions by file name, of a file in the format of Flickr8k.token.txt.

    Raises:
        DataError: a line is of another form.
    """
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(member.text().split("\n"), start=1):
        name, mark, rest = line.strip().partition("#")
        index, tab, text = rest.partition("\t")
        if mark and tab and index.strip().isdigit():
            captions.setdefault(name, []).append(text.strip())
        elif line.strip():
            raise DataError(f"line {number} of {member} is {line[:60]!r}, not NAME.jpg#0<TAB>a caption.")
    return captions


def karpathy_splits(member: Member) -> dict[str, list[str]]:
    """Names of the images in each split of one of Karpathy's `dataset_*.json`; COCO's with their folder.

    Raises:
        DataError: it is no such file.
    """
    data = member.json()
    splits: dict[str, list[str]] = {}
    try:
        for image in data["images"]:
            name = "/".join(part for part in (image.get("filepath"), image["filename"]) if part)
            splits.setdefault(image["split"], []).append(name)
    except (KeyError, TypeError, AttributeError):
        raise DataError(
            f"{member} has no list of images with filename and split. Is it Karpathy's?"
        ) from None
    return splits
