"""Which map should I believe? Measures of map methods beside each other."""

from __future__ import annotations

from functools import partial
from itertools import combinations

from caption.analysis.maps import scales
from caption.analysis.maps.blurring import areas_by_blurring
from caption.analysis.per_word import known_mean
from caption.analysis.study.measure import Subjects, measure
from caption.analysis.study.subject import CURVES, EFFECT, OF_BOXES, RANDOM_SAMPLE
from caption.analysis.table import AnalysisTable, Cell, Value
from caption.attention.stochastic import stochastic_parts

SAMPLE = 20
"""Photos that are blurred or get noise."""
NEED_METHODS = "Give methods, such as --maps attention gradcam occlusion."


@measure(
    "model", "map", "words", *OF_BOXES, *CURVES, EFFECT, "ms per word", "MB"
)  # fmt: skip
def maps(table: AnalysisTable, subjects: Subjects) -> None:
    """Which map should I believe?

    Pointing accuracy and mass: is the map on the object that the word names? Deletion and insertion: the areas when
    regions are hidden from the word, and shown, in the order of the map; a low and a high one are good. True effect: of
    the objects of a scene, taken out one at a time, the one that changes the word the most should have the most of the
    map. MB: the most memory that tensors take while a word's map is drawn, beside the model.
    """
    for subject in _with_methods(table, subjects):
        if stochastic_parts(subject.captioner):
            table.notes.append(f"The hard attention of {subject.name} reads its expectation here, Σ α_i a_i.")
        spoken = [number for number, caption in enumerate(subject.captions) if caption.words][:2]
        few = [subject.photos[number] for number in spoken], [subject.captions[number] for number in spoken]
        for method, by_scale in subject.weighed.items():
            cells: list[Cell] = [method, next(iter(by_scale.values())).words]
            for scale in (*OF_BOXES, *CURVES, EFFECT):
                is_share = scale in OF_BOXES and not subject.images.naming
                cells.append(Value(by_scale[scale].mean, is_share=is_share) if scale in by_scale else "–")
            megabytes = scales.peak_bytes(subject.captioner, method, *few) / 1e6
            cost = f"{1000 * subject.drawn[method].seconds:.1f}", f"{megabytes:.1f}"
            table.add([[*cells, *cost]], subject.name)


def _with_methods(table: AnalysisTable, subjects: Subjects, least: int = 1) -> Subjects:
    """The models, if there are methods; else the table says so."""
    if len(subjects[0].methods) >= least:
        return subjects
    table.missing = NEED_METHODS
    return []


@measure("model", "map", "less", "scale", "difference", "p")
def map_differences(table: AnalysisTable, subjects: Subjects) -> None:
    """Is another map better than the first?

    The difference of each map from the first, at the same words. p is two-sided, how often the mean would be as far
    from 0 if the two maps of each photo were exchanged at random, and not corrected for the number of comparisons.
    """
    for subject in _with_methods(table, subjects, least=2):
        first, *others = subject.methods
        for method in others:
            for scale, of_first in subject.weighed[first].items():
                of_method = subject.weighed[method][scale]
                gain = of_method._replace(values=of_method.values - of_first.values)
                cells: list[Cell] = [method, first, scale, Value(gain.mean), f"{gain.p_value:.2g}"]
                table.add([cells], subject.name)


@measure(
    "model", "map", "deletion, pixels", "insertion, pixels", "random model", "under noise"
)  # fmt: skip
def map_sanity(table: AnalysisTable, subjects: Subjects) -> None:
    """Does the map hold on pixels, depend on what was learned, and stay under noise?

    Deletion and insertion on pixels: the areas when the photo is blurred cell by cell in the order of the map, for all
    words. Random model: the rank correlation with the map of a model whose weights are random; a map that depends on
    what was learned is near 0. Under noise: that with the maps of photos with noise that is hardly visible; a stable
    map is near 1. On pixels and under noise, 20 photos at most are measured, and 5 with random weights.
    """
    for subject in _with_methods(table, subjects):
        captioner, images = subject.captioner, scales.images_of(subject.captions)
        # Each word takes many passes of the encoder: those that name something with a box, if there are any.
        naming = {word for several in subject.images.naming.values() for word in several}
        boxed = {word for photo in subject.images.boxed for name in photo.boxes for word in name.split()}
        blurred = partial(areas_by_blurring, captioner, words=naming or boxed or None)
        for method in subject.methods:
            on_pixels = subject.on_scale("pixels", method, blurred, SAMPLE)
            noise = partial(scales.under_noise, captioner, method)
            noisy = subject.on_scale("noise", method, noise, SAMPLE, True)["similarity"]
            areas = [Value(known_mean(on_pixels[kind], images[: len(on_pixels[kind])])) for kind in CURVES]
            similar = [[*subject.with_random_layers[method].values()][-1], noisy]
            correlations = [Value(known_mean(values, images[: len(values)]), 2) for values in similar]
            table.add([[method, *areas, *correlations]], subject.name)


@measure("model", "random down to")
def random_layers(table: AnalysisTable, subjects: Subjects) -> None:
    """Does the map depend on what each layer has learned?

    Layers get random weights one after the other, from the words down to the pixels (Adebayo et al. 2018). The rank
    correlation of the maps with those of the trained model, on 5 photos at most, once all layers down to this one are
    random: a map that depends on them is near 0.
    """
    table.head = [*table.head, *subjects[0].methods]
    for subject in _with_methods(table, subjects):
        images = scales.images_of(subject.captions[:RANDOM_SAMPLE])
        by_method = subject.with_random_layers
        for layer in by_method[subject.methods[0]]:
            cells = [Value(known_mean(of_layers[layer], images), 2) for of_layers in by_method.values()]
            table.add([cells], subject.name, layer)


@measure("model", "map", "and", "rank correlation")
def map_agreement(table: AnalysisTable, subjects: Subjects) -> None:
    """Do the methods agree?

    Spearman's rank correlation over the regions, of every two methods' maps of each word.
    """
    for subject in _with_methods(table, subjects, least=2):
        for first, second in combinations(subject.methods, 2):
            maps = [subject.drawn[method].captions for method in (first, second)]
            agreed = known_mean(scales.similarity(*maps), scales.images_of(maps[0]))
            table.add([[first, second, Value(agreed, 2)]], subject.name)
