"""The tokenizers, and the Treebank tokenizer against Stanford's in Java."""

from __future__ import annotations

import json
import pickle
import unicodedata
from pathlib import Path

import pytest
from helpers.shared_data import FLICKR8K, java_tokens, needs_flickr8k, needs_java
from hypothesis import given, settings
from hypothesis import strategies as st

from caption.core.errors import UserError
from caption.text.tokenizer import TOKENIZERS, get_tokenizer, nfc
from caption.text.treebank import pieces, tokenize

HARD = json.loads(Path(__file__).with_name("hard_captions.json").read_text(encoding="utf-8"))["cases"]
PTB = get_tokenizer("ptb")


@pytest.mark.parametrize("kind", sorted({case["kind"] for case in HARD}))
def test_hard_captions_as_java_answered(kind):
    cases = [case for case in HARD if case["kind"] == kind]
    assert cases
    assert {case["text"]: PTB(case["text"]) for case in cases} == {
        case["text"]: [*map(nfc, case["tokens"])] for case in cases
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("don't", ["do", "n't"]),
        ("The man's U.S. flag", ["the", "man", "'s", "u.s.", "flag"]),
        ("( brown )", ["-lrb-", "brown", "-rrb-"]),
        ("2 1/2 cups for $5.00", ["2", "1/2", "cups", "for", "$", "5.00"]),
        ("slip 'n' slide", ["slip", "'n'", "slide"]),
        ("an ant 's-eye-view", ["an", "ant", "'s", "eye-view"]),
        ("a dog 🐶 runs ... fast", ["a", "dog", "runs", "fast"]),
        ("Acme Inc.a", ["acme", "inc.", "a"]),  # two characters of lookahead go beyond the word
        ("Acme Inc.abc", ["acme", "inc.abc"]),
        ("two dog\xad-c\xadats end.-ete end-été", ["two", "dog-cats", "end.-ete", "end-été"]),
        (" . ", []),
    ],
)
def test_cases_worked_by_hand(text, words):
    assert PTB(text) == words
    assert pickle.loads(pickle.dumps(PTB))(text) == words  # in another process


@pytest.mark.parametrize("name", TOKENIZERS)
def test_both_forms_of_unicode_give_the_same_words(name):
    """macOS and some keyboards write an accent as a character of its own, after the letter."""
    for composed in ("un garçon à la fenêtre, déjà-vu", "một người đàn ông", "개가 뛴다", "ガラスの猫"):
        decomposed = unicodedata.normalize("NFD", composed)
        assert decomposed != composed
        assert get_tokenizer(name)(decomposed) == get_tokenizer(name)(composed)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_joined_words_with_brackets_are_split_into_the_same_words(name):
    tokenizer = get_tokenizer(name)
    for text in ("a (b) [c] {d}", "smile :) 黑(色)的", "(A) -LRB-"):
        words = tokenizer(text)
        assert tokenizer(tokenizer.join(words)) == words
    assert PTB.join(PTB("a (black) dog")) == "a ( black ) dog"
    assert get_tokenizer("none").join(["-LRB-", "b"]) == "-LRB- b"


def test_other_settings_keep_what_they_name():
    assert get_tokenizer("ptb-punct")('a "big" dog') == ["a", "``", "big", "''", "dog"]
    text = "A dog, the U.S. one, runs."
    assert get_tokenizer("ptb-punct")(text) == ["a", "dog", ",", "the", "u.s.", "one", ",", "runs", "."]
    assert get_tokenizer("ptb-cased")(text) == ["A", "dog", "the", "U.S.", "one", "runs"]
    assert get_tokenizer("ptb-cased-punct")(text) == ["A", "dog", ",", "the", "U.S.", "one", ",", "runs", "."]
    assert get_tokenizer("none")("A dog , 's  -LRB- ") == ["A", "dog", ",", "'s", "-LRB-"]
    with pytest.raises(UserError, match=r"'moses'.*ptb.*none"):
        get_tokenizer("moses")


@pytest.mark.slow
@settings(max_examples=15)
@given(st.text() | st.lists(st.sampled_from([case["text"] for case in HARD])).map(" ".join))
def test_words_hold_no_white_space_and_pieces_do_not_matter(text):
    words = PTB(text)
    assert " ".join(words).split() == words
    assert PTB(text) == words  # from the cache
    cuttable = "".join(character for character in text if character < "\U00010000")
    assert [token for piece in pieces(cuttable) for token in tokenize(piece)] == list(tokenize(cuttable))


def test_long_input_takes_no_time():
    for piece, times in {
        "a": 50_000,
        "a.": 20_000,
        "'": 20_000,
        "1": 50_000,
        "a-": 20_000,
        "1-": 20_000,
    }.items():
        PTB(piece * times)
    for piece in ("a@", "<a "):
        PTB(piece * 2_000)


@needs_java
def test_java_gives_the_stored_words():
    # A neutral line after each, because Java also reads the next line after a full stop.
    answers = java_tokens([text for case in HARD for text in (case["text"], "x y")])[::2]
    assert answers == [case["tokens"] for case in HARD]


KNOWN_DIFFERENCES = {
    # A full stop before a hyphen, beside a letter that is not ASCII.
    "end.-été": (["end", "été"], ["end.-été"]),
    "étage.-black": (["étage", "black"], ["étage.-black"]),
    # A soft hyphen in or next to anything but a plain word.
    "do\xadn't": (["do", "n't"], ["don", "t"]),
    "5,0\xad00": (["5,000"], ["5,0", "00"]),
    "dog.\xad": (["dog."], ["dog"]),
    "a\xad@b.com": (["a\xad@b.com"], ["a@b.com"]),
}
"""Java's words and ours of kinds 7 and 8 in docs/scores.md."""


@pytest.mark.parametrize("text", KNOWN_DIFFERENCES)
def test_known_differences_are_as_the_page_says(text):
    assert PTB(text) == KNOWN_DIFFERENCES[text][1]


@needs_java
def test_java_differs_where_the_page_says_so():
    answers = java_tokens([line for text in KNOWN_DIFFERENCES for line in (text, "x y")])[::2]
    assert answers == [words for words, _ in KNOWN_DIFFERENCES.values()]


@needs_java
@needs_flickr8k
def test_agrees_with_java_on_all_captions_of_flickr8k():
    captions = [line.split("\t")[1] for line in FLICKR8K.read_text(encoding="utf-8").splitlines()]
    assert len(captions) == 40_455
    differences = [
        (caption, words, PTB(caption))
        for caption, words in zip(captions, java_tokens(captions), strict=True)
        if PTB(caption) != words
    ]
    assert differences == []
