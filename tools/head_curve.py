"""Train with several penalties on open heads (Voita et al. 2019, section 6), and draw NLL against heads left.

    python -m tools.head_curve --out docs/results/head_gates.png
    python -m tools.head_curve --out docs/results/head_gates.png --penalties 0.1 0.3 0.6 1 -c frozen_encoder.yaml

For each seed, `caption fit -c configs/shapes_soft.yaml -c configs/attention/multi_head.yaml` trains a model with 8
heads, and `caption features` stores the regions of its encoder. For each penalty, a model with gates starts from it
(configs/attention/multi_head_gated.yaml), and `caption export --remove-closed-heads` removes the heads that it closes.
`caption test` scores them. Do specialised heads go last? The roles of the first model's heads are compared with the
number of penalties at which each stays open. The second command reads the stored regions of one encoder
(configs/training/frozen_encoder.yaml): about five minutes of a core, and several times as much without.

The tables are printed; with the numbers they are in the folder of the runs, too (tables.md, numbers.json). Stop it at
any moment: the same command goes on. Further arguments go to all trainings and tests.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from caption import checkpoint
from caption.analysis.heads import head_roles
from caption.attention import MultiHeadAttention
from caption.captioner import Captioner
from caption.data.decoding import open_image
from caption.data.readers.captions import CaptionReader
from caption.data.shapes.scene import COLOURS
from caption.data.shapes.silhouettes import SHAPES
from caption.parts import make
from caption.runtime.figure_formats import FIGURES
from caption.runtime.files import make_folder, replacing, replacing_own
from caption.runtime.outputs import check_outputs, output_file
from caption.search import Greedy
from caption.visualize import save_figure
from tools import make_parser
from tools.compare_attention.runs import write_json
from tools.documents import mean_and_deviation, table
from tools.reproduce.runs import CONFIGS, fit, run, test, test_checkpoint

PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SCENES = 200
"""Test scenes on which the roles of heads and the time of a caption are measured."""
ROLES = ("confidence", "positional", "positional above others", "colours", "shapes")
BASE = ("-c", str(CONFIGS / "shapes_soft.yaml"))
HEADS = "--model.decoder.init_args.attention.init_args.heads"
Seed = dict[str, Any]


def train(out: Path, seed: int, heads: int, penalties: Sequence[float], more: Sequence[str]) -> Seed:
    """The numbers of one seed: the model without gates, and one for each penalty. What is done is not repeated."""
    common = [*more, "--seed_everything", str(seed)]
    folder, regions = out / f"all-{seed}", out / f"regions-{seed}"
    arguments = [*BASE, "-c", str(CONFIGS / "attention" / "multi_head.yaml"), HEADS, str(heads), *common]
    best = fit(folder, arguments)
    readers = [argument for argument in more if argument.startswith("--data.reader")]
    if not (regions / "done").exists():
        run("features", *BASE, *readers, "--model", str(best), "--out", str(regions))
        with replacing(regions / "done"):
            pass
    captioner = checkpoint.load(best)
    photos = test_photos(best)
    return {
        "seed": seed,
        "heads": heads,
        "all": measure(captioner, photos, test(folder, folder / "test.json", arguments)),
        "roles": roles(captioner, photos),
        "penalties": [
            gated(out / f"{weight:g}-{seed}", weight, heads, best, [*common, "--data.features", str(regions)])
            for weight in penalties
        ],
    }


def gated(folder: Path, weight: float, heads: int, start: Path, common: Sequence[str]) -> dict[str, Any]:
    """Train with gates from a model without, remove what is closed, and measure."""
    term = {"class_path": "caption.objectives.AttentionPenalty", "init_args": {"weight": weight}}
    arguments = [*BASE, "-c", str(CONFIGS / "attention" / "multi_head_gated.yaml"), HEADS, str(heads)]
    arguments += ["--model.objective.init_args.terms", json.dumps([term]), "--model.warm_start", str(start)]
    arguments += ["--model.encoder_learning_rate", "null", *common]
    fit(folder, arguments)
    # Not the best by its captions, which may be one before the heads were closed.
    last, pruned = folder / "last.ckpt", folder / "pruned.ckpt"
    tested = test_checkpoint(last, folder / "test.json", arguments)
    if not pruned.exists():
        run("export", str(last), "--format", "ckpt", "--remove-closed-heads", "--out", str(pruned))
    captioner, photos = checkpoint.load(last), test_photos(last)
    attention = captioner.decoder.attentions["attention"]
    assert isinstance(attention, MultiHeadAttention)
    assert attention.gates is not None
    gates = attention.gates.in_evaluation().tolist()
    without = checkpoint.load(pruned)
    return {
        "weight": weight,
        "gates": [round(gate, 4) for gate in gates],
        **measure(captioner, photos, tested),
        "without closed heads": measure(without, photos, None),
    }


def measure(captioner: Captioner, photos: Sequence[str], tested: Mapping[str, Any] | None) -> dict[str, Any]:
    """Scores, the attention's number of weights, and the milliseconds of a greedy caption, without the encoder, in
    processor time."""
    names = {"NLL": "NLL", "BLEU-4": "BLEU-4", "pointing": "pointing_accuracy"}
    scores = {} if tested is None else {name: tested["scores"][key] for name, key in names.items()}
    size = sum(parameter.numel() for parameter in captioner.decoder.attentions["attention"].parameters())
    with torch.no_grad():
        pixels = torch.stack([captioner.transform(open_image(photo)) for photo in photos[:50]])
        views = captioner.encoder(pixels)
        seconds = []
        for _ in range(5):
            start = time.process_time()
            captioner.generate(views, Greedy(20))
            seconds.append(time.process_time() - start)
    return {**scores, "weights": size, "milliseconds": round(min(seconds) / len(pixels) * 1000, 3)}


def roles(captioner: Captioner, photos: Sequence[str]) -> dict[str, list[float]]:
    """What each head does, by `ROLES`: larger is more specialised."""
    classes = {"colours": list(COLOURS), "shapes": list(SHAPES)}
    found = head_roles(captioner.describe(list(photos)), classes=classes)
    numbers = {
        "confidence": found.confidence,
        "positional": found.positional,
        "positional above others": found.positional - found.positional_others,
        **found.classes,
    }
    return {name: np.round(numbers[name], 4).tolist() for name in ROLES}


def test_photos(path: Path) -> list[str]:
    """The first test images of the data that a checkpoint was trained on."""
    reader = make(checkpoint.read(path)["data"]["reader"], CaptionReader)
    return [str(image.path) for image in reader.read()["test"][:SCENES]]


def left(result: Mapping[str, Any]) -> int:
    """The number of open heads."""
    return sum(gate > 0 for gate in result["gates"])


def stays(seed: Seed) -> list[int]:
    """For each head, the number of penalties at which it stays open."""
    return [
        sum(gate > 0 for gate in gates)
        for gates in zip(*(r["gates"] for r in seed["penalties"]), strict=True)
    ]


def tables(seeds: Sequence[Seed]) -> str:
    """Two tables: scores by penalty, and roles by head."""
    head = ["penalty", "heads left", "NLL", "BLEU-4", "pointing", "ms a caption", "without closed heads"]
    rows = [["no gates", seeds[0]["heads"], *_scores([seed["all"] for seed in seeds]), "–"]]
    for column in zip(*(seed["penalties"] for seed in seeds), strict=True):
        counts = ", ".join(str(left(result)) for result in column)
        faster = [result["without closed heads"]["milliseconds"] for result in column]
        rows.append([f"{column[0]['weight']:g}", counts, *_scores(column), mean_and_deviation(faster, 2)])
    curve = table(head, [[str(cell) for cell in row] for row in rows])
    columns = ["seed", "head", *ROLES, f"stays open, of {len(seeds[0]['penalties'])}"]
    heads = []
    for seed in seeds:
        open_at = stays(seed)
        for number in sorted(range(seed["heads"]), key=lambda number: -open_at[number]):
            numbers = [f"{seed['roles'][name][number]:.2f}" for name in ROLES]
            heads.append([str(seed["seed"]), str(number), *numbers, str(open_at[number])])
    correlations = ["", "ρ with the last column"]
    for name in ROLES:
        values = [found for seed in seeds if (found := _rho(seed["roles"][name], stays(seed))) is not None]
        correlations.append(mean_and_deviation(values, 2, signed=True))
    return f"{curve}\n\n{table(columns, [*heads, [*correlations, '']])}\n"


def _scores(results: Sequence[Mapping[str, Any]]) -> list[str]:
    digits = {"NLL": 4, "BLEU-4": 3, "pointing": 3, "milliseconds": 2}
    return [
        mean_and_deviation([result[name] for result in results], places) for name, places in digits.items()
    ]


def _rho(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None where one of the two has a single value."""
    if len(set(one)) == 1 or len(set(other)) == 1:
        return None
    ranks = [
        [sum(x < y for x in values) + sum(x <= y for x in values) for y in values] for values in (one, other)
    ]
    return float(np.corrcoef(ranks)[0, 1])


