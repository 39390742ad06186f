"""The five captions of a Shapes scene, from a small grammar in which the opening decides the content.

    phrase  -> "a" NAME RELATION "a" NAME                  a red circle above a blue square
    list    -> "a" NAME "with a" NAME "and a" NAME         three objects, from left to right
    caption -> phrase | "there is" phrase | "an image of" phrase | "an image of" list
             | "we see" phrase | "look at" phrase
    RELATION -> "above" | "below" | "to the left of" | "to the right of"

With the objects A, B (and C) from left to right:

    "a ...", "there is ..."        A, seen from B
    "an image of ..."              A, seen from B; or the list of three
    "we see ...", "look at ..."    the last, seen from the one before: B from A, or C from B

The image and the words so far therefore determine the next object. Otherwise the paper's decoder could not look at the
object that it is about to name: its attention reads h[t-1], which has not seen y[t-1] (Xu et al. 2015, eq. 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from caption.data.shapes.scene import OPPOSITE, Scene, from_left_to_right, relation
from caption.data.shapes.silhouettes import SHAPES


def describe_scene(scene: Scene) -> list[str]:
    """Five different true captions of a `random_scene`, in lower case and without punctuation. `scene.seed` decides
    only their order."""
    things = from_left_to_right(scene)
    names = [f"a {thing.name}" for thing in things]
    first, last = relation(*things[:2]), relation(*things[-2:])
    assert first is not None  # every two objects of a scene are in a clear relation
    assert last is not None
    forward = f"{names[0]} {first} {names[1]}"
    backward = f"{names[-1]} {OPPOSITE[last]} {names[-2]}"
    image_of = forward if len(things) == 2 else f"{names[0]} with {names[1]} and {names[2]}"
    captions = [
        forward,
        f"there is {forward}",
        f"an image of {image_of}",
        f"we see {backward}",
        f"look at {backward}",
    ]
    order = np.argsort(np.random.default_rng([scene.seed, 2]).random(len(captions)), kind="stable")
    return [captions[k] for k in order]


def dependencies(words: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """The pairs of words that the grammar relates, each as the places of the later and of the earlier word.

    A relation (above, below, left, right) binds two objects as a verb binds two nouns.

    Returns:
        "subject": a relation with the object before it; "object": an object with the relation, or the verb "see",
        "look" or "is", before it. The place of an object is that of its shape word.
    """
    pairs: dict[str, list[tuple[int, int]]] = {"subject": [], "object": []}
    governor = noun = None
    for place, word in enumerate(words):
        if word in ("see", "look", "is"):
            governor = place
        elif word in ("above", "below", "left", "right"):
            governor = place
            pairs["subject"] += [] if noun is None else [(place, noun)]
        elif word in SHAPES:
            pairs["object"] += [] if governor is None else [(place, governor)]
            governor, noun = None, place
    return pairs
