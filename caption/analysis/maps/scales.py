"""Scales on which maps are weighed: do they change with the model, stay under noise, agree, show the true effect?

Pointing and mass are in `caption.analysis.pointing_game`; deletion and insertion in the order of any maps in
`caption.analysis.faithfulness`. All measures here are arrays with a number for each word.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from torch import nn

from caption.analysis.agreement import rank_correlation
from caption.analysis.covered_cells import coverage
from caption.analysis.faithfulness.curves import Kind, faithfulness_curves
from caption.analysis.maps import method_named
from caption.analysis.maps.trial import scores_of
from caption.analysis.reference_attention import attend
from caption.analysis.replay import Replay, sentences
from caption.attention.maps import named_maps
from caption.captioner import Captioner
from caption.core.runtime.peak_memory import allocated_peak
from caption.data.photos import Photo, open_image
from caption.data.shapes.render import render
from caption.data.shapes.scene import Scene
from caption.results.caption import AttentionMaps, Caption

NOISE = 4.0
"""Standard deviation, of 255, of the noise on pixels, which is hardly visible."""
COPIES = 10
"""Noisy copies of each photo."""
EFFECT = 1.0
"""Nats by which log p of a word must fall without an object, for the object to have a true effect."""


class Drawn(NamedTuple):
    """The maps of a method, and what they cost."""

    captions: list[Caption]
    seconds: float
    """For each word."""


def draw(captioner: Captioner, method: str, photos: Sequence[Photo], captions: Sequence[Caption]) -> Drawn:
    """The maps of a method for captions with the model's own weights; see `caption.maps`.

    Raises:
        UserError: there is no such method, or it is not possible with this model.
    """
    start = time.perf_counter()
    drawn = method_named(method, captioner)(captioner, photos, captions)
    words = sum(len(caption.words) for caption in captions)
    return Drawn(drawn, (time.perf_counter() - start) / max(words, 1))


def peak_bytes(
    captioner: Captioner, method: str, photos: Sequence[Photo], captions: Sequence[Caption]
) -> int:
    """The most memory of tensors that the maps of single words take at once, the model's own left out."""
    return allocated_peak(lambda: draw(captioner, method, photos, captions), captioner.device)


def images_of(captions: Sequence[Caption]) -> np.ndarray:
    """(N,) the number of each word's photo."""
    return np.repeat(np.arange(len(captions)), [len(caption.words) for caption in captions])


def similarity(first: Sequence[Caption], second: Sequence[Caption]) -> np.ndarray:
    """(N,) Spearman's rank correlation over the regions of each word's two maps: 0 where the second is constant, NaN
    where the first is, or where their grids differ."""
    compared = []
    for a, b in zip(first, second, strict=True):
        if a.weights.shape != b.weights.shape or not a.words:
            compared.append(np.full(len(a.words), np.nan))
            continue
        ours, theirs = (x.weights.reshape(len(x.words), -1).astype(np.float64) for x in (a, b))
        constant = ours.max(1, initial=-np.inf) == ours.min(1, initial=np.inf)
        compared.append(np.where(constant, np.nan, rank_correlation(ours, theirs)))
    return np.concatenate([np.zeros(0), *compared])


def after_redrawing(
    captioner: Captioner,
    method: str,
    photos: Sequence[Photo],
    captions: Sequence[Caption],
    drawn: Sequence[Caption],
) -> dict[str, np.ndarray]:
    """(N,) `similarity` of maps and those of the model with random weights, by the layer down to which they are random.

    Cascading randomisation (Adebayo et al. 2018, "Sanity Checks for Saliency Maps", section 3.1): layers get random
    weights one after the other, from the words down to the pixels, and stay random. With the last one the whole model
    is random: a map that depends on what was learned has a correlation near 0. The random model is fed the same
    captions, so that methods which only take the weights of captions get those of the random model.

    Args:
        captioner, photos, captions: see `draw`.
        method: its name.
        drawn: the maps of the trained model.
    """
    similar = {}
    with ExitStack() as random_layers:
        for seed, (layer, weights) in enumerate(
            layers_from_the_top(captioner, photos[0], captions[0]).items()
        ):
            random_layers.enter_context(redrawn(weights, seed))
            again = fed(captioner, photos, captions)
            similar[layer] = similarity(drawn, draw(captioner, method, photos, again).captions)
    return similar


