"""Tables of several models on Shapes or on Flickr8k: what is not published yet is trained, scored and published."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.reproduce import flickr8k
from tools.reproduce.models import Model, Run, Runs, arguments, digest, read_runs, trained, write_runs
from tools.reproduce.runs import CONFIGS, run


class Task(NamedTuple):
    """A data set, with a configuration of soft attention."""

    name: str
    regions: str | None
    """The folder of stored regions; None: models learn from images."""

    def soft(self, title: str, *over: str) -> Model:
        """Soft attention, with further configurations laid over it. Without any it is the same model in all tables."""
        return Model(title, (f"{self.name}_soft", *over), regions=self.regions)


SHAPES = Task("shapes", None)
FLICKR8K = Task("flickr8k", "features")


def complete(
    models: Mapping[str, Model],
    published: Path,
    options: argparse.Namespace,
    more: Sequence[str],
    score: Callable[[str, Path, list[str]], Run],
) -> Runs:
    """The runs of a table, read from the file beside its document; those that it lacks are made and added.

    Args:
        models: the rows of the table.
        published: the file.
        options: of the command: data, out, seeds and models.
        more: further arguments of `caption fit` and `caption test`.
        score: the scores of a trained model, of its name, folder and arguments.
    """
    task = task_of(options)
    runs = read_runs(published, models, more)
    out = options.out or Path(f"runs/{task.name}")
    common = ["--data.reader.init_args.folder", str(out / "scenes")]
    if task is FLICKR8K:
        common = flickr8k.data_arguments(options.data)
    wanted = [(name, seed) for seed in options.seeds for name in options.models or models]
    missing = [each for each in wanted if each not in runs]
    if missing and task.regions is not None:
        configs = ["--config", str(CONFIGS / f"{task.name}_soft.yaml")]
        run("features", *configs, "--out", str(out / task.regions), *common)
    common += more
    for name, seed in missing:
        folder = trained(models, out, name, seed, common)
        scored = score(name, folder, arguments(models, out, name, seed, common))
        runs |= read_runs(published, models, more)  # another of these commands may have written some
        runs[name, seed] = {"digest": digest(models, name, more), "more": more, **scored}
        write_runs(published, models, runs)
    return runs


def task_of(options: argparse.Namespace) -> Task:
    """Flickr8k if its folder is given, else Shapes."""
    return SHAPES if options.data is None else FLICKR8K


def command(name: str, task: Task, runs: Runs, data: str = "--data DATA") -> str:
    """The command line that makes these runs."""
    seeds = sorted({seed for _, seed in runs})
    more = sorted({" ".join(run["more"]) for run in runs.values()} - {""})
    on = [data] if task is FLICKR8K else []
    return " ".join([f"python -m tools.reproduce {name}", *on, "--seeds", *map(str, seeds), *more])
