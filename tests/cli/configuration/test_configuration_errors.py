"""What is wrong in a configuration or in a user's own mechanism is named in a line, with what was meant."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.command_line import QUIET, Cli, check_refused

WRONG = [
    ("max_epochs: 2", "max_epoch: 2", "trainer.max_epoch|did you mean trainer.max_epochs?"),
    ("embedding_size: 8", "embeding_size: 8", "model.decoder|ShowAttendAndTell|did you mean embedding_size?"),
    ("hidden_size: 12", "hidden_size: big", "model.decoder.init_args.hidden_size: big is not a whole number"),
    ("fit: squash", "fit: squish", "data.transform|fit|'squash', 'crop', 'pad'|squish"),
    ("encoders.SmallCNN", "search.Greedy", "model.encoder: caption.search.Greedy is not an Encoder"),
    ("attention.Softmax", "attention.Soft", "model.decoder|attention|alignment|Soft|did you mean Softmax?"),
    ("caption.encoders.Small", "captions.Small", "model.encoder|captions|put captions.py into"),
    ("accelerator: cpu", "accelerator: warp", "warp"),
    ("batch_size: 8", "batch_size: [8", "wrong.yaml|is not YAML|line"),
]


@pytest.mark.parametrize(("right", "wrong", "fragments"), WRONG)
def test_a_wrong_configuration_is_a_line(cli: Cli, tiny: Path, right: str, wrong: str, fragments: str):
    config = tiny.read_text()
    assert right in config
    path = tiny.with_name("wrong.yaml")
    path.write_text(config.replace(right, wrong))
    ran = cli("fit", "-c", path, *QUIET)
    check_refused(ran, *fragments.split("|"))
    (message,) = [line for line in ran.err.splitlines() if line.startswith("caption: ")]
    assert all(fragment in message for fragment in fragments.split("|")), message
    assert len(message) < 500
    assert not (tiny.parent / "run").exists()


WITHOUT_WANDB = pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--model.optimizer.lrr 0.1", "model.optimizer|lrr|did you mean lr?"),
        ("--model.scheduler=StepLR --model.scheduler.step_sise=3", "step_sise|did you mean step_size?"),
        ("--trainer.precision bf61", "trainer.precision|'bf16'|bf61"),
        pytest.param("--trainer.logger pytorch_lightning.loggers.WandbLogger", "wandb", marks=WITHOUT_WANDB),
    ],
)
def test_a_wrong_command_line_is_told_in_a_sentence(cli: Cli, tiny: Path, options: str, named: str):
    ran = cli("fit", "-c", tiny, *QUIET, *options.split())
    check_refused(ran, *named.split("|"))
    assert "Namespace" not in ran.err
    assert len(ran.err) < 500


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
LINEAR, SIZE = "nn.Linear(region_sizes[0], query", "self.context_size = region_sizes[0]"


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (LINEAR, "nn.Linear(3, query", "my_own.py, line 10, in memory: RuntimeError: "),
        (SIZE, "self.context_size = 5", "Mine reads a context of shape (1, 1, 8)|must be (B, K, 5)"),
    ],
    ids=["a layer of another size", "another context size"],
)
def test_an_own_mechanism_that_is_wrong(
    cli: Cli, tiny, tmp_path, monkeypatch, right: str, wrong: str, said: str
):
    monkeypatch.chdir(tmp_path)
    config = tiny.read_text()
    start, end = (
        config.index("        class_path: caption.attention.Scored"),
        config.index("      embedding_size"),
    )
    tiny.write_text(f"{config[:start]}        class_path: my_own.Mine\n{config[end:]}")
    assert right in MECHANISM
    (tmp_path / "my_own.py").write_text(MECHANISM.replace(right, wrong))
    monkeypatch.syspath_prepend(tmp_path)
    ran = cli("fit", "-c", tiny, *QUIET, "--trainer.max_steps=1")
    sys.modules.pop("my_own", None)
    check_refused(ran, *said.split("|"))
