"""How much memory this process held at its fullest."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def peak() -> int:
    """Bytes in physical memory.

    Linux passes what `resource` tells of a process on to those that it starts, so the
    kernel's own account is read.
    """
    try:
        return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0])
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
