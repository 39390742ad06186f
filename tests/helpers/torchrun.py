"""Real processes in tests: torchrun with gloo, on one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def torchrun(*command: object) -> subprocess.CompletedProcess[str]:
    """Runs a script in two processes of one thread each. It can import test helpers."""
    path = [TESTS.parent, TESTS]
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = subprocess.run(
        [*torchrun, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, path))},
    )
    assert done.returncode == 0, done.stderr
    return done
