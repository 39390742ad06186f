"""Train soft and hard attention on Shapes with several seeds, and write their scores into docs/hard-attention.md.

    python -m tools.hard_on_shapes --out runs/hard_on_shapes

For each seed: soft attention, as `caption demo` trains it; from it, hard attention with the paper's estimator and with
leave-one-out; and soft attention trained on for as long, so that longer training is not mistaken for a better
mechanism. Hard attention is tested in its three ways. About 20 minutes a seed on two CPU cores. Finished trainings and
tests are not repeated, and a stopped training is resumed. Further arguments go to Lightning, e.g.
`--trainer.accelerator gpu`.
"""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

from tools import make_parser
from tools.documents import table, write_sections
from tools.runs import CONFIGS, fit, test

NUMBERS = ("BLEU-4", "CIDEr", "pointing_accuracy", "attention_in_box", "attention_entropy")
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


def main(args: list[str] | None = None) -> int:
    parser = make_parser("hard_on_shapes", __doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/hard_on_shapes"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--document", type=Path, default=CONFIGS.parent / "docs" / "hard-attention.md")
    options, more = parser.parse_known_args(args)
    scores: dict[tuple[str, str], list[dict[str, float]]] = {}
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
    return 0


def report(scores: dict[tuple[str, str], list[dict[str, float]]], seeds: list[int]) -> str:
    """Mean over the seeds, and each seed's own number."""
    rows = []
    for (key, how), found in scores.items():
        cells = []
        for number in NUMBERS:
            values = [each[number] for each in found]
            digits = 2 if number in ("CIDEr", "attention_entropy") else 3
            each = ", ".join(f"{value:.{digits}f}" for value in values)
            cells.append(f"{statistics.mean(values):.{digits}f} ({each})")
        rows.append([MODELS[key], how or "–", *cells])
    head = ["", "at test", "BLEU-4", "CIDEr", "pointing accuracy", "mass in the box", "H[α], nats"]
    return (
        f"Written by `python -m tools.hard_on_shapes --seeds {' '.join(map(str, seeds))}`: test split, 500 scenes, "
        f"beam 3; mean over {len(seeds)} seeds (each seed). log L = {math.log(64):.2f} nats.\n\n{table(head, rows)}"
    )


if __name__ == "__main__":
    sys.exit(main())
