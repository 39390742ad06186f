"""The command line in tests: a tiny configuration, running a command, and its result."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that stop a command."""


class Ran(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


def default_signals() -> None:
    """Give a signal its default action. A shell ignores some for its background jobs, and children inherit that."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


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


def start_command(*args: object, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    """Starts the command in a process of its own with one thread, because tiny tensors are slower with more."""
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(env or {})}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "caption", *map(str, args)]
    return subprocess.Popen(command, env=environment, text=True, **pipes | options)


def finish(process: subprocess.Popen[str], timeout: float = 300) -> Ran:
    """Wait for the end of a command; one that has not ended after `timeout` seconds is killed."""
    with process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return Ran(process.returncode, out or "", err)


def run_command(*args: object, env: dict[str, str] | None = None, **options: Any) -> Ran:
    """Runs the command in a process of its own to its end."""
    return finish(start_command(*args, env=env, **options))


def check_refused(ran: Ran, *said: str) -> None:
    """Wrong usage: nothing on stdout, and on stderr a message with these words, without a traceback."""
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert [words for words in said if words not in ran.err] == [], ran.err
    assert not re.search("Traceback|internal error|usage:", ran.err), ran.err


def resume(cli: Cli, trained: Trained, folder: Path, *options: object) -> Ran:
    """Go on with a training in a copy of its folder."""
    where = ("--trainer.default_root_dir", folder, "--ckpt_path", "auto")
    return cli("fit", "-c", trained.config, *QUIET, *where, *options)
