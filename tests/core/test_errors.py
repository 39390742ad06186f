"""Texts of messages: on one line, without what steers a terminal."""

from __future__ import annotations

import pytest

from caption.errors import printable


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
