"""Reproduce the Flickr8k rows of docs/results.md: encode the images, train, evaluate on the test split.

    python tools/reproduce_flickr8k.py --data DATA --weights mobilenet_v2_imagenet_features.pth --attention soft
    python tools/reproduce_flickr8k.py --data DATA --weights mobilenet_v2_imagenet_features.pth --attention hard

DATA holds Flickr8k.token.txt, Flickr_8k.{train,dev,test}Images.txt and images/. Hard attention starts from the soft
model, which is trained first if it is not there. Everything goes to --out; steps that are done are not done again, and
one that was stopped is resumed. Further arguments go to Lightning, for instance `--trainer.accelerator gpu`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from caption.cli.main import main as caption

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", required=True, type=Path, help="folder of Flickr8k")
    parser.add_argument("--weights", required=True, help="MobileNetV2 state dict (inputs in -1...1)")
    parser.add_argument("--attention", choices=("soft", "hard"), default="soft")
    parser.add_argument("--out", type=Path, default=Path("runs/flickr8k"))
    parser.add_argument("--seed", type=int, default=0)
    options, more = parser.parse_known_args()
    features = options.out / "features"
    common = data_arguments(options.data, options.weights)
    run("features", "--config", str(CONFIGS / "flickr8k_soft.yaml"), "--out", str(features), *common)
    common += ["--data.features", str(features), "--seed_everything", str(options.seed), *more]
    soft = train("soft", options.out, common)
    best = (
        soft
        if options.attention == "soft"
        else train("hard", options.out, [*common, f"--model.warm_start={soft}"])
    )
    folder = best.parent
    config = str(CONFIGS / f"flickr8k_{options.attention}.yaml")
    run("test", "-c", config, *common, "--trainer.default_root_dir", str(folder), "--ckpt_path", str(best))
    newest = max((folder / "logs").glob("*/test_scores.json"), key=lambda path: path.stat().st_mtime)
    print(json.dumps(json.loads(newest.read_text(encoding="utf-8")), indent=1))
    return 0


def data_arguments(data: Path, weights: str) -> list[str]:
    """Overrides that point the configuration to the data."""
    reader = "--data.reader.init_args."
    arguments = [f"{reader}captions={data / 'Flickr8k.token.txt'}", f"{reader}images={data / 'images'}"]
    splits = {"train": "train", "val": "dev", "test": "test"}
    named = ", ".join(f"{split}: {data / f'Flickr_8k.{name}Images.txt'}" for split, name in splits.items())
    return [*arguments, f"{reader}splits={{{named}}}", f"--model.encoder.init_args.weights={weights}"]


def train(attention: str, out: Path, arguments: list[str]) -> Path:
    """The best checkpoint of a finished training, which is run, or resumed, if need be."""
    folder = out / attention
    done = folder / "done"
    if not done.exists():
        resume = ["--ckpt_path", str(folder / "last.ckpt")] if (folder / "last.ckpt").exists() else []
        clock = time.monotonic()
        config = str(CONFIGS / f"flickr8k_{attention}.yaml")
        run("fit", "-c", config, *arguments, "--trainer.default_root_dir", str(folder), *resume)
        done.write_text(f"{time.monotonic() - clock:.0f} seconds in the last sitting\n", encoding="utf-8")
    return folder / "best.ckpt"


def run(*arguments: str) -> None:
    """One `caption` command; stop at the first that fails."""
    print("+ caption", *arguments, file=sys.stderr)
    code = caption(list(arguments))
    if code:
        sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
