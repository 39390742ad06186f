"""The tool that tells how well scores find nouns that no reference names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from caption.analysis.lens.unnamed_nouns import EVEN, MEAN, OTHER, OWN, SHARES, NounUses
from caption.errors import UserError
from tools import unnamed_nouns as tool


def uses(seed: int, gate: bool = True) -> NounUses:
    """Forty nouns, of which the lens with the model's own map knows the wrong ones best."""
    generator = np.random.default_rng(seed)
    unnamed = np.arange(40) % 4 == 0

    def noisy(strength: float) -> np.ndarray:
        return strength * unnamed + generator.normal(size=40)

    strengths = {OWN: 5.0, MEAN: 1.0, OTHER: 1.0, EVEN: 0.0}
    surprise = {name: np.tile(noisy(of)[:, None], len(SHARES)) for name, of in strengths.items()}
    of_model = {"−log p": noisy(1)} | ({"gate": noisy(0)} if gate else {})
    words = tuple("dog" if number % 3 else "cat" for number in range(40))
    return NounUses(words, np.arange(40), unnamed, of_model, surprise)


def test_the_table_has_a_row_for_each_score_and_a_dash_where_a_model_lacks_it(tmp_path: Path) -> None:
    told = {"soft": tool.tell(uses(0), uses(1)), "other": tool.tell(uses(0, False), uses(1, False))}
    tables = tool.report(told).split("\n\n")
    all_pairs, same_word, gains = (
        {
            line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
            for line in lines.splitlines()
        }
        for lines in tables
    )
    assert all_pairs["AUROC, all pairs"] == [f"{name}: 25% of 40 nouns unnamed" for name in told]
    assert all_pairs["gate"][1] == "–"
    assert float(all_pairs[f"lens, {OWN}"][0].split()[0]) > 0.95
    assert same_word["the word alone"][0] == "0.500 [0.500, 0.500]"
    own, even = (float(all_pairs[f"lens, {name}"][0].split()[0]) for name in (OWN, EVEN))
    gain = gains[f"lens: {OWN} less {EVEN}"][0]
    assert gain.startswith("+")
    assert float(gain.split()[0]) == pytest.approx(own - even, abs=0.002)
    axes = tool.draw(told).axes
    assert [ax.get_title() for ax in axes] == ["soft", "other"]
    assert len(axes[0].get_yticklabels()) == len(told["soft"].aurocs)


def test_where_nothing_is_wrong_there_is_nothing_to_tell() -> None:
    right = dataclasses.replace(uses(0), unnamed=np.zeros(40, bool))
    with pytest.raises(
        UserError, match="of the 40 nouns that captions of the split val use, 0 are named by no"
    ):
        tool.tell(right, uses(1))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a=photos", "a=shapes", "-c", "x.yaml"], "two models have one name"),
        (["photos", "-c", "x.yaml"], "x.yaml"),
        (["photos", "-c", "x.yaml", "--figure", "x.txt"], "--figure"),
    ],
)
def test_what_cannot_be_run_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(arguments) == 2
    assert told in capsys.readouterr().err
