"""The tool that measures estimators: its statistics on draws of known bias, its exact gradient, and a short run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caption.errors import UserError
from tools import estimators as tool
from tools.documents import write_sections


def draws(offset: float, seed: int = 1, number: int = 2000, size: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Noisy gradients whose mean differs from the true gradient, of length 2, by `offset` times that length."""
    generator = np.random.default_rng(seed)
    truth = np.zeros(size)
    truth[0] = 2.0
    away = np.zeros(size)
    away[3] = 2.0 * offset
    return truth + away + generator.normal(0, 1.5, (number, size)), truth


def counts(number: int) -> np.ndarray:
    return np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=400)


def test_the_bias_is_corrected_for_noise():
    values, naive, zeros = [], [], 0
    for seed in range(20):
        found, truth = draws(0.0, seed)
        naive.append(np.linalg.norm(found.mean(0) - truth) / 2)
        value, low, high = tool.bias(found, truth, counts(2000))
        values.append(value)
        zeros += low == 0
        assert high < 0.15
    assert zeros >= 18  # of 95 % intervals
    assert np.mean(values) < 0.5 * np.mean(naive)


def test_a_bias_is_found_with_its_interval():
    value, low, high = tool.bias(*draws(0.3), counts(2000))
    assert low < 0.3 < high
    assert value == pytest.approx(0.3, abs=0.03)
    assert 0.01 < high - low < 0.2


def test_the_true_gradient_is_a_mean_over_captions_with_attention_weights():
    decoder, regions, captions = tool.toy(0)
    truth = tool.exact(decoder, regions, captions)
    assert truth.bound < truth.marginal < 0
    assert truth.own.sum() == sum(p.numel() for p in decoder.attention.parameters())
    assert len(truth.own) == len(truth.of_bound) == sum(p.numel() for p in decoder.parameters())
    assert np.linalg.norm(truth.of_bound[truth.own]) > 0.05 * np.linalg.norm(truth.of_bound)


def test_a_short_run_writes_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(tool, "SAMPLES", (1, 2))
    monkeypatch.setattr(tool, "WARM_UP", 3)
    monkeypatch.setattr(tool, "cost", lambda repeats: {(tool.ESTIMATORS[0].name, 1): 1.25})
    document = tmp_path / "page.md"
    document.write_text(
        "# Mine\n\n<!-- section estimators begins -->\nold\n<!-- section estimators ends -->\n\nmore\n"
    )
    assert tool.main(["--draws", "20", "--out", str(document)]) == 0
    text = document.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("\n\nmore\n")
    assert "old" not in text
    for estimator in tool.ESTIMATORS:
        assert text.count(f"| {estimator.name} |") == 2  # bias, and variance by samples
    assert "1.25 / –" in text
    words_only = next(line for line in text.splitlines() if line.startswith("| words only"))
    assert (
        "| 1.000 [1.000, 1.000] | 0 |" in words_only
    )  # without a score function the attention learns nothing
    assert capsys.readouterr().out.count("| words only") == 2


def test_a_document_without_marks_is_left_alone(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text("nothing here")
    with pytest.raises(UserError, match="lacks the lines"):
        write_sections(document, {"estimators": "text"})
    assert document.read_text() == "nothing here"


def test_too_few_draws_are_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as leaving:
        tool.main(["--draws", "5"])
    assert leaving.value.code == 2
    assert "--draws 5 is too few" in capsys.readouterr().err
