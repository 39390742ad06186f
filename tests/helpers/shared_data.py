"""Locations of test data of the metrics outside the repository."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
GOLDENS = SHARED / "goldens"
FLICKR8K = SHARED / "data" / "flickr8k" / "Flickr8k.token.txt"

needs_goldens = pytest.mark.skipif(not GOLDENS.exists(), reason="needs ../shared/goldens")
needs_flickr8k = pytest.mark.skipif(not FLICKR8K.exists(), reason="needs ../shared/data/flickr8k")
needs_pycocoevalcap = pytest.mark.skipif(find_spec("pycocoevalcap") is None, reason="needs pycocoevalcap")
needs_java = pytest.mark.skipif(
    shutil.which("java") is None or find_spec("pycocoevalcap") is None, reason="needs Java and pycocoevalcap"
)


def wordnet_is_there() -> bool:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except (LookupError, OSError):
        return False
    return True


def golden(name: str) -> Any:
    """Load a JSON file of the goldens."""
    return json.loads((GOLDENS / name).read_text(encoding="utf-8"))


def java_tokens(texts: list[str]) -> list[list[str]]:
    """The words from coco-caption's tokenizer in Java."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    tokenized = PTBTokenizer().tokenize({0: [{"caption": text} for text in texts]})
    return [text.split() for text in tokenized[0]]
