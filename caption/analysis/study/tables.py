"""All measures of a study by name, in the order of a page."""

from __future__ import annotations

from caption.analysis.study.dependence import adversary, classes, exchange, faithfulness, heads, permutation
from caption.analysis.study.looking import agreement, entropy, grounding, single_maps
from caption.analysis.study.measure import Measure
from caption.analysis.study.methods import map_agreement, map_differences, map_sanity, maps, random_layers
from caption.analysis.study.sentences import chair, named, nonsense, persons

ON_PHOTOS: dict[str, Measure] = {
    "grounding": grounding,
    "single maps": single_maps,
    "faithfulness": faithfulness,
    "permutation": permutation,
    "agreement": agreement,
    "entropy": entropy,
    "named": named,
    "chair": chair,
    "persons": persons,
    "nonsense": nonsense,
    "heads": heads,
}
ON_SHAPES: dict[str, Measure] = {
    "grounding": grounding,
    "single maps": single_maps,
    "faithfulness": faithfulness,
    "classes": classes,
    "permutation": permutation,
    "adversary": adversary,
    "exchange": exchange,
    "agreement": agreement,
    "entropy": entropy,
    "heads": heads,
}
"""On scenes, where the truth about every word is known."""
OF_MAPS: dict[str, Measure] = {
    "maps": maps,
    "map differences": map_differences,
    "map sanity": map_sanity,
    "random layers": random_layers,
    "map agreement": map_agreement,
}
MEASURES = {**ON_PHOTOS, **ON_SHAPES, **OF_MAPS}
