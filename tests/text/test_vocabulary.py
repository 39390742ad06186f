"""Words to ids and back."""

import copy
import json
import pickle
from collections import Counter

import pytest
import torch

from caption.core.errors import DataError
from caption.text.vocabulary import END, PAD, SPECIAL_TOKENS, START, UNKNOWN, Vocabulary

CAPTIONS = ["a dog runs", "a dog sits", "the dog runs", "a zebra"]  # dog 3, a 3, runs 2, sits the zebra 1


def built(**options: object) -> Vocabulary:
    return Vocabulary.build(CAPTIONS, **{"min_count": 1, "tokenizer": "none", **options})  # type: ignore[arg-type]


def test_special_tokens_come_first_then_words_by_count_and_alphabet():
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert built().words[:4] == SPECIAL_TOKENS == ("<pad>", "<start>", "<end>", "<unk>")
    assert Vocabulary.build(CAPTIONS[::-1], 1, "none") == built()
    default = Vocabulary.build(["A dog, running.", "a Dog's tail!"], min_count=1)
    assert default.tokenizer.name == "ptb"
    assert default.words[4:] == ("a", "dog", "'s", "running", "tail")
    assert built().words[4:] == ("a", "dog", "runs", "sits", "the", "zebra")


def test_rare_words_are_unknown_and_stay_in_their_captions():
    vocabulary = built(min_count=2)
    assert vocabulary.words[4:] == ("a", "dog", "runs")
    assert vocabulary.encode("a zebra runs") == [4, UNKNOWN, 6, END]
    assert vocabulary.decode(vocabulary.encode("a zebra runs")) == ["a", "<unk>", "runs"]
    assert built(min_count=3).words[4:] == ("a", "dog")
    assert built(max_size=2).words[4:] == ("a", "dog")
    assert built(max_size=6) == built()


def test_encode_ends_and_does_not_start_and_decode_stops_at_the_end():
    vocabulary = built()
    assert vocabulary.encode("the dog runs") == [8, 5, 6, END]
    assert vocabulary.encode("") == [END]
    assert vocabulary.encode("the dog runs", max_words=2) == [8, 5, END]
    assert vocabulary.encode("the dog runs", max_words=3) == vocabulary.encode("the dog runs")
    assert vocabulary.decode([START, 8, 5, END, 6, PAD]) == ["the", "dog"]
    assert vocabulary.decode([8, 5, PAD]) == ["the", "dog"]
    assert vocabulary.decode(torch.tensor([8, 5, 6])) == ["the", "dog", "runs"]
    for word_id in (-1, 10):
        with pytest.raises(IndexError, match=str(word_id)):
            vocabulary.decode([4, word_id])


def test_a_caption_cannot_spell_a_special_token():
    """Otherwise "<end>" in a caption would truncate it, and "<pad>" would remove a word from the loss."""
    text = "a <end> <pad> <start> <unk> dog"
    vocabulary = Vocabulary.build([text], 1, "none")
    assert vocabulary.words[4:] == ("a", "dog")
    assert vocabulary.encode(text) == [4, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 5, END]


def test_round_trip_through_plain_types():
    data = json.loads(json.dumps(built().to_dict()))
    assert data["words"] == ["a", "dog", "runs", "sits", "the", "zebra"]
    assert data["tokenizer"] == "none"
    assert data["tokenizer_version"] == built().tokenizer.version
    for copied in (Vocabulary.from_dict(data), pickle.loads(pickle.dumps(built())), copy.deepcopy(built())):
        assert copied == built()
        assert hash(copied) == hash(built())
    for other in (
        built(min_count=2),
        Vocabulary(data["words"][::-1], "none"),
        Vocabulary(data["words"], "ptb"),
    ):
        assert other != built()
    with pytest.raises(DataError, match=r"version 0\.old of the tokenizer 'none'"):
        Vocabulary.from_dict(data | {"tokenizer_version": "0.old"})
    for key in data:
        with pytest.raises(DataError, match="saved vocabulary"):
            Vocabulary.from_dict({name: value for name, value in data.items() if name != key})


def test_a_vocabulary_that_is_none():
    for make, message in (
        (lambda: Vocabulary(["dog", "a", "dog"], "none"), "'dog' twice"),
        (lambda: Vocabulary(["dog", "<unk>"], "none"), "'<unk>' twice"),
        (lambda: built(min_count=100), "lower min_count"),
        (lambda: Vocabulary.build([], 1, "none"), "0 words"),
        (lambda: built(min_count=0), "1 or more"),
        (lambda: built(max_size=0), "1 or more"),
    ):
        with pytest.raises(DataError, match=message):
            make()


HIDDEN = ["\x1b[31mred", "a\nb", "a\rb", "\x00", "\x9bm", "\u202eabc", "\u2066", "\u200f", "\u2028", "\uffff"]


@pytest.mark.parametrize("word", [*HIDDEN, "\ud800", "x" * 1001], ids=ascii)
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
