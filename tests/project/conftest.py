"""The folder of a user's files in which commands are attacked, killed and fed with damaged files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import tiny_captioner
from helpers.command_line import TINY
from helpers.models_of_others import write_models
from helpers.user_files import EVALUATE, FEATURES, FIT, run


def make_template(top: Path) -> None:
    """The user's files: `here`, in which commands run, and `elsewhere`."""
    from caption.data.shapes import write_shapes
    from caption.models import checkpoint

    here = top / "here"
    (here / "photos").mkdir(parents=True, exist_ok=True)
    (top / "elsewhere").mkdir()
    (top / "elsewhere" / "letter.txt").write_text("a letter")
    tiny_captioner.photo(32, 32).save(here / "photo.png")
    for number, name in enumerate("ab"):
        tiny_captioner.photo(32, 32, seed=number).save(here / "photos" / f"{name}.png")
    checkpoint.save(tiny_captioner.captioner(), here / "model.ckpt")
    write_shapes(here / "shapes", train=8, val=2, test=2, size=48)
    config = yaml.safe_load(TINY.format(folder=".", shapes="shapes"))
    config["data"]["reader"]["init_args"] |= {"train": 8, "val": 2, "test": 2}
    config["trainer"] |= {"max_epochs": 1, "limit_train_batches": 1, "default_root_dir": "run"}
    (here / "fit.yaml").write_text(yaml.safe_dump(config))
    lines = [
        '{"image": "a.png", "caption": "a cat", "split": "train"}',
        '{"image": "b.png", "caption": "a cat", "split": "val"}',
    ]
    (here / "captions.json").write_text("\n".join(lines))
    write_models(here)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for args in (
            FIT,
            f"{FEATURES} --out store",
            "shards -c fit.yaml --samples 3 --out shards",
            f"test {EVALUATE}",
        ):
            ran = run(args.split())
            assert ran.code == 0, ran.err


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
