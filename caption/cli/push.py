"""`caption push`: upload a model to the Hugging Face Hub."""

from __future__ import annotations

import argparse

from caption.cli.configuration.arguments import add_precision, add_trust
from caption.cli.exit_codes import DONE
from caption.cli.printing import say

HELP = """\
Upload a model to the Hugging Face Hub, as model.safetensors with its description in the header, and a card. Log in
once with `hf auth login`. Anybody who may read the repository can then load the model by its address:

  caption push runs/best.ckpt hf://owner/name --precision float16
  caption describe PHOTO --model hf://owner/name
"""


def main(options: argparse.Namespace) -> int:
    """Run `caption push`."""

    # These import torch, which takes seconds that --help should not take.
    from caption.models import hub
    from caption.models.model_zoo import load

    hub.parse(options.address)
    captioner = load(options.model, trust=options.trust)
    commit = hub.push(captioner, options.address, options.private, options.precision)
    say("push", f"{options.address}: {commit}")
    return DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption push`."""
    parser.add_argument("model", metavar="CKPT|NAME", help="a checkpoint, or the name of an installed model")
    parser.add_argument(
        "address", metavar="hf://OWNER/NAME", help="the repository; created if it does not exist"
    )
    add_precision(parser)
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    add_trust(parser)
