"""Whom does a model call a man, a woman, a dog? Its words for people and dogs, where people agree on theirs.

    python -m tools.who_is_named --references Flickr8k.token.txt --candidates captions.json

The candidates are one caption of each image, as `caption predict` writes them; both files may have any format that
`caption score` reads. A row shows how often the captions of a group's images name each group, with the share among all
captions below; `caption.analysis.named_groups` says which images count. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from caption.analysis.named_groups import GROUPS, count, named
from caption.analysis.table_rows import Value, named_rows
from caption.errors import UserError, first_few
from caption.metrics.caption_files import match_images, read_captions
from caption.text.tokenizer import get_tokenizer
from tools import make_parser
from tools.documents import table


def rows(
    counts: Mapping[str, tuple[int, Mapping[str, int]]], all_said: Sequence[frozenset[str]]
) -> list[list[str]]:
    """The lines of the table."""
    lines = [
        [str(Value(cell.of, 2)) if isinstance(cell, Value) else str(cell) for cell in row]
        for row in named_rows(counts)
    ]
    shares = [f"{sum(name in said for said in all_said) / len(all_said):.2f}" for name in GROUPS]
    return [*lines, ["all captions", str(len(all_said)), *shares]]


def main(args: Sequence[str] | None = None) -> int:
    """Count, and print a table."""
    parser = make_parser("who_is_named", __doc__)
    parser.add_argument("--references", required=True, metavar="FILE")
    parser.add_argument("--candidates", required=True, metavar="FILE", help="one caption of each image")
    parser.add_argument("--split", metavar="NAME", help="of references in Karpathy's format")
    options = parser.parse_args(args)
    tokenize = get_tokenizer("ptb")
    try:
        references = read_captions(options.references, options.split)
        candidates = match_images(read_captions(options.candidates), references)
        if unknown := [image for image in candidates if image not in references.captions]:
            raise UserError(
                f"{references.name} has no captions of {first_few(unknown)}: give those of all candidates"
            )
    except UserError as error:
        parser.error(str(error))
    said = {image: named(tokenize(text)) for image, text in candidates.items()}
    by_people = {image: [named(tokenize(text)) for text in references.captions[image]] for image in said}
    print(table(("people agree on", "images", *GROUPS), rows(count(by_people, said), list(said.values()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
