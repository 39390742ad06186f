"""The model that captions in the tests of `caption describe`."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.tiny_captioner import captioner

from caption import checkpoint


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.ckpt"
    checkpoint.save(captioner(), path)
    return path
