"""What is wrong in a configuration or in a user's own mechanism is named in a line, with what was meant."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.command_line import QUIET, Ran

Cli = Callable[..., Ran]
MECHANISM = """\
from torch import nn
from caption.attention import Attention, ReadOutput, WeighOutput

class Mine(Attention):
    def create_weights(self, region_sizes, query_sizes):
        self.keys = nn.Linear(region_sizes[0], query_sizes.hidden)
        self.context_size = region_sizes[0]

    def memory(self, views):
        return self.keys(views[0].vectors), views[0].vectors

    def weigh(self, query, memory, state):
        return WeighOutput((query.hidden @ memory[0].mT).softmax(-1))

    def read(self, maps, query, memory, weighed=None):
        return ReadOutput(maps @ memory[1])
"""
WRONG = {
    "a layer of another size": (
        "nn.Linear(region_sizes[0], query",
        "nn.Linear(3, query",
        ["my_own.py, line 10, in memory: RuntimeError: "],
    ),
    "another context size": (
        "self.context_size = region_sizes[0]",
        "self.context_size = 5",
        ["Mine reads a context of shape (8, 3, 8)", "must be (B, K, 5)"],
    ),
}


@pytest.fixture
def mine(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    scored = tiny.read_text()
    start = scored.index("        class_path: caption.attention.ScoredAttention")
    end = scored.index("      embedding_size")
    tiny.write_text(f"{scored[:start]}        class_path: my_own.Mine\n{scored[end:]}")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "my_own.py"
    sys.modules.pop("my_own", None)


@pytest.mark.parametrize("what", WRONG)
def test_the_message_names_class_and_shapes(cli: Cli, tiny: Path, mine: Path, what: str):
    right, wrong, named = WRONG[what]
    assert right in MECHANISM
    mine.write_text(MECHANISM.replace(right, wrong))
    ran = cli("fit", "-c", tiny, *QUIET, "--trainer.max_steps=1")
    assert (ran.code, ran.out) == (2, "")
    for fragment in named:
        assert fragment in ran.err, ran.err
    assert "internal error" not in ran.err
    assert "Traceback" not in ran.err


def test_the_mechanism_itself_trains(cli: Cli, tiny: Path, mine: Path):
    mine.write_text(MECHANISM)
    assert cli("fit", "-c", tiny, *QUIET, "--trainer.max_steps=1").code == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--model.optimizer.lrr", 0.1), ["model.optimizer", "lrr", "did you mean lr?"]),
        (
            ("--model.scheduler=StepLR", "--model.scheduler.step_sise=3"),
            ["step_sise", "did you mean step_size?"],
        ),
        (("--model.decoder.init_args.hiden_size", 3), ["model.decoder", "did you mean hidden_size?"]),
        pytest.param(
            ("--trainer.logger", "pytorch_lightning.loggers.WandbLogger"),
            ["wandb"],
            marks=pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed"),
        ),
    ],
)
def test_a_misspelt_argument_and_a_missing_package_are_told_in_a_sentence(
    cli: Cli, tiny: Path, options: tuple[object, ...], named: list[str]
):
    ran = cli("fit", "-c", tiny, *QUIET, *options)
    assert (ran.code, ran.out) == (2, "")
    for fragment in named:
        assert fragment in ran.err
    assert "Namespace" not in ran.err
    assert len(ran.err) < 260


def test_the_reason_why_the_vocabulary_cannot_be_computed_is_told_alone(cli: Cli, tiny: Path):
    ran = cli("fit", "-c", tiny, "--model.warm_start", "none.ckpt")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "caption: the configuration cannot be used: there is no checkpoint none.ckpt"
    ), ran.err
