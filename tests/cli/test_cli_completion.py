"""Completion in a shell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.command_line import Ran

from caption.cli.main import VERBS

Cli = Callable[..., Ran]
shtab = pytest.importorskip("shtab")
ASK = """\
source {script}
COMP_WORDS=({words}); COMP_CWORD=$(({count} - 1)); COMP_LINE="{words}"
_shtab_caption 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from caption.cli import completion

    path = tmp_path_factory.mktemp("completion") / "caption"
    path.write_text(shtab.complete(completion.command(), "bash"))
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("caption desc", {"describe"}),
        ("caption conf", {"configs"}),
        ("caption describe --heat", {"--heatmap"}),
        ("caption describe x.png --format js", {"json", "jsonl"}),
        ("caption fit --trainer.max_ep", {"--trainer.max_epochs"}),
        ("caption fit --data.batch", {"--data.batch_size", "--data.batching"}),
    ],
)
def test_bash_completes_it(script: Path, words: str, expected: set[str]):
    ask = ASK.format(script=script, words=words, count=len(words.split()))
    ran = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)
    assert {word.strip() for word in ran.stdout.split()} == expected, ran.stderr


def test_the_verb_prints_a_script_for_each_shell(cli: Cli):
    ran = cli("completion", "zsh")
    assert ran.code == 0
    assert "#compdef caption" in ran.out
    assert all(f"caption_{verb.replace('-', '_')}" in ran.out for verb in VERBS)
    assert cli("completion", "fsh").code == 2
