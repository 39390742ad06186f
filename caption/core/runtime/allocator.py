"""Keeping freed memory in the process: otherwise each large tensor is allocated in new pages of the system."""

from __future__ import annotations

import ctypes
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
MOST = 1 << 30
"""Bytes of free memory that the process keeps, and the size below which blocks are allocated from it."""


def keep_freed_memory() -> None:
    """Let glibc reuse freed memory. Does nothing with another allocator, or if the user has set the allocator's
    options.

    By default, glibc returns large blocks to the system when they are freed, and the system must clear the pages of the
    next ones, one page fault after another. Gain (one thread of an AMD EPYC, 385 pixels): the encoder of the installed
    model `photos` takes 1.2, 1.7 and 1.5 times as long without it, with 1, 8 and 32 images at once; a training step of
    the decoder 1.05 times. The peak memory of the process is the same (564 and 574 MB).
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, MOST)
        mallopt(TRIM_THRESHOLD, MOST)
