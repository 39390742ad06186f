"""The benchmark's training step and search beside the textbook's."""

from __future__ import annotations

import pytest
import torch

from tools.benchmark import core, search, training
from tools.benchmark.harness import Setting
from tools.benchmark.textbook import textbook_of

pytestmark = pytest.mark.nightly
QUICK = Setting(torch.device("cpu"), quick=True, rounds=2)


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> training.Batch:
    """Small."""
    monkeypatch.setattr(core, "VOCABULARY", 60)
    monkeypatch.setattr(core, "REGIONS", 6)
    return training.Batch(16, torch.device("cpu"), images=4)


def test_differences_are_those_from_the_first_form(batch: training.Batch):
    forms = {"textbook": batch.theirs(), "ours": batch.ours()}
    forms["wrong"] = training.Form(batch.decoder, lambda: 2 * batch.ours().loss())
    _, measured = training.measure_forms(forms, QUICK)
    assert measured["textbook"].loss == measured["textbook"].gradients == ""
    assert float(measured["ours"].loss) < 1e-5
    assert float(measured["ours"].gradients) < 1e-3
    assert all(form.memory.endswith(" MB") for form in measured.values())
    assert float(measured["wrong"].loss) == float(measured["wrong"].gradients) == 1


def test_both_forms_find_the_same_captions(batch: training.Batch):
    decoder = batch.decoder.double().eval()
    search.never_end(decoder)
    vectors = core.make_vectors(12, 16, torch.device("cpu")).double()
    captions = search.find(decoder, vectors, search.SEARCHES[search.GREEDY], low=False)
    assert captions == search.find_one_by_one(textbook_of(decoder), vectors)
    assert {len(caption) for caption in captions} == {core.STEPS}
    assert len({tuple(caption) for caption in captions}) > 1
