"""The requirements of the metrics that run a Java program."""

from __future__ import annotations

import shutil
from importlib.util import find_spec


def java_fault(module: str) -> str | None:
    """Why a module of pycocoevalcap that contains a Java program cannot be used; None if it can."""
    if shutil.which("java") is None:
        return "Java is missing: install a Java runtime so that the command java is found."
    if find_spec("pycocoevalcap") is None or find_spec(module) is None:
        return "the package pycocoevalcap is missing: run pip install pycocoevalcap."
    return None
