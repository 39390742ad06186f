"""Reproduce the Flickr8k rows of docs/results.md: encode the images, train, evaluate on the test split.

    python -m tools.reproduce_flickr8k --data DATA --weights mobilenet_v2_imagenet_features.pth --attention soft
    python -m tools.reproduce_flickr8k --data DATA --weights mobilenet_v2_imagenet_features.pth --attention hard

DATA holds Flickr8k.token.txt, Flickr_8k.{train,dev,test}Images.txt and images/. Hard attention starts from the soft
model, which is trained first if it is missing. All output goes to --out. Finished trainings and tests are not repeated,
and a stopped training is resumed. Further arguments go to Lightning, for instance `--trainer.accelerator gpu`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools import make_parser
from tools.runs import CONFIGS, fit, run, test


def main() -> int:
    parser = make_parser("reproduce_flickr8k", __doc__)
    parser.add_argument("--data", required=True, type=Path, help="folder of Flickr8k")
    parser.add_argument("--weights", required=True, help="MobileNetV2 state dict (inputs in -1...1)")
    parser.add_argument("--attention", choices=("soft", "hard"), default="soft")
    parser.add_argument("--out", type=Path, default=Path("runs/flickr8k"))
    parser.add_argument("--seed", type=int, default=0)
    options, more = parser.parse_known_args()
    features, configs = (
        options.out / "features",
        {how: CONFIGS / f"flickr8k_{how}.yaml" for how in ("soft", "hard")},
    )
    common = data_arguments(options.data, options.weights)
    run("features", "--config", str(configs["soft"]), "--out", str(features), *common)
    common += ["--data.features", str(features), "--seed_everything", str(options.seed), *more]
    best = fit(options.out / "soft", ["-c", str(configs["soft"]), *common])
    if options.attention == "hard":
        fit(options.out / "hard", ["-c", str(configs["hard"]), *common, f"--model.warm_start={best}"])
    folder = options.out / options.attention
    arguments = ["-c", str(configs[options.attention]), *common]
    print(json.dumps(test(folder, folder / "test_scores.json", arguments), indent=1))
    return 0


def data_arguments(data: Path, weights: str) -> list[str]:
    """Overrides that point the configuration to the data."""
    reader = "--data.reader.init_args."
    arguments = [f"{reader}captions={data / 'Flickr8k.token.txt'}", f"{reader}images={data / 'images'}"]
    splits = {"train": "train", "val": "dev", "test": "test"}
    named = ", ".join(f"{split}: {data / f'Flickr_8k.{name}Images.txt'}" for split, name in splits.items())
    return [*arguments, f"{reader}splits={{{named}}}", f"--model.encoder.init_args.weights={weights}"]


if __name__ == "__main__":
    sys.exit(main())
