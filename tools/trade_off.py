"""Draw captions against maps: BLEU-4 and CIDEr against pointing accuracy, entropy and faithfulness, a point per model.

    python -m tools.trade_off models.json --out docs/results/trade_off.png

The table is JSON: for each model an object with some of "BLEU-4", "CIDEr", "pointing accuracy", "entropy" and
"faithfulness". `caption test` gives the scores, `python -m tools.photo_pointing --json` the pointing accuracy ("own
maps") and the entropy, and `caption.analysis.faithfulness` the deletion score. Missing numbers leave a model out of a
panel.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from caption.visualize import save_figure
from caption.visualize.trade_off import trade_off
from tools import make_parser


def main(args: Sequence[str] | None = None) -> int:
    """Draw the figure."""
    parser = make_parser("trade_off", __doc__)
    parser.add_argument("table", type=Path, metavar="TABLE.json")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    parser.add_argument(
        "--chance", type=float, metavar="P", help="pointing accuracy of a cell drawn uniformly"
    )
    options = parser.parse_args(args)
    chance = None if options.chance is None else {"pointing accuracy": options.chance}
    try:
        figure = trade_off(json.loads(options.table.read_text(encoding="utf-8")), chance)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        parser.error(f"{options.table}: {error}")
    save_figure(figure, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
