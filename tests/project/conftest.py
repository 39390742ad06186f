"""The folder of a user's files in which commands are attacked, killed and fed with damaged files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.command_line import TINY
from helpers.user_files import make_template


@pytest.fixture(scope="session")
def template(once: Callable[..., Path], lightning: None) -> Path:
    """See `make_template`; tests must not change it."""
    return once("template", make_template)


@pytest.fixture
def tiny_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`demo` trains a tiny model, and Ray's actors run in this process."""
    from caption.cli import demo
    from caption.models import on_ray

    config = yaml.safe_load(TINY.format(folder="unused", shapes="unused"))
    config["data"]["reader"]["init_args"] |= {"train": 8, "val": 2, "test": 2}
    config["trainer"] |= {"max_epochs": 1, "enable_progress_bar": False, "enable_model_summary": False}
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "shapes_soft.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(demo, "config_folder", lambda: configs)
    monkeypatch.setattr(demo, "PICTURES", 2)

    def run_here(
        pending: list[dict[str, Any]], job: on_ray.Job, actors: int | None
    ) -> Iterator[on_ray.Progress]:
        for piece in pending:
            row = on_ray.Actor(job)(piece)
            yield on_ray.Progress(row["photos"], row["failed"])

    monkeypatch.setattr(on_ray, "_run", run_here)
