"""The command line in tests: a tiny configuration, running a command, and its result."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from helpers.fork_server import SIGNALS as SIGNALS
from helpers.fork_server import Command
from helpers.fork_server import Ran as Ran
from helpers.fork_server import default_signals as default_signals

TINY = """\
seed_everything: 0
trainer:
  max_epochs: 2
  accelerator: cpu
  log_every_n_steps: 2
  num_sanity_val_steps: 0
  default_root_dir: {folder}/run
model:
  encoder:
    class_path: caption.encoders.SmallCNN
    init_args: {{widths: [4, 4, 8]}}
  decoder:
    class_path: caption.decoders.ShowAttendAndTellDecoder
    init_args:
      attention:
        class_path: caption.attention.ScoredAttention
        init_args:
          score: {{class_path: caption.attention.AdditiveScore, init_args: {{size: 8}}}}
          alignment: {{class_path: caption.attention.Softmax}}
      embedding_size: 8
      hidden_size: 12
      gate: {{class_path: caption.decoders.Gate}}
      readout: {{class_path: caption.decoders.DeepOutput, init_args: {{dropout: 0.1}}}}
  encoder_learning_rate: 2.0e-3
  search:
    class_path: caption.search.BeamSearch
    init_args: {{beam_size: 2, max_length: 10}}
  validation_search:
    class_path: caption.search.Greedy
    init_args: {{max_length: 10}}
data:
  reader:
    class_path: caption.data.shapes.Shapes
    init_args: {{folder: {shapes}, train: 40, val: 8, test: 8, size: 48}}
  transform: {{size: 48, fit: squash}}
  batch_size: 8
  captions_per_image: 3
  min_count: 1
"""


QUIET = (
    *("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"),
    "--attention_figures.images=0",
)


Cli = Callable[..., Ran]
"""Runs the command in this process: the fixture `cli`."""


class Trained(NamedTuple):
    """A finished training."""

    config: Path
    folder: Path
    ran: Ran


def start_command(*args: object, env: dict[str, str] | None = None, **options: Any) -> Command:
    """Starts the command in a process of its own with one thread, because tiny tensors are slower with more."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(env or {})}
    return Command(*args, env=environment, **options)


def run_command(*args: object, env: dict[str, str] | None = None, **options: Any) -> Ran:
    """Runs the command in a process of its own to its end."""
    return start_command(*args, env=env, **options).finish()


def check_refused(ran: Ran, *said: str) -> None:
    """Wrong usage: nothing on stdout, and on stderr a message with these words, without a traceback."""
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert [words for words in said if words not in ran.err] == [], ran.err
    assert not re.search("Traceback|internal error|usage:", ran.err), ran.err


def resume(cli: Cli, trained: Trained, folder: Path, *options: object) -> Ran:
    """Go on with a training in a copy of its folder."""
    where = ("--trainer.default_root_dir", folder, "--ckpt_path", "auto")
    return cli("fit", "-c", trained.config, *QUIET, *where, *options)
