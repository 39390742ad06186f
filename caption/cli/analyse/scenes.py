"""`caption analyse` on Shapes, where the truth about each word is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from caption.cli.exit_codes import DONE
from caption.errors import UserError, printable
from caption.runtime.files import replacing_own, seal
from caption.runtime.outputs import check_outputs, output_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from caption.analysis.faithfulness.curves import Kind
    from caption.analysis.scene_study import Study

MODELS = ("soft=shapes", "hard=shapes-hard")
ALL = 500
"""Scenes of the test split."""
PANELS: tuple[tuple[Kind, str], ...] = (
    ("deletion", "removed"),
    ("deletion", "replaced"),
    ("insertion", "removed"),
)
"""Of the figure: the curve, and how regions are hidden."""


def analyse_scenes(options: argparse.Namespace) -> int:
    """`caption analyse` on the test split of Shapes."""
    limit = options.limit or ALL
    if limit < 2:
        raise UserError(f"--limit {limit}: at least 2, since maps are exchanged between scenes")
    out = output_file(options.out or "analysis.md", (".md",), "--out")
    if not out.suffix:  # a device
        raise UserError(f"--out {out}: name a .md file; the figure is written beside it")
    picture = out.with_suffix(".png")
    check_outputs({"--out": [out, picture]}, options.models.values())

    from caption.analysis.study_tables import make_page  # imports torch, for which --help must not wait
    from caption.visualize import save_figure

    tables, curves = analyse(options.models, limit, picture.name, options.trust, options.device)
    save_figure(curves, picture, dpi=110, opener=replacing_own)
    with replacing_own(out) as file:
        file.write(make_page(tables).encode())
        seal(file)
    _say(f"wrote {out} and {picture}")
    return DONE


def analyse(
    models: Mapping[str, str], limit: int, picture: str, trust: Sequence[str] = (), device: str = "cpu"
) -> tuple[dict[str, str], Figure]:
    """Measure models, given by their names in the tables.

    Args:
        models: files or names of installed models.
        limit: the number of test scenes.
        picture: the name of the figure's file, for the tables.
        trust, device: see `caption.load`.

    Returns:
        the tables, see `caption.analysis.study_tables`, and the curves of deletion and insertion.
    """
    import tempfile

    from caption.analysis.agreement import agree
    from caption.analysis.scene_study import make_scenes, study
    from caption.analysis.study_tables import make_tables
    from caption.models.model_zoo import load

    captioners = {name: load(model, device, trust) for name, model in models.items()}
    with tempfile.TemporaryDirectory() as folder:
        scenes = make_scenes(Path(folder), limit)
        studies = [study(name, captioner, scenes, _say) for name, captioner in captioners.items()]
        agreements = {
            (one.name, other.name): agree(one.captioner, other.captioner, scenes.photos, one.captions)
            for one, other in combinations(studies, 2)
        }
    return make_tables(studies, agreements, scenes, picture), _draw(studies)


def _draw(studies: Sequence[Study]) -> Figure:
    """A row of curves per model, for words that name objects: deletion in both ways of hiding, and insertion."""
    from matplotlib.figure import Figure

    from caption.analysis.scene_study import OBJECT_WORDS
    from caption.visualize import curve_plot

    fig = Figure(figsize=(10.4, 0.4 + 2.6 * len(studies)), layout="constrained")
    rows = fig.subplots(len(studies), len(PANELS), squeeze=False, sharey=True)
    for axes, study in zip(rows, studies, strict=True):
        for ax, (kind, way) in zip(axes, PANELS, strict=True):
            curve_plot(ax, study.curves[way].only(OBJECT_WORDS), kind)
            ax.set_title(f"{study.name}: {kind}, {way}", fontsize=10)
            ax.label_outer()
    rows[0, -1].legend(title="order", frameon=False, fontsize=8, loc="lower right")
    return fig


def _say(message: str) -> None:
    print(f"caption analyse: {printable(message)}", file=sys.stderr, flush=True)
