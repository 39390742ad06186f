"""Train, test and write a table of docs/results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.core.errors import UserError
from caption.core.runtime.atomic_files import replacing
from tools import make_parser
from tools.documents import write_sections
from tools.tables.figures import figure
from tools.tables.render import sections
from tools.tables.runs import Bench, publishing, read_runs
from tools.tables.table import Row, read_table

HELP = """\
Train, test and write a table of docs/results.

    python -m tools.tables attention --rows dot additive --seeds 0      # trains missing runs, and prints
    python -m tools.tables flickr8k --data DATA --write                 # and writes document and JSON
    python -m tools.tables attention --rows --write                     # trains nothing: the document from its JSON
    python -m tools.tables my_table.yaml --trainer.max_epochs 1

A run is a row with a seed: `caption fit`, `caption test`, and the table's further measures. It is kept in a folder of
--out whose name has the digest of its settings, without precision, accelerator and progress. A run that is complete
there, or whose numbers are published with the same settings, is not repeated. Stop the command at any moment: the same
command resumes. Several of them may run at the same time with other rows or seeds. Further arguments go to
`caption fit` and `caption test` of all rows.

If settings have changed in name only, as when a class is renamed, `--rows --renamed --write` keeps the published runs.

Exit codes: 0 all done, 1 some runs failed, 2 wrong usage; 130 or 143 stopped.
"""

WRONG_USAGE = 2


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("tables", HELP)
    add = parser.add_argument
    add("table", help="name of a file in tools/tables, or the path of one")
    add("--rows", nargs="*", metavar="NAME", help="rows to train; default all")
    add("--seeds", type=int, nargs="+", metavar="N", help="default those of the table")
    add("--data", type=Path, metavar="DIR", help="folder of Flickr8k, for tables that need it")
    add("--photos", type=Path, metavar="DIR", help="folder of the photos with boxes, for tables that need it")
    add("--out", type=Path, default=Path("runs/tables"), metavar="DIR", help="folder of the runs")
    add("--anew", action="store_true", help="repeat runs whose numbers are published")
    add("--renamed", action="store_true", help="take the published runs as runs of the present settings")
    add("--write", action="store_true", help="publish the runs, and write the sections of the document")
    options, more = parser.parse_known_args(args)
    try:
        table = read_table(options.table)
        folders = {name: getattr(options, name) for name in ("data", "photos") if getattr(options, name)}
        published = {} if options.anew else read_runs(table.numbers)
        bench = Bench(table, options.out, more, folders, published)
        names = table.rows if options.rows is None else options.rows
        chosen = [(row, seed) for row in map(table.row, names) for seed in options.seeds or row.seeds]
        failed = _train(bench, sorted(chosen, key=lambda run: run[1]))
        with publishing(table) if options.write else nullcontext(read_runs(table.numbers)) as runs:
            for name, by_seed in runs.items() if options.renamed else ():
                for run in by_seed.values():
                    run["digest"] = table.full_digest(table.row(name), run["arguments"])
            for row, seed in chosen:
                if (run := bench.result(row, seed)) is not None:
                    runs.setdefault(row.name, {})[str(seed)] = run
            texts = sections(table, runs)
            for document, names in table.documents.items() if options.write else ():
                write_sections(document, {name: texts[name] for name in names})
            for described in table.figures if options.write else ():
                with replacing(table.numbers.parent / described["file"]) as file:
                    figure(described, runs).savefig(file, format="png", dpi=120)
        print(*texts.values(), sep="\n\n")
    except UserError as error:
        print(f"tables: {error}", file=sys.stderr)
        return WRONG_USAGE
    return SOME_FAILED if failed else DONE


def _train(bench: Bench, chosen: Sequence[tuple[Row, int]]) -> int:
    """Do the missing runs; returns how many failed. `caption` prints the reason on stderr."""
    failed = 0
    for row, seed in chosen:
        try:
            if bench.result(row, seed) is None:
                bench.run(row, seed)
        except SystemExit as leaving:
            if isinstance(leaving.code, int) and leaving.code > 128:
                raise  # a signal ends the whole command
            failed += 1
            print(f"tables: {row.name}, seed {seed}, failed", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
