"""The data of the page's script: captions, maps as bytes, styles and colour maps, in types of JSON.

A map is one byte q per cell. With low and high those of the caption's scale (see `scale_of`),

    q = 255 · √((α − low) / (high − low))        weights that are never negative
    q = 128 + 127 · sign(α) · √(|α| / high)      signed weights

rounded, so α comes back to within (high − low) / 255, or high / 127 for signed weights. `drawn` and `blurred` are the
scales of the colours. Boxes stay in the pixels of
the original photo.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from caption.core.regions import WeightProperties
from caption.results.caption import json_number
from caption.results.lens_reading import LEAST_SEEN
from caption.visualize.gaussian import DEVIATION
from caption.visualize.overlay import covers
from caption.visualize.scale import scale_of
from caption.visualize.styles import (
    ABOVE,
    BELOW,
    EASE,
    SIGNED_TINT,
    STYLES,
    OverlayStyle,
    colour_map,
    heat_colours,
)

if TYPE_CHECKING:
    from caption.core.box import BoxLike
    from caption.results.beam_tree import BeamTree
    from caption.results.caption import Caption

MAP_BYTES = 60_000  # of all maps of a photo
COLOUR_MAPS = ("viridis", "magma", "inferno", "cividis", "turbo", "gray")
"""The colour maps that the page offers, besides the one given as `cmap`."""
COLOURS = 64  # of each
MOST_NODES = 600
"""Hypotheses of a beam that a page draws: those of a beam of 20 in 30 words."""
END_LABEL = "(end)"
"""The page's label of the end token."""


def style_record(style: OverlayStyle) -> dict[str, Any]:
    """The styles, the colour maps, and the page's initial choice of them.

    Raises:
        ValueError: no such style or colour map, or the opacity is not between 0 and 1.
    """
    cmap = None if style.cmap is None else colour_map(style.cmap)
    cmaps = {name: colour_map(name) for name in COLOUR_MAPS} | ({} if cmap is None else {cmap.name: cmap})
    strength = style.strength  # checks the style and the opacity
    styles = {
        name: {**preset._asdict(), "colour": _bytes_of(preset.colour)} for name, preset in STYLES.items()
    }
    return {
        "styles": styles,
        "ease": EASE,
        "deviation": DEVIATION,
        "heat": _packed(heat_colours(None, COLOURS)),
        "signed_tint": SIGNED_TINT,
        "above": _bytes_of(ABOVE),
        "below": _bytes_of(BELOW),
        "colour_maps": {
            name: _packed(cmap(np.linspace(0, 1, COLOURS))[:, :3]) for name, cmap in cmaps.items()
        },
        "initial": {
            **style._asdict(),
            "cmap": None if cmap is None else cmap.name,
            "opacity": None if style.opacity is None else strength,
        },
    }


def photo_record(
    caption: Caption,
    name: str,
    size: tuple[int, int],
    shown: tuple[int, int],
    unchanged: Caption | None = None,
) -> dict[str, Any]:
    """A caption with as many of its alternatives and maps as fit.

    Args:
        caption: of the photo.
        name: of the photo.
        size: (width, height) of the photo in pixels.
        shown: the same of the embedded photo.
        unchanged: the caption without changes of its attention, whose scale the maps keep: a word that is made to look
            at one cell would leave the others without a colour. None = each caption has its own.
    """
    first, *alternatives = [
        _caption_record(candidate, size, unchanged) for candidate in (caption, *caption.alternatives)
    ]
    scales = {} if unchanged is None else unchanged.single_maps()
    first["maps"] = [
        {"name": label, **_map_record(single.weights, single.box, single.properties, scales.get(label))}
        for label, single in caption.single_maps().items()
    ]
    first["self_attention"] = [
        {
            "name": f"layer {layer}, head {head}: words fed so far",
            **_map_record(weights[:, None], caption.box, WeightProperties()),
        }
        for layer, heads in enumerate(caption.self_attention)
        for head, weights in enumerate(heads)
    ]
    room = MAP_BYTES - caption.weights.size
    maps, room = _fitting(first["maps"], room)
    captions, room = _fitting(alternatives, room)
    left_out = {
        "left_out": len(alternatives) - len(captions),
        "maps_left_out": len(first["maps"]) - len(maps),
    }
    first["maps"] = maps
    beam = None if caption.beam_tree is None else _beam_record(caption, caption.beam_tree, room, unchanged)
    return {
        "name": name,
        "size": size,
        "shown": shown,
        **left_out,
        "captions": [first, *captions],
        "beam": beam,
    }


