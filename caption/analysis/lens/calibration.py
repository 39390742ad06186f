"""Calibrates a lens: are nouns that it reads with 60 % named by people in 60 of 100 cases?

The references of a split that trained nothing say whether a noun is named, itself or by a less or more general one.
That is less than whether the thing is there: people leave things out. Nouns that hardly anybody names are therefore
left out of the fit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caption.analysis.lens.lens import SURE, Calibration, Lens, read_weights, regions_of, sizes
from caption.analysis.lens.reliability import Reliability, logistic_regression
from caption.analysis.replay import sentences
from caption.attention.map_entropy import entropy
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import Regions, mean_region
from caption.data.photos import Photo
from caption.results.caption import Caption
from caption.text.nouns import GENERAL

FEWEST = 20
"""Photos of a fit."""
OFTEN = 5
"""Photos whose references must name a noun, and right words that a threshold needs."""
PER_WORD = 3
"""The likeliest nouns of each word that are fitted."""
RARELY = 0.05
"""Share of right words that fall below the threshold of doubt."""
READABLE = 0.02
"""A threshold below this tells nothing: the word is read badly where it is right."""
RARE_SHARPNESS = 0.01
"""Share of the words whose maps are sharper than `Calibration.sharpest`: of them, the fit knows too little."""
FALSE_ALARMS = 0.015
"""Share of the fit's photos that lie farther from the others than `Calibration.farthest`."""
REGIONS = 16
RIDGE = 2e-3
"""For each pair of a word and a noun."""


class PhotoReading(NamedTuple):
    """What the fit needs of one photo."""

    caption: Caption
    contexts: Tensor
    """(T, C) logits of each word's context."""
    entropies: Tensor
    """(T,) H[α] / log L."""
    single_regions: Tensor
    """(R, C) logits of about `REGIONS` single regions, evenly spread."""
    region: Tensor
    """(D,) the mean region."""
    named: Tensor
    """(N,) bool: nouns that the references name."""


def read_photos(
    lens: Lens, captioner: Captioner, photos: Iterable[Photo], references: Sequence[Sequence[str]]
) -> list[PhotoReading]:
    """Caption photos and read them.

    Raises:
        caption.core.errors.ImageError: a photo cannot be read.
    """
    readings: list[PhotoReading] = []
    for batch in sentences(captioner, photos, batch_size=16):
        for index, caption in enumerate(batch.captions):
            regions = regions_of(batch.encoded, index)
            readings.append(read_photo(lens, regions, caption, references[len(readings)]))
    return readings


