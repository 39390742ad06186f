"""`caption demo`: from nothing to a captioner, its scores and its heatmaps, on the embedded Shapes dataset."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.outputs import make_folder

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.training.evaluation import Evaluation

DESCRIPTION = """\
Generate the Shapes dataset, train a captioner with attention on it from scratch, score it on the test split, and
draw where it looked for every word. Needs nothing but this package, and a few minutes on two CPU cores. Stopped, it
goes on where it was when started again.
"""
EPILOG = """\
DIR then holds metrics.json, captions.json, heatmaps/, page.html, the model best.ckpt, its logs, and the dataset.
Hard attention trains soft attention first, in DIR/soft, and starts from it; a soft demo that DIR holds is moved there.
"""
STATE = "demo.json"
RUN = (STATE, "best.ckpt", "last.ckpt", "logs")
PRODUCTS = ("metrics.json", "captions.json", "heatmaps", "contact_sheet.png", "page.html")
PICTURES = 12
"""Test images that are drawn."""
REPORTED = (
    "BLEU-1",
    "BLEU-2",
    "BLEU-3",
    "BLEU-4",
    "ROUGE-L",
    "CIDEr",
    "pointing_accuracy",
    "pointing_chance",
)


def main(args: list[str]) -> int:
    """Run `caption demo`."""
    parser = argparse.ArgumentParser(
        "caption demo",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--out", default="demo", metavar="DIR", help="folder for everything; default demo")
    parser.add_argument("--attention", choices=("soft", "hard"), default="soft", help="default soft")
    options = parser.parse_args(args)
    folder = Path(options.out).expanduser()
    make_folder(folder, "--out")
    soft_folder = folder if options.attention == "soft" else folder / "soft"
    _make_room(folder, options.attention)
    seconds = _train("soft", soft_folder, folder / "shapes", [])
    if options.attention == "hard":
        warm_start = ["--model.warm_start", str(soft_folder / "best.ckpt")]
        seconds += _train("hard", folder, folder / "shapes", warm_start)
    evaluation = _test(f"shapes_{options.attention}", folder)
    _draw(folder)
    numbers = {name: round(value, 4) for name, value in evaluation.numbers.items()}
    metrics: dict[str, Any] = {
        name: numbers[name] for name in (*REPORTED, *sorted(set(numbers) - set(REPORTED)))
    }
    metrics |= {"attention": options.attention, "train_seconds": round(seconds, 1)}
    metrics["signature"] = evaluation.signature
    _write(folder / "metrics.json", metrics)
    _report(folder, metrics)
    return 0


def configuration(name: str) -> Path:
    """A file of configs/: beside the package in a clone, inside it when installed."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "configs" / f"{name}.yaml"
    return installed if installed.exists() else package.parent / "configs" / f"{name}.yaml"


def _train(attention: str, folder: Path, data: Path, more: list[str]) -> float:
    """Train, or go on training; returns the seconds that all sittings took together."""
    from caption.cli.train import run

    state = _state(folder)
    if state.get("attention", attention) != attention:
        _clear(folder)
        state = {}
    seconds = state.get("train_seconds", 0.0)
    if state.get("trained"):
        print(f"caption demo: {attention} attention is trained already, in {folder}", file=sys.stderr)
        return seconds
    arguments = [
        "fit",
        "-c",
        str(configuration(f"shapes_{attention}")),
        "--trainer.default_root_dir",
        str(folder),
    ]
    arguments += ["--data.reader.init_args.folder", str(data), *more]
    if (folder / "last.ckpt").exists():
        print(f"caption demo: going on with the training in {folder}", file=sys.stderr)
        arguments += ["--ckpt_path", str(folder / "last.ckpt")]
    clock, trained = time.monotonic(), False
    try:
        run(arguments)
        trained = True
    finally:  # also when stopped
        seconds += time.monotonic() - clock
        _write(folder / STATE, {"attention": attention, "trained": trained, "train_seconds": seconds})
    return seconds


def _make_room(folder: Path, attention: str) -> None:
    """A demo that is through starts anew, but hard attention goes on from soft attention."""
    if not (folder / "metrics.json").exists():
        return
    soft = folder / "soft"
    _clear(soft)
    if attention == "hard" and _state(folder).get("attention") == "soft":
        soft.mkdir(exist_ok=True)
        for name in (*RUN, *PRODUCTS):
            if (folder / name).exists():
                shutil.move(folder / name, soft / name)
    else:
        _clear(folder)


def _clear(folder: Path) -> None:
    for name in (*RUN, *PRODUCTS):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def _state(folder: Path) -> dict[str, Any]:
    """Which attention is trained in a folder, for how long so far, and whether it is done."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _test(config: str, folder: Path) -> Evaluation:
    from caption.cli.train import run

    arguments = ["test", "-c", str(configuration(config)), "--trainer.default_root_dir", str(folder)]
    arguments += ["--data.reader.init_args.folder", str(folder / "shapes")]
    arguments += ["--ckpt_path", str(folder / "best.ckpt"), "--verbose", "false"]
    command = run(arguments)
    shutil.copy(Path(command.trainer.log_dir or folder) / "test_captions.json", folder / "captions.json")
    return command.model.evaluation


def _draw(folder: Path) -> None:
    """Heatmaps and a page of the first test images: not chosen, so that they show what the model is like."""
    from caption import checkpoint
    from caption.visualize import contact_sheet, plot_caption, save_figure, save_html, to_html

    captioner = checkpoint.load(folder / "best.ckpt")
    photos = sorted((folder / "shapes" / "images").glob("test_*.png"))[:PICTURES]
    captions = captioner.describe([str(photo) for photo in photos])
    heatmaps = folder / "heatmaps"
    heatmaps.mkdir(exist_ok=True)
    for photo, caption in zip(photos, captions, strict=True):
        save_figure(plot_caption(caption, photo), heatmaps / f"{photo.stem}.png")
    save_figure(contact_sheet(captions, photos), folder / "contact_sheet.png")
    save_html(to_html(captions, title="Shapes: where the model looked"), folder / "page.html")


def _report(folder: Path, metrics: dict[str, Any]) -> None:
    for name in REPORTED:
        print(f"{name:20}{metrics[name]:.3f}")
    print(f"{'train_seconds':20}{metrics['train_seconds']:.0f}")
    print(f"caption demo: pictures in {folder / 'heatmaps'}, page {folder / 'page.html'}", file=sys.stderr)
