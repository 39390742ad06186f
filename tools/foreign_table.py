"""Measure tiny captioners of `transformers` beside soft attention on Shapes: the tables of docs/results/foreign.md.

    python -m tools.foreign --model blip --seed 1 --out runs/blip_1
    python -m tools.foreign_table runs/blip_1 runs/blip_2

Folders are called MODEL_SEED. What is measured is added to docs/results/foreign.json, and the tables are written. All
is measured on test scenes and the model's own captions; the head that points best is chosen on validation scenes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean

import numpy as np

from caption.analysis import adversarial_maps, faithfulness_curves
from caption.analysis.faithfulness.rankings import ORDERS, AtRandom
from caption.analysis.pointing_game import best_map, ground
from caption.core.errors import UserError
from caption.core.runtime.files import replacing
from caption.data.boxes import Boxes
from caption.data.shapes import Shapes
from caption.data.shapes.scene import COLOURS
from caption.data.shapes.silhouettes import SHAPES
from caption.metrics import evaluate
from caption.models.model_zoo import load
from caption.models.transformers.captioner import ForeignCaptioner
from caption.models.transformers.rollout import rollout
from caption.results.caption import Caption
from tools import make_parser
from tools.documents import table, write_sections
from tools.tables.render import SHOWN
from tools.tables.significance import holm, over_seeds

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SOFT = "soft attention"
SCENES = 200
"""Of each split."""
ERASED = 30
"""Test scenes for deletion and adversaries."""
NAMING = frozenset(COLOURS) | frozenset(SHAPES)
DEFAULT, MEAN, BEST, ROLLED = "concentrated", "mean", "best head", "rolled out"
MAPS = (DEFAULT, MEAN, "layer 0 heads", "layer 1 heads", BEST, ROLLED)
DELETION = (DEFAULT, MEAN, BEST, *list(ORDERS)[1:])
ADVERSARY = ("divergences", "distances", "permuted", "permuted_distances")
POINTING = ("pointing", "mass", "share")
QUESTIONS = (
    ("pointing", DEFAULT, MEAN),
    ("mass", DEFAULT, MEAN),
    ("deletion", MEAN, DEFAULT),
    ("pointing", BEST, DEFAULT),
    ("mass", BEST, DEFAULT),
    ("deletion", DEFAULT, BEST),
    ("pointing", ROLLED, DEFAULT),
    ("mass", ROLLED, DEFAULT),
    ("deletion", "random", DEFAULT),
    ("deletion", DEFAULT, "gradient"),
)
"""A number, and two maps or orders: the first less the second. A positive difference is in favour of the first, or,
where the number is the area under deletion, of the second."""

Run = dict[str, float | str]
Runs = Mapping[str, Mapping[str, Run]]
"""By model and seed. The numbers of a map are called "concentrated: mass", those of an order "random: deletion"."""


def measure(address: str, scenes: Path) -> Run:
    """The numbers of a model.

    Args:
        address: as of `caption.load`.
        scenes: the folder in which they are drawn.
    """
    reader, captioner = Shapes(str(scenes), train=1, val=SCENES, test=SCENES), load(address)
    splits = reader.read()
    photos = {split: [str(image.path) for image in splits[split]] for split in ("val", "test")}
    boxes = {split: [reader.boxes(split)[image.id] for image in splits[split]] for split in photos}
    captions = captioner.describe(photos["test"])
    said = {image.id: caption.text for image, caption in zip(splits["test"], captions, strict=True)}
    scores = evaluate(said, {image.id: image.captions for image in splits["test"]})
    named = ground(zip(captions, boxes["test"], strict=True))
    run: Run = {metric: scores[metric] for metric in ("BLEU-4", "CIDEr")}
    run |= {"names": len(named), "present": len(named.present), "chance": named.present.chance}
    run |= _pointing(DEFAULT, captions, boxes["test"])
    few, orders = photos["test"][:ERASED], {**ORDERS, "random": AtRandom(3)}
    curves = faithfulness_curves(captioner, few, captions[:ERASED], orders).only(NAMING)
    areas = {order: float(curves.area("deletion", order).mean()) for order in curves.orders}
    run |= {f"{order}: deletion": area for order, area in areas.items()}
    run[f"{DEFAULT}: deletion"] = run.pop("attention: deletion")
    maps = adversarial_maps(captioner, few, captions[:ERASED]).only(NAMING)
    run |= {f"adversary: {field}": float(getattr(maps, field).mean()) for field in ADVERSARY}
    if not isinstance(captioner, ForeignCaptioner):
        return run
    with suppress(UserError):  # Idefics3's patches cannot be followed through its tower
        run |= _pointing(ROLLED, rollout(captioner, photos["test"], captions), boxes["test"])
    best = best_map(list(zip(captioner.describe(photos["val"]), boxes["val"], strict=True)))
    heads = list(captions[0].single_maps())
    for summary in (MEAN, *captions[0].maps, *heads):
        captioner.decoder.summary = summary
        name = BEST if summary == best else summary
        run |= _pointing(name, captioner.describe(photos["test"]), boxes["test"])
        if name in (MEAN, BEST):
            alone = {"attention": ORDERS["attention"]}
            curves = faithfulness_curves(captioner, few, captions[:ERASED], alone).only(NAMING)
            run[f"{name}: deletion"] = float(curves.area("deletion", "attention").mean())
    return run | {BEST: best}


def _pointing(name: str, captions: Sequence[Caption], boxes: Sequence[Boxes]) -> Run:
    """The pointing game at the names of objects that the scene has, and the share of attention that the image gets."""
    present = ground(zip(captions, boxes, strict=True)).present
    share = np.concatenate([caption.weights.sum((1, 2)) for caption in captions]).mean()
    numbers = (present.accuracy, present.mass, float(share))
    return {f"{name}: {field}": number for field, number in zip(POINTING, numbers, strict=True)}


def sections(runs: Runs) -> dict[str, str]:
    """The tables of the page."""
    foreign = {model: by_seed for model, by_seed in runs.items() if model != SOFT}
    of_maps = [
        [model, map_, *cells]
        for map_ in MAPS
        for model, by_seed in runs.items()
        if any(cells := _cells(by_seed, [f"{map_}: {field}" for field in POINTING]))
    ]
    heads = [f"layer {layer} heads[{head}]" for layer in range(2) for head in range(4)]
    of_heads = [
        [model, seed, *(_head(run, head) for head in heads)]
        for model, by_seed in foreign.items()
        for seed, run in by_seed.items()
    ]
    questions = ("number", "of", "less that of", "difference", "p", "positive", *foreign)
    return {
        "captions": _by_model(runs, "{}", ("BLEU-4", "CIDEr", "names", "present", "chance")),
        "maps": table(
            ("model", "map", "pointing accuracy", "mass in the box", "share of the image"), of_maps
        ),
        "heads": table(("model", "seed", *(head.replace(" heads", "") for head in heads)), of_heads),
        "deletion": _by_model(runs, "{}: deletion", DELETION),
        "adversaries": _by_model(runs, "adversary: {}", ADVERSARY),
        "verdicts": table(questions, _verdicts(foreign)),
    }


def _by_model(runs: Runs, names: str, columns: Sequence[str]) -> str:
    rows = [
        [model, *_cells(by_seed, [names.format(column) for column in columns])]
        for model, by_seed in runs.items()
    ]
    return table(("model", *columns), rows)


def _cells(by_seed: Mapping[str, Run], names: Sequence[str]) -> list[str]:
    """The mean over seeds, and each seed; "" where none has the number."""
    cells = []
    for name in names:
        values = [run[name] for run in by_seed.values() if name in run]
        digits = 0 if name in ("names", "present") else 2 if name == "CIDEr" else 3
        cells.append(SHOWN["each"](values, f".{digits}f") if values else "")
    return cells


def _head(run: Run, head: str) -> str:
    best = run[BEST] == head
    number = f"{run[f'{BEST if best else head}: pointing']:.2f}"
    return f"**{number}**" if best else number


def _verdicts(runs: Runs) -> Iterator[list[str]]:
    """Each trained model is one observation. P-values are Student's, corrected for the number of questions."""
    by_run = {(model, seed): run for model, by_seed in runs.items() for seed, run in by_seed.items()}
    found = []
    for field, *names in QUESTIONS:
        one, other = (
            {key: run[f"{name}: {field}"] for key, run in by_run.items() if f"{name}: {field}" in run}
            for name in names
        )
        differences = {key: one[key] - other[key] for key in one.keys() & other.keys()}
        if estimate := over_seeds(differences):
            found.append(([field, *names], differences, estimate))
    corrected = holm([estimate.p_value for *_, estimate in found])
    for (question, differences, estimate), p_value in zip(found, corrected, strict=True):
        of_models = [[value for (of, _), value in differences.items() if of == model] for model in runs]
        bounds = f"{estimate.mean:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]"
        positive = f"{sum(value > 0 for value in differences.values())} of {len(differences)}"
        means = [f"{mean(values):+.3f}" if values else "" for values in of_models]
        yield [*question, bounds, f"{p_value:.2g}", positive, *means]


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("foreign_table", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="MODEL_SEED", help="of trained models")
    parser.add_argument("--scenes", type=Path, default=Path("data/shapes_table"), metavar="DIR")
    options = parser.parse_args(args)
    numbers = RESULTS / "foreign.json"
    runs = json.loads(numbers.read_text(encoding="utf-8"))
    models = {f"{SOFT}_0": "shapes"} if SOFT not in runs else {}
    models |= {folder.name: f"transformers:{folder}" for folder in options.folders}
    for name, address in models.items():
        model, _, seed = name.rpartition("_")
        runs.setdefault(model, {})[seed] = measure(address, options.scenes)
        with replacing(numbers) as file:
            file.write(f"{json.dumps(runs, indent=1)}\n".encode())
    write_sections(RESULTS / "foreign.md", sections(runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
