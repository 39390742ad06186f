"""Captions that repeat no word: with every search, in every place that searches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.search_models import END, START, HashModel
from helpers.tiny_captioner import captioner, photo
from helpers.tiny_foreign import blip

import caption
from caption.analysis.explorer.requests import search_from
from caption.analysis.interventions import Force, intervene
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.kernels import accelerate
from caption.models import checkpoint
from caption.models.transformers.loading import from_transformers
from caption.search import BeamSearch, Greedy, Sampling, Search, adjusted, search_spec
from caption.text.sense import is_repetitive
from caption.text.vocabulary import Vocabulary

SEARCHES = [
    Greedy(12),
    BeamSearch(3, 12, 0.5, candidates=3),
    Sampling(1.3, samples=3, max_length=12, seed=1),
]
FORBIDDEN = 1000.0
every_search = pytest.mark.parametrize("search", SEARCHES, ids=repr)


def without_repeats(search: Search, penalty: float = FORBIDDEN) -> Search:
    return replace(search, repeat_penalty=penalty)  # type: ignore[type-var]


def texts(model: Captioner, search: Search | None = None) -> list[list[str]]:
    """The words of all captions of some photos."""
    described = model.describe([photo(seed=seed) for seed in range(6)], search)
    return [one.words for best in described for one in (best, *best.alternatives)]


@pytest.fixture
def model() -> Captioner:
    """It says "sits sits runs runs": content words, if they are not forbidden."""
    return captioner()


@every_search
def test_no_caption_repeats_itself(search: Search, model: Captioner) -> None:
    assert any(map(is_repetitive, texts(model, search)))
    assert not any(map(is_repetitive, texts(model, without_repeats(search))))
    assert any(len(words) > 2 for words in texts(model, without_repeats(search)))


@every_search
def test_a_penalty_of_nothing_changes_no_bit_and_no_name(search: Search, model: Captioner) -> None:
    hash_model = HashModel(9, seed=5)
    start = (hash_model.step, hash_model.start([0, 1, 2]), 3, START, END)
    first, second = (
        search(*start, content=[2, 3]),
        without_repeats(search, 0)(*start),
    )
    for name in ("words", "lengths", "log_probs", "word_log_probs", "scores", "finished"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert "repeat_penalty" not in repr(search)
    assert "repeat_penalty" not in search_spec(search)["init_args"]
    assert repr(without_repeats(search, 1.5)).endswith("repeat_penalty=1.5)")


@every_search
def test_an_accelerated_model_finds_the_same(search: Search, model: Captioner) -> None:
    plain = texts(model, without_repeats(search, 2.0))
    accelerate(model)
    assert texts(model, without_repeats(search, 2.0)) == plain


def test_a_given_beginning_may_repeat_words() -> None:
    model = HashModel(9, seed=5)
    search = BeamSearch(3, 8, 0.0, 3, FORBIDDEN)
    found = search(model.step, model.start([0, 1]), 2, START, END, content=[2, 3, 4], beginning=[2, 3, 3, 2])
    assert (found.words[..., :4] == torch.tensor([2, 3, 3, 2])).all()
    assert (found.lengths > 4).any()
    torch.testing.assert_close(found.scores, found.log_probs)  # those of the beginning cost nothing
    assert not ((found.words[..., 4:] == 2) | (found.words[..., 4:] == 3)).any()


def test_the_saved_model_the_explorer_and_the_beams_tree_keep_the_search(
    model: Captioner, tmp_path: Path
) -> None:
    model.search = BeamSearch(3, 8, repeat_penalty=FORBIDDEN)
    for name in ("model.safetensors", "model.ckpt"):
        checkpoint.save(model, tmp_path / name)
        loaded = caption.load(tmp_path / name)
        assert loaded.search == model.search
        assert texts(loaded) == texts(model)
    for request in (None, {"kind": "greedy"}, {"kind": "sample"}, {"kind": "beam", "beam_size": 4}):
        assert search_from(request, model.search).repeat_penalty == FORBIDDEN
    assert adjusted(Greedy(5, 1.5), beam_size=2).repeat_penalty == 1.5
    edited = intervene(model, photo(), Force((1, 2), at=1))
    assert not any(is_repetitive(each.words) for each in (edited.original, edited.changed))
    tree = model.describe(photo(), beam_tree=True).beam_tree
    assert tree is not None
    assert not any(
        is_repetitive(tree.words(step, place))
        for step, nodes in enumerate(tree.steps)
        for place in range(len(nodes))
    )


def test_the_content_words_of_a_vocabulary_leave_out_special_tokens() -> None:
    vocabulary = Vocabulary(["a", "dog", "kitchen", "white", "<ends>", "with", "Sits"])
    assert [vocabulary[n] for n in vocabulary.content] == ["kitchen", "<ends>", "Sits"]


def test_a_model_that_writes_pieces_refuses() -> None:
    with pytest.raises(UserError, match="writes words in pieces, so its search cannot see"):
        from_transformers(*blip())(photo(), BeamSearch(2, 4, repeat_penalty=1.0))
