"""The faults and oddities of data: `caption check` lists all of them, training refuses the first kind of fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType

from caption.core.errors import DataError, first_few, number_of

NOTE = False


class Kind(Enum):
    """A kind of fault or note: its name, its plural, a remedy, and whether it spoils training or its scores."""

    # fmt: off
    MALFORMED = "malformed entry", "malformed entries", "Correct or delete these entries."
    MISSING = ("missing image", "missing images", "Get the files, name their folder (--images, or images in a "
               "configuration), or take the images out of the captions.")
    UNDECODABLE = "undecodable image", "undecodable images", "Get the files again, or take the images out."
    EMPTY = "empty caption", "empty captions", "Write the captions, or delete the entries."
    UNCAPTIONED = "image without captions", "images without captions", "Add captions, or take the images out."
    OVERLAP = "image in two splits", "images in two splits", "Keep it in one: otherwise the scores mean nothing."
    REPEATED = "image listed twice", "images listed twice", "Keep one entry."
    SAME_ID = "id of two images", "ids of two images", "Give every image of a split its own id."
    LEAKAGE = ("duplicate across splits", "duplicates across splits",
               "Keep one: otherwise the scores reward memorisation.")
    EMPTY_SPLIT = "empty split", "empty splits", "Give it images, another fraction with --splits, or leave it out."
    NO_TRAINING = "missing training split", "missing training splits", "Name the training images."
    NO_WORDS = "empty vocabulary", "empty vocabularies", "Lower the minimum count, or add captions."

    LONG = ("over-long caption", "over-long captions", "They cost time and memory; data.max_words cuts them.",
            NOTE)
    LINES = ("caption of several lines", "captions of several lines",
             "A line end counts as a space. In CSV, is a quote left open?", NOTE)
    ENCODING = ("caption in a wrong encoding", "captions in a wrong encoding",
                "UTF-8 was read as Latin-1, so that 'ç' became 'Ã§': write the file again from its source.", NOTE)
    MARKUP = ("caption with markup", "captions with markup",
              "Its parts become words: replace tags such as <br> and a written \\n by spaces.", NOTE)
    DOTTED = ("caption with a Turkish İ", "captions with a Turkish İ", "English rules make it i with a dot above, "
              "another letter than i: write the captions in lower case.", NOTE)
    REJECTED = ("rejected caption", "rejected captions",
                "VizWiz marks it as unusable, and its own scores leave it out: delete it.", NOTE)
    DUPLICATE = ("duplicate within a split", "duplicates within a split",
                 "Such a picture has more weight than others.", NOTE)
    BLACK = ("black image", "black images",
             "If it has 10 or 12 bits in a file of 16, multiply its values by 64 or 16.", NOTE)
    NO_EVALUATION = ("missing evaluation split", "missing evaluation splits",
                     "Without val no epoch can be chosen; without test there is no final score.", NOTE)
    ALIKE = ("split without a CIDEr", "splits without a CIDEr", "It would be 0 for any captions: training chooses by "
             "NLL instead; give the split more images, with captions of their own.", NOTE)
    UNKNOWN = ("split with many unknown words", "splits with many unknown words",
               "A model cannot say them: lower the minimum count (--min-count), or give more captions.", NOTE)
    NEW_WORDS = ("model that knows few of the words", "models that know few of the words", "It starts from English "
                 "captions of everyday scenes: expect little from a few photos, or train without it.", NOTE)
    # fmt: on

    def __init__(self, label: str, plural: str, remedy: str, is_fault: bool = True) -> None:
        self.label = label
        self.plural = plural
        self.remedy = remedy
        self.is_fault = is_fault

    def counted(self, number: int) -> str:
        """ "1 missing image", "12 missing images"."""
        return number_of(number, self.label, self.plural)


@dataclass(frozen=True)
class Finding:
    """One fault or oddity that was found."""

    kind: Kind
    text: str
    """Names the culprit by file, line or id, and says what is wrong with it."""
    images: tuple[str, ...] = ()
    """The paths of the images concerned, if any."""


class Findings(list[Finding]):
    """All findings, in the order in which they were added.

    As a context, it turns a DataError into a finding, so that a reader goes on with the next entry.
    """

    def add(self, kind: Kind, text: str, *images: str | Path) -> None:
        """Append a finding; for the arguments see `Finding`."""
        self.append(Finding(kind, text, tuple(map(str, images))))

    def of_kind(self, kind: Kind) -> list[Finding]:
        """The findings of one kind, in order."""
        return [finding for finding in self if finding.kind == kind]

    def __enter__(self) -> None:
        pass

    # A class, because a generator is slower: the context is entered for each of half a million captions.
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, DataError):
            self.add(Kind.MALFORMED, str(error))
        return isinstance(error, DataError)

    def refuse(self, source: str = "", of_dataset: bool = True) -> None:
        """Raise a DataError if there is a fault: it names the first few of the first kind. Notes are ignored.

        Args:
            source: the caption file or files, for the message.
            of_dataset: whether `caption check` reads the source; it does not read a model's captions.
        """
        kind = next((finding.kind for finding in self if finding.kind.is_fault), None)
        if kind is None:
            return
        texts = [finding.text for finding in self.of_kind(kind)]
        if kind is Kind.MALFORMED:  # the text says what to do
            names_all = ": `caption check` names all" if of_dataset else ""
            raise DataError(
                texts[0] + (f" ({kind.counted(len(texts))}{names_all}.)" if len(texts) > 1 else "")
            )
        where = f" in {source}" if source else ""
        names_all = " (`caption check` names all faults.)" if of_dataset else ""
        raise DataError(f"{kind.counted(len(texts))}{where}: {first_few(texts)}. {kind.remedy}{names_all}")
