"""Trainings of `caption` that are resumed where they stopped, and tests that run once."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from caption.cli.main import main as caption

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def run(*arguments: str) -> None:
    """Run one `caption` command; end the program if it fails."""
    print("+ caption", *arguments, file=sys.stderr)
    if code := caption(list(arguments)):
        sys.exit(code)


def fit(folder: Path, arguments: list[str]) -> Path:
    """Train into a folder, or resume, unless it is done; returns the best checkpoint."""
    done, last, clock = folder / "done", folder / "last.ckpt", time.monotonic()
    if not done.exists():
        resume = ["--ckpt_path", str(last)] if last.exists() else []
        run("fit", *arguments, "--trainer.default_root_dir", str(folder), *resume)
        done.write_text(f"{time.monotonic() - clock:.0f} seconds since the last start\n", encoding="utf-8")
    return folder / "best.ckpt"


def test(folder: Path, file: Path, arguments: list[str]) -> dict[str, Any]:
    """Test the best checkpoint of a folder, unless the file of its scores exists; returns what the file says."""
    if not file.exists():
        best = str(folder / "best.ckpt")
        run("test", *arguments, "--trainer.default_root_dir", str(folder), "--ckpt_path", best)
        newest = max((folder / "logs").glob("*/test_scores.json"), key=lambda path: path.stat().st_mtime)
        newest.replace(file)
    return json.loads(file.read_text(encoding="utf-8"))
