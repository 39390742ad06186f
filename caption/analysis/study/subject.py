"""The subject of a study: one model on the images."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from caption.analysis import baseline_maps
from caption.analysis.faithfulness import (
    FaithfulnessCurves,
    Removed,
    Replaced,
    faithfulness_curves,
    mean_regions,
)
from caption.analysis.faithfulness.adversary import Adversaries, adversarial_maps
from caption.analysis.faithfulness.curves import ORDERS, Kind
from caption.analysis.maps import method_named
from caption.analysis.maps.method import placed
from caption.analysis.maps.perturbation import AtRandom
from caption.analysis.maps.scales import (
    Drawn,
    after_redrawing,
    draw,
    images_of,
    shows_effect,
    true_effects,
    under_erasing,
)
from caption.analysis.maps.trial import Score
from caption.analysis.pointing_game import Grounding, Pointing, ground
from caption.analysis.posterior_attention import posterior
from caption.analysis.reference_attention import attend_references
from caption.analysis.self_attention.rollout import has_rollout, rollout
from caption.analysis.study.images import Images, Pointed
from caption.analysis.study.kept import Arrays, Kept
from caption.analysis.study.scale import Scale
from caption.captioner import Captioner
from caption.core.errors import ImageError, UserError
from caption.core.regions import WeightProperties
from caption.core.runtime.progress import counted, progress_bar
from caption.core.version import package_version
from caption.results.caption import Caption

OWN, POSTERIOR, MIDDLE, CHANCE = "own maps", "posterior maps", "middle cell", "any cell (chance)"
OF_BOXES, EFFECT = ("pointing accuracy", "mass in the box"), "true effect"
CURVES: tuple[Kind, ...] = ("deletion", "insertion")
"""Names of the scales of maps."""
OTHER_WORD, OTHER_IMAGE, MEAN = "another word", "another image", "mean map"
"""Names of the maps of the pointing game; see `caption.analysis.baseline_maps`."""
DRAWS = 3
"""Random orders of deletion."""
RANDOM_SAMPLE = 5
"""Photos on which maps are drawn again for each layer that gets random weights."""
WORDS = 12
"""Number of words that have rows of their own in the pointing game."""


class Subject:
    """One model on the images. Measurements that several tables need are made once, on first use.

    Args:
        name, captioner: the model.
        images: of the study.
        methods: names of `caption.analysis.maps.METHODS`, or of the model's own maps, to be weighed.
        kept: has the results of work on maps that was stopped.

    Raises:
        UserError: fewer than two images have captions with words, or no caption names a thing although `naming` is
            given.
        caption.core.errors.ImageError: a photo cannot be read.
    """

    def __init__(
        self,
        name: str,
        captioner: Captioner,
        images: Images,
        methods: Sequence[str] = (),
        kept: Kept | None = None,
    ) -> None:
        self.name, self.captioner, self.images, self.methods = name, captioner, images, methods
        self.kept = kept or Kept()
        self._digests: dict[str, str] = {}
        for method in methods:
            method_named(method, captioner)
        self.photos = list(images.photos)
        self.captions: list[Caption] = []
        """The model's own, one of each photo."""
        with self.counted("captioning") as photos:
            for caption in captioner.describe_each(photos):
                if isinstance(caption, ImageError):
                    raise caption
                self.captions.append(caption)
        if (spoken := sum(bool(caption.words) for caption in self.captions)) < 2:
            raise UserError(
                f"--model {name}: {spoken} of its {len(self.captions)} captions have words, and maps are exchanged "
                "between two: take another model, or more images"
            )
        if images.naming and not len(self.grounding(self.captions)):
            raise UserError(
                f"--model {name}: its captions name no object of Shapes, such as {self.captions[0].text!r}"
            )

    @contextmanager
    def counted(self, activity: str, photos: Sequence[str] | None = None) -> Iterator[Iterator[str]]:
        """All photos, or the given ones, with a progress bar."""
        photos = self.photos if photos is None else photos
        with progress_bar(f"{self.name}: {activity}", len(photos), unit="photos") as advance:
            yield counted(photos, advance)

    @cached_property
    def pointed(self) -> Pointed:
        photos, references = self.images.pointed_at, self.images.references
        if references:
            texts = [references[str(photo.path)] for photo in photos]
            captions = attend_references(self.captioner, [str(photo.path) for photo in photos], texts)
            images = np.repeat(np.arange(len(photos)), [len(several) for several in texts])
        else:
            by_path = dict(zip(map(Path, self.photos), self.captions, strict=True))
            captions, images = [by_path[photo.path] for photo in photos], np.arange(len(photos))
        return Pointed(captions, [photos[image] for image in images], images)

    @cached_property
    def groundings(self) -> dict[str, Grounding]:
        """The pointing game by the name of the maps; {} without boxes, or if no word names a thing with a box."""
        captions, photos, images = self.pointed
        if len({image for image, caption in zip(images, captions, strict=True) if caption.words}) < 2:
            return {}  # maps are exchanged between images
        paths = [str(photo.path) for photo in photos]
        with self.counted("pointing game, once for each caption", paths) as in_turn:
            grounding = self.grounding(captions)
            if not len(grounding):
                return {}
            maps = {}
            if has_rollout(self.captioner):
                maps["rolled out through self-attention"] = rollout(self.captioner, paths, captions)
            if not self.images.naming and not self.captioner.decoder.properties.signed:
                steps_of: dict[int, set[int]] = defaultdict(set)
                for pointing in grounding.pointings:
                    steps_of[pointing.caption].add(pointing.mention.word)
                maps[POSTERIOR] = posterior(self.captioner, in_turn, captions, words=steps_of)
            maps[OTHER_WORD] = baseline_maps.other_word(captions)
            if len({caption.weights.shape[1:] for caption in captions}) == 1:
                maps[OTHER_IMAGE] = baseline_maps.other_image(captions, images=images.tolist())
                maps[MEAN] = baseline_maps.mean_map(captions)
            maps |= {
                MIDDLE: baseline_maps.middle(captions),
                CHANCE: baseline_maps.uniform(captions),
            }
            if self.images.naming:
                adversaries = self.adversaries
                maps["an adversary's map"] = [
                    self.captioner.joined(
                        steps.with_weights(
                            adversaries.weights[adversaries.images == n].reshape(steps.weights.shape)
                        )
                    )
                    for n, steps in enumerate(map(self.captioner.split, captions))
                ]
            if self.images.sigma is not None:
                maps["centre prior"] = baseline_maps.centred(captions, self.images.sigma)
            return {OWN: grounding} | {name: self.grounding(drawn) for name, drawn in maps.items()}

    @property
    def counts_regions(self) -> bool:
        """Whether all photos have the same number of regions, so that these can be counted."""
        return len({math.prod(caption.weights.shape[1:]) for caption in self.captions}) == 1

    def grounding(self, captions: Sequence[Caption]) -> Grounding:
        """The pointing game of `pointed`, with the maps of these captions."""
        grounding = ground(zip(captions, (photo.boxes for photo in self.pointed.photos), strict=True))
        return grounding if self.images.naming else grounding.present

    def parts(self, maps: str) -> dict[str, Grounding]:
        """The pointing game of one of the maps, at the words for each kind of thing and at each of the most frequent
        words, which are in quotes; {} if kinds are not known."""
        grounding, photos = self.groundings[maps], self.pointed.photos
        parts: dict[str, list[Pointing]] = {}
        words: dict[str, list[Pointing]] = {}
        for pointing in grounding.pointings:
            if kind := photos[pointing.caption].kinds.get(pointing.mention.name):
                parts.setdefault(kind, []).append(pointing)
                words.setdefault(f'"{pointing.mention.name}"', []).append(pointing)
        frequent = sorted(words, key=lambda word: -len(words[word]))[:WORDS]
        parts = {kind: parts[kind] for kind in sorted(parts)} | {word: words[word] for word in frequent}
        return {part: replace(grounding, pointings=tuple(several)) for part, several in parts.items()}

    def images_of(self, grounding: Grounding) -> np.ndarray:
        """(N,) the image of every mention, for `estimate`."""
        return self.pointed.images[grounding.captions]

    @cached_property
    def curves(self) -> dict[str, FaithfulnessCurves]:
        """Deletion and insertion of the words that measures are about, by the way of hiding regions."""
        ways: dict[str, Removed | Replaced] = {"removed": Removed()}
        if self.images.training:
            ways["replaced"] = Replaced(mean_regions(self.captioner, list(self.images.training)))
        orders: dict[str, Score] = {**ORDERS, "random": AtRandom(DRAWS)}
        if not self.images.naming:  # gradients and occlusion take long on large grids
            orders = {name: orders[name] for name in ("attention", "random")}
        curves = {}
        for way, ablation in ways.items():
            with self.counted(f"deletion and insertion, {way}") as photos:
                curves[way] = faithfulness_curves(self.captioner, photos, self.captions, orders, ablation)
        return curves

    @cached_property
    def drawn(self) -> dict[str, Drawn]:
        """The maps of each of the methods, for the model's own captions."""
        return {method: self.draw(method, self.photos, self.captions) for method in self.methods}

    def draw(self, method: str, photos: Sequence[str], captions: Sequence[Caption]) -> Drawn:
        """See `scales.draw`; the maps of methods that run words again are kept."""
        if not method_named(method, self.captioner).replays:
            return draw(self.captioner, method, photos, captions)

        def of_one(part: slice) -> Arrays:
            drawn = draw(self.captioner, method, photos[part], captions[part])
            steps = drawn.captions[0].stepwise
            maps = {f"map {name}": values for name, values in steps.maps.items()}
            measured = {"seconds": np.array(drawn.seconds * len(captions[part][0].words))}
            return {"weights": steps.weights, "properties": np.array(steps.properties), **maps, **measured}

        seconds, drawn = 0.0, []
        parts = self.in_parts(method, photos, captions, of_one)
        for caption, photo, arrays in zip(captions, photos, parts, strict=True):
            seconds += float(arrays["seconds"])
            maps = {name[4:]: values for name, values in arrays.items() if name.startswith("map ")}
            properties = WeightProperties(*arrays["properties"].tolist())
            fitted = self.captioner.read(photo)
            steps = self.captioner.split(caption)
            drawn.append(placed(self.captioner, steps, fitted, arrays["weights"], properties, maps))
        return Drawn(drawn, seconds / max(sum(len(caption.words) for caption in captions), 1))

    @cached_property
    def weighed(self) -> dict[str, dict[str, Scale]]:
        """By method and scale: `OF_BOXES` if words name things with boxes, `CURVES`, and `EFFECT` of scenes."""
        naming = {word for several in self.images.naming.values() for word in several}
        steps = [self.captioner.split(caption) for caption in self.captions]
        about = np.array([not naming or word in naming for caption in steps for word in caption.words], bool)
        weighed: dict[str, dict[str, Scale]] = {}
        for method in self.methods:
            of_method: dict[str, Scale] = {}
            if self.images.boxed and len(played := self.pointed_by(method)):
                for scale, entry in zip(OF_BOXES, ("hit", "mass"), strict=True):
                    of_method[scale] = Scale(played.values(entry).astype(float), self.images_of(played))
            areas = self.on_scale("regions", method, partial(under_erasing, self.captioner))
            of_method |= {kind: Scale(areas[kind][about], images_of(steps)[about]) for kind in CURVES}
            if self.images.scenes:
                drawn = self.drawn[method].captions
                shown = shows_effect(self.images.scenes, self.effects, drawn)
                of_method[EFFECT] = Scale(shown, images_of(drawn))
            weighed[method] = of_method
        return weighed

    @cached_property
    def with_random_layers(self) -> dict[str, dict[str, np.ndarray]]:
        """By method, see `after_redrawing`, on the first `RANDOM_SAMPLE` photos."""
        measures = {method: partial(after_redrawing, self.captioner, method) for method in self.methods}
        return {
            method: self.on_scale("random layers", method, measure, RANDOM_SAMPLE, redraws=True)
            for method, measure in measures.items()
        }

    def on_scale(
        self,
        scale: str,
        method: str,
        measure: Callable[[Sequence[str], Sequence[Caption], Sequence[Caption]], Arrays],
        count: int | None = None,
        redraws: bool = False,
    ) -> dict[str, np.ndarray]:
        """A scale of the maps of a method for the first `count` photos, photo by photo, which is kept.

        Args:
            scale: its name.
            method: its name.
            measure: photos, captions and the captions with maps -> (N, ...) numbers of their words, by any names.
            count: None = all.
            redraws: it draws maps again; this takes all photos at once, unless the method runs words again.

        Returns:
            (N, ...) by these names.
        """
        photos, captions = self.photos[:count], self.captions[:count]
        drawn = self.drawn[method].captions[:count]
        at_once = len(photos) if redraws and not method_named(method, self.captioner).replays else 1
        parts = self.in_parts(
            f"{method}, {scale}",
            photos,
            captions,
            lambda part: measure(photos[part], captions[part], drawn[part]),
            at_once,
        )
        return {name: np.concatenate([arrays[name] for arrays in parts]) for name in parts[0]}

    def in_parts(
        self,
        work: str,
        photos: Sequence[str],
        captions: Sequence[Caption],
        compute: Callable[[slice], Arrays],
        at_once: int = 1,
    ) -> list[Arrays]:
        """The results of work on captions, a number of them at once; see `Kept`. A terminal shows the progress."""
        results = []
        with progress_bar(f"{self.name}: {work}", len(photos), unit="photos") as advance:
            for start in range(0, len(photos), at_once):
                part = slice(start, start + at_once)
                read = [self._digest_of(photo) for photo in photos[part]]
                words = [caption.words for caption in captions[part]]
                depends_on = json.dumps([package_version(), self.fingerprint, work, read, words]).encode()
                key = hashlib.blake2b(depends_on, digest_size=16).hexdigest()
                results.append(self.kept(key, partial(compute, part)))
                advance(len(read))
        return results

    @cached_property
    def fingerprint(self) -> str:
        """Of the model: its weights and description."""
        digest = hashlib.blake2b(repr(self.captioner).encode())
        for name, tensor in self.captioner.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _digest_of(self, photo: str) -> str:
        """Of what the model reads of a photo, and where it lies."""
        if photo not in self._digests:
            fitted = self.captioner.read(photo)
            content = fitted.pixels.contiguous().numpy().tobytes() + repr(fitted.box).encode()
            self._digests[photo] = hashlib.blake2b(content, digest_size=16).hexdigest()
        return self._digests[photo]

    @cached_property
    def effects(self) -> list[np.ndarray]:
        """See `true_effects`."""
        return true_effects(self.captioner, self.images.scenes, self.captions)

    def pointed_by(self, method: str) -> Grounding:
        """The pointing game with the maps of a method."""
        captions, photos, _ = self.pointed
        if self.images.references:
            return self.grounding(self.draw(method, [str(photo.path) for photo in photos], captions).captions)
        by_path = dict(zip(map(Path, self.photos), self.drawn[method].captions, strict=True))
        return self.grounding([by_path[photo.path] for photo in photos])

    @cached_property
    def adversaries(self) -> Adversaries:
        with self.counted("adversarial maps") as photos:
            return adversarial_maps(self.captioner, photos, self.captions)
