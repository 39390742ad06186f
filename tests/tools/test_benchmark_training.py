"""The training benchmark: its forms, and how their differences are measured."""

from __future__ import annotations

import pytest
import torch

from tools.benchmark import core, training
from tools.benchmark.harness import Setting

QUICK = Setting(torch.device("cpu"), quick=True, rounds=2)


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> training.Batch:
    """Small."""
    monkeypatch.setattr(core, "VOCABULARY", 60)
    monkeypatch.setattr(core, "REGIONS", 6)
    return training.Batch(16, torch.device("cpu"), images=4)


def test_differences_are_those_from_the_first_form(batch: training.Batch) -> None:
    forms = {"textbook": batch.theirs(), "ours": batch.ours()}
    _, found = training.measure_forms(forms, QUICK)
    assert found["textbook"].loss == found["textbook"].gradients == ""
    assert float(found["ours"].loss) < 1e-5
    assert float(found["ours"].gradients) < 1e-3
    assert all(form.memory.endswith(" MB") for form in found.values())
    wrong = training.Form(batch.decoder, lambda: 2 * batch.ours().loss())
    _, found = training.measure_forms({"textbook": batch.theirs(), "wrong": wrong}, QUICK)
    assert float(found["wrong"].loss) == float(found["wrong"].gradients) == 1


def test_operators_of_both_forms_are_named(batch: training.Batch) -> None:
    rows = training.operators(batch)
    assert len(rows) == training.OPERATORS
    assert all(len(row) == 5 for row in rows)
    assert any(row[0] == "`aten::mm`" and row[1] and row[3] for row in rows)


def test_without_the_kernel_it_is_not_looked_up(
    batch: training.Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    name = "caption.kernels.additive_energies.fused_for"
    monkeypatch.setattr(name, lambda keys: asked.append(1))
    batch.ours(kernel=False).step()
    assert not asked
    batch.ours().step()
    assert asked


def test_a_gpu_trains_with_and_without_the_kernel(batch: training.Batch) -> None:
    assert "ours without the kernel, float32" not in training.make_forms(batch)
    batch.device = torch.device("cuda")
    assert {"ours, float32", "ours without the kernel, float32"} < set(training.make_forms(batch))
