"""`caption push`: upload a model to the Hugging Face Hub."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from caption.cli.configuration.arguments import add_precision, add_trust
from caption.cli.exit_codes import DONE
from caption.cli.printing import say
from caption.core.errors import UserError

HELP = """\
Upload a model to the Hugging Face Hub, as model.safetensors with its description in the header, and a card. The card
names the licence, the data and the scores that you give; a card that is there is kept. Log in
once with `hf auth login`. Anybody who may read the repository can then load the model by its address:

  caption push runs/best.ckpt hf://owner/name --precision float16
  caption push runs/best.ckpt hf://owner/name --license mit --data flickr8k --scores test_scores.json
  caption describe PHOTO --model hf://owner/name
"""


def main(options: argparse.Namespace) -> int:
    """Run `caption push`."""

    # These import torch, which takes seconds that --help should not take.
    from caption.models import hub
    from caption.models.model_zoo import load

    hub.parse(options.address)
    scores = None if options.scores is None else _scores(options.scores, options.model)
    captioner = load(options.model, trust=options.trust)
    commit = hub.push(
        captioner,
        options.address,
        options.private,
        options.precision,
        license=options.license,
        data=options.data,
        scores=scores,
    )
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
    parser.add_argument("--license", metavar="ID", help="for the card, as the hub spells it, such as mit")
    parser.add_argument("--data", metavar="NAME", help="for the card: the data set")
    help_ = "for the card: the test_scores.json of the model's test"
    parser.add_argument("--scores", metavar="FILE", help=help_)
    add_trust(parser)


def _scores(path: str, model: str) -> dict[str, Any]:
    """The scores in a file of `caption test`. Raises a UserError if it is another file, or another model's."""
    from caption.core.runtime.atomic_files import file_digest
    from caption.data.text_files import field, read_json
    from caption.models.model_zoo import find

    scores: dict[str, Any] = read_json(Path(path))
    for name, kind in (("scores", dict), ("signature", str), ("model", dict)):
        field(scores, name, kind, f"'{path}'")
    if scores["model"].get("digest") != file_digest(Path(find(model))):
        raise UserError(
            f"--scores {path} has the scores of another model: caption test --ckpt_path {model} makes them"
        )
    return scores
