"""Soft and hard attention on Shapes, from several seeds: the table of docs/results/hard-attention.md."""

from __future__ import annotations

import argparse
import math
import statistics

from tools.documents import table, write_sections
from tools.reproduce.runs import CONFIGS, fit, test

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


def main(options: argparse.Namespace, more: list[str]) -> None:
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
                tested = test(folder, file, [*common, *chosen, "--verbose", "false"])
                scores.setdefault((key, how), []).append(tested["scores"])
    text = report(scores, options.seeds)
    print(text)
    write_sections(options.document, {"hard_on_shapes": text})


def report(scores: Scores, seeds: list[int]) -> str:
    """Mean over the seeds, and each seed's own number."""
    rows = []
    for (key, how), by_seed in scores.items():
        row = [MODELS[key], how or "–"]
        for number in NUMBERS:
            digits = 2 if number in ("CIDEr", "attention_entropy") else 3
            values = [numbers[number] for numbers in by_seed]
            own = ", ".join(f"{value:.{digits}f}" for value in values)
            row.append(f"{statistics.mean(values):.{digits}f} ({own})")
        rows.append(row)
    return (
        f"Written by `python -m tools.reproduce shapes --seeds {' '.join(map(str, seeds))}`: test split, 500 scenes, "
        f"beam 3; mean over {len(seeds)} seeds (each seed). log L = {math.log(64):.2f} nats.\n\n"
        f"{table(['', 'at test', *NUMBERS.values()], rows)}"
    )
