"""What can be wrong with a data set, and the two ways to take it: refuse at the first fault, or collect them all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType

from caption.data.readers.captions import enumerated
from caption.errors import DataError


@dataclass(frozen=True)
class Kind:
    """One way in which data can be wrong, or odd."""

    name: str
    """Of one: "missing image"."""
    plural: str
    remedy: str
    """What to do about it, as a sentence."""
    is_fault: bool = True
    """Whether training on such data would be wrong; otherwise it is worth knowing, a note."""


MALFORMED = Kind("malformed entry", "malformed entries", "Correct or delete what is malformed.")
MISSING = Kind("missing image", "missing images", "Get the files, or take the images out of the captions.")
UNDECODABLE = Kind(
    "undecodable image",
    "undecodable images",
    "Get the files anew, or take the images out of the captions.",
)
EMPTY = Kind("empty caption", "empty captions", "Write what is missing, or delete the entries.")
BARE = Kind(
    "image without captions",
    "images without captions",
    "Add captions, or take the images out of the split.",
)
OVERLAP = Kind(
    "image in two splits",
    "images in two splits",
    "Keep an image in one of them, or the scores are worth nothing.",
)
REPEATED = Kind("image listed twice", "images listed twice", "Keep one entry.")
SAME_ID = Kind("id of two images", "ids of two images", "Give every image of a split an id of its own.")
LEAK = Kind(
    "duplicate across splits",
    "duplicates across splits",
    "Keep the picture in one split, or the scores tell what was remembered.",
)
EMPTY_SPLIT = Kind("empty split", "empty splits", "Give it images, or leave it out.")
NO_TRAINING = Kind("missing training split", "missing training splits", "Name the images to learn from.")
NO_WORDS = Kind("empty vocabulary", "empty vocabularies", "Lower the minimum count, or give more captions.")

LONG = Kind(
    "over-long caption",
    "over-long captions",
    "They cost time and memory; data.max_words cuts them in training.",
    is_fault=False,
)
TWIN = Kind(
    "duplicate within a split",
    "duplicates within a split",
    "Such a picture counts more than others.",
    is_fault=False,
)
NO_EVALUATION = Kind(
    "missing evaluation split",
    "missing evaluation splits",
    "Without val no epoch can be chosen, without test nothing reported.",
    is_fault=False,
)

KINDS = (
    *(MALFORMED, MISSING, UNDECODABLE, EMPTY, BARE, OVERLAP, REPEATED, SAME_ID, LEAK),
    *(EMPTY_SPLIT, NO_TRAINING, NO_WORDS, LONG, TWIN, NO_EVALUATION),
)
"""All kinds, faults first."""


@dataclass(frozen=True)
class Finding:
    """One thing found."""

    kind: Kind
    text: str
    """Names the culprit, by file, line or id, and what there is to say about it."""
    images: tuple[str, ...] = ()
    """The paths of the images concerned, where it is about images."""


class Findings:
    """Collects whatever is found, so that a reader goes on behind a fault."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        """In the order in which they were found."""

    def report(self, findings: Sequence[Finding]) -> None:
        """Take note of `findings`, which are of one kind; none is fine."""
        self.found.extend(findings)

    def skipping(self) -> AbstractContextManager[None]:
        """A context that a DataError leaves quietly, as a finding: around one entry, the others are still read."""
        return _Skipping(self)

    def of(self, kind: Kind) -> list[Finding]:
        """The findings of one kind, in order."""
        return [finding for finding in self.found if finding.kind == kind]

    @property
    def faults(self) -> list[Finding]:
        """What makes training on the data wrong."""
        return [finding for finding in self.found if finding.kind.is_fault]


class _Skipping(AbstractContextManager[None]):
    # A class and not a generator: it is entered once for each of half a million captions.
    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, DataError):
            return False
        self.findings.report([Finding(MALFORMED, str(error))])
        return True


class Refusal(Findings):
    """Refuses data at the first fault, before any training.

    Args:
        source: the caption file or files, for the message.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def report(self, findings: Sequence[Finding]) -> None:
        """Raise a DataError that names the culprits, the first few of them; notes are passed over."""
        faults = [finding for finding in findings if finding.kind.is_fault]
        if faults:
            kind = faults[0].kind
            what = f"1 {kind.name}" if len(faults) == 1 else f"{len(faults)} {kind.plural}"
            where = f" in {self.source}" if self.source else ""
            culprits = enumerated([finding.text for finding in faults])
            raise DataError(f"{what}{where}: {culprits}. {kind.remedy} (`caption check` names all faults.)")

    def skipping(self) -> AbstractContextManager[None]:
        return nullcontext()
