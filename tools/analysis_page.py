"""The tables and the figure of docs/results/analysis.md: the installed models, measured as by `caption analyse`.

python -m tools.analysis_page [--limit N]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from caption.cli.analyse.scenes import ALL, MODELS, analyse
from caption.runtime.files import replacing_own
from caption.runtime.outputs import check_outputs
from caption.visualize import save_figure
from tools import make_parser
from tools.documents import write_sections

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "results" / "analysis.md"


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("analysis_page", __doc__)
    parser.add_argument(
        "--limit", type=int, default=ALL, metavar="N", help=f"test scenes; default all, {ALL}"
    )
    parser.add_argument("--document", type=Path, default=DOCUMENT, metavar="FILE.md")
    options = parser.parse_args(args)
    picture = options.document.with_suffix(".png")
    check_outputs({"--document": [picture]})
    models = dict(entry.split("=") for entry in MODELS)
    tables, curves = analyse(models, options.limit, picture.name)
    write_sections(options.document, tables)
    save_figure(curves, picture, dpi=110, opener=replacing_own)
    return 0


if __name__ == "__main__":
    sys.exit(main())
