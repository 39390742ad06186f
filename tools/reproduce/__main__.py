"""Reproduce the tables of flickr8k.md, hard-attention.md, doubly-stochastic.md and own-photos.md in docs/results.

    pip install -e ".[photos]"
    python -m tools.reproduce flickr8k --data DATA
    python -m tools.reproduce flickr8k --data DATA --models top_down ema
    python -m tools.reproduce coverage --seeds 0 1 2
    python -m tools.reproduce coverage --data DATA --photos PHOTOS --seeds 0 1 2
    python -m tools.reproduce hard --seeds 0 1 2
    python -m tools.reproduce hard --data DATA --seeds 0 1 2
    python -m tools.reproduce own --data DATA

Flickr8k: encodes the photos, trains without attention, with soft and with hard attention, each with all seeds, chooses
the beam size of each run on the dev split, and tests once. DATA holds Flickr8k.token.txt,
Flickr_8k.{train,dev,test}Images.txt and images/. Hard attention starts from the soft model of the same seed. Steps
beyond the paper are models, too, and are scored on the dev split alone. Each run is kept in flickr8k.json beside the
document, and not repeated unless its configuration changes. About 25 minutes a model and seed on a CPU core.

Hard: for each seed trains soft attention; from it and from scratch, hard attention by each estimator of
configs/estimators; and soft attention for as long, so that longer training is not mistaken for a better mechanism. Hard
attention is tested in its three ways. Runs are kept in hard_on_shapes.json and hard_on_flickr8k.json beside the
document.

Coverage: trains soft attention with three weights of the doubly stochastic term, on Shapes or on Flickr8k. PHOTOS holds
the 24 photos of docs/results/photo_boxes.json in full resolution, for the pointing game on photos. The model without
the term is the soft model of the other tables: with the same --out it is trained once. Runs are kept in
doubly_stochastic_on_shapes.json and doubly_stochastic_on_flickr8k.json beside the document. About 5 minutes a model and
seed on Shapes, 25 on Flickr8k.

Own: a model for 60, 200 and 500 photos of one kind, by the commands of docs/own-data.md: the installed model as it is,
a model from scratch, and the installed one fine-tuned, on other photos of the kind. Runs are kept in own_photos.json
beside the document.

Stop it at any moment, in any way: the same command goes on. Finished trainings and tests are not repeated, and a
training that was stopped ends with the weights of one that was not. Further arguments go to Lightning, for instance
`--trainer.accelerator gpu`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools import make_parser
from tools.reproduce import coverage, flickr8k, hard, own_photos
from tools.reproduce.tasks import SHAPES

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
    term = commands.add_parser("coverage", allow_abbrev=False)
    term.add_argument("--data", type=Path, help="folder of Flickr8k; without it, models learn Shapes")
    term.add_argument(
        "--photos",
        type=Path,
        help="with --data: folder of the photos of photo_boxes.json, in full resolution",
    )
    term.add_argument("--models", nargs="+", choices=coverage.models(SHAPES), help="default: all")
    term.add_argument("--out", type=Path, help="default: runs/shapes or runs/flickr8k")
    term.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    term.add_argument("--document", type=Path, default=DOCUMENTS / "doubly-stochastic.md")
    term.set_defaults(run=coverage.main)
    estimators = commands.add_parser("hard", allow_abbrev=False)
    estimators.add_argument("--data", type=Path, help="folder of Flickr8k; without it, models learn Shapes")
    estimators.add_argument("--models", nargs="+", choices=hard.models(SHAPES), help="default: all")
    estimators.add_argument("--out", type=Path, help="default: runs/shapes or runs/flickr8k")
    estimators.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    estimators.add_argument("--document", type=Path, default=DOCUMENTS / "hard-attention.md")
    estimators.set_defaults(run=hard.main)
    own = commands.add_parser("own", allow_abbrev=False)
    own.add_argument("--data", required=True, type=Path, help="folder of Flickr8k")
    own.add_argument("--kind", choices=own_photos.KINDS, default="children")
    own.add_argument("--models", choices=own_photos.ORIGINS, nargs="+", default=[*own_photos.ORIGINS])
    own.add_argument("--sizes", type=int, nargs="+", default=[60, 200, 500])
    own.add_argument("--draws", type=int, default=3)
    own.add_argument("--out", type=Path, default=Path("runs/own_photos"))
    own.add_argument("--document", type=Path, default=DOCUMENTS / "own-photos.md")
    own.set_defaults(run=own_photos.main)
    options, more = parser.parse_known_args(args)
    options.run(options, more)
    return 0


if __name__ == "__main__":
    sys.exit(main())
