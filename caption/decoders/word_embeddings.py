"""Word vectors: a learned table, or several tables (dynamic meta-embeddings, Kiela, Wang and Cho 2018)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from caption.core.errors import UserError, reported_as
from caption.core.parts import Part
from caption.core.runtime.inputs import STREAM, open_input

if TYPE_CHECKING:
    from caption.text.vocabulary import Vocabulary

LONGEST_LINE = 1_000_000
"""Maximal characters of a line in a file of word vectors; the rest of a longer line is read as another line."""


def word_table(vocabulary_size: int, size: int, padding: int) -> nn.Embedding:
    """A learned table of word vectors, random in [−0.1, 0.1]; the vector of the word `padding` has no gradient."""
    table = nn.Embedding(vocabulary_size, size, padding_idx=padding)
    nn.init.uniform_(table.weight, -0.1, 0.1)
    return table


class WordVectors(Part, nn.Module):
    """A table of word vectors, learned from scratch or started from a file.

    Args:
        size: length of the vectors.
        file: text file of vectors, a word and `size` numbers per line (GloVe; word2vec and fastText with their first
            line of two counts); None = random vectors. It is read when training starts. Words that are not in it keep
            their random vectors.
        frozen: whether the whole table keeps its initial values, including words that are not in the file.

    Raises:
        UserError: `size` is below 1, or `frozen` without a file.
    """

    def __init__(self, size: int, file: str | None = None, frozen: bool = False) -> None:
        super().__init__()
        if frozen and file is None:
            raise UserError(
                "frozen WordVectors need a file, since random vectors would stay random: give file"
            )
        self.size = size
        self.file = file
        self.frozen = frozen

    def build(self, vocabulary_size: int, padding: int) -> None:
        """Create the table. Called once."""
        self.table = word_table(vocabulary_size, self.size, padding)
        self.table.weight.requires_grad_(not self.frozen)

    def load(self, vocabulary: Vocabulary) -> int:
        """Read the vectors of the vocabulary's words from the file; returns the number of words found.

        Raises:
            UserError: the file cannot be read, has vectors of another length, or none of the words.
        """
        count = 0
        with torch.no_grad():
            for word, numbers in self._lines():
                if word in vocabulary:
                    self.table.weight[vocabulary[word]] = torch.tensor(numbers)
                    count += 1
        if not count:
            raise UserError(f"{self.file} has no vector for any of the {len(vocabulary)} words of the data")
        return count

    def _lines(self) -> Iterator[tuple[str, list[float]]]:
        assert self.file is not None
        about = f"{self.file} cannot be read as a file of word vectors"
        with (
            reported_as(UserError, about, OSError, ValueError),
            open_input(self.file, STREAM) as file,
            TextIOWrapper(file, "utf-8-sig") as lines,
        ):
            for line_number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), ""), 1):
                word, *numbers = re.split("[ \t]+", line.strip(" \t\r\n"))
                if not word or (line_number == 1 and len(numbers) == 1):  # counts of words and of numbers
                    continue
                if len(numbers) > self.size and not _are_numbers(numbers[: -self.size]):
                    continue  # GloVe has words with spaces inside; captions have none
                if len(numbers) != self.size:
                    raise UserError(
                        f"line {line_number} of {self.file} has {len(numbers)} numbers, but size is {self.size}: "
                        "give the length of the file's vectors as size"
                    )
                yield word, [float(number) for number in numbers]

    def forward(self, words: Tensor) -> Tensor:
        """(...) -> (..., size)."""
        return self.table(words)


def _are_numbers(texts: Sequence[str]) -> bool:
    try:
        return all(math.isfinite(float(text)) for text in texts)
    except ValueError:
        return False


class MetaEmbedding(Part, nn.Module):
    """E y = Σ_j α_j (P_j w_j + b_j), α = softmax_j(v·(P_j w_j + b_j)): each word weighs several tables w_j.

    Kiela, Wang and Cho 2018, "Dynamic Meta-Embeddings for Improved Sentence Representations", section 3.2. The bias of
    the score is left out, because it cancels in the softmax. A forward hook on `shares` receives the weights α
    (..., J), and may return edited weights.

    Args:
        tables: the tables w_j.

    Raises:
        UserError: fewer than two tables.
    """

    def __init__(self, tables: Sequence[WordVectors]) -> None:
        super().__init__()
        if len(tables) < 2:
            raise UserError(f"MetaEmbedding needs two or more tables of word vectors, not {len(tables)}")
        self.tables = nn.ModuleList(tables)
        self.shares = nn.Identity()

    def build(self, vocabulary_size: int, size: int, padding: int) -> None:
        """Create the weights. Called once.

        Args:
            vocabulary_size: V.
            size: E, length of the result.
            padding: id of the padding word, whose vector is zero in every table.
        """
        tables = [table for table in self.tables if isinstance(table, WordVectors)]
        for table in tables:
            table.build(vocabulary_size, padding)
        self.project = nn.ModuleList(nn.Linear(table.size, size) for table in tables)
        self.score = nn.Linear(size, 1, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        """(...) -> (..., E)."""
        projected = torch.stack(
            [project(table(words)) for project, table in zip(self.project, self.tables, strict=True)], -2
        )
        shares = self.shares(self.score(projected).squeeze(-1).softmax(-1))
        return (shares[..., None] * projected).sum(-2)


def load_word_vectors(module: nn.Module, vocabulary: Vocabulary) -> dict[str, int]:
    """Load every table of a module that has a file; returns the number of words found in each file, by its path.

    Raises:
        UserError: see `WordVectors.load`.
    """
    tables = [part for part in module.modules() if isinstance(part, WordVectors)]
    return {str(table.file): table.load(vocabulary) for table in tables if table.file is not None}
