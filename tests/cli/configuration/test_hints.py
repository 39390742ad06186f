"""Hints about misspelt names in configurations."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from caption.cli.configuration.errors import hint


@pytest.mark.parametrize(
    "owner", [".__class__", "builtins.int", "nowhere.Class", "__class__", "builtins.type"]
)
def test_a_name_without_a_signature_gives_no_hint(owner: str):
    assert hint(f"Key 'x' in '{owner}' is not 'wrong'", ArgumentParser()) == ""
