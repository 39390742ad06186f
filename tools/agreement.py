"""Do independent trainings look at the same places? The agreement of every two of several models.

    python -m tools.agreement soft=runs/soft_0/best.ckpt soft=runs/soft_1/best.ckpt hard=runs/hard_0/best.ckpt
    python -m tools.agreement soft=runs/soft_*/best.ckpt hard=runs/hard_*/best.ckpt --limit 200 --out agreement.md

Models of one name are a group, such as the seeds of one configuration, and are numbered in the order given. All are fed
the same captions: the first of each test image, of the data that the first model was trained on. The tables have each
pair, the mean over the pairs of two groups, and for comparison the agreement with maps of other words and other images.
Models of one number in two groups are apart from the others, since one may have started from the other. Brackets are
95 % bootstrap intervals over images; they do not cover the choice of seeds, so the smallest and the largest pair stand
beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path

import numpy as np

from caption import checkpoint
from caption.analysis.agreement import Agreement, agree_all
from caption.captioner import Captioner
from caption.data.readers.captions import CaptionReader
from caption.errors import UserError
from caption.metrics.significance import estimate
from caption.models.model_zoo import load
from caption.parts import make
from caption.result import Caption
from caption.text.mentions import find_mentions
from tools import make_parser
from tools.documents import print_report, table

MEASURES = {"divergence": 3, "overlap": 3, "same cell": 3}
"""Of `caption.analysis.agreement.compare_maps`, with their decimals."""
ABOVE, BELOW = "same cell", "divergence"
"""The measures of the matrix."""
Pairs = Mapping[tuple[str, str], Agreement]


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("agreement", __doc__)
    add = parser.add_argument
    add(
        "models",
        nargs="+",
        metavar="GROUP=CKPT",
        help="a checkpoint or an installed model, in a group; * as in a shell",
    )
    add("--limit", type=int, metavar="N", help="test images; default all")
    add("--out", type=Path, metavar="FILE.md", help="where the tables go; default stdout alone")
    options = parser.parse_args(args)
    try:
        models = read_models(options.models)
        text = report(compare(models, options.limit))
    except UserError as error:
        print(f"agreement: {error}", file=sys.stderr)
        return 2
    print_report(text, options.out)
    return 0


def read_models(entries: Sequence[str]) -> dict[str, str]:
    """Paths by the models' names: the group and a number.

    Raises:
        UserError: an entry is malformed, or fewer than two models are named.
    """
    models: dict[str, str] = {}
    for entry in entries:
        group, _, path = entry.partition("=")
        if not group or not path:
            raise UserError(f"{entry}: write GROUP=CKPT, such as soft=runs/soft_0/best.ckpt")
        for found in sorted(glob(path)) or [path]:
            number = sum(group_of(name) == group for name in models)
            models[f"{group} {number}"] = found
    if len(models) < 2:
        raise UserError("agreement is between two models or more: name another one")
    return models


def group_of(name: str) -> str:
    """The group of a model."""
    return name.rpartition(" ")[0]


def compare(models: Mapping[str, str], limit: int | None) -> tuple[Pairs, Pairs]:
    """The agreement of all pairs over all words, and over those that name objects where the data has boxes."""
    captioners = {name: load(path) for name, path in models.items()}
    first = next(iter(models.values()))
    section = checkpoint.read(first).get("data") if Path(first).is_file() else None
    if not section:
        raise UserError(
            f"{first} does not say on which data it was trained: name a checkpoint of a training first"
        )
    reader = make(section["reader"], CaptionReader)
    images = reader.read()["test"][:limit]
    captions = [
        _caption(image.captions[0], captioners[f"{group_of(next(iter(models)))} 0"]) for image in images
    ]
    pairs = agree_all(captioners, [str(image.path) for image in images], captions)
    boxes = reader.boxes("test") or {}
    naming = {
        (number, mention.word)
        for number, (image, caption) in enumerate(zip(images, captions, strict=True))
        for mention in find_mentions(caption.words, boxes.get(image.id, {}))
    }
    places = [(number, step) for number, caption in enumerate(captions) for step in range(len(caption.words))]
    chosen = np.array([place in naming for place in places], dtype=bool)
    return pairs, {pair: some(agreement, chosen) for pair, agreement in pairs.items()} if chosen.any() else {}


def _caption(text: str, captioner: Captioner) -> Caption:
    words = captioner.vocabulary.tokenizer(text)
    return Caption(text, words, np.ones((len(words), 1, 1)), 0.0, np.zeros(len(words)), (0, 0, 1, 1))


def some(agreement: Agreement, chosen: np.ndarray) -> Agreement:
    """The words at some places."""
    words = tuple(word for word, wanted in zip(agreement.words, chosen, strict=True) if wanted)
    maps = (agreement.measures, agreement.other_word, agreement.other_image)
    return Agreement(
        words, agreement.images[chosen], *({name: of[name][chosen] for name in of} for of in maps)
    )


def report(compared: tuple[Pairs, Pairs]) -> str:
    """The tables of all words, and of naming words."""
    blocks = []
    for title, pairs in zip(("All words", "Words that name objects"), compared, strict=True):
        if pairs:
            count = len(next(iter(pairs.values())))
            blocks += [
                f"{title} ({count}). Above the diagonal: {ABOVE}; below it: {BELOW}, in bits.",
                matrix(pairs),
                "Means over the pairs of two groups:",
                by_group(pairs),
            ]
    return "\n\n".join(blocks)


def matrix(pairs: Pairs) -> str:
    """A row and a column for each model: above the diagonal the one measure, below it the other."""
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    rows = []
    for row in names:
        cells = []
        for column in names:
            above = (row, column) in pairs
            of = pairs[row, column] if above else pairs.get((column, row))
            measure = ABOVE if above else BELOW
            cells.append("" if of is None else _interval(of.measures[measure], of, MEASURES[measure]))
        rows.append([row, *cells])
    return table(["", *names], rows)


def by_group(pairs: Pairs) -> str:
    """A row for each two groups: means over their pairs, the smallest and the largest, and the comparisons."""
    grouped: dict[str, list[Agreement]] = {}
    for (first, second), of in pairs.items():
        groups = group_of(first), group_of(second)
        same = ", same number" * (groups[0] != groups[1] and first.split()[-1] == second.split()[-1])
        grouped.setdefault(f"{' / '.join(groups)}{same}", []).append(of)
    rows = []
    for name, group in grouped.items():
        for measure, digits in MEASURES.items():
            own = [of.measures[measure] for of in group]
            ends = [float(np.nanmean(values)) for values in own]
            cells = [_interval(np.mean(own, 0), group[0], digits)]
            cells.append(f"{min(ends):.{digits}f} to {max(ends):.{digits}f}")
            for others in (
                [of.other_word[measure] for of in group],
                [of.other_image[measure] for of in group],
            ):
                cells.append(_interval(np.mean(others, 0), group[0], digits))
            rows.append([name, str(len(group)), measure, *cells])
    return table(
        ["groups", "pairs", "measure", "same word", "pairs from, to", "other word", "other image"], rows
    )


def _interval(values: np.ndarray, of: Agreement, digits: int) -> str:
    """The mean of what is known, with its interval."""
    known = ~np.isnan(values)
    if not known.any():
        return "–"
    mean, low, high = estimate(values[known], of.images[known])
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


if __name__ == "__main__":
    sys.exit(main())
