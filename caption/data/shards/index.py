"""The index of a set of shards: their names and numbers of samples, and the words of the captions."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from caption.core.errors import DataError, UserError
from caption.core.runtime.inputs import STREAM, TEXT, open_input, read_stream
from caption.data.text_files import field, object_list, parsed, user_path
from caption.text.vocabulary import Vocabulary

INDEX = "shards.json"
MOST_SAMPLES = 1_000_000
"""The limit of a shard, many times the samples of any real one."""


@dataclass
class TrainingShards:
    """The shards that training samples come from, instead of the reader.

    Args:
        url: the folder that `caption shards` has written, or the URL of its shards.json: of any kind that
            webdataset opens (http, s3, gs, "pipe:COMMAND", ...). The shards are beside it.
        shuffle_buffer: number of encoded samples that each worker holds in memory and draws the next one from. The
            order of the shards is always shuffled, too.
        max_damaged: the share of an epoch's samples, 0 to 1, that may be damaged. Damaged samples are named and
            skipped; training stops when there are more.
    """

    url: str
    shuffle_buffer: int = 1000
    max_damaged: float = 0.001

    def __post_init__(self) -> None:
        if self.shuffle_buffer < 1 or not 0 <= self.max_damaged <= 1:
            raise DataError(
                f"data.shards needs a shuffle_buffer of 1 or more and max_damaged from 0 to 1, not "
                f"{self.shuffle_buffer} and {self.max_damaged}"
            )


@dataclass(frozen=True)
class Shard:
    """One tar file of samples.

    Raises:
        DataError: the name is not that of a file beside the index, or the number of samples is out of range. The index
            may come from a stranger, and webdataset runs commands in URLs.
    """

    name: str
    samples: int

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]*", self.name, re.ASCII):
            raise DataError(
                f"{self.name[:100]!r} is not the name of a shard: use letters, digits, '_', '-' and '.' only"
            )
        if self.samples is True or not 1 <= self.samples <= MOST_SAMPLES:
            raise DataError(
                f"the shard {self.name} cannot have {self.samples} samples: from 1 to {MOST_SAMPLES:,}"
            )


@dataclass(frozen=True)
class ShardIndex:
    """The content of shards.json."""

    shards: tuple[Shard, ...]
    tokenizer: str
    """Name of the tokenizer that split the captions into `words`."""
    words: Counter[str]
    """How often each word occurs in the captions."""
    location: str = INDEX
    """The URL that it was read from."""

    @property
    def samples(self) -> int:
        """The number of samples in all shards."""
        return sum(shard.samples for shard in self.shards)

    def url(self, shard: Shard) -> str:
        """The URL of a shard, beside the index."""
        before, _, after = self.location.rpartition(INDEX)
        return f"{before}{shard.name}{after}"

    def vocabulary(self, min_count: int, tokenizer: str, max_size: int | None = None) -> Vocabulary:
        """The words that occur at least `min_count` times, at most `max_size` of them.

        Raises:
            DataError: the words were counted with another tokenizer.
        """
        if tokenizer != self.tokenizer:
            raise DataError(
                f"the words of '{self.location}' were counted with the tokenizer '{self.tokenizer}', and "
                f"data.tokenizer is '{tokenizer}': use the same, or make the shards again"
            )
        return Vocabulary.from_counts(self.words, min_count, tokenizer, max_size)

    @classmethod
    def read(cls, url: str) -> ShardIndex:
        """The index of a folder or URL.

        Raises:
            UserError: the index cannot be read or is damaged, or a URL needs the extra webdataset.
        """
        location = url if INDEX in url else f"{url.rstrip('/')}/{INDEX}"
        where = f"'{location}'"
        try:
            with open_url(location) as stream:
                text = read_stream(stream, where, TEXT).decode("utf-8")
        except (OSError, ValueError, DataError) as error:
            raise DataError(
                f"{where} cannot be read ({error}): give the folder or URL that `caption shards` has written"
            ) from error
        data = parsed(text, where)
        try:
            shards = tuple(
                Shard(field(entry, "name", str, where), field(entry, "samples", int, where))
                for entry in object_list(data, "shards", where)
            )
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        words = field(data, "words", dict, where)
        if not all(type(count) is int for count in words.values()):
            raise DataError(f"{where} has counts of words that are not whole numbers: make it again")
        return cls(shards, field(data, "tokenizer", str, where), Counter(words), location)

    def to_json(self) -> str:
        """The text of shards.json."""
        shards = [{"name": shard.name, "samples": shard.samples} for shard in self.shards]
        content = {"format": 1, "shards": shards, "tokenizer": self.tokenizer, "words": self.words}
        return json.dumps(content, ensure_ascii=False) + "\n"


def open_url(url: str) -> Any:
    """A binary stream of anything that webdataset opens.

    Raises:
        UserError: a path cannot be opened, or a URL needs the extra webdataset.
        OSError, ValueError: the URL cannot be opened.
    """
    if not re.match(r"(?!file:)\w+:", url):
        return open_input(user_path(url.removeprefix("file:")), STREAM)
    check_webdataset()
    from webdataset.gopen import gopen

    return gopen(url)


def check_webdataset() -> None:
    """Raise a UserError if the extra webdataset is not installed."""
    if find_spec("webdataset") is None:
        raise UserError("shards need the package webdataset: pip install 'show-attend-and-tell[webdataset]'")
