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

from itertools import pairwise

import numpy as np

from caption.data.shapes.scene import OPPOSITE, Scene, from_left_to_right, relation
from caption.errors import DataError


def describe_scene(scene: Scene) -> list[str]:
    """Five different true captions, in lower case, without punctuation. `scene.seed` decides only their order.

    Raises:
        DataError: the scene does not have two or three objects, or two neighbours, from left to right, are in no
            clear relation.
    """
    things = from_left_to_right(scene)
    if len(things) not in (2, 3):
        raise DataError(f"A scene of {len(things)} objects cannot be described: use two or three.")
    names = [f"a {thing.name}" for thing in things]
    relations = [relation(a, b) for a, b in pairwise(things)]
    first, last = relations[0], relations[-1]
    if first is None or last is None:
        raise DataError(
            "Two neighbouring objects of the scene are not clearly above, below or beside each other: "
            "move them apart."
        )
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
