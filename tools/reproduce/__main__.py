"""Reproduce the tables of docs/results/flickr8k.md, or the trainings on Shapes of docs/results/hard-attention.md.

    pip install -e ".[photos]"
    python -m tools.reproduce flickr8k --data DATA
    python -m tools.reproduce flickr8k --data DATA --models top_down ema
    python -m tools.reproduce shapes --seeds 0 1 2

Flickr8k: encodes the photos, trains without attention, with soft and with hard attention, each with all seeds, chooses
the beam size of each run on the dev split, and tests once. DATA holds Flickr8k.token.txt,
Flickr_8k.{train,dev,test}Images.txt and images/. Hard attention starts from the soft model of the same seed. Steps
beyond the paper are models, too, and are scored on the dev split alone. Each run is kept in flickr8k.json beside the
document, and not repeated unless its configuration changes. About 25 minutes a model and seed on a CPU core.

Shapes: for each seed trains soft attention as `caption demo` does; from it, hard attention with the paper's estimator
and with leave-one-out; and soft attention for as long, so that longer training is not mistaken for a better mechanism.
Hard attention is tested in its three ways. About 20 minutes a seed on two CPU cores.

Stop it at any moment, in any way: the same command goes on. Finished trainings and tests are not repeated, and a
training that was stopped ends with the weights of one that was not. Further arguments go to Lightning, for instance
`--trainer.accelerator gpu`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools import make_parser
from tools.reproduce import flickr8k, shapes

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def main(args: list[str] | None = None) -> int:
    parser = make_parser("reproduce", __doc__)
    commands = parser.add_subparsers(required=True)
    photos = commands.add_parser("flickr8k", allow_abbrev=False)
    photos.add_argument("--data", required=True, type=Path, help="folder of Flickr8k")
    photos.add_argument("--models", choices=flickr8k.MODELS, nargs="+", default=list(flickr8k.PAPER))
    photos.add_argument("--out", type=Path, default=Path("runs/flickr8k"))
    photos.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    photos.add_argument("--document", type=Path, default=DOCUMENTS / "flickr8k.md")
    photos.set_defaults(run=flickr8k.main)
    scenes = commands.add_parser("shapes", allow_abbrev=False)
    scenes.add_argument("--out", type=Path, default=Path("runs/hard_on_shapes"))
    scenes.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    scenes.add_argument("--document", type=Path, default=DOCUMENTS / "hard-attention.md")
    scenes.set_defaults(run=shapes.main)
    options, more = parser.parse_known_args(args)
    options.run(options, more)
    return 0


if __name__ == "__main__":
    sys.exit(main())
