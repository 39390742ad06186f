"""The five captions of a Shapes scene, from a grammar small enough that five of them nearly exhaust it.

    phrase    -> "a" NAME RELATION "a" NAME                a red circle above a blue square
    list      -> "a" NAME "with a" NAME "and a" NAME       three objects, from left to right
    caption   -> phrase | "there is" phrase | "an image of" phrase | "an image of" list
    RELATION  -> "above" | "below" | "to the left of" | "to the right of"

The reference set is systematic, so that BLEU measures what was seen and not which paraphrase was guessed:

- two objects: the phrase and "there is" in both directions, "an image of" in one;
- three objects: the two nearest pairs in both directions, one of them as a phrase and one with "there is",
  and the list. The pair that is farthest apart is left to be inferred.

A phrase is a part of the longer sentences. So a caption that tells the truth about a near pair finds nearly
all of its n-grams among the references, and a false one does not.
"""

from __future__ import annotations

import numpy as np

from caption.data.shapes_scene import OPPOSITE, Object, Scene, clear_pairs
from caption.errors import DataError


def describe_scene(scene: Scene) -> list[str]:
    """Five different true captions, lower case, no punctuation; `scene.seed` decides wording and order.

    Raises DataError if no two objects of the scene are in a clear relation.
    """
    pairs = clear_pairs(scene)
    if not pairs:
        raise DataError(
            "No two objects of the scene are clearly above, below or beside one another; move them apart."
        )
    numbers = np.random.default_rng([scene.seed, 2]).random(7)
    coins, order = numbers[:2] < 0.5, np.argsort(numbers[2:], kind="stable")
    captions = _one_pair(pairs[0], coins[0]) if len(pairs) == 1 else _two_pairs(scene, pairs, coins)
    return [captions[k] for k in order]


def _one_pair(pair: tuple[Object, Object, str], coin: bool) -> list[str]:
    one, other = _directions(pair)
    image_of = f"an image of {one if coin else other}"
    return [one, other, f"there is {one}", f"there is {other}", image_of]


def _two_pairs(scene: Scene, pairs: list[tuple[Object, Object, str]], coins: np.ndarray) -> list[str]:
    captions = [f"an image of {_list(scene)}"]
    for pair, coin in zip(pairs, coins, strict=False):  # the nearest two; pairs may hold more
        one, other = _directions(pair)
        captions += [one, f"there is {other}"] if coin else [other, f"there is {one}"]
    return captions


def _directions(pair: tuple[Object, Object, str]) -> tuple[str, str]:
    a, b, where = pair
    return f"a {a.name} {where} a {b.name}", f"a {b.name} {OPPOSITE[where]} a {a.name}"


def _list(scene: Scene) -> str:
    things = sorted(
        scene.objects, key=lambda thing: (thing.box[0] + thing.box[2], thing.box[1] + thing.box[3])
    )
    first, *rest = (f"a {thing.name}" for thing in things)
    return f"{first} with {' and '.join(rest)}"
