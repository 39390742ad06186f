"""Words that no caption taught: the tables of docs/results/untaught.md.

    pip install -e ".[photos]"
    python -m tools.untaught --data DATA
    python -m tools.untaught --data DATA --rows without search --seeds 0 1 2

Captions of Flickr8k that name one of eight things leave the training, and so do photos without any caption left. A
model is trained on the others; its lens, calibrated on the same captions of the dev photos, sees these things all the
same. Rows: the model itself; constrained beam search with what its lens is sure of; the model trained on with slots,
which the lens fills; and one that is trained with all captions. What is chosen is chosen on the dev split. DATA holds
Flickr8k.token.txt, Flickr_8k.{train,dev,test}Images.txt and images/. Models have half the sizes of
configs/flickr8k_soft.yaml and learn for 5 epochs; about 10 minutes a row and seed on a CPU core.

Stop it at any moment: the same command goes on. Runs are kept in untaught.json beside the document, and not repeated.
Further arguments go to `caption fit`.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caption.runtime.files import replacing
from tools import make_parser
from tools.documents import mean_and_deviation, table, write_sections
from tools.reproduce.runs import CONFIGS, run
from tools.untaught.rows import NAMING, ROWS, Places, measured
from tools.untaught.things import THINGS, Naming, write_data

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "results" / "untaught.md"
COLUMNS = {"F1": "F1", "with": "CIDEr with", "without": "CIDEr without", "CIDEr": "CIDEr", "BLEU-4": "BLEU-4"}
MEASURED = [row for row in ROWS if row != NAMING]
Runs = dict[str, dict[str, Any]]
"""By row and seed, as in "slot, 0"."""


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("untaught", __doc__)
    add = parser.add_argument
    add("--data", required=True, type=Path, help="folder of Flickr8k")
    add("--rows", choices=MEASURED, nargs="+", default=MEASURED, help="search gives two rows of the table")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add("--out", type=Path, default=Path("runs/untaught"))
    add(
        "--regions",
        type=Path,
        default=Path("runs/flickr8k_features"),
        help="stored regions, or where they go",
    )
    add("--document", type=Path, default=DOCUMENT)
    options, more = parser.parse_known_args(args)
    places = Places(options.data, options.out, options.regions)
    published = options.document.with_suffix(".json")
    if not (options.out / "val.txt").exists():
        write_data(options.data, options.out)
    missing = [
        (row, seed)
        for seed in options.seeds
        for row in options.rows
        if f"{row}, {seed}" not in _read(published)
    ]
    if missing:
        config = ["-c", str(CONFIGS / "flickr8k_soft.yaml")]
        run("features", *config, "--out", str(places.regions), *places.arguments("all", 0)[:3])
    for row, seed in missing:
        found = {f"{each}, {seed}": scores for each, scores in measured(places, row, seed, more).items()}
        with replacing(published) as file:
            file.write((json.dumps(_read(published) | found, indent=1) + "\n").encode())
    sections = report(_read(published))
    print("\n\n".join(sections.values()))
    write_sections(options.document, sections)
    return 0


def _read(published: Path) -> Runs:
    return json.loads(published.read_text(encoding="utf-8")) if published.exists() else {}


def report(runs: Runs) -> dict[str, str]:
    """The tables of the test split: of all things together, and of each thing."""
    by_row = {row: [run for name, run in runs.items() if name.startswith(f"{row}, ")] for row in ROWS}
    rows = [
        [
            ROWS[row], str(len(own)),
            *(mean_and_deviation([run["test"][column] for run in own], 3) for column in COLUMNS),
        ]
        for row, own in by_row.items() if own
    ]  # fmt: skip
    things = [
        [ROWS[row], *(_naming([Naming(*run["test"]["things"][name]) for run in own]) for name in THINGS)]
        for row, own in by_row.items()
        if own
    ]
    there = next(iter(runs.values()))["test"]["things"]
    head = ["F1", *(f"{name} ({there[name][2]})" for name in THINGS)]
    chosen = [
        f"{ROWS[row]} {', '.join(str(run['chosen']['least']) for run in own)}"
        for row, own in by_row.items()
        if own and own[0]["chosen"]
    ]
    about = "Mean ± standard deviation of the seeds, 1,000 test photos, beam 3."
    sure = f"The lens is sure from, chosen on dev, of each seed: {'; '.join(chosen)}."
    return {
        "untaught": f"{about}\n\n{table(['', 'seeds', *COLUMNS.values()], rows)}\n\n{sure}",
        "untaught_things": table(head, things),
    }


def _naming(found: Sequence[Naming]) -> str:
    """Mean F1, and how often the thing is named rightly and wrongly."""
    right = statistics.mean(each.right for each in found)
    wrong = statistics.mean(each.said - each.right for each in found)
    return f"{statistics.mean(each.f1 for each in found):.2f} ({right:.1f}, {wrong:.1f})"


if __name__ == "__main__":
    sys.exit(main())
