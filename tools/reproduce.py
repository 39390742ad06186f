"""Reproduce the Flickr8k rows of docs/results.md, or the table of trainings on Shapes in docs/hard-attention.md.

    python -m tools.reproduce flickr8k --data DATA --weights mobilenet_v2_imagenet_features.pth --attention soft
    python -m tools.reproduce shapes --seeds 0 1 2

Flickr8k: encodes the images, trains, and evaluates on the test split. DATA holds Flickr8k.token.txt,
Flickr_8k.{train,dev,test}Images.txt and images/. Hard attention starts from the soft model, which is trained first.

Shapes: for each seed trains soft attention as `caption demo` does; from it, hard attention with the paper's estimator
and with leave-one-out; and soft attention for as long, so that longer training is not mistaken for a better mechanism.
Hard attention is tested in its three ways. About 20 minutes a seed on two CPU cores.

Stop it at any moment, in any way: the same command goes on. Finished trainings and tests are not repeated, and a
training that was stopped ends with the weights of one that was not. Further arguments go to Lightning, for instance
`--trainer.accelerator gpu`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

from caption.atomic import replacing
from caption.checkpoint import read
from caption.cli.main import main as caption
from tools import make_parser
from tools.documents import table, write_sections

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
NUMBERS = {
    "BLEU-4": "BLEU-4",
    "CIDEr": "CIDEr",
    "pointing_accuracy": "pointing accuracy",
    "attention_in_box": "mass in the box",
    "attention_entropy": "H[α], nats",
}
AT_TEST = ("expectation", "argmax", "sample")
MODELS = {
    "soft": "soft",
    "soft_on": "soft, trained on as long as leave-one-out",
    "hard": "hard, moving average (paper)",
    "leave_one_out": "hard, leave-one-out",
}
LONGER = (
    "--trainer.max_epochs=4",
    "--model.optimizer.init_args.lr=5.0e-4",
    "--model.encoder_learning_rate=5.0e-4",
    "--model.scheduler.init_args.T_max=4",
)
Scores = dict[tuple[str, str], list[dict[str, float]]]
"""Of each seed, by model and way of testing."""


def main(args: list[str] | None = None) -> int:
    parser = make_parser("reproduce", __doc__)
    commands = parser.add_subparsers(required=True)
    of_flickr8k = commands.add_parser("flickr8k", allow_abbrev=False)
    of_flickr8k.add_argument("--data", required=True, type=Path, help="folder of Flickr8k")
    of_flickr8k.add_argument("--weights", required=True, help="MobileNetV2 state dict (inputs in -1...1)")
    of_flickr8k.add_argument("--attention", choices=("soft", "hard"), default="soft")
    of_flickr8k.add_argument("--out", type=Path, default=Path("runs/flickr8k"))
    of_flickr8k.add_argument("--seed", type=int, default=0)
    of_flickr8k.set_defaults(run=flickr8k)
    of_shapes = commands.add_parser("shapes", allow_abbrev=False)
    of_shapes.add_argument("--out", type=Path, default=Path("runs/hard_on_shapes"))
    of_shapes.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    of_shapes.add_argument("--document", type=Path, default=CONFIGS.parent / "docs" / "hard-attention.md")
    of_shapes.set_defaults(run=shapes)
    options, more = parser.parse_known_args(args)
    options.run(options, more)
    return 0


def flickr8k(options: argparse.Namespace, more: list[str]) -> None:
    """Train and test one kind of attention, and print its scores."""
    soft, hard = (str(CONFIGS / f"flickr8k_{how}.yaml") for how in ("soft", "hard"))
    splits = {"train": "train", "val": "dev", "test": "test"}
    files = {split: str(options.data / f"Flickr_8k.{name}Images.txt") for split, name in splits.items()}
    common = [
        f"--data.reader.init_args.captions={options.data / 'Flickr8k.token.txt'}",
        f"--data.reader.init_args.images={options.data / 'images'}",
        f"--data.reader.init_args.splits={json.dumps(files)}",
        f"--model.encoder.init_args.weights={options.weights}",
    ]
    features = str(options.out / "features")
    run("features", "--config", soft, "--out", features, *common)
    common += ["--data.features", features, "--seed_everything", str(options.seed), *more]
    arguments = ["-c", soft, *common]
    best = fit(options.out / "soft", arguments)
    if options.attention == "hard":
        arguments = ["-c", hard, *common]
        fit(options.out / "hard", [*arguments, f"--model.warm_start={best}"])
    folder = options.out / options.attention
    print(json.dumps(test(folder, folder / "test_scores.json", arguments), indent=1))


def shapes(options: argparse.Namespace, more: list[str]) -> None:
    """Train and test all models with all seeds, and write their scores into the document."""
    scores: Scores = {}
    for seed in options.seeds:
        for key in MODELS:
            soft = key.startswith("soft")
            config = CONFIGS / ("shapes_soft.yaml" if soft else f"shapes_{key}.yaml")
            common = ["-c", str(config), *(LONGER if key == "soft_on" else ()), *more]
            common += ["--seed_everything", str(seed)]
            common += ["--data.reader.init_args.folder", str(options.out / "shapes")]
            if key != "soft":
                common += ["--model.warm_start", str(options.out / f"soft_{seed}" / "best.ckpt")]
            folder = options.out / f"{key}_{seed}"
            fit(folder, common)
            for how in ("",) if soft else AT_TEST:
                chosen = ["--model.at_test", how] if how else []
                file = folder / f"test_{how or 'soft'}.json"
                found = test(folder, file, [*common, *chosen, "--verbose", "false"])
                scores.setdefault((key, how), []).append(found["scores"])
    text = report(scores, options.seeds)
    print(text)
    write_sections(options.document, {"hard_on_shapes": text})


def report(scores: Scores, seeds: list[int]) -> str:
    """Mean over the seeds, and each seed's own number."""
    rows = []
    for (key, how), found in scores.items():
        row = [MODELS[key], how or "–"]
        for number in NUMBERS:
            digits = 2 if number in ("CIDEr", "attention_entropy") else 3
            values = [each[number] for each in found]
            own = ", ".join(f"{value:.{digits}f}" for value in values)
            row.append(f"{statistics.mean(values):.{digits}f} ({own})")
        rows.append(row)
    return (
        f"Written by `python -m tools.reproduce shapes --seeds {' '.join(map(str, seeds))}`: test split, 500 scenes, "
        f"beam 3; mean over {len(seeds)} seeds (each seed). log L = {math.log(64):.2f} nats.\n\n"
        f"{table(['', 'at test', *NUMBERS.values()], rows)}"
    )


def run(*arguments: str) -> None:
    """Run one `caption` command; end the program with its exit code if it fails or is stopped."""
    print("+ caption", *arguments, file=sys.stderr)
    if code := caption(list(arguments)):
        sys.exit(code)


def fit(folder: Path, arguments: list[str]) -> Path:
    """Train into a folder, or go on, unless it is done; returns the best checkpoint."""
    done = folder / "done"
    if not done.exists():
        run("fit", *arguments, "--trainer.default_root_dir", str(folder), "--ckpt_path", "auto")
        state = read(folder / "last.ckpt")["callbacks"]["LastCheckpoint"]
        with replacing(done) as file:
            file.write(f"{state['trained_seconds']:.0f} seconds of training\n".encode())
    return folder / "best.ckpt"


def test(folder: Path, file: Path, arguments: list[str]) -> dict[str, Any]:
    """Test the best checkpoint of a folder, unless the file of its scores exists; returns what the file says."""
    if not file.exists():
        best = str(folder / "best.ckpt")
        run("test", *arguments, "--trainer.default_root_dir", str(folder), "--ckpt_path", best)
        newest = max((folder / "logs").glob("*/test_scores.json"), key=lambda path: path.stat().st_mtime)
        newest.replace(file)
    return json.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
