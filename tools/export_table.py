"""Export every attention mechanism of configs/attention to ONNX and compare captions: the tables of docs/export.md.

    python -m tools.export_table                        # all, about 20 minutes on two cores
    python -m tools.export_table --only additive hard --out /tmp/export.md

The installed models caption the 500 test scenes of Shapes. A mechanism is exported with random weights, which is enough
to show that torch and ONNX Runtime agree, and captions 20 scenes. Needs the extra `onnx`.
"""

from __future__ import annotations

import runpy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

import caption
from caption.captioner import Captioner
from caption.cli.describe.command import SCENE_MODELS
from caption.data.resize import ImageTransform
from caption.data.shapes import Shapes
from caption.decoders import Decoder
from caption.encoders import Encoder, Refiner
from caption.errors import UserError
from caption.export import onnx_files
from caption.parts import make
from caption.search import BeamSearch
from caption.text.vocabulary import Vocabulary
from tools import make_parser
from tools.benchmark.harness import say
from tools.documents import table, write_sections

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "export.md"
BASE = ROOT / "configs" / "shapes_soft.yaml"
SCENES, FEW = 500, 20
"""Test scenes that a trained model and a mechanism with random weights caption."""
BATCH = 50
EQUAL = 1e-4
"""Differences of α and log p above this are listed."""


def main() -> None:
    parser = make_parser("export_table", __doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of files in configs/attention")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page, docs/export.md by default")
    options = parser.parse_args()
    paths = sorted((ROOT / "configs" / "attention").glob("*.yaml"))
    paths = [path for path in paths if options.only is None or path.stem in options.only]
    with tempfile.TemporaryDirectory() as folder:
        Shapes(folder, train=1, val=1, test=SCENES).read()
        scenes = sorted(Path(folder, "images").glob("test_*.png"))
        models = [[name, *compared(caption.load(name), scenes)] for name in SCENE_MODELS]
        mechanisms = [[path.stem, *compared(untrained(path), scenes[:FEW])] for path in paths]
    head = ["same captions", "largest difference of α", "of log p", "MB"]
    sections = {
        "models": table(["model", *head], models),
        "mechanisms": summary(["configuration", *head], mechanisms),
    }
    write_sections(options.out, sections)


def summary(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows that differ from torch as a table, and the others in one sentence."""
    whole = f"{FEW} of {FEW}"
    equal = [row for row in rows if row[1] == whole and float(row[2]) < EQUAL and float(row[3]) < EQUAL]
    parts = [table(head, [row for row in rows if row not in equal])] if len(equal) < len(rows) else []
    if equal:
        weights, log_prob, size = (max(float(row[column]) for row in equal) for column in (2, 3, 4))
        parts.append(
            f"{len(equal)} of {len(rows)} configurations give the same captions: {whole}, α equal to {weights:.0e} and "
            f"log p to {log_prob:.0e}, files of at most {size:.1f} MB."
        )
    return "\n\n".join(reversed(parts))


def untrained(overlay: Path) -> Captioner:
    """A captioner with the parts of an overlay over `BASE`, and random weights that make captions of several words."""
    settings = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (BASE, overlay)]
    model = laid_over(*(setting["model"] for setting in settings))
    torch.manual_seed(0)
    captioner = Captioner(
        make(model["encoder"], Encoder),
        make(model["decoder"], Decoder),
        Vocabulary([f"word{number}" for number in range(50)]),
        ImageTransform(**settings[0]["data"]["transform"]),
        BeamSearch(beam_size=3, max_length=12),
        make(model["refiner"], Refiner) if model.get("refiner") else None,
    )
    with torch.no_grad():
        for parameter in captioner.decoder.parameters():
            parameter.mul_(3.0)
    return captioner.eval()


def laid_over(base: Any, overlay: Any) -> Any:
    """The settings of `base` with those of `overlay`; where it names another class, nothing of the old one is left."""
    if not isinstance(base, dict) or not isinstance(overlay, dict):
        return overlay
    if overlay.get("class_path", base.get("class_path")) != base.get("class_path"):
        return overlay
    return base | {name: laid_over(base.get(name), value) for name, value in overlay.items()}


def compared(captioner: Captioner, scenes: Sequence[Path]) -> list[str]:
    """A row: captions that are the same, the largest differences, and the size of the files; or why it fails."""
    say(
        f"{type(captioner.decoder).__name__} with {', '.join(map(repr, captioner.decoder.attentions)) or 'none'} ..."
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            onnx_files.write(captioner, folder)
        except UserError as error:
            return [f"not exported: {error}", "", "", ""]
        size = sum(path.stat().st_size for path in folder.glob("*.onnx")) / 1e6
        script = runpy.run_path(str(folder / onnx_files.SCRIPT))
        exported = script["OnnxCaptioner"](folder, threads=torch.get_num_threads())
        pixels = np.stack([exported.pixels(scene) for scene in scenes])
        theirs = [
            caption
            for first in range(0, len(scenes), BATCH)
            for caption in exported.describe(pixels[first : first + BATCH])
        ]
    ours = captioner.describe(list(map(str, scenes)))
    same = [(one, other) for one, other in zip(ours, theirs, strict=True) if one.words == other.words]
    weights = max((np.abs(one.weights - other.weights).max(initial=0) for one, other in same), default=0.0)
    log_prob = max((abs(one.log_prob - other.log_prob) for one, other in same), default=0.0)
    return [f"{len(same)} of {len(scenes)}", f"{weights:.0e}", f"{log_prob:.0e}", f"{size:.1f}"]


if __name__ == "__main__":
    main()
