"""Models are probed for each test run, and nothing is left in the user's cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    constants = pytest.importorskip("huggingface_hub.constants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HOME", str(tmp_path_factory.mktemp("probes")))
        yield
