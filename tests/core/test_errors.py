"""Texts of messages: on one line, without what steers a terminal."""

from __future__ import annotations

import pytest

from caption.core.errors import LONGEST_MESSAGE, CheckpointError, DataError, UserError, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a cat.jpg", "a cat.jpg"),
        ("a\nb\t\r", "a\\nb\\t\\r"),
        ("\x1b[2J\x07\x9b1m\x7f", "\\x1b[2J\\x07\\x9b1m\\x7f"),
        ("gpj.\u202egnp", "gpj.\\u202egnp"),
        ("\u200e\u061c\u2069\u2029\uffff", "\\u200e\\u061c\\u2069\\u2029\\uffff"),
        ("naïve 猫 👩\u200d🚀", "naïve 猫 👩\u200d🚀"),
        ("\udcff", "\udcff"),
    ],
    ids=ascii,
)
def test_what_would_steer_a_terminal_is_written_as_in_python(text: str, shown: str):
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("a.png: 'a.png' is empty.. Get it again.. ", "a.png: 'a.png' is empty. Get it again. "),
        ("wait... for ../.. or ..", "wait... for ../.. or .."),
    ],
)
def test_a_quoted_sentence_does_not_give_two_full_stops(message: str, shown: str):
    assert str(UserError(message)) == shown


@pytest.mark.parametrize("kind", [UserError, DataError, CheckpointError])
def test_the_middle_of_a_long_message_is_left_out(kind: type[UserError]):
    assert str(kind("a" * LONGEST_MESSAGE)) == "a" * LONGEST_MESSAGE
    message = str(kind(f"the key {'x' * 140_000} is unknown: correct it"))
    assert len(message) == LONGEST_MESSAGE
    assert message.startswith("the key xxx")
    assert message.endswith("xxx is unknown: correct it")
