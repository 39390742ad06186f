"""Tables: the rows that are trained, their tests, and what a document shows of them.

A table is a YAML file of this folder:

    document, numbers    the Markdown file with the table's sections and the JSON file of its runs, in docs/results;
                         a section may name another document
    seeds                of every row that has none of its own
    under                configurations under each row
    arguments            of `caption fit` and `caption test`, for all rows
    data                 further arguments, which name files: {data}, {photos}, {out} are folders of the command
    overlays             a folder of configs/: each of its files that overlays the first of `under` is a row
    rows                 by name: title, configs (by default overlays/NAME), arguments, warm_start (a row), seeds,
                         tests, model (an installed one, which is tested as it is), transformers (a tiny captioner of
                         transformers, which tiny_captioners.py trains)
    tests                by name: arguments of `caption test`
    beams                beam sizes; each run gets the one with the best BLEU-4 in the test `dev`
    measures             functions of `measures.py`
    sections             of the document: see `render.py`
    figures              beside the document: see `figures.py`
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from caption.cli.configuration.config_files import find_config, option_pairs, read_config
from caption.core.errors import UserError, did_you_mean
from tools.tables import measures

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
RESULTS = ROOT / "docs" / "results"
MACHINE = {
    *("accelerator", "default_root_dir", "devices", "enable_model_summary", "enable_progress_bar", "logger"),
    "precision",
}
"""Options of the trainer that set where and how a run goes, not what it learns."""
FORMS = {"accelerate", "compile", "graphs"}
"""Options of the model that choose among forms which compute the same."""
TITLE = re.compile(r',? "[^"]+"')
"""Of a paper, in the source of a configuration."""
SENTENCES = re.compile(r"(?<=\.)\s+(?=[A-Z`])")
"""What is between them."""


@dataclass(frozen=True)
class Row:
    """A model, trained with several seeds."""

    name: str
    title: str
    seeds: Sequence[int]
    configs: tuple[str, ...] = ()
    """Paths or names; each overlays those before it."""
    arguments: tuple[str, ...] = ()
    warm_start: str | None = None
    """The row whose model of the same seed it starts from."""
    tests: dict[str, list[str]] = field(default_factory=dict)
    model: str | None = None
    transformers: str | None = None

    def header(self) -> dict[str, str]:
        """Equation, source and family, from the comment at the top of the last configuration.

        The "formula" is the first sentence of the equation and those with a formula; the "citation" is the source
        without titles.

        A configuration in a folder of its own, for another base, has the header of the file outside that folder.
        """
        path = Path(find_config(self.configs[-1]))
        above = path.parents[1] / path.name
        lines = (above if above.exists() else path).read_text(encoding="utf-8").splitlines()
        comment = [line.lstrip("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
        first, _, family = " ".join(takewhile(bool, comment)).partition("Family:")
        equation, _, source = first.partition("Source:")
        sentence, *others = SENTENCES.split(equation.strip())
        texts = {"equation": equation, "source": source, "family": family.strip(" .")}
        texts["formula"] = " ".join([sentence, *(other for other in others if "=" in other)])
        texts["citation"] = TITLE.sub("", source)
        return {name: text.strip() for name, text in texts.items()}


@dataclass(frozen=True)
class TrainedTable:
    """Rows of trained models, and the sections that documents show of them: a file of this folder."""

    name: str
    documents: dict[Path, list[str]]
    """The names of the sections of each Markdown file."""
    numbers: Path
    rows: dict[str, Row]
    sections: list[dict[str, Any]]
    arguments: tuple[str, ...] = ()
    data: Sequence[str] = ()
    beams: Sequence[int] = ()
    measures: Sequence[str] = ()
    families: dict[str, str] = field(default_factory=dict)
    figures: Sequence[dict[str, Any]] = ()

    @property
    def folders(self) -> str:
        """The folders that it needs, in braces."""
        return " ".join([*self.data, *(measures.FOLDERS.get(name, "") for name in self.measures)])

    def row(self, name: str) -> Row:
        """A row by its name. Raises a UserError if there is none."""
        if name not in self.rows:
            raise UserError(
                f"the table {self.name} has no row {name}{did_you_mean(name, self.rows)}: its rows are "
                f"{', '.join(self.rows)}"
            )
        return self.rows[name]

    def settings(self, row: Row, more: Sequence[str] = ()) -> dict[str, Any]:
        """The configurations of a row as one, with all arguments but those that name files."""
        settings: dict[str, Any] = {}
        for config in row.configs:
            settings = laid_over(settings, read_config(config))
        for option, value in options([*row.arguments, *self.arguments, *more]):
            if option in ("-c", "--config"):
                settings = laid_over(settings, read_config(value))
                continue
            content = yaml.safe_load(value)
            for key in reversed(option.lstrip("-").split(".")):
                content = {key: content}
            settings = laid_over(settings, content)
        return settings

    def digest(self, row: Row, more: Sequence[str] = ()) -> str:
        """A digest of all that a training depends on except its seed: other settings are another training."""
        settings = self.settings(row, more)
        settings.pop("seed_everything", None)
        trainer = {key: value for key, value in settings.get("trainer", {}).items() if key not in MACHINE}
        data = dict(settings.get("data") or {})
        model = {name: value for name, value in (settings.get("model") or {}).items() if name not in FORMS}
        if data.get("features"):
            data["features"] = "stored"
        if (data.get("flip") or {}).get("features"):
            data["flip"] = {**data["flip"], "features": "stored"}
        if row.warm_start:
            model["warm_start"] = self.digest(self.row(row.warm_start), more)
        settings |= {"trainer": trainer, "data": data, "model": model}
        return digest_of([settings, row.model or row.transformers])

    def full_digest(self, row: Row, more: Sequence[str] = ()) -> str:
        """A digest of the training, the tests and the measures; a run with the same digest is not repeated."""
        return digest_of([self.digest(row, more), row.tests, self.beams, self.measures])


def read_table(name: str) -> TrainedTable:
    """Read a table, by its name or by the path of a YAML file.

    Raises:
        UserError: there is none of this name.
    """
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file():
        names = sorted(file.stem for file in FOLDER.glob("*.yaml"))
        raise UserError(
            f"no table is called {name}{did_you_mean(name, names)}: choose from {', '.join(names)}"
        )
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    seeds, tests, document, numbers = (content.pop(key) for key in ("seeds", "tests", "document", "numbers"))
    given, overlays, under = (content.pop(key, None) for key in ("rows", "overlays", "under"))
    rows = {}
    for row in [*(given or {})] if overlays is None else _overlays(overlays, under[0]):
        entry = {
            "title": f"`{row}`",
            "seeds": seeds,
            "tests": tests,
            "arguments": (),
            **((given or {}).get(row) or {}),
        }
        usual = [] if entry.keys() & {"model", "transformers"} else [f"{overlays or 'attention'}/{row}"]
        entry["configs"] = (*(under or ()), *entry.get("configs", usual))
        rows[row] = Row(row, **entry | {"arguments": tuple(map(str, entry["arguments"]))})
    documents: dict[Path, list[str]] = {}
    for section in content["sections"]:
        documents.setdefault(RESULTS / section.get("document", document), []).append(section["section"])
    content["arguments"] = tuple(map(str, content.get("arguments", ())))
    families = content.pop("families", {})
    families = families if isinstance(families, dict) else dict.fromkeys(families, "")
    return TrainedTable(path.stem, documents, RESULTS / numbers, rows, families=families, **content)


def _overlays(folder: str, base: str) -> list[str]:
    """The files of a folder of configs/ whose header lays them over `base`, or over nothing."""
    names = []
    for path in sorted((ROOT / "configs" / folder).glob("*.yaml")):
        bases = re.findall(rf"-c (\S+) -c {folder}/", path.read_text(encoding="utf-8"))
        if base in bases or not bases:
            names.append(path.stem)
    return names


def options(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Options with their values."""
    return [pair for pair in option_pairs(arguments) if pair[0]]


def laid_over(base: Any, overlay: Any) -> Any:
    """The settings of `base` with those of `overlay`; if it names another class, it replaces the old one as a whole."""
    if not isinstance(base, dict) or not isinstance(overlay, dict):
        return overlay
    if overlay.get("class_path", base.get("class_path")) != base.get("class_path"):
        return overlay
    return base | {name: laid_over(base.get(name), value) for name, value in overlay.items()}


def digest_of(content: Any) -> str:
    """A digest of content that JSON can write, as sixteen letters."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
