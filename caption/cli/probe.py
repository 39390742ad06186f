"""`caption probe`: see whether the image tokens of a model of transformers lie where its maps are drawn."""

from __future__ import annotations

import argparse

from caption.cli.configuration.arguments import add_device
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.core.errors import UserError

HELP = """\
See where the image tokens of a model lie, tiles and a coarser view of the whole photo included. Parts of two photos are
lit, and each image token should answer most to light in its own cell: without the layers of the vision tower, in which
tokens are mixed, and with them. The margin is the least ratio of that answer to the one to light elsewhere.

  caption probe transformers:llava-hf/llava-1.5-7b-hf

exit code: 0 all tokens lie where the maps are drawn; 1 some do not; 2 wrong usage, or the model cannot be used
"""


def main(options: argparse.Namespace) -> int:
    """Run `caption probe`."""
    if not options.model.startswith("transformers:"):
        raise UserError(
            f"{options.model} is not a model of transformers, whose address begins with transformers:"
        )

    # These import torch, which takes seconds that --help should not take.
    from caption.models.model_zoo import load
    from caption.models.transformers.captioner import ForeignCaptioner
    from caption.models.transformers.probe import SIZES, described, probe

    captioner = load(options.model, options.device)
    assert isinstance(captioner, ForeignCaptioner)
    wrong = 0
    for width, height in SIZES:
        layout = getattr(captioner.transform, "layout", lambda *_: "the layout of its class")(width, height)
        print(f"{width}x{height} pixels: {layout}")
        for view in probe(captioner, (width, height)):
            print(f"  {described(view)}")
            wrong += len(view.wrong)
        for view in probe(captioner, (width, height), all_layers=True):
            print(f"  with all layers, {described(view)}")
    return SOME_FAILED if wrong else DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption probe`."""
    parser.add_argument(
        "model", metavar="transformers:NAME", help="a folder, or owner/name of the Hugging Face Hub"
    )
    add_device(parser)
