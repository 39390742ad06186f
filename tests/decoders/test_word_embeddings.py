"""Meta-embeddings of words: their equation, where the vectors come from, and the decoder that reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_decoder import PAD, WORDS
from torch import Tensor

from caption.decoders import MetaEmbedding, WordVectors
from caption.decoders.word_embeddings import load_word_vectors
from caption.errors import UserError
from caption.text.vocabulary import Vocabulary


def built(*tables: WordVectors, size: int = 5, seed: int = 0) -> MetaEmbedding:
    torch.manual_seed(seed)
    embedding = MetaEmbedding(tables or (WordVectors(3), WordVectors(4)))
    embedding.build(WORDS, size, PAD)
    return embedding.double()


def test_it_is_the_equation():
    embedding, words = built(), torch.tensor([[3, 1, 6], [2, 2, 5]])
    projected = np.stack(
        [
            table.table.weight.detach().numpy()[words.numpy()] @ project.weight.detach().numpy().T
            + project.bias.detach().numpy()
            for table, project in zip(embedding.tables, embedding.project, strict=True)
        ]
    )  # (J, 2, 3, E)
    scores = (projected @ embedding.score.weight.detach().numpy().T)[..., 0]
    shares = np.exp(scores) / np.exp(scores).sum(0)
    expected = (shares[..., None] * projected).sum(0)
    np.testing.assert_allclose(embedding(words).detach().numpy(), expected, rtol=1e-12)


def test_shares_sum_to_one_and_can_be_forced():
    embedding, words = built(), torch.tensor([3, 1])
    seen: list[Tensor] = []

    def first_only(module: object, args: object, shares: Tensor) -> Tensor:
        seen.append(shares)
        return torch.tensor([1.0, 0.0], dtype=shares.dtype).expand_as(shares)

    with embedding.shares.register_forward_hook(first_only):  # type: ignore[attr-defined]
        forced = embedding(words)
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(forced, embedding.project[0](embedding.tables[0](words)))


# -- vectors from files ----------------------------------------------------------------------------------------


VOCABULARY = Vocabulary(["dog", "cat", "runs"])


@pytest.mark.parametrize("head", ["", "3 2\n"], ids=["GloVe", "word2vec"])
def test_vectors_are_read_for_the_words_that_the_file_has(tmp_path: Path, head: str):
    (tmp_path / "vectors.txt").write_text(head + "cat 1 2\nbird 3 4\ndog -1e-1 .5\n", encoding="utf-8")
    table = WordVectors(2, str(tmp_path / "vectors.txt"), frozen=True)
    table.build(len(VOCABULARY), PAD)
    before = table.table.weight.clone()
    assert load_word_vectors(torch.nn.ModuleList([table]), VOCABULARY) == {table.file: 2}
    weight = table.table.weight
    assert not weight.requires_grad
    torch.testing.assert_close(weight[VOCABULARY["cat"]], torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(weight[VOCABULARY["dog"]], torch.tensor([-0.1, 0.5]))
    assert torch.equal(weight[VOCABULARY["runs"]], before[VOCABULARY["runs"]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat 1 2 3\n", r"line 1 of .* has 3 numbers, and size is 2: give the length"),
        ("cat 1 x\n", "cannot be read as a file of word vectors"),
        ("bird 1 2\n", "has a vector for none of the"),
        (None, "does not exist"),
    ],
)
def test_a_file_of_vectors_that_does_not_fit_is_refused(tmp_path: Path, text: str | None, message: str):
    path = tmp_path / "vectors.txt"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    table = WordVectors(2, str(path))
    table.build(len(VOCABULARY), PAD)
    with pytest.raises(UserError, match=message):
        table.load(VOCABULARY)


def test_wrong_options_are_refused():
    with pytest.raises(UserError, match="size 0"):
        WordVectors(0)
    with pytest.raises(UserError, match="need a file"):
        WordVectors(2, frozen=True)
    with pytest.raises(UserError, match="several tables of word vectors, and got 1"):
        MetaEmbedding([WordVectors(2)])
