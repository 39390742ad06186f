"""Words to ids and back."""

import copy
import json
import pickle
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from caption.errors import DataError
from caption.text.vocabulary import END, PAD, SPECIAL_TOKENS, START, UNKNOWN, Vocabulary

CAPTIONS = ["a dog runs", "a dog sits", "the dog runs", "a zebra"]  # dog 3, a 3, runs 2, sits the zebra 1


def built(**options: object) -> Vocabulary:
    return Vocabulary.build(CAPTIONS, **{"min_count": 1, "tokenizer": "none", **options})  # type: ignore[arg-type]


def test_special_tokens_come_first_then_words_by_count_and_alphabet() -> None:
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert built().words[:4] == SPECIAL_TOKENS == ("<pad>", "<start>", "<end>", "<unk>")
    assert Vocabulary.build(CAPTIONS[::-1], 1, "none") == built()
    default = Vocabulary.build(["A dog, running.", "a Dog's tail!"], min_count=1)
    assert default.tokenizer.name == "ptb"
    assert default.words[4:] == ("a", "dog", "'s", "running", "tail")
    assert built().words[4:] == ("a", "dog", "runs", "sits", "the", "zebra")


def test_rare_words_are_unknown() -> None:
    assert built(min_count=2).words[4:] == ("a", "dog", "runs")
    assert built(min_count=3).words[4:] == ("a", "dog")
    assert built(max_size=2).words[4:] == ("a", "dog")
    assert built(max_size=6) == built()


def test_a_caption_with_rare_words_is_encoded_like_any_other() -> None:
    """An unknown word must not be dropped from the caption."""
    vocabulary = built(min_count=2)
    assert vocabulary.encode("a zebra runs") == [4, UNKNOWN, 6, END]
    assert vocabulary.decode(vocabulary.encode("a zebra runs")) == ["a", "<unk>", "runs"]


def test_encode_ends_and_does_not_start() -> None:
    vocabulary = built()
    assert vocabulary.encode("the dog runs") == [8, 5, 6, END]
    assert vocabulary.encode("") == [END]
    assert vocabulary.encode("the dog runs", max_words=2) == [8, 5, END]
    assert vocabulary.encode("the dog runs", max_words=3) == vocabulary.encode("the dog runs")


def test_decode_stops_at_the_end() -> None:
    vocabulary = built()
    assert vocabulary.decode([START, 8, 5, END, 6, PAD]) == ["the", "dog"]
    assert vocabulary.decode([8, 5, PAD]) == ["the", "dog"]
    assert vocabulary.decode(torch.tensor([8, 5, 6])) == ["the", "dog", "runs"]
    assert vocabulary.decode([]) == []


@pytest.mark.parametrize("word_id", [-1, 10, 999])
def test_ids_outside(word_id: int) -> None:
    with pytest.raises(IndexError, match=str(word_id)):
        built().decode([4, word_id])


@given(st.lists(st.sampled_from(["a", "dog", "runs", "sits", "the", "zebra"]), max_size=12))
def test_known_words_survive_the_round_trip(words: list[str]) -> None:
    vocabulary = built()
    assert vocabulary.decode(vocabulary.encode(" ".join(words))) == words


def test_a_caption_cannot_spell_a_special_token() -> None:
    """Otherwise "<end>" in a caption would truncate it, and "<pad>" would remove a word from the loss."""
    text = "a <end> <pad> <start> <unk> dog"
    vocabulary = Vocabulary.build([text], 1, "none")
    assert vocabulary.words[4:] == ("a", "dog")
    assert vocabulary.encode(text) == [4, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 5, END]


def test_access() -> None:
    vocabulary = built()
    assert len(vocabulary) == 10
    assert "dog" in vocabulary
    assert "cat" not in vocabulary
    assert "<unk>" in vocabulary
    assert vocabulary["dog"] == 5
    assert vocabulary["cat"] == UNKNOWN
    assert vocabulary[5] == "dog"
    assert [vocabulary[word] for word in vocabulary] == list(range(10))
    assert list(vocabulary) == [vocabulary[word_id] for word_id in range(10)]
    assert "10 ids" in repr(vocabulary)


def test_equality_of_copies_and_others() -> None:
    for copied in (built(), pickle.loads(pickle.dumps(built())), copy.deepcopy(built())):
        assert copied == built()
        assert hash(copied) == hash(built())
    others = (
        built(min_count=2),
        Vocabulary(built().words[:3:-1], "none"),
        Vocabulary(built().words[4:], "ptb"),
        "words",
    )
    assert all(built() != other for other in others)


def test_round_trip_through_plain_types() -> None:
    data = json.loads(json.dumps(built().to_dict()))
    assert data["words"] == ["a", "dog", "runs", "sits", "the", "zebra"]
    assert data["tokenizer"] == "none"
    assert data["tokenizer_version"] == built().tokenizer.version
    assert Vocabulary.from_dict(data) == built()


def test_another_version_of_the_tokenizer_is_refused() -> None:
    data = built().to_dict() | {"tokenizer_version": "0.old"}
    with pytest.raises(DataError, match=r"version 0\.old of the tokenizer 'none'"):
        Vocabulary.from_dict(data)


@pytest.mark.parametrize("key", ["words", "tokenizer", "tokenizer_version"])
def test_a_saved_vocabulary_that_is_none(key: str) -> None:
    data = built().to_dict()
    del data[key]
    with pytest.raises(DataError, match="saved vocabulary"):
        Vocabulary.from_dict(data)


def test_words_twice_and_special_words() -> None:
    with pytest.raises(DataError, match="'dog' twice"):
        Vocabulary(["dog", "a", "dog"], "none")
    with pytest.raises(DataError, match="'<unk>' twice"):
        Vocabulary(["dog", "<unk>"], "none")


def test_nothing_left_to_learn() -> None:
    with pytest.raises(DataError, match="lower min_count"):
        built(min_count=100)
    with pytest.raises(DataError, match="0 words"):
        Vocabulary.build([], 1, "none")
    for limits in ({"min_count": 0}, {"max_size": 0}):
        with pytest.raises(DataError, match="1 or more"):
            built(**limits)


HIDDEN = [
    *("\x1b[31mred", "a\nb", "a\rb", "\x00", "\x9bm", "\u202eabc", "\u2066", "\u200f", "\u2028"),
    *("\uffff", "\ud800"),
]


@pytest.mark.parametrize("word", [*HIDDEN, "x" * 1001], ids=ascii)
def test_words_that_cannot_be_shown_are_unknown_in_captions_and_refused_in_files(word: str):
    saved = Vocabulary(["cat"]).to_dict()
    with pytest.raises(DataError, match="cannot be shown"):
        Vocabulary.from_dict({**saved, "words": ["cat", word]})
    vocabulary = Vocabulary.from_counts(Counter({word: 9, "cat": 2}), min_count=1)
    assert vocabulary.words[4:] == ("cat",)
    assert vocabulary[word] == UNKNOWN


@pytest.mark.parametrize("word", ["naïve", "猫", "שלום", "می\u200cخواهم", "👩\u200d🚀", "e\u0301"])
def test_words_of_all_languages_are_words(word: str):
    assert Vocabulary.from_counts(Counter([word]), min_count=1).words[4:] == (word,)
