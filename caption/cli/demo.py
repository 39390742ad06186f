"""`caption demo`: train a captioner on the built-in Shapes dataset, score it, and draw its heatmaps."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.configuration.arguments import verb_parser
from caption.cli.configuration.files import config_folder
from caption.cli.exit_codes import DONE
from caption.errors import Stopped, UserError, first_few
from caption.runtime.files import make_folder, replacing

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.training.evaluator import Evaluation

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
    options = make_parser().parse_args(args)
    folder = Path(os.path.expanduser(options.out))
    make_folder(folder, "--out")
    from caption.runtime.lock import locked

    try:
        with locked(folder, "--out"):
            _run(folder, options.attention)
    except Stopped as stop:
        stop.hint = "the same command continues it"
        raise
    return DONE


def make_parser() -> argparse.ArgumentParser:
    parser = verb_parser("demo", DESCRIPTION, EPILOG)
    parser.add_argument("--out", default="demo", metavar="DIR", help="folder for all output; default demo")
    parser.add_argument("--attention", choices=("soft", "hard"), default="soft", help="default soft")
    return parser


def _run(folder: Path, attention: str) -> None:
    """Do what is not done yet, and print the scores."""
    soft_folder = folder if attention == "soft" else folder / "soft"
    for each in {folder, soft_folder}:
        _check_ours(each)
    _make_room(folder, attention)
    seconds = _train("soft", soft_folder, folder / "shapes", [])
    if attention == "hard":
        warm_start = ["--model.warm_start", str(soft_folder / "best.ckpt")]
        seconds += _train("hard", folder, folder / "shapes", warm_start)
    evaluation = _test(attention, folder)
    _draw(folder)
    numbers = {name: round(value, 4) for name, value in evaluation.numbers.items()}
    metrics: dict[str, Any] = {name: numbers.pop(name) for name in REPORTED} | dict(sorted(numbers.items()))
    metrics |= {"attention": attention, "train_seconds": round(seconds, 1)}
    metrics["signature"] = evaluation.scores.signature
    _write(folder / "metrics.json", metrics)
    for name in REPORTED:
        print(f"{name:20}{metrics[name]:.3f}")
    print(f"{'train_seconds':20}{seconds:.0f}")
    print(f"caption demo: pictures in {folder / 'heatmaps'}, page {folder / 'page.html'}", file=sys.stderr)


def _arguments(verb: str, attention: str, folder: Path, data: Path) -> list[str]:
    config = config_folder() / f"shapes_{attention}.yaml"
    arguments = [verb, "-c", str(config), "--trainer.default_root_dir", str(folder)]
    return [*arguments, "--data.reader.init_args.folder", str(data)]


def _train(attention: str, folder: Path, data: Path, more: list[str]) -> float:
    """Train, or resume training; returns the training time in seconds, summed over all runs of the command."""
    from caption.cli.train import run
    from caption.training.resuming import LastCheckpoint

    state = _state(folder)
    if state.get("attention", attention) != attention:
        _clear(folder)
        state = {}
    if state.get("trained"):
        print(f"caption demo: {attention} attention is already trained, in {folder}", file=sys.stderr)
        return state["train_seconds"]
    # Before anything else, so that a killed demo knows its files.
    _write(folder / STATE, {"attention": attention, "trained": False})
    command = run([*_arguments("fit", attention, folder, data), *more, "--ckpt_path", "auto"])
    (last,) = (each for each in command.trainer.checkpoint_callbacks if isinstance(each, LastCheckpoint))
    seconds = last.trained_seconds
    _write(folder / STATE, {"attention": attention, "trained": True, "train_seconds": seconds})
    return seconds


def _check_ours(folder: Path) -> None:
    """Raise a UserError if a folder has files of the demo's names without being a demo's folder."""
    theirs = [name for name in (*RUN, *PRODUCTS) if (folder / name).exists()]
    if theirs and "attention" not in _state(folder):
        raise UserError(
            f"{folder} holds {first_few(theirs)}, which caption demo did not write there: choose another folder with "
            "--out"
        )


def _make_room(folder: Path, attention: str) -> None:
    """Remove a finished demo, so that it runs again; but hard attention keeps the soft model and moves it aside."""
    if not (folder / "metrics.json").exists():
        return
    soft = folder / "soft"
    moved = not (folder / "best.ckpt").exists()  # by a demo that was killed while it moved files
    if "attention" in _state(soft) and not moved:
        _clear(soft)
    if attention == "hard" and _state(folder).get("attention") == "soft":
        _write(soft / STATE, _state(folder))
        for name in (*reversed(PRODUCTS), STATE) if moved else (*RUN[1:], *reversed(PRODUCTS), STATE):
            if (folder / name).exists():
                shutil.move(folder / name, soft / name)
    else:
        _clear(folder)


def _clear(folder: Path) -> None:
    """Delete what a demo has written. Other files stay, also in its subfolders."""
    for pattern in (*PRODUCTS, "heatmaps/test_*.png", "logs/version_*/*", *reversed(RUN)):
        for path in folder.glob(pattern):
            if not path.is_dir():
                path.unlink()
    for pattern in ("heatmaps", "logs/version_*", "logs"):
        for path in folder.glob(pattern):
            if not any(path.iterdir()):
                path.rmdir()


def _state(folder: Path) -> dict[str, Any]:
    """The attention trained in a folder, the training time so far, and whether training has ended."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(f"{json.dumps(content, indent=1)}\n".encode())


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
