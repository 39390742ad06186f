"""SPICE: errors name missing requirements, and nothing is downloaded without a request."""

from __future__ import annotations

import sys
import types

import pytest

from caption.metrics import evaluate
from caption.metrics import spice as module

REFERENCES = {1: ["a dog runs"], 2: ["two cats sleep"]}
CANDIDATES = {1: "a dog", 2: "cats"}


def spice():
    return evaluate(CANDIDATES, REFERENCES, metrics=["SPICE"]).score("SPICE")


def test_missing_language_models_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "java_fault", lambda _: None)
    package = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(module, "find_spec", lambda _: package)
    assert "run python -m pycocoevalcap.spice.get_stanford_models" in spice().reason
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "stanford-corenlp-3.6.0-models.jar").touch()
    assert module._models_fault() is None


def test_takes_f1_of_each_image_and_a_failing_program_is_a_reason(monkeypatch, capsys):
    def compute_score(references, candidates):
        print("Parsing captions")
        assert candidates == {0: ["a dog"], 1: ["cats"]}
        assert references == {0: ["a dog runs"], 1: ["two cats sleep"]}
        return 0.25, results.pop()

    fake = types.ModuleType("pycocoevalcap.spice.spice")
    fake.Spice = lambda: types.SimpleNamespace(compute_score=compute_score)
    for name in ("pycocoevalcap", "pycocoevalcap.spice"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "pycocoevalcap.spice.spice", fake)
    for missing in ("java_fault", "_models_fault"):
        monkeypatch.setattr(module, missing, lambda *_: None)
    results = [[{"All": {"f": 0.5}}, {"All": {"f": 0.0}}]]
    score = spice()
    assert score.value == pytest.approx(0.25)
    assert score.per_image == {1: 0.5, 2: 0.0}
    assert capsys.readouterr().out == ""
    assert spice().reason.startswith("SPICE's Java program failed: IndexError: ")
