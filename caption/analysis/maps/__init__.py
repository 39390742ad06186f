"""Map methods: many ways to say which regions of a photo matter for a word, all with one interface.

    caption.maps(captioner, "photo.jpg", method="gradcam").plot()

`METHODS` lists them. The result of each is a caption with other weights, so that every figure, page and measure takes
it. `scales` measures how far they can be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import overload

from caption.analysis import baseline_maps
from caption.analysis.maps import attention, detectors, grad_cam, gradients, lens, perturbation, relevance
from caption.analysis.maps.method import MapMethod, at_step, of_captions
from caption.analysis.posterior_attention import posterior
from caption.analysis.self_attention.rollout import rollout
from caption.captioner import Captioner
from caption.core.errors import UserError, did_you_mean
from caption.data.photos import Photo
from caption.results.caption import Caption
from caption.results.captions import Captions

METHODS: dict[str, MapMethod] = {method.name: method for method in (
    MapMethod("attention", "the weights that were read, Xu et al. 2015", attention.own_weights),
    MapMethod("mean", "the mean of all heads, hops and layers", attention.mean),
    MapMethod("concentrated", "their mean, each weighted by how far it is from an even map", attention.concentrated),
    MapMethod("without-sinks", "their mean without what all words of all photos read, after Xiao et al. 2024",
              attention.without_sinks, several=True),
    MapMethod("posterior", "attention once the word is known, Shankar and Sarawagi 2019", posterior, "L steps",
              replays=True),
    MapMethod("rollout", "weights carried back through self-attention, Abnar and Zuidema 2020", rollout),
    at_step("gradient", "length of the gradient, Simonyan et al. 2014", gradients.gradient, "1 gradient"),
    at_step("gradient-x-input", "first-order loss without the region, Shrikumar et al. 2017",
            gradients.gradient_times_input, "1 gradient", signed=True),
    at_step("gradient-of-hiding", "first-order loss when the region is hidden", gradients.gradient_of_hiding,
            "1 gradient", signed=True),
    at_step("integrated-gradients", "Sundararajan et al. 2017", gradients.integrated_gradients,
            f"{gradients.STEPS} gradients", signed=True),
    at_step("smoothgrad", "gradient under noise, Smilkov et al. 2017", gradients.smooth_grad,
            f"{gradients.COPIES} gradients"),
    at_step("attention-x-gradient", "Chefer et al. 2021, eq. 5, of each layer", relevance.attention_times_gradient,
            "1 gradient"),
    MapMethod("relevance", "carried through all layers, Chefer et al. 2021, eqs. 5 to 10", relevance.relevance,
              "1 gradient", replays=True),
    at_step("gradcam", "Grad-CAM, Selvaraju et al. 2017", grad_cam.grad_cam, "1 gradient"),
    at_step("gradcam++", "Grad-CAM++, Chattopadhay et al. 2018", grad_cam.grad_cam_plus_plus, "1 gradient"),
    at_step("occlusion", "loss when one region is hidden, Zeiler and Fergus 2014", perturbation.occlusion, "L steps",
            signed=True),
    at_step("windows", "loss when a window of regions is hidden, Zeiler and Fergus 2014",
            perturbation.occlusion_by_windows, "L steps", signed=True),
    at_step("rise", "random masks, Petsiuk et al. 2018", perturbation.rise, f"{perturbation.MASKS} steps"),
    at_step("shapley", "Shapley values, sampled as by Castro et al. 2009", perturbation.shapley,
            f"{perturbation.ORDERS} L steps", signed=True),
    MapMethod("lens", "where the encoder sees the word's thing", lens.seen_by_lens),
    of_captions("mean-map", "the mean of all words of all photos: a baseline", baseline_maps.mean_map, several=True),
    of_captions("other-photo", "the weights of another photo: a baseline", baseline_maps.other_image, several=True),
    of_captions("middle", "the middle of the photo: a baseline", baseline_maps.middle),
    of_captions("chance", "random numbers: a baseline", baseline_maps.random),
)}  # fmt: skip
"""By name. L is the number of regions; a step is one step of the decoder."""
DETECTORS = "detectors="
"""Begins the name of the map of word detectors, before their checkpoint."""


def method_named(name: str, captioner: Captioner) -> MapMethod:
    """One of `METHODS`, a map of the captioner's mechanism by its label, such as "heads[2]" or "layer 1 heads", or that
    of the word detectors in a checkpoint, such as "detectors=runs/guided/last.ckpt".

    Raises:
        UserError: there is no such method, map or checkpoint.
    """
    if name in METHODS:
        return METHODS[name]
    if name.startswith(DETECTORS):
        source = "where a detector sees the word, Fang et al. 2015"
        return MapMethod(name, source, detectors.detected(name.removeprefix(DETECTORS)))
    own = [own for own in captioner.decoder.map_views if own != "weights"]  # the summary itself
    if name.partition("[")[0] not in own:
        has = f", or one of this model's maps: {', '.join(own)}" if own else ""
        raise UserError(
            f"there is no map {name!r}{did_you_mean(name, METHODS)}: the methods are {', '.join(METHODS)}, "
            f"{DETECTORS}CHECKPOINT{has}"
        )
    return MapMethod(name, "a map of the mechanism", attention.single_map(name))


@overload
def maps(
    captioner: Captioner,
    photos: list[Photo],
    captions: Iterable[Caption] | None = None,
    method: str = "attention",
) -> Captions: ...


@overload
def maps(
    captioner: Captioner, photos: Photo, captions: Iterable[Caption] | None = None, method: str = "attention"
) -> Caption: ...


def maps(
    captioner: Captioner,
    photos: Photo | list[Photo],
    captions: Iterable[Caption] | None = None,
    method: str = "attention",
) -> Caption | Captions:
    """Captions whose weights are the maps of a method: for each word, which regions matter.

    Args:
        captioner: the model.
        photos: one, or a list of them.
        captions: one for each photo, with this model's weights; None = those that it generates.
        method: see `method_named`. With methods that run the decoder again, hard attention reads its expectation.

    Returns:
        a Caption for a photo, `Captions` for a list.

    Raises:
        UserError: there is no such method, or it is not possible with this model or for a single photo.
        ValueError: photos and captions differ in number.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    if not isinstance(captioner, Captioner):
        raise UserError(
            f"maps are made by a captioner, not by {type(captioner).__name__}: exported and quantised models have no "
            "steps that could be run again, so load the checkpoint that they were made from"
        )
    chosen = method_named(method, captioner)
    photo_list = list(photos) if isinstance(photos, (list, tuple)) else [photos]
    if isinstance(captions, Caption):
        captions = [captions]
    given = captioner.describe(photo_list) if captions is None else list(captions)
    if len(given) != len(photo_list):
        raise ValueError(f"there are {len(given)} captions for {len(photo_list)} photos")
    name = "" if method == "attention" else method
    drawn = Captions(replace(caption, method=name) for caption in chosen(captioner, photo_list, given))
    return drawn if isinstance(photos, (list, tuple)) else drawn[0]