def under_noise(
    captioner: Captioner,
    method: str,
    photos: Sequence[Photo],
    captions: Sequence[Caption],
    drawn: Sequence[Caption],
) -> dict[str, np.ndarray]:
    """(N,) "similarity": the mean `similarity` of maps and those of `COPIES` copies of the photos with noise on their
    pixels, for the same captions; see `after_redrawing`."""
    generator = np.random.default_rng(0)
    similar = []
    for _ in range(COPIES):
        noisy: list[Photo] = []
        for photo in photos:
            pixels = np.asarray(open_image(photo).convert("RGB"), np.float64)
            noise = generator.normal(0, NOISE, pixels.shape)
            noisy.append((pixels + noise).round().clip(0, 255).astype(np.uint8))
        again = fed(captioner, noisy, captions)
        similar.append(similarity(drawn, draw(captioner, method, noisy, again).captions))
    return {"similarity": np.mean(similar, 0)}


def under_erasing(
    captioner: Captioner, photos: Sequence[Photo], captions: Sequence[Caption], drawn: Sequence[Caption]
) -> dict[Kind, np.ndarray]:
    """(N,) areas under deletion and insertion of the steps of captions, in the order of maps; see
    `faithfulness_curves`."""
    if not any(caption.words for caption in captions):
        return {kind: np.zeros(0) for kind in get_args(Kind)}
    score = {"map": scores_of([captioner.split(caption) for caption in drawn])}
    curves = faithfulness_curves(captioner, photos, captions, score, seed=seed_of(captions))
    return {kind: curves.area(kind, "map") for kind in get_args(Kind)}


def seed_of(captions: Sequence[Caption]) -> int:
    """For random orders of equal weights, so that photos have different ones, however many are measured at once."""
    return zlib.crc32("\n".join(caption.text for caption in captions).encode())


def true_effects(
    captioner: Captioner, scenes: Sequence[Scene], captions: Sequence[Caption]
) -> list[np.ndarray]:
    """(T, objects) of each scene: by how much log p of each word falls when the object is taken out of the scene.

    The scene is drawn again without the object, and the model is fed the same caption.
    """
    effects = []
    for scene, caption in zip(scenes, captions, strict=True):
        parts = [
            scene._replace(objects=scene.objects[:n] + scene.objects[n + 1 :])
            for n in range(len(scene.objects))
        ]
        photos: list[Photo] = [render(part) for part in (scene, *parts)]
        whole, *rest = attend(captioner, photos, [caption] * len(photos))
        effects.append(np.stack([whole.word_log_probs - without.word_log_probs for without in rest], 1))
    return effects


def shows_effect(
    scenes: Sequence[Scene], effects: Sequence[np.ndarray], drawn: Sequence[Caption]
) -> np.ndarray:
    """(N,) 1 if the object with the largest true effect on the word has the most of its map, else 0; shared by ties.

    NaN for words that lose less than `EFFECT` without any object, such as "a". The mass of an object is that of the
    positive weights, each cell by the share that the object's box covers.
    """
    measured = []
    for scene, effect, caption in zip(scenes, effects, drawn, strict=True):
        rows, cols = caption.weights.shape[1:]
        covers = np.stack(
            [coverage(rows, cols, caption.box, [thing.box], caption.seen) for thing in scene.objects], -1
        )
        mass = np.tensordot(caption.weights.clip(min=0).astype(float), covers, 2)  # (T, objects)
        most = mass == mass.max(1, keepdims=True)
        hit = most[np.arange(len(effect)), effect.argmax(1)] / most.sum(1)
        measured.append(np.where(effect.max(1) >= EFFECT, hit, np.nan))
    return np.concatenate([np.zeros(0), *measured])


