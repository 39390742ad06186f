"""Train soft and hard attention on Shapes with several seeds, and write their scores into docs/hard-attention.md.

    python tools/hard_on_shapes.py --out runs/hard_on_shapes

For each seed: soft attention, as `caption demo` trains it; from it, hard attention with the paper's estimator and with
leave-one-out; and, so that more training is not taken for a better mechanism, soft attention trained on for as long.
Hard attention is tested in its three ways. About 20 minutes a seed on two CPU cores. What is done is not done again,
and a training that was stopped is resumed. Further arguments go to Lightning, e.g. `--trainer.accelerator gpu`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

from documents import write_between

from caption.cli.main import main as caption

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ("BLEU-4", "CIDEr", "pointing_accuracy", "attention_in_box", "attention_entropy")
AT_TEST = ("expectation", "argmax", "sample")


class Model(NamedTuple):
    """A row of the table."""

    name: str
    config: str
    warm: bool
    """Whether it starts from the soft model of the same seed."""
    more: tuple[str, ...] = ()

    @property
    def hard(self) -> bool:
        return self.config != "shapes_soft"


MODELS = {
    "soft": Model("soft", "shapes_soft", False),
    "soft_on": Model(
        "soft, trained on as long as leave-one-out",
        "shapes_soft",
        True,
        (
            "--trainer.max_epochs=4",
            "--model.optimizer.init_args.lr=5.0e-4",
            "--model.encoder_learning_rate=5.0e-4",
            "--model.scheduler.init_args.T_max=4",
        ),
    ),
    "paper": Model("hard, moving average (paper)", "shapes_hard", True),
    "leave_one_out": Model("hard, leave-one-out", "shapes_leave_one_out", True),
}


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, default=Path("runs/hard_on_shapes"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "hard-attention.md")
    options, more = parser.parse_known_args(args)
    scores: dict[tuple[str, str], list[dict[str, float]]] = {}
    for seed in options.seeds:
        for key, model in MODELS.items():
            folder = options.out / f"{key}_{seed}"
            common = [
                *("-c", str(ROOT / "configs" / f"{model.config}.yaml"), *model.more, *more),
                *("--seed_everything", str(seed), "--trainer.default_root_dir", str(folder)),
                *("--data.reader.init_args.folder", str(options.out / "shapes")),
            ]
            if model.warm:
                common += ["--model.warm_start", str(options.out / f"soft_{seed}" / "best.ckpt")]
            train(folder, common)
            for how in AT_TEST if model.hard else ("",):
                scores.setdefault((key, how), []).append(test(folder, common, how))
    text = table(scores, options.seeds)
    print(text)
    write_between(options.document, "hard_on_shapes", text)
    return 0


def train(folder: Path, arguments: list[str]) -> None:
    """Train, or resume, unless it is done."""
    done = folder / "done"
    if not done.exists():
        resume = ["--ckpt_path", str(folder / "last.ckpt")] if (folder / "last.ckpt").exists() else []
        run("fit", *arguments, *resume)
        done.touch()


def test(folder: Path, arguments: list[str], how: str) -> dict[str, float]:
    """The numbers of the test split."""
    file = folder / f"test_{how or 'soft'}.json"
    if not file.exists():
        chosen = ["--model.at_test", how] if how else []
        run("test", *arguments, *chosen, "--ckpt_path", str(folder / "best.ckpt"), "--verbose", "false")
        newest = max((folder / "logs").glob("*/test_scores.json"), key=lambda path: path.stat().st_mtime)
        newest.replace(file)
    return json.loads(file.read_text(encoding="utf-8"))["scores"]


def run(*arguments: str) -> None:
    """One `caption` command; stop at the first that fails."""
    print("+ caption", *arguments, file=sys.stderr)
    code = caption(list(arguments))
    if code:
        sys.exit(code)


def table(scores: dict[tuple[str, str], list[dict[str, float]]], seeds: list[int]) -> str:
    """Mean over the seeds, and each seed's own number."""
    rows = [
        f"Written by `python tools/hard_on_shapes.py --seeds {' '.join(map(str, seeds))}`: test split, 500 scenes, "
        f"beam 3; mean over {len(seeds)} seeds (each seed). log L = {math.log(64):.2f} nats.",
        "",
        "| | at test | BLEU-4 | CIDEr | pointing accuracy | mass in the box | H[α], nats |",
        "|---|---|---|---|---|---|---|",
    ]
    for (key, how), found in scores.items():
        cells = []
        for number in NUMBERS:
            values = [each[number] for each in found]
            digits = 2 if number in ("CIDEr", "attention_entropy") else 3
            each = ", ".join(f"{value:.{digits}f}" for value in values)
            cells.append(f"{statistics.mean(values):.{digits}f} ({each})")
        rows.append(f"| {MODELS[key].name} | {how or '–'} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