def draw(seeds: Sequence[Seed]) -> Figure:
    """NLL against heads left, and for each seed the gates of each head by penalty, those that stay open on top."""
    figure = Figure(figsize=(4.2 + 2.6 * len(seeds), 3.2), layout="constrained")
    axes = figure.subplots(1, 1 + len(seeds), width_ratios=[1.5, *[1] * len(seeds)], squeeze=False)[0]
    curve = axes[0]
    for number, seed in enumerate(seeds):
        points = [(left(result), result["NLL"]) for result in seed["penalties"]]
        label = f"seed {seed['seed']}"
        curve.plot(*zip(*sorted(points), strict=True), marker="o", color=f"C{number}", label=label)
        curve.axhline(seed["all"]["NLL"], color=f"C{number}", linestyle=":", linewidth=1)
    curve.set(xlabel="heads left", ylabel="NLL per word", title="dotted: all heads, no gates")
    curve.grid(alpha=0.3)
    curve.spines[["top", "right"]].set_visible(False)
    if len(seeds) > 1:
        curve.legend(frameon=False, fontsize=8)
    for ax, seed in zip(axes[1:], seeds, strict=True):
        open_at = stays(seed)
        order = sorted(range(seed["heads"]), key=lambda number: -open_at[number])
        gates = np.array([result["gates"] for result in seed["penalties"]]).T[order]
        ax.imshow(gates, cmap="Greys", vmin=0, vmax=1, aspect="auto")
        confidence = seed["roles"]["confidence"]
        ax.set_yticks(range(len(order)), [f"{number}: {confidence[number]:.2f}" for number in order])
        weights = [f"{result['weight']:g}" for result in seed["penalties"]]
        ax.set_xticks(range(len(weights)), weights, rotation=60)
        ax.set(xlabel="penalty", title=f"gates, seed {seed['seed']}")
    axes[1].set_ylabel("head: its mean largest weight")
    return figure


def main(args: Sequence[str] | None = None) -> int:
    """Train what is missing, draw, and print the tables."""
    parser = make_parser("head_curve", __doc__)
    add = parser.add_argument
    add("--out", required=True, metavar="FILE.png")
    add("--runs", type=Path, default=Path("runs/head_curve"), metavar="DIR", help="default runs/head_curve")
    add("--heads", type=int, default=8, metavar="M", help="default 8")
    add("--penalties", type=float, nargs="+", default=PENALTIES, metavar="WEIGHT")
    add("--seeds", type=int, nargs="+", default=[0], metavar="N", help="default 0")
    options, more = parser.parse_known_args(args)
    out = output_file(options.out, FIGURES, "--out")
    check_outputs({"--out": [out]}, [])
    make_folder(options.runs, "--runs")
    seeds = [
        train(options.runs, seed, options.heads, sorted(options.penalties), more) for seed in options.seeds
    ]
    save_figure(draw(seeds), out, opener=replacing_own)
    write_json(options.runs / "numbers.json", seeds)
    text = tables(seeds)
    with replacing(options.runs / "tables.md") as file:
        file.write(text.encode())
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