def read_photo(lens: Lens, regions: Regions, caption: Caption, references: Sequence[str]) -> PhotoReading:
    """The reading of one photo's regions (1, L, D), also from a store."""
    weights = torch.from_numpy(read_weights(caption)).flatten(1)
    even = weights / weights.sum(1, keepdim=True).clamp(min=1e-8)
    entropies = entropy(even) / np.log(max(2, even.shape[1]))
    named = lens.nouns.named(references)
    regions = regions._replace(vectors=regions.vectors.float())
    return PhotoReading(
        caption,
        lens.logits(regions, weights[None])[0],
        entropies,
        lens.classifier(regions.vectors[0, :: max(1, len(regions.vectors[0]) // REGIONS)]),
        mean_region(regions)[0, 0],
        torch.tensor([noun in named for noun in lens.nouns.names]),
    )


def fit(lens: Lens, readings: Sequence[PhotoReading]) -> Calibration:
    """The calibration with the smallest NLL.

    Args:
        lens: the classifier and the nouns are used.
        readings: of a split that neither trained the captioner nor reports scores, such as validation.

    Raises:
        UserError: there are too few photos, or too few nouns that references name.
    """
    fitted = common_nouns(lens, readings)
    if len(readings) < FEWEST or not len(fitted):
        raise UserError(
            f"{len(readings)} photos, whose captions name {len(fitted)} of the lens's nouns at least {OFTEN} times, "
            f"are too few to calibrate it: give {FEWEST} or more, with captions that name what they show"
        )
    x, h, size, named = _pairs(lens, readings, fitted)
    of_words = _regression((x, h, x * h, size), named)
    x, _, size, named = _pairs(lens, [of_regions(reading) for reading in readings], fitted)
    sharpest = torch.cat([reading.entropies for reading in readings]).quantile(RARE_SHARPNESS)
    calibration = Calibration(of_words, _regression((x, size), named), float(sharpest))
    doubtful, companions = _words(lens, calibration, readings)
    regions = torch.stack([reading.region for reading in readings])
    seen = np.array([reading.caption.seen or reading.caption.box for reading in readings])
    known, farthest = _neighbours(regions, calibration.neighbours)
    return replace(
        calibration,
        doubtful=doubtful,
        companions=companions,
        known=known,
        farthest=farthest,
        photos=len(readings),
        detail=int(np.median((seen[:, 2:] - seen[:, :2]).min(1))),
    )


def of_regions(reading: PhotoReading) -> PhotoReading:
    """The same with the single regions in the place of the words."""
    return reading._replace(
        contexts=reading.single_regions, entropies=torch.zeros(len(reading.single_regions))
    )


def common_nouns(lens: Lens, readings: Sequence[PhotoReading]) -> Tensor:
    """(N',) places of the nouns that references of several photos name, without those that are too general."""
    counts = sum((reading.named for reading in readings), torch.zeros(len(lens.nouns.names)))
    specific = torch.tensor([noun not in GENERAL for noun in lens.nouns.names])
    return ((counts >= OFTEN) & specific).nonzero().squeeze(1)


def reliability(
    lens: Lens, readings: Sequence[PhotoReading], fitted: Tensor, calibration: Calibration | None
) -> Reliability:
    """Of the likeliest nouns of each word; without a calibration, of the softmax of the context."""
    contexts, entropies, named = _words_of(readings)
    if calibration is None:
        p = contexts.softmax(-1) @ lens.membership
    else:
        p = calibration.probabilities(contexts, entropies, lens.membership)
    top, _, is_named = _likeliest(p, named, fitted)
    return Reliability(top.flatten().numpy(), is_named.flatten().numpy())


def _words_of(readings: Sequence[PhotoReading]) -> tuple[Tensor, Tensor, Tensor]:
    """Of the T words of all readings: contexts (T, C), entropies (T,), the nouns that are named (T, N) bool."""
    named = [reading.named.expand(len(reading.contexts), -1) for reading in readings]
    entropies = [reading.entropies for reading in readings]
    return torch.cat([reading.contexts for reading in readings]), torch.cat(entropies), torch.cat(named)


def _likeliest(p: Tensor, named: Tensor, nouns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the k likeliest of some nouns: probabilities, places among all nouns, and whether they are named, (T, k) each.

    Args:
        p: (T, N) the probability of each noun.
        named: (T, N) bool.
        nouns: (N',) places.
    """
    top = p[:, nouns].topk(min(PER_WORD, len(nouns)), 1)
    places = nouns[top.indices]
    return top.values, places, named.gather(1, places)


def _pairs(lens: Lens, readings: Sequence[PhotoReading], fitted: Tensor) -> list[Tensor]:
    """Of words and their likeliest nouns: logit of the noun's softmax, entropy of the map, size of the noun, whether
    it is named."""
    contexts, entropies, named = _words_of(readings)
    top, places, is_named = _likeliest(contexts.softmax(-1) @ lens.membership, named, fitted)
    x, size = torch.logit(top.clamp(1e-6, 1 - 1e-6)), sizes(lens.membership)[places]
    return [column.flatten() for column in (x, entropies[:, None].expand_as(x), size, is_named.float())]


def _regression(features: Sequence[Tensor], named: Tensor) -> tuple[float, ...]:
    """The weights of each feature (P,), and the offset."""
    columns = torch.stack(list(features), 1).double().numpy()
    return tuple(logistic_regression(columns, named.numpy(), ridge=RIDGE * len(columns)).tolist())


def _words(
    lens: Lens, calibration: Calibration, readings: Sequence[PhotoReading]
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """`doubtful` and `companions` of a calibration."""
    of_right: dict[str, list[float]] = defaultdict(list)
    beside: dict[str, Counter[str]] = defaultdict(Counter)
    for reading in readings:
        probabilities = calibration.probabilities(reading.contexts, reading.entropies, lens.membership)
        for word, p in zip(reading.caption.words, probabilities, strict=True):
            nouns = lens.nouns.of_word(word)
            if not any(reading.named[lens.places[noun]] for noun in nouns):
                continue
            key = "person" if "person" in nouns else word.lower()
            of_right[key].append(max(float(p[lens.places[noun]]) for noun in nouns))
            seen = lens.things(p, 1)[0]
            if seen.probability >= SURE and not any(lens.nouns.related(seen.noun, noun) for noun in nouns):
                beside[key][seen.noun] += 1
    doubtful = {
        word: round(float(np.quantile(values, RARELY)), 4)
        for word, values in of_right.items()
        if len(values) >= OFTEN and word != "person" and np.quantile(values, RARELY) >= READABLE
    }
    companions = {key: sorted(beside[key]) for key in (*doubtful, "person") if beside[key]}
    return doubtful, companions


def _neighbours(regions: Tensor, count: int) -> tuple[Tensor, float]:
    """The directions of mean regions (N, D) as uint8, and the distance that few of them exceed from the others."""
    largest = regions.clamp(min=0).amax(1, keepdim=True).clamp(min=1e-6)
    known = (regions.clamp(min=0) / largest * 255).round().to(torch.uint8)
    directions = functional.normalize(known.float(), dim=1)
    similar = (functional.normalize(regions, dim=1) @ directions.T).fill_diagonal_(-1)
    distances = 1 - similar.topk(min(count, len(known) - 1), 1).values.mean(1)
    return known, float(distances.quantile(1 - FALSE_ALARMS))
