"""Groups that captions name: whom does a model call a man, a woman or a dog, where people agree?

An image counts for a group if at least three of its references name it, and none names another of man, woman, boy and
girl: a photo of a man and a woman counts for neither, and one of a woman and a dog not for dogs. Words for any person
exclude nothing. A model that says "man" of women more often than "woman" of men has learnt that men are more frequent.

Source: Hendricks et al. 2018, "Women also Snowboard", for the measure; the lists of words are this project's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from caption.analysis.table import Cell, Value, share
from caption.metrics.significance import Estimate
from caption.results.caption import Caption
from caption.text.tokenizer import get_tokenizer

GROUPS: Mapping[str, frozenset[str]] = {
    "man": frozenset(["man", "men", "guy", "guys", "gentleman", "gentlemen", "male", "males"]),
    "woman": frozenset(["woman", "women", "lady", "ladies", "female", "females"]),
    "boy": frozenset(["boy", "boys"]),
    "girl": frozenset(["girl", "girls"]),
    "person": frozenset(
        [
            *("person", "persons", "people", "someone", "child", "children", "kid", "kids"),
            *("toddler", "baby", "adult"),
        ]
    ),
    "dog": frozenset(["dog", "dogs", "puppy", "puppies"]),
}
RIVALS = ("man", "woman", "boy", "girl")
"""An image counts for one of these groups only if no reference names another of them."""
COUNTED = (*RIVALS, "dog")
"""Groups that images may count for."""
AGREE = 3
"""References that must name a group."""
Z = 1.96


def groups_of(words: Collection[str]) -> frozenset[str]:
    """The groups that words name."""
    return frozenset(group for group, members in GROUPS.items() if not members.isdisjoint(words))


def group_of(references: Sequence[frozenset[str]]) -> str | None:
    """The group that an image's references agree on, from the groups that each of them names; None if they do not."""
    votes = {group: sum(group in groups for groups in references) for group in COUNTED}
    agreed = [group for group, count in votes.items() if count >= AGREE]
    rivals = [group for group in RIVALS if votes[group]]
    if agreed == ["dog"] and not rivals:
        return "dog"
    return agreed[0] if len(agreed) == 1 and rivals == agreed else None


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927); (0, 1) if `total` is 0."""
    if not total:
        return 0.0, 1.0
    share, spread = hits / total, Z * Z / total
    middle = share + spread / 2
    half = Z * (share * (1 - share) / total + spread / (4 * total)) ** 0.5
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def count_named(
    references: Mapping[str, Sequence[str]], captions: Mapping[str, Caption]
) -> dict[str, tuple[int, dict[str, int]]]:
    """By group: the number of photos that count for it, and how many of their captions name each group.

    Args:
        references: people's captions of each photo; photos without captions are left out.
        captions: a model's, by photo.
    """
    tokenize = get_tokenizer("ptb")
    counts = {group: (0, dict.fromkeys(GROUPS, 0)) for group in COUNTED}
    for photo, caption in captions.items():
        group = group_of([groups_of(tokenize(text)) for text in references.get(photo, ())])
        if group is not None:
            photos, names = counts[group]
            groups = groups_of(tokenize(caption.text))
            counts[group] = photos + 1, {name: number + (name in groups) for name, number in names.items()}
    return counts


def named_rows(counts: Mapping[str, tuple[int, Mapping[str, int]]]) -> Iterator[list[Cell]]:
    """A row for every group of `count_named`: the images, and how often their captions name each group."""
    for group, (images, says) in counts.items():
        yield [group, images, *(share_of(number, images) if images else "–" for number in says.values())]


def share_of(number: int, total: int) -> Value:
    """A share with Wilson's interval."""
    return share(Estimate(number / total, *wilson(number, total)))
