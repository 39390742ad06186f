"""Files as this package writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from caption.core.runtime.files import MARK, replacing, seal


def write_own(path: Path, content: str = "") -> None:
    """A text that bears the mark of this package."""
    with replacing(path) as file:
        file.write(f"{content}<!-- {MARK} -->".encode())
        seal(file)


def save_own(contents: Any, path: Path) -> None:
    """A checkpoint as training writes it, whoever made its contents."""
    with replacing(path) as file:
        torch.save(contents, file)
        seal(file)
