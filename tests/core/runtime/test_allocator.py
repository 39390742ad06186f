"""Freed memory is reused instead of returned to the system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import ctypes, resource
from caption.core.runtime.allocator import keep_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def use():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(1 << 26)
    ctypes.memset(block, 1, 1 << 26)
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
keep_freed_memory()
use()
print(use())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.parametrize(("options", "reused"), [({}, True), ({"MALLOC_ARENA_MAX": "4"}, False)])
def test_a_block_is_used_again_unless_the_user_has_set_the_allocator(options: dict[str, str], reused: bool):
    others = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", FAULTS]
    faults = int(
        subprocess.run(command, env=others | options, capture_output=True, text=True, check=True).stdout
    )
    assert (faults == 0) == reused
