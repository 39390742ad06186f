"""`caption demo`: train on the built-in Shapes dataset, evaluate, caption, draw; minutes on a CPU."""

from __future__ import annotations

import argparse
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from caption.cli.configuration.config_files import config_folder
from caption.cli.exit_codes import DONE
from caption.cli.printing import say
from caption.core.errors import Stopped
from caption.core.runtime.atomic_files import OwnFolder
from caption.core.runtime.inputs import TEXT, read_input

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.training.evaluator import Evaluation

HELP = """\
Generate the Shapes dataset, train a captioner with attention on it, score it on the test split, and draw where it
looked for every word. Needs only this package, and a few minutes on two CPU cores. If it is stopped, the same command
continues it.

DIR then holds metrics.json, captions.json, heatmaps/, contact_sheet.png, page.html, the dataset, and in soft/ and hard/
the runs: the model best.ckpt, and its logs. Hard attention starts from soft attention, which is trained first if it is
not there. A trained model is not trained again; scores and pictures of an earlier demo are replaced.
"""

PICTURES = 12
"""Number of test images that are drawn."""
REPORTED = (
    *("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr"),
    *("pointing_accuracy", "pointing_chance"),
)


def main(options: argparse.Namespace) -> int:
    """Run `caption demo`."""
    folder = Path(os.path.expanduser(options.out))
    from caption.core.runtime.atomic_files import locked

    try:
        with locked(folder, "--out"):
            _run(folder, options.attention)
    except Stopped as stop:
        stop.hint = "the same command continues it"
        raise
    return DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption demo`."""
    parser.add_argument("--out", default="demo", metavar="DIR", help="folder for all output; default demo")
    parser.add_argument("--attention", choices=("soft", "hard"), default="soft", help="default soft")


def _products() -> list[str]:
    """The files that a demo writes after training; metrics.json is the last."""
    heatmaps = [f"heatmaps/test_{number:06d}.png" for number in range(1, PICTURES + 1)]
    return ["captions.json", *heatmaps, "contact_sheet.png", "page.html", "metrics.json"]


def _run(folder: Path, attention: str) -> None:
    """Train the models that are not trained yet, score and draw the model, and print the scores."""
    output = OwnFolder(folder, "--out")
    output.check(_products())
    output.delete(reversed(_products()))
    output.claim(_products())
    seconds = _train("soft", folder)
    if attention == "hard":
        seconds += _train("hard", folder, "--model.warm_start", str(folder / "soft" / "best.ckpt"))
    evaluation = _test(attention, output)
    _draw(output, attention)
    numbers = {name: round(value, 4) for name, value in evaluation.numbers.items()}
    metrics: dict[str, Any] = {name: numbers.pop(name) for name in REPORTED} | dict(sorted(numbers.items()))
    metrics |= {"attention": attention, "train_seconds": round(seconds, 1)}
    metrics["signature"] = evaluation.scores.signature
    output.write_json("metrics.json", metrics, indent=1)
    for name in REPORTED:
        print(f"{name:20}{metrics[name]:.3f}")
    print(f"{'train_seconds':20}{seconds:.0f}")
    say("demo", f"pictures in {folder / 'heatmaps'}, page {folder / 'page.html'}")


def _arguments(verb: str, attention: str, folder: Path) -> list[str]:
    config = config_folder() / f"shapes_{attention}.yaml"
    arguments = [verb, "-c", str(config), "--trainer.default_root_dir", str(folder / attention)]
    return [*arguments, "--data.reader.init_args.folder", str(folder / "shapes")]


def _train(attention: str, folder: Path, *more: str) -> float:
    """Train, or resume training; returns the training time in seconds, summed over all runs of the command."""
    from caption.cli.training.command import run
    from caption.training.resuming import LastCheckpoint

    command = run([*_arguments("fit", attention, folder), *more, "--ckpt_path", "auto"])
    callbacks = command.trainer.checkpoint_callbacks
    (last,) = (callback for callback in callbacks if isinstance(callback, LastCheckpoint))
    return last.trained_seconds


def _test(attention: str, output: OwnFolder) -> Evaluation:
    from caption.cli.training.command import run

    command = run([*_arguments("test", attention, output.path), "--ckpt_path", "best", "--verbose", "false"])
    captions = Path(command.trainer.log_dir or output.path) / "test_captions.json"
    with output.write("captions.json") as file:
        file.write(read_input(captions, TEXT))
    return command.model.evaluation


def _draw(output: OwnFolder, attention: str) -> None:
    """Draw heatmaps and a page of the first test images. They are not selected, so they show the model as it is."""
    from caption.models import checkpoint
    from caption.visualize import contact_sheet, plot_caption, save_figure, save_html, to_html

    def opener(path: str | os.PathLike[str]) -> AbstractContextManager[BinaryIO]:
        return output.write(Path(path).relative_to(output.path).as_posix())

    captioner = checkpoint.load(output.path / attention / "best.ckpt")
    photos = sorted((output.path / "shapes" / "images").glob("test_*.png"))[:PICTURES]
    captions = captioner.describe([str(photo) for photo in photos])
    for photo, caption in zip(photos, captions, strict=True):
        heatmap = output.path / "heatmaps" / f"{photo.stem}.png"
        save_figure(plot_caption(caption, photo), heatmap, opener=opener)
    save_figure(contact_sheet(captions, photos), output.path / "contact_sheet.png", opener=opener)
    page = to_html(captions, title="Shapes: where the model looked")
    save_html(page, output.path / "page.html", opener=opener)
