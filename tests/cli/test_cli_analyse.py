"""`caption analyse`: its page, its figure and its messages; and the tool that writes the repository's page."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from caption.analysis.study_tables import TITLES
from caption.cli.analyse import command as verb
from caption.errors import UserError
from caption.runtime.outputs import check_outputs
from tools import analysis_page
from tools.documents import read_sections


def test_the_whole_run_writes_page_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "page.md"
    assert verb.main(["--limit", "3", "--model", "soft=shapes", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "soft: grounding, captions included:" in printed.err
    text = out.read_text(encoding="utf-8")
    assert "3 scenes of the test split" in text
    assert text.count("\n## ") == len(TITLES) - 1
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert "](page.png)" in text
    check_outputs({"--out": [out, tmp_path / "page.png"]})  # the next run may replace both


def test_the_repositorys_page_has_a_section_for_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    document = tmp_path / "analysis.md"
    document.write_text(analysis_page.DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    measured = []

    def analyse(models: dict[str, str], limit: int, picture: str) -> tuple[dict[str, str], Figure]:
        measured.append((models, limit, picture))
        return {name: f"new {name}" for name in TITLES}, Figure()

    monkeypatch.setattr(analysis_page, "analyse", analyse)
    assert analysis_page.main(["--limit", "7", "--document", str(document)]) == 0
    assert measured == [({"soft": "shapes", "hard": "shapes-hard"}, 7, "analysis.png")]
    assert read_sections(document) == {name: f"new {name}" for name in TITLES}
    assert "caption calibrate photos" in document.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "=shapes"], "--model =shapes: write NAME=MODEL"),
        (["--model", "a=shapes", "--model", "a=shapes-hard"], "--model a=shapes-hard: write NAME=MODEL"),
        (["--model", "a=nowhere"], "no checkpoint nowhere"),
        (["--limit", "1"], "--limit 1"),
        (["--out", "/nowhere/a/page.md"], "there is no folder /nowhere; make it"),
        (["--out", "page.txt"], "--out page.txt"),
    ],
)
def test_wrong_usage_is_named_before_the_work_begins(arguments, complaint):
    with pytest.raises(UserError, match=complaint):
        verb.main(arguments)
