"""The benchmark of feature stores: its stores can be read, and every figure has its row."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from caption.features.store import FeatureStore
from tools.benchmark import features, photos
from tools.benchmark.harness import Setting

QUICK = Setting(torch.device("cpu"), quick=True, rounds=1)


def test_a_store_of_noise_is_read(tmp_path: Path) -> None:
    features.write_store(tmp_path / "store", 70, (2, 3), 4)
    (regions,) = FeatureStore(tmp_path / "store").read_many([0, 69])
    assert regions.vectors.shape == (2, 6, 4)
    assert regions.grid == (2, 3)


def test_a_small_store_is_opened(tmp_path: Path) -> None:
    features.small_store(tmp_path / "store", 1000)
    assert FeatureStore(tmp_path / "store").photo(999).width == 224


@pytest.mark.slow
def test_every_rate_has_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "SHARED", tmp_path / "nothing")
    monkeypatch.setattr(features, "BATCH", 2)
    monkeypatch.setattr(features, "TRAINED", 4)
    rows = features.features(QUICK).split("\n")[4:]
    assert [row.split("|")[1].strip().split(":")[0] for row in rows] == [
        "bare encoder, photos in memory",
        "`caption features`, from files to a store",
        "ratio",
        "ratio by CPU time",
        "reading at random, batches of 4, first time",
        "reading at random, batches of 4, again",
        "a training step of configs/flickr8k_soft.yaml takes",
        "opening a store of 10,000 images",
    ]
