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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from caption.runtime.figure_formats import FIGURES
from caption.runtime.files import replacing_own
from caption.runtime.outputs import check_outputs, output_file
from caption.visualize import save_figure
from tools import make_parser

SCORES = ("BLEU-4", "CIDEr")
MEASURES = ("pointing accuracy", "entropy", "faithfulness")
MARKERS = "os^Dv<>Ph*"


def trade_off(models: Mapping[str, Mapping[str, float]], chance: Mapping[str, float] | None = None) -> Figure:
    """Draw BLEU-4 and CIDEr against pointing accuracy, entropy and faithfulness of the maps.

    Args:
        models: for each model, its numbers by `SCORES` and `MEASURES`. A model is left out of the panels whose numbers
            it lacks, and a panel without models is left out.
        chance: for some of `MEASURES`, the value of maps that know nothing, drawn as a line.

    Raises:
        ValueError: no model has a score and a measure.
    """
    points = {
        (score, measure): {
            name: (numbers[measure], numbers[score])
            for name, numbers in models.items()
            if {measure, score} <= numbers.keys()
        }
        for score in SCORES
        for measure in MEASURES
    }
    scores = [score for score in SCORES if any(points[score, measure] for measure in MEASURES)]
    measures = [measure for measure in MEASURES if any(points[score, measure] for score in SCORES)]
    if not scores:
        raise ValueError(f"no model has one of {', '.join(SCORES)} and one of {', '.join(MEASURES)}")
    fig = Figure(figsize=(0.8 + 3.1 * len(measures), 0.9 + 2.6 * len(scores)), layout="constrained")
    rows = fig.subplots(len(scores), len(measures), squeeze=False, sharex="col", sharey="row")
    drawn: dict[str, Any] = {}
    for axes, score in zip(rows, scores, strict=True):
        for ax, measure in zip(axes, measures, strict=True):
            for number, name in enumerate(models):
                if name in points[score, measure]:
                    x, y = points[score, measure][name]
                    marker = MARKERS[number % len(MARKERS)]
                    drawn[name] = ax.scatter([x], [y], marker=marker, color=f"C{number % 10}", s=40, zorder=2)
            if chance and measure in chance:
                ax.axvline(chance[measure], color="0.5", linestyle=":", linewidth=1)
            ax.set(xlabel=measure, ylabel=score)
            ax.label_outer()
            ax.grid(alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
    names = [name for name in models if name in drawn]
    fig.legend([drawn[name] for name in names], names, loc="outside right upper", frameon=False, fontsize=8)
    return fig


def main(args: Sequence[str] | None = None) -> int:
    """Draw the figure."""
    parser = make_parser("trade_off", __doc__)
    parser.add_argument("table", type=Path, metavar="TABLE.json")
    parser.add_argument("--out", required=True, metavar="FILE.png")
    parser.add_argument(
        "--chance", type=float, metavar="P", help="pointing accuracy of a cell drawn uniformly"
    )
    options = parser.parse_args(args)
    chance = None if options.chance is None else {"pointing accuracy": options.chance}
    out = output_file(options.out, FIGURES, "--out")
    check_outputs({"--out": [out]}, [str(options.table)])
    try:
        figure = trade_off(json.loads(options.table.read_text(encoding="utf-8")), chance)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        parser.error(f"{options.table}: {error}")
    save_figure(figure, out, opener=replacing_own)
    return 0


if __name__ == "__main__":
    sys.exit(main())
