"""The package's metadata, and the documents beside the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RELATIVE = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_the_index_page_has_no_links_to_files():
    """The substitutions that the build applies to the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert RELATIVE.search(text)
    for each in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert RELATIVE.findall(text) == []
    assert "![" not in text
    assert "*Left" not in text
    assert text.startswith("# Show, Attend and Tell")
    assert "arxiv.org/abs/1502.03044)" in text


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_documents_lead_somewhere(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in (*RELATIVE.findall(text), *re.findall(r"`(caption/[\w/]+\.py)`", text)):
        assert (ROOT / target).exists(), target


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
