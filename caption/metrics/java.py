"""What metrics that exist only in Java need, and what to say where it is missing."""

from __future__ import annotations

import shutil
from importlib.util import find_spec


def java_fault(module: str) -> str | None:
    """Why `module`, a part of pycocoevalcap with a Java program in it, cannot be used; None where it can."""
    if shutil.which("java") is None:
        return "Java is missing: install a Java runtime so that the command java is found."
    if find_spec("pycocoevalcap") is None or find_spec(module) is None:
        return "the package pycocoevalcap is missing: run pip install pycocoevalcap."
    return None