def _beam_record(caption: Caption, tree: BeamTree, room: int, unchanged: Caption | None) -> dict[str, Any]:
    """The hypotheses that a beam search kept, and their maps; left out where they are too many, or too large.

    Args:
        caption: the best one.
        tree: of its search.
        room: bytes for the maps.
        unchanged: see `photo_record`.
    """
    count = sum(map(len, tree.steps))
    nodes = [
        [
            {
                "word": node.word,
                "parent": node.parent,
                "log_prob": json_number(round(node.log_prob, 4)),
                "total": json_number(round(node.total, 4)),
                "ended": node.ended,
                "map_index": node.map_index,
                "moved_share": _rounded(tree.moved_share(step, place)),
            }
            for place, node in enumerate(of_step)
        ]
        for step, of_step in enumerate(tree.steps if count <= MOST_NODES else [])
    ]
    shown = nodes and tree.weights.size <= room
    maps = _map_record(tree.weights, caption.box, caption.properties, unchanged) if shown else None
    return {
        "width": tree.width,
        "count": count,
        "steps": nodes,
        "paths": tree.paths if nodes else [],
        "maps": maps,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)


def _fitting(records: list[dict[str, Any]], room: int) -> tuple[list[dict[str, Any]], int]:
    """The first records, up to one whose maps do not fit into `room` bytes, and the bytes that remain."""
    kept: list[dict[str, Any]] = []
    for record in records:
        bytes_taken = 3 * len(record["weights"]) // 4
        if bytes_taken > room:
            return kept, 0
        kept.append(record)
        room -= bytes_taken
    return kept, room


def _caption_record(caption: Caption, size: tuple[int, int], unchanged: Caption | None) -> dict[str, Any]:
    record = {key: value for key, value in caption.to_dict().items() if key != "alternatives"}
    shares = caption.sentinel_shares
    sentinel = None if shares is None else [float(share) for share in shares]
    return {
        **record,
        "method": caption.method,
        **_map_record(caption.weights, caption.box, caption.properties, unchanged),
        "sees": _sees(caption),
        "remarks": caption.remarks,
        "sentinel": sentinel,
        "covers": covers(caption.seen or caption.box, size),
        "maps": [],
        "self_attention": [],
    }


def _sees(caption: Caption) -> list[str | None] | None:
    """For each word, the thing that a lens sees there, if it is likely, "sees cat 0.8", or the text of a doubt."""
    if caption.lens is None:
        return None
    things = [caption.lens.seen(step, LEAST_SEEN) for step in range(len(caption.words))]
    notes = [None if thing is None else f"sees {thing}" for thing in things]
    for doubt in caption.lens.doubts:
        notes[doubt.step] = str(doubt)
    return notes


def _map_record(
    maps: np.ndarray, box: BoxLike, properties: WeightProperties, unchanged: Caption | None = None
) -> dict[str, Any]:
    """Weights (N, rows, cols) as bytes, and what the script needs to draw them."""
    drawn = maps if unchanged is None else unchanged.weights
    scale = scale_of(maps, signed=properties.signed)
    weights = maps.astype(np.float64)
    if scale.signed:
        levels = 128 + 127 * np.sign(weights) * np.sqrt(np.abs(weights) / scale.high)
    else:
        levels = 255 * np.sqrt((weights - scale.low) / (scale.high - scale.low))
    return {
        "grid": list(weights.shape[1:]),
        "box": list(box),
        **scale._asdict(),
        "drawn": scale_of(drawn, signed=scale.signed)._asdict(),
        "blurred": OverlayStyle("paper").scale_of(drawn.astype(np.float64), signed=scale.signed)._asdict(),
        "even": 1 / weights[0].size if len(weights) and properties.is_distribution else None,
        "sums_to_one": properties.sums_to_one,
        "weights": base64.b64encode(np.rint(levels).astype(np.uint8).tobytes()).decode(),
    }


def _packed(colours: np.ndarray) -> str:
    return base64.b64encode(np.rint(255 * colours).astype(np.uint8).tobytes()).decode()


def _bytes_of(colour: tuple[float, float, float]) -> list[int]:
    return [round(255 * part) for part in colour]
