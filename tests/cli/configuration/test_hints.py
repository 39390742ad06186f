"""Hints about misspelt names in configurations."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from caption.cli.configuration.errors import hint, one_line


@pytest.mark.parametrize(
    "owner", [".__class__", "builtins.int", "nowhere.Class", "__class__", "builtins.type"]
)
def test_a_name_without_a_signature_gives_no_hint(owner: str):
    assert hint(f"Key 'x' in '{owner}' is not 'wrong'", ArgumentParser()) == ""


def test_a_misspelt_value_is_compared_with_those_that_may_be():
    message = (
        "\"trainer.precision\": Expected a <class 'int'> Expected a typing.Literal['bf16-true', '32-true'] Expected a "
        "typing.Literal['64', 'bf16'] Given value: bf61"
    )
    assert hint(message, ArgumentParser()) == " (did you mean bf16?)"
    assert hint(message.replace("bf61", "x"), ArgumentParser()) == ""


def test_of_an_entry_computed_from_others_the_reason_is_told():
    """jsonargparse puts the objects that it was computed from before it."""
    message = (
        "Call to compute_fn of link '_words(data) --> model.words' with args ({size=(4)}) failed: no file x"
    )
    assert one_line(message) == "no file x"
