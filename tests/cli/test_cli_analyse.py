"""`caption analyse`: its page, its figure and its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from caption.analysis.study.tables import ON_SHAPES
from caption.cli import analyse as verb
from caption.errors import UserError
from caption.runtime.outputs import check_outputs

pytestmark = pytest.mark.slow


def test_the_whole_run_writes_page_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "page.md"
    assert verb.main(["--limit", "3", "--model", "soft=shapes", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "soft: at " in printed.out
    assert f"wrote {out}" in printed.err
    text = out.read_text(encoding="utf-8")
    assert "3 scenes of the test split" in text
    assert text.count("\n## ") == len(ON_SHAPES) - 1  # the model has no heads
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert "](page.png)" in text
    check_outputs({"--out": [out, tmp_path / "page.png"]})  # the next run may replace both


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "=shapes"], "--model =shapes: write NAME=MODEL"),
        (["--model", "a=shapes", "--model", "a=shapes-hard"], "--model a=shapes-hard: write NAME=MODEL"),
        (["--model", "a=nowhere"], "no checkpoint nowhere"),
        (["--limit", "1"], "--limit 1"),
        (["--out", "{tmp_path}/nowhere/a/page.md"], "there is no folder .*nowhere; make it"),
        (["--out", "page.txt"], "--out page.txt"),
    ],
)
def test_wrong_usage_is_named_before_the_work_begins(
    arguments, complaint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=complaint):
        verb.main([argument.format(tmp_path=tmp_path) for argument in arguments])
