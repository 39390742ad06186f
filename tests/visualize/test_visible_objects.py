"""Where no attention is, the objects of Shapes can still be seen, in every style."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.drawing import draw_overlay

from caption.data.shapes.render import render
from caption.data.shapes.scene import COLOURS, Scene, random_scene
from caption.data.shapes.silhouettes import FULL, SHAPES, silhouette
from caption.visualize.scale import Scale
from caption.visualize.styles import STYLE_NAMES

VISIBLE = 10
"""Units of CIELAB between the colours of an object and of its surroundings; 2.3 can just be told apart."""
RING = 3  # pixels around an object's box


def cielab(rgb: np.ndarray) -> np.ndarray:
    """L*, a* and b* (CIE 1976, D65) of colours in sRGB from 0 to 255."""
    encoded = rgb / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ratio = linear @ np.transpose(to_xyz) / [0.9505, 1, 1.089]
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = np.moveaxis(f, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def contrasts(scene: Scene, pixels: np.ndarray) -> dict[str, float]:
    """For each object, the distance of its median colour from that of the background around it."""
    colours = cielab(pixels.astype(float))
    covers = {}
    for thing in scene.objects:
        left, top, right, bottom = thing.box
        covers[thing] = np.zeros((scene.size, scene.size))
        covers[thing][top:bottom, left:right] = silhouette(thing.shape, thing.size)
    background = sum(covers.values()) == 0
    found = {}
    for thing, cover in covers.items():
        left, top, right, bottom = thing.box
        around = np.zeros_like(background)
        around[max(0, top - RING) : bottom + RING, max(0, left - RING) : right + RING] = True
        inside, outside = (np.median(colours[part], 0) for part in (cover == FULL, around & background))
        found[thing.name] = float(np.linalg.norm(inside - outside))
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("style", STYLE_NAMES)
def test_every_object_is_visible_where_alpha_is_0(style: str):
    least: dict[str, float] = {}
    for scene in (random_scene(0, "test", index) for index in range(40)):
        weights, box = np.zeros((8, 8)), (0, 0, scene.size, scene.size)
        scale = Scale(0, 0.3, mean=1 / 64)  # of words with attention
        drawn = draw_overlay(render(scene), weights, box, scale, style=style)
        for name, contrast in contrasts(scene, drawn).items():
            least[name] = min(contrast, least.get(name, np.inf))
    assert set(least) == {f"{colour} {shape}" for colour in COLOURS for shape in SHAPES}
    assert {name: contrast for name, contrast in least.items() if contrast < VISIBLE} == {}
