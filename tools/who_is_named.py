"""Whom does a model call a man, a woman, a dog? Its words for people and dogs, where people agree on theirs.

    python -m tools.who_is_named --references Flickr8k.token.txt --candidates captions.json

The candidates are one caption of each image, as `caption predict` writes them; both files may have any format that
`caption score` reads. An image counts for a group if at least three of its references name the group and none names
another one of the same kind (a man and a woman on one photo count for neither). A row shows how often the captions of a
group's images name each group, with the share among all captions below: a model that says "man" of women more often
than "woman" of men has learnt that men are more frequent. Intervals are Wilson's, 95 %.

Source: Hendricks et al. 2018, "Women also Snowboard", for the measure; the lists of words are this project's own.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence

from caption.errors import UserError, first_few
from caption.metrics.files import match_images, read_captions
from caption.metrics.score import Id
from caption.text.tokenizer import get_tokenizer
from tools import make_parser
from tools.documents import table

GROUPS: Mapping[str, frozenset[str]] = {
    "man": frozenset(["man", "men", "guy", "guys", "gentleman", "gentlemen", "male", "males"]),
    "woman": frozenset(["woman", "women", "lady", "ladies", "female", "females"]),
    "boy": frozenset(["boy", "boys"]),
    "girl": frozenset(["girl", "girls"]),
    "person": frozenset(
        [
            "person",
            "persons",
            "people",
            "someone",
            "child",
            "children",
            "kid",
            "kids",
            "toddler",
            "baby",
            "adult",
        ]
    ),
    "dog": frozenset(["dog", "dogs", "puppy", "puppies"]),
}
RIVALS = ("man", "woman", "boy", "girl")
"""Groups of which an image that counts for one must have no other."""
COUNTED = (*RIVALS, "dog")
"""Groups that images may count for."""
AGREE = 3
"""References that must name a group."""
Z = 1.96


def named(words: Collection[str]) -> frozenset[str]:
    """The groups that a caption names."""
    return frozenset(group for group, members in GROUPS.items() if not members.isdisjoint(words))


def group_of(references: Sequence[frozenset[str]]) -> str | None:
    """The group that an image's references agree on, from what each of them names; None if they do not."""
    votes = {group: sum(group in each for each in references) for group in COUNTED}
    agreed = [group for group, count in votes.items() if count >= AGREE]
    some = [group for group in RIVALS if votes[group]]
    if agreed == ["dog"] and not some:
        return "dog"
    return agreed[0] if len(agreed) == 1 and some == agreed else None


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927); (0, 1) of nothing."""
    if not of:
        return 0.0, 1.0
    share, spread = hits / of, Z * Z / of
    middle = share + spread / 2
    half = Z * (share * (1 - share) / of + spread / (4 * of)) ** 0.5
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def count(
    references: Mapping[Id, Sequence[frozenset[str]]], candidates: Mapping[Id, frozenset[str]]
) -> dict[str, tuple[int, dict[str, int]]]:
    """By group: the number of images that count for it, and how many of their captions name each group."""
    counts = {group: (0, dict.fromkeys(GROUPS, 0)) for group in COUNTED}
    for image, said in candidates.items():
        group = group_of(references[image])
        if group is None:
            continue
        images, names = counts[group]
        counts[group] = images + 1, {name: number + (name in said) for name, number in names.items()}
    return counts


def rows(
    counts: Mapping[str, tuple[int, Mapping[str, int]]], all_said: Sequence[frozenset[str]]
) -> list[list[str]]:
    """The lines of the table."""
    found = []
    for group, (images, named_of) in counts.items():
        cells = []
        for number in named_of.values():
            low, high = wilson(number, images)
            cells.append(f"{number / images:.2f} [{low:.2f}, {high:.2f}]" if images else "–")
        found.append([group, str(images), *cells])
    shares = [f"{sum(name in said for said in all_said) / len(all_said):.2f}" for name in GROUPS]
    return [*found, ["all captions", str(len(all_said)), *shares]]


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
