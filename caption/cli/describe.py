"""`caption describe`: photos in, captions and heatmaps out."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.outputs import output_file, output_paths
from caption.cli.photos import photos_of
from caption.cli.progress import Progress
from caption.errors import ImageError, UserError

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.attention.stochastic import AtTest
    from caption.captioner import Captioner
    from caption.result import Caption
    from caption.search import Search

DESCRIPTION = (
    "Caption photos. Captions go to stdout, as they come; a photo that cannot be read is named on stderr."
)
EPILOG = "exit code: 0 all captioned; 1 some photos could not be, the others are; 2 wrong usage"


def main(args: list[str]) -> int:
    """Run `caption describe`.

    Raises:
        UserError: wrong usage, no such model, outputs that cannot be written.
    """
    options = _parser().parse_args(args)
    photos = photos_of(options.images)
    # Decided before any work, so that wrong usage is said at once.
    heatmaps = options.heatmap and output_paths(options.heatmap, photos, ".png", "--heatmap")
    attentions = options.attention and output_paths(options.attention, photos, ".npz", "--attention")
    page = options.html and output_file(options.html, "--html")
    from caption.batch_inference import describe_each
    from caption.model_zoo import load

    captioner = load(options.model, options.device)
    if options.at_test:
        _choose_at_test(captioner, options.at_test)
    search = _search(captioner, options)
    printer = Printer(options.format, options.model, several=len(photos) > 1)
    progress = Progress("captioned", "photos", len(photos))
    failed = 0
    on_page: list[Caption] = []
    try:
        for index, caption in enumerate(describe_each(captioner, photos, search)):
            progress.clear()
            if isinstance(caption, ImageError):
                failed += 1
                print(f"caption describe: {caption}", file=sys.stderr)
            else:
                printer.add(photos[index], caption)
                if attentions:
                    caption.save_attention(attentions[index])
                if heatmaps:
                    from caption.visualize.figure import plot_caption, save_figure

                    save_figure(plot_caption(caption, photos[index], smooth=options.smooth), heatmaps[index])
                if page:
                    on_page.append(caption)
            progress.advance()
    except KeyboardInterrupt:
        progress.clear()
        so_far = f"{progress.done:,} of {len(photos):,} photos"
        print(f"caption describe: stopped after {so_far}; what is written stays", file=sys.stderr)
        raise
    finally:
        printer.finish()
        if page and on_page:
            from caption.visualize.html import save_html, to_html

            save_html(to_html(on_page), page)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "caption describe", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "images",
        nargs="+",
        metavar="IMAGE",
        help="photos, in any format that Pillow reads, and folders of them",
    )
    add(
        "--model",
        required=True,
        metavar="CKPT|NAME",
        help="a checkpoint, or the name of a model that is installed",
    )
    add(
        "--beam-size",
        type=int,
        metavar="K",
        help="hypotheses of the beam search (1 = greedy); default: the model's",
    )
    add(
        "--length-normalization",
        type=float,
        metavar="A",
        help="exponent of the length that divides log p; 0 = none",
    )
    add(
        "--at-test",
        choices=("expectation", "argmax", "sample"),
        help="what hard attention reads at each word; default: the model's",
    )
    add("--candidates", type=int, metavar="N", help="captions for each photo, best first; default 1")
    add("--device", default="cpu", metavar="D", help="cpu, cuda, cuda:1, mps; default cpu")
    add(
        "--format",
        choices=("text", "json", "jsonl", "csv", "coco"),
        default="text",
        help="of stdout; default text",
    )
    add("--heatmap", metavar="FILE|DIR", help="figure with a panel for each word, as .png, .pdf, .svg ...")
    add("--smooth", action="store_true", help="smooth the heatmaps instead of showing the grid's cells")
    add("--html", metavar="FILE", help="one interactive page with all photos")
    add("--attention", metavar="FILE.npz|DIR", help="the numbers: words, weights (T, rows, cols), gates, box")
    return parser


def _search(captioner: Captioner, options: argparse.Namespace) -> Search:
    """The model's search, with what the command line says otherwise."""
    from caption.search import BeamSearch

    given = {
        "beam_size": options.beam_size,
        "length_normalization": options.length_normalization,
        "candidates": options.candidates,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return captioner.search
    base = captioner.search if isinstance(captioner.search, BeamSearch) else BeamSearch()
    return dataclasses.replace(base, **given)


def _choose_at_test(captioner: Captioner, how: AtTest) -> None:
    from caption.attention.stochastic import stochastic_parts

    hard = stochastic_parts(captioner)
    if not hard:
        raise UserError("--at-test is for hard attention, and this model's is soft: leave it out")
    for part in hard:
        part.at_test = how


class Printer:
    """Writes captions to stdout, each as soon as it is there; none is kept.

    Args:
        form: text, json, jsonl, csv or coco.
        model: what the user called the model.
        several: whether a line of text must say which photo it belongs to.
    """

    def __init__(self, form: str, model: str, several: bool) -> None:
        self.form = form
        self.model = model
        self.several = several
        self.begun = False
        columns = ("image", "text", "log_prob", "finished")
        self.table = csv.DictWriter(sys.stdout, columns, extrasaction="ignore", lineterminator="\n")

    def add(self, photo: str, caption: Caption) -> None:
        """One caption."""
        if self.form == "text":
            for each in (caption, *caption.alternatives):
                print(f"{photo}\t{each}" if self.several else each)
        elif self.form == "csv":  # a line for each candidate, as in text
            self._begin()
            for each in (caption, *caption.alternatives):
                self.table.writerow({"image": photo, **each.to_dict()})
        elif self.form == "coco":
            self._add_to_list({"image_id": coco_id(photo), "caption": caption.text})
        else:
            entry = {"image": photo, "model": self.model, **caption.to_dict()}
            if self.form == "jsonl":
                print(json.dumps(entry))
            else:
                self._add_to_list(entry)
        sys.stdout.flush()

    def finish(self) -> None:
        """End what is one document."""
        if self.form in ("json", "coco"):
            print("\n]" if self.begun else "[]")
        elif self.form == "csv":
            self._begin()

    def _begin(self) -> None:
        if not self.begun:
            self.table.writeheader()
        self.begun = True

    def _add_to_list(self, entry: dict[str, Any]) -> None:
        """One more of a JSON list, laid out as `json.dumps` lays out the whole."""
        print(",\n" if self.begun else "[\n", json.dumps([entry], indent=1)[2:-2], sep="", end="")
        self.begun = True


def coco_id(photo: str) -> int | str:
    """The image id that COCO's tools expect: 42 for COCO_val2014_000000000042.jpg, else the name without suffix."""
    stem = Path(photo).stem
    number = re.fullmatch(r"(?:COCO_\w+_)?(\d+)", stem)
    return int(number[1]) if number else stem
