"""The vocabulary: the words of a model and their ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, SupportsInt, overload

from caption.core.errors import HIDDEN, DataError
from caption.text.scripts import has_dropped_signs, unspaced
from caption.text.sense import is_content_word
from caption.text.tokenizer import get_tokenizer

PAD, START, END, UNKNOWN = range(4)
SPECIAL_TOKENS = ("<pad>", "<start>", "<end>", "<unk>")
FORBIDDEN = (PAD, START, UNKNOWN)
"""Words that search must not emit."""
LONGEST_WORD = 1000
SURROGATE = re.compile(r"[\ud800-\udfff]")


class Vocabulary:
    """Words by id and ids by word. Ids 0 to 3 are the special tokens PAD, START, END and UNKNOWN.

    It includes the tokenizer, because ids have no meaning without the rule that splits captions into words.

    Args:
        words: the ordinary words; the first gets id 4.
        tokenizer: name of the tokenizer, see `caption.text.tokenizer`.

    Raises:
        DataError: a word occurs twice, is a special token, or cannot be shown (see `is_usable`).
    """

    def __init__(self, words: Sequence[str], tokenizer: str = "ptb") -> None:
        self.tokenizer = get_tokenizer(tokenizer)
        if (unusable := next((word for word in words if not is_usable(word)), None)) is not None:
            raise DataError(
                f"the vocabulary has the word {unusable[:50]!a}, which cannot be shown: leave it out, or get the file "
                "from another source."
            )
        self.words: tuple[str, ...] = (*SPECIAL_TOKENS, *words)
        """All tokens by id, the special ones first."""
        self._ids = {word: word_id for word_id, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            repeated = next(word for word, count in Counter(self.words).items() if count > 1)
            raise DataError(f"the vocabulary has the word '{repeated}' twice: keep one of them.")

    @classmethod
    def build(
        cls, captions: Iterable[str], min_count: int = 5, tokenizer: str = "ptb", max_size: int | None = None
    ) -> Vocabulary:
        """The words of `captions` in descending order of frequency; equally frequent words in alphabetical order.

        Use only the captions of the training split: a model cannot learn words that occur only in validation or test
        captions.

        Args:
            captions: training captions, not tokenized.
            min_count: rarer words become UNKNOWN. Their captions stay in the training set.
            tokenizer: name of the tokenizer.
            max_size: keep at most this many words, not counting special tokens; None = all.

        Raises:
            DataError: a limit is below 1, no word is left, or the captions have no spaces between words.
        """
        tokenize = get_tokenizer(tokenizer)
        counts = Counter(word for caption in captions for word in tokenize(caption))
        return cls.from_counts(counts, min_count, tokenizer, max_size)

    @classmethod
    def from_counts(
        cls, counts: Counter[str], min_count: int = 5, tokenizer: str = "ptb", max_size: int | None = None
    ) -> Vocabulary:
        """Like `build`, from the number of times that each word occurs in the training captions."""
        if (reason := unspaced(counts)) is not None:
            raise DataError(f"the training captions give no words: {reason}.")
        if min_count < 1 or (max_size is not None and max_size < 1):
            raise DataError(f"min_count {min_count} and max_size {max_size} must be 1 or more.")
        frequent = [
            word
            for word, count in counts.items()
            if count >= min_count and word not in SPECIAL_TOKENS and is_usable(word)
        ]
        if not frequent:
            raise DataError(
                f"none of the {len(counts)} words of the training captions occurs {min_count} times: "
                f"lower min_count or give more captions."
            )
        frequent.sort(key=lambda word: (-counts[word], word))
        return cls(frequent[:max_size], tokenizer)

    @cached_property
    def scored_by(self) -> str:
        """Name of the tokenizer for scoring captions in training: the tokenizer's `scored_by`, or the tokenizer itself
        if the other drops vowel signs of these words."""
        scoring = get_tokenizer(self.tokenizer.scored_by)
        words = self.words[len(SPECIAL_TOKENS) :]
        drops = has_dropped_signs(words) and unspaced(
            Counter(split for word in words for split in scoring(word))
        )
        return self.tokenizer.name if drops else scoring.name

    @cached_property
    def content(self) -> tuple[int, ...]:
        """The ids of the content words, which captions rarely say twice; see `caption.text.sense.is_content_word`."""
        first = len(SPECIAL_TOKENS)
        return tuple(n for n, word in enumerate(self.words) if n >= first and is_content_word(word))

    def widened(self, data_vocabulary: Vocabulary) -> Vocabulary:
        """This vocabulary with its ids, followed by the words that only the data's vocabulary has, in their order.

        Raises:
            DataError: the tokenizers differ, and so do the words.
        """
        if self.tokenizer.name != data_vocabulary.tokenizer.name:
            raise DataError(
                f"the model has the tokenizer '{self.tokenizer.name}', but the data has the tokenizer "
                f"'{data_vocabulary.tokenizer.name}', and their words differ: read the data with "
                f"'{self.tokenizer.name}' (data.tokenizer, or --tokenizer of `caption check`), or train without that "
                "model (model.warm_start: null, or --base flickr8k_soft of `caption check`)."
            )
        words = self.words[len(SPECIAL_TOKENS) :]
        new_words = [word for word in data_vocabulary if word not in self]
        return Vocabulary([*words, *new_words], self.tokenizer.name)

    def encode(self, caption: str, max_words: int | None = None) -> list[int]:
        """Ids of the caption's words, then END; without START.

        Args:
            caption: a sentence, not tokenized.
            max_words: keep at most this many words. END is added, so there are up to max_words + 1 ids.
        """
        return [*map(self._word_id, self.tokenizer(caption)[:max_words]), END]

    def decode(self, ids: Iterable[SupportsInt]) -> list[str]:
        """The words of `ids` up to the first END, without PAD and START; UNKNOWN is kept as "<unk>".

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        words = []
        for word_id in map(int, ids):
            if word_id == END:
                break
            if word_id not in (PAD, START):
                words.append(self[word_id])
        return words

    def _word_id(self, word: str) -> int:
        """The id of a word; UNKNOWN for special tokens, since a caption that contains "<end>" must not end there."""
        word_id = self._ids.get(word, UNKNOWN)
        return word_id if word_id >= len(SPECIAL_TOKENS) else UNKNOWN

    def __len__(self) -> int:
        """Number of ids, including special tokens."""
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: str) -> int: ...
    def __getitem__(self, key: int | str) -> str | int:
        """The word of an id, or the id of a word (UNKNOWN if it is not in the vocabulary).

        Raises:
            IndexError: an id is not in the vocabulary, such as a negative one.
        """
        if isinstance(key, str):
            return self._ids.get(key, UNKNOWN)
        if not 0 <= key < len(self.words):
            raise IndexError(f"id {key} is outside the vocabulary of {len(self.words)}")
        return self.words[key]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.words, self.tokenizer.name))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} ids, tokenizer {self.tokenizer.name!r})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for a checkpoint: the ordinary words in order, the tokenizer's name and version."""
        return {
            "words": list(self.words[len(SPECIAL_TOKENS) :]),
            "tokenizer": self.tokenizer.name,
            "tokenizer_version": self.tokenizer.version,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Vocabulary:
        """The vocabulary from the result of `to_dict`.

        Raises:
            DataError: keys are missing, words are not text, or it was made with another version of the tokenizer,
                whose words may differ.
        """
        if not {"words", "tokenizer", "tokenizer_version"} <= set(data):
            raise DataError(
                f"a saved vocabulary has words and a tokenizer, but this one has {sorted(data)}: save it again."
            )
        words = data["words"]
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise DataError("the words of a saved vocabulary must be a list of text: save it again.")
        vocabulary = cls(words, data["tokenizer"])
        installed = vocabulary.tokenizer.version
        if data["tokenizer_version"] != installed:
            raise DataError(
                f"the vocabulary was made with version {data['tokenizer_version']} of the tokenizer "
                f"'{data['tokenizer']}', but version {installed} is installed: train again, or install the release of "
                "this package that made it."
            )
        return vocabulary


def is_usable(word: str) -> bool:
    """Whether a word can be in a vocabulary: at most `LONGEST_WORD` characters, none of them `HIDDEN` or a surrogate.

    A model may be untrusted, and its words are printed on terminals, drawn into figures and written into pages. In
    training captions, words that are not usable become UNKNOWN, like rare words.
    """
    return len(word) <= LONGEST_WORD and not HIDDEN.search(word) and not SURROGATE.search(word)
