"""`caption demo`: train a captioner on the built-in Shapes dataset, score it, and draw its heatmaps."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.arguments import verb_parser
from caption.cli.config_files import config_folder
from caption.cli.exit_codes import DONE
from caption.cli.files import make_folder

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.training.evaluation import Evaluation

DESCRIPTION = """\
Generate the Shapes dataset, train a captioner with attention on it, score it on the test split, and draw where it
looked for every word. Needs nothing but this package, and a few minutes on two CPU cores. If it is stopped, the same
command continues it.
"""
EPILOG = """\
DIR then holds metrics.json, captions.json, heatmaps/, page.html, the model best.ckpt, its logs, and the dataset.
Hard attention first trains soft attention in DIR/soft, and starts from it. If DIR holds a soft demo, that one is moved
there and used.
"""
STATE = "demo.json"
RUN = (STATE, "best.ckpt", "last.ckpt", "logs")
PRODUCTS = ("metrics.json", "captions.json", "heatmaps", "contact_sheet.png", "page.html")
PICTURES = 12
"""Number of test images that are drawn."""
REPORTED = (
    *("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr"),
    *("pointing_accuracy", "pointing_chance"),
)


def main(args: list[str]) -> int:
    """Run `caption demo`."""
    parser = verb_parser("demo", DESCRIPTION, EPILOG)
    parser.add_argument("--out", default="demo", metavar="DIR", help="folder for all output; default demo")
    parser.add_argument("--attention", choices=("soft", "hard"), default="soft", help="default soft")
    options = parser.parse_args(args)
    folder = Path(os.path.expanduser(options.out))
    make_folder(folder, "--out")
    soft_folder = folder if options.attention == "soft" else folder / "soft"
    _make_room(folder, options.attention)
    seconds = _train("soft", soft_folder, folder / "shapes", [])
    if options.attention == "hard":
        warm_start = ["--model.warm_start", str(soft_folder / "best.ckpt")]
        seconds += _train("hard", folder, folder / "shapes", warm_start)
    evaluation = _test(options.attention, folder)
    _draw(folder)
    numbers = {name: round(value, 4) for name, value in evaluation.numbers.items()}
    metrics: dict[str, Any] = {name: numbers.pop(name) for name in REPORTED} | dict(sorted(numbers.items()))
    metrics |= {"attention": options.attention, "train_seconds": round(seconds, 1)}
    metrics["signature"] = evaluation.signature
    _write(folder / "metrics.json", metrics)
    for name in REPORTED:
        print(f"{name:20}{metrics[name]:.3f}")
    print(f"{'train_seconds':20}{seconds:.0f}")
    print(f"caption demo: pictures in {folder / 'heatmaps'}, page {folder / 'page.html'}", file=sys.stderr)
    return DONE


def _arguments(verb: str, attention: str, folder: Path, data: Path) -> list[str]:
    config = config_folder() / f"shapes_{attention}.yaml"
    arguments = [verb, "-c", str(config), "--trainer.default_root_dir", str(folder)]
    return [*arguments, "--data.reader.init_args.folder", str(data)]


def _train(attention: str, folder: Path, data: Path, more: list[str]) -> float:
    """Train, or resume training; returns the training time in seconds, summed over all runs of the command."""
    from caption.cli.train import run

    state = _state(folder)
    if state.get("attention", attention) != attention:
        _clear(folder)
        state = {}
    seconds = state.get("train_seconds", 0.0)
    if state.get("trained"):
        print(f"caption demo: {attention} attention is already trained, in {folder}", file=sys.stderr)
        return seconds
    arguments = [*_arguments("fit", attention, folder, data), *more]
    if (folder / "last.ckpt").exists():
        print(f"caption demo: resuming the training in {folder}", file=sys.stderr)
        arguments += ["--ckpt_path", str(folder / "last.ckpt")]
    clock, trained = time.monotonic(), False
    try:
        run(arguments)
        trained = True
    finally:  # also after Ctrl-C
        seconds += time.monotonic() - clock
        _write(folder / STATE, {"attention": attention, "trained": trained, "train_seconds": seconds})
    return seconds


def _make_room(folder: Path, attention: str) -> None:
    """Remove a finished demo, so that it runs again; but hard attention keeps the soft model and moves it aside."""
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
    """The attention trained in a folder, the training time so far, and whether training has ended."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _test(attention: str, folder: Path) -> Evaluation:
    from caption.cli.train import run

    arguments = _arguments("test", attention, folder, folder / "shapes")
    command = run([*arguments, "--ckpt_path", str(folder / "best.ckpt"), "--verbose", "false"])
    shutil.copy(Path(command.trainer.log_dir or folder) / "test_captions.json", folder / "captions.json")
    return command.model.evaluation


def _draw(folder: Path) -> None:
    """Draw heatmaps and a page of the first test images. They are not selected, so they show the model as it is."""
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
