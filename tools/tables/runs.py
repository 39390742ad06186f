"""One run: `caption fit` of a row with a seed, `caption test`, and further measures. It resumes after a stop."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from caption.cli.main import main as caption
from caption.core.errors import UserError
from caption.core.runtime.atomic_files import locked, make_parents, replacing
from caption.models import checkpoint
from caption.models.model_zoo import model_file
from tools.tables import measures
from tools.tables.table import Row, TrainedTable, digest_of, options

Run = dict[str, Any]
"""The entry of a row and seed: digest, further arguments, seconds, epochs, scores by test, measures."""
Runs = dict[str, dict[str, Run]]
"""By row and seed."""
OF_REGIONS = re.compile(r"--(data\.reader|data\.transform|model\.encoder)\b")
"""Options that `caption features` takes."""


class Bench:
    """Trains, tests and measures the rows of a table.

    Args:
        table: the table.
        out: the folder of runs and stored regions. The name of a run's folder has the digest of its settings, so tables
            share runs, and changed settings are trained in another folder.
        more: further arguments of `caption fit` and `caption test`.
        folders: by the names in `table.data`.
        published: runs that need not be repeated.
    """

    def __init__(
        self,
        table: TrainedTable,
        out: Path,
        more: Sequence[str],
        folders: Mapping[str, Path],
        published: Runs,
    ) -> None:
        self.table = table
        self.out = out
        self.more = [*more]
        self.folders = {"out": out, **folders}
        self.published = published
        self._stored: set[Path] = set()

    def result(self, row: Row, seed: int) -> Run | None:
        """The run, if it is complete with the present settings, else None."""
        file = self.folder(row, seed) / f"{self.table.name}.json"
        runs = [json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []
        runs.append(self.published.get(row.name, {}).get(str(seed)))
        digest = self.table.full_digest(row, self.more)
        return next((run for run in runs if run and run["digest"] == digest), None)

    def folder(self, row: Row, seed: int) -> Path:
        name = re.sub(r"\W+", "_", row.name)
        return self.out / f"{name}-{seed}-{self.table.digest(row, self.more)}"

    def run(self, row: Row, seed: int) -> Run:
        """Train, test and measure, or resume where it was stopped.

        Raises:
            UserError: a folder that the table needs is not given.
            SystemExit: a command failed or was stopped.
        """
        self._filled([self.table.folders])
        folder, best = self.folder(row, seed), self.best(row, seed)
        make_parents(folder / "done.json")
        trained = self.trained(row, seed)
        arguments = self._arguments(row, seed) if row.tests else []
        beam: list[str] = []
        run: Run = {
            "digest": self.table.full_digest(row, self.more),
            "arguments": self.more,
            **trained,
            "scores": {},
        }
        tests = {name: self._filled(more) for name, more in row.tests.items()}
        if self.table.beams:
            dev, sizes = tests.pop("dev"), self.table.beams
            for size in sizes:
                more = [*dev, f"--model.search.init_args.beam_size={size}"]
                results = tested(folder, f"dev_{size}", arguments, more, best)
                run["scores"][f"dev {size}"] = results["scores"]
            run["beam"] = max(sizes, key=lambda size: run["scores"][f"dev {size}"]["BLEU-4"])
            beam = [f"--model.search.init_args.beam_size={run['beam']}"]
        for name, more in tests.items():
            results = tested(folder, name, arguments, [*more, *beam], best)
            run["scores"][name] = results["scores"]
            run["signature"] = results["signature"]
        for name in self.table.measures:
            getattr(measures, name)(run, best, folder, self.folders)
        with replacing(folder / f"{self.table.name}.json") as file:
            file.write(json_text(run))
        return run

    def best(self, row: Row, seed: int) -> Path:
        """The model that is tested."""
        if row.model:
            return Path(model_file(row.model))
        return self.folder(row, seed) / ("model" if row.transformers else "best.ckpt")

    def trained(self, row: Row, seed: int) -> Run:
        """Seconds and epochs of a training; runs it if it is not complete, after the one that it starts from."""
        if row.model:
            return {}
        record = self.folder(row, seed) / "done.json"
        if not record.exists():
            make_parents(record)
            trained = self._train_tiny(row, seed) if row.transformers else self._fit(row, seed)
            with replacing(record) as file:
                file.write(json_text(trained))
        return json.loads(record.read_text(encoding="utf-8"))

    def _fit(self, row: Row, seed: int) -> Run:
        folder, start = self.folder(row, seed), []
        if row.warm_start:
            warm = self.table.row(row.warm_start)
            self.trained(warm, seed)
            start = [f"--model.warm_start={self.best(warm, seed)}"]
        where = [f"--trainer.default_root_dir={folder}", "--ckpt_path=auto"]
        command("fit", *self._arguments(row, seed), *start, *where)
        last = checkpoint.read(folder / "last.ckpt")
        seconds = round(last["callbacks"]["LastCheckpoint"]["trained_seconds"])
        return {"seconds": seconds, "epochs": last["epoch"] + 1}

    def _train_tiny(self, row: Row, seed: int) -> Run:
        from tools.tables.tiny_captioners import train  # needs the extra "transformers"

        started = perf_counter()
        train(str(row.transformers), self.best(row, seed), self.out / "scenes", seed)
        return {"seconds": round(perf_counter() - started)}

    def _arguments(self, row: Row, seed: int) -> list[str]:
        """The arguments of `caption fit` and `caption test`, without folder and checkpoint."""
        configs = [part for config in row.configs for part in ("-c", config)]
        common = [*row.arguments, *self.table.arguments, *self._filled(self.table.data), *self.more]
        return [*configs, *common, *self._regions(row, common), f"--seed_everything={seed}"]

    def _filled(self, arguments: Sequence[str]) -> list[str]:
        """Arguments with folders in place of their names in braces."""
        filled = []
        for argument in arguments:
            for name in re.findall(r"\{(data|photos|out)\}", argument):
                if not self.folders.get(name):
                    raise UserError(f"the table {self.table.name} needs --{name}: give the folder")
                argument = argument.replace(f"{{{name}}}", str(self.folders[name]))
            filled.append(argument)
        return filled

    def _regions(self, row: Row, arguments: Sequence[str]) -> list[str]:
        """The arguments that name stored regions, which are computed if missing."""
        settings = self.table.settings(row, self.more)
        data = settings["data"]
        wanted = {"--data.features": data, "--data.flip.features": data.get("flip") or {}}
        parts = [settings["model"]["encoder"], data.get("transform"), data["reader"]["class_path"]]
        stores = []
        for option in (option for option, stored in wanted.items() if stored.get("features")):
            mirrored = option == "--data.flip.features"
            store = self.out / "regions" / (digest_of(parts) + "_mirrored" * mirrored)
            if store not in self._stored:  # it takes seconds to find that none is missing
                make_parents(store)
                given = [f"{name}={value}" for name, value in options(arguments) if OF_REGIONS.match(name)]
                configs = [f"--config={config}" for config in row.configs]
                command("features", *configs, *given, f"--out={store}", *["--mirrored"] * mirrored)
                self._stored.add(store)
            stores.append(f"{option}={store}")
        return stores


def command(*arguments: str) -> None:
    """Run one `caption` command; end with its exit code if it fails or is stopped."""
    print("+ caption", *arguments, file=sys.stderr)
    if code := caption(list(arguments)):
        sys.exit(code)


def tested(folder: Path, name: str, arguments: list[str], more: list[str], best: Path) -> dict[str, Any]:
    """The results of `caption test` for a model, which are kept in its folder with the captions. Those of the test that
    was asked for last are {name}_captions.json."""
    digest = digest_of(more)
    file, captions = folder / f"{name}-{digest}.json", folder / f"{name}_captions-{digest}.json"
    # Earlier versions kept the captions of the last test alone: they are this test's if there was no other.
    is_only_test = [*folder.glob(f"{name}-{'?' * len(digest)}.json")] == [file]
    if not (file.exists() and (captions.exists() or is_only_test)):
        where = [f"--trainer.default_root_dir={folder}", f"--ckpt_path={best}", "--verbose=false"]
        command("test", *arguments, *more, *where)
        newest = max((folder / "logs").glob("*/test_scores.json"), key=lambda path: path.stat().st_mtime)
        for source, target in [
            (newest.with_name("test_captions.json"), captions),
            (newest, file),  # last: it marks the test as complete
        ]:
            with replacing(target) as opened:
                opened.write(source.read_bytes())
    if captions.exists():
        with replacing(folder / f"{name}_captions.json") as opened:
            opened.write(captions.read_bytes())
    return json.loads(file.read_text(encoding="utf-8"))


def read_runs(numbers: Path) -> Runs:
    """The published runs."""
    return json.loads(numbers.read_text(encoding="utf-8")) if numbers.exists() else {}


@contextmanager
def publishing(table: TrainedTable) -> Iterator[Runs]:
    """The published runs, for changes, while other commands of this kind wait."""
    with locked(table.numbers.parent, "--out", wait=True):
        runs = read_runs(table.numbers)
        yield runs
        in_order = [*table.rows, *(name for name in runs if name not in table.rows)]
        content = {
            name: dict(sorted(runs[name].items(), key=lambda item: int(item[0])))
            for name in in_order
            if name in runs
        }
        with replacing(table.numbers) as file:
            file.write(json_text(content))


def json_text(content: Any) -> bytes:
    """JSON in which lists of numbers are one line each."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return (re.sub(r"\[[-+.\deE,\s]+\]", lambda match: " ".join(match[0].split()), text) + "\n").encode()