def fed(captioner: Captioner, photos: Sequence[Photo], captions: Sequence[Caption]) -> list[Caption]:
    """Captions with the weights, and all maps, of a model that is fed their words, such as for another photo."""
    weights, decoder = attend(captioner, list(photos), captions, batch_size=1), captioner.decoder
    if not set(decoder.map_views) - {"weights"}:  # the summary itself
        return weights
    replay, with_maps = Replay(decoder), []
    batches = sentences(captioner, list(photos), captions, batch_size=1)
    for caption, batch in zip(weights, batches, strict=True):
        of_batch = replay.maps(batch)
        maps = {
            decoder.trace_name(number, label): named_maps(of_batch[name])[label][0].unflatten(-1, grid)
            for number, (name, attention) in enumerate(decoder.attentions.items() if of_batch else ())
            for label, grid in attention.grids([view.grid for view in batch.views]).items()
        }
        arrays = {name: map_.float().cpu().numpy() for name, map_ in maps.items()}
        with_maps.append(captioner.joined(replace(caption.stepwise, maps=AttentionMaps(arrays))))
    return with_maps


@contextmanager
def redrawn(weights: Sequence[nn.Parameter], seed: int = 0) -> Iterator[None]:
    """Context in which weights are random, each tensor with its mean and standard deviation; restored afterwards."""
    before = [tensor.detach().clone() for tensor in weights]
    generator = torch.Generator().manual_seed(seed)
    try:
        with torch.no_grad():
            for tensor in weights:
                noise = torch.randn(tensor.shape, generator=generator).to(tensor)
                tensor.copy_(tensor.mean() + noise * tensor.std(correction=0))
        yield
    finally:
        with torch.no_grad():
            for tensor, kept in zip(weights, before, strict=True):
                tensor.copy_(kept)


def layers_from_the_top(
    captioner: Captioner, photo: Photo, caption: Caption
) -> dict[str, list[nn.Parameter]]:
    """The weights of each layer by its name, the one that runs last in a word's step first; together all weights.

    A layer is an item of a list of modules, such as a block of an encoder, or a module without such lists; weights
    beside such lists are one, too.
    """
    layers = dict(_layers("", captioner, in_list=False))
    order: dict[nn.Module, int] = {}

    def run(module: nn.Module, args: tuple[Any, ...]) -> None:
        order.setdefault(module, len(order))

    with ExitStack() as hooks:
        for module in captioner.modules():
            hooks.enter_context(module.register_forward_pre_hook(run))
        attend(captioner, [photo], [caption])

    def place(name: str) -> int:
        called = [order[part] for part in layers.get(name, []) if part in order]
        return max(called) if called else place(name.rpartition(".")[0]) if name else -1

    weights, taken = {}, set()
    for name in sorted(layers, key=place, reverse=True):
        of_layer = [tensor for part in layers[name] for tensor in part.parameters(recurse=False)]
        of_layer = [
            tensor for tensor in dict.fromkeys(of_layer) if tensor not in taken
        ]  # weights may be shared
        taken.update(of_layer)
        if of_layer:
            weights[name] = of_layer
    return weights


def _layers(name: str, module: nn.Module, in_list: bool) -> Iterator[tuple[str, list[nn.Module]]]:
    """The modules of each layer, in no order."""
    lists = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    is_list = isinstance(module, lists)
    if not is_list and (in_list or not any(isinstance(part, lists) for part in module.modules())):
        yield name, [*module.modules()]
        return
    yield name, [module]
    for child, part in module.named_children():
        yield from _layers(f"{name}.{child}" if name else child, part, is_list)
