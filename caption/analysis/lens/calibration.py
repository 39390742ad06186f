"""Calibrates a lens: are nouns that it reads with 60 % named by people in 60 of 100 cases?

The references of a split that was not used in training show whether a noun is named, itself or by a less or more
general one. A thing that is not named may still be there: people leave things out. Nouns that are hardly ever named are
therefore left out of the fit.
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
from caption.core.errors import UserError, number_of
from caption.core.regions import Regions, mean_region
from caption.data.photos import Photo
from caption.results.caption import Caption
from caption.text.nouns import GENERAL

FEWEST = 20
"""Fewest photos of a fit."""
OFTEN = 5
"""Fewest photos whose references name a fitted noun, and fewest correct words for a threshold."""
PER_WORD = 3
"""The likeliest nouns of each word that are fitted."""
RARELY = 0.05
"""Share of correct words that fall below the threshold of doubt."""
READABLE = 0.02
"""A threshold below this is useless: the word is read badly even where it is correct."""
RARE_SHARPNESS = 0.01
"""Share of the words whose maps are sharper than `Calibration.sharpest`: they are too few for the fit."""
FALSE_ALARMS = 0.015
"""Share of the fit's photos that lie farther from the others than `Calibration.farthest`."""
REGIONS = 16
RIDGE = 2e-3
"""For each pair of a word and a noun."""


class PhotoReading(NamedTuple):
    """The data of one photo for the fit."""

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
    nouns = lens.nouns.mentioned_in(references)
    regions = regions._replace(vectors=regions.vectors.float())
    return PhotoReading(
        caption,
        lens.logits(regions, weights[None])[0],
        entropies,
        lens.classifier(regions.vectors[0, :: max(1, len(regions.vectors[0]) // REGIONS)]),
        mean_region(regions)[0, 0],
        torch.tensor([noun in nouns for noun in lens.nouns.names]),
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
            f"{number_of(len(readings), 'photo')}, whose captions name {len(fitted)} of the lens's nouns at least "
            f"{OFTEN} times: too few to calibrate it. Give {FEWEST} or more, with captions that name the things in them"
        )
    x, h, size, is_named = _pairs(lens, readings, fitted)
    of_words = _regression((x, h, x * h, size), is_named)
    x, _, size, is_named = _pairs(lens, [of_regions(reading) for reading in readings], fitted)
    sharpest = torch.cat([reading.entropies for reading in readings]).quantile(RARE_SHARPNESS)
    calibration = Calibration(of_words, _regression((x, size), is_named), float(sharpest))
    doubtful, companions = _words(lens, calibration, readings)
    regions = torch.stack([reading.region for reading in readings])
    boxes = np.array([reading.caption.seen or reading.caption.box for reading in readings])
    directions, farthest = _neighbours(regions, calibration.neighbours)
    return replace(
        calibration,
        doubtful=doubtful,
        companions=companions,
        known=directions,
        farthest=farthest,
        photos=len(readings),
        detail=int(np.median((boxes[:, 2:] - boxes[:, :2]).min(1))),
    )


def of_regions(reading: PhotoReading) -> PhotoReading:
    """The reading with its single regions in the place of the words."""
    return reading._replace(
        contexts=reading.single_regions, entropies=torch.zeros(len(reading.single_regions))
    )


def common_nouns(lens: Lens, readings: Sequence[PhotoReading]) -> Tensor:
    """(N',) places of the nouns that the references of several photos name, without `GENERAL` nouns."""
    counts = sum((reading.named for reading in readings), torch.zeros(len(lens.nouns.names)))
    specific = torch.tensor([noun not in GENERAL for noun in lens.nouns.names])
    return ((counts >= OFTEN) & specific).nonzero().squeeze(1)


def reliability(
    lens: Lens, readings: Sequence[PhotoReading], fitted: Tensor, calibration: Calibration | None
) -> Reliability:
    """The reliability of the likeliest nouns of each word; without a calibration, of the softmax of the context."""
    contexts, entropies, named_nouns = _words_of(readings)
    if calibration is None:
        p = contexts.softmax(-1) @ lens.membership
    else:
        p = calibration.probabilities(contexts, entropies, lens.membership)
    top, _, is_named = _likeliest(p, named_nouns, fitted)
    return Reliability(top.flatten().numpy(), is_named.flatten().numpy())


def _words_of(readings: Sequence[PhotoReading]) -> tuple[Tensor, Tensor, Tensor]:
    """Of the T words of all readings: contexts (T, C), entropies (T,), whether each noun is named (T, N) bool."""
    named_nouns = [reading.named.expand(len(reading.contexts), -1) for reading in readings]
    entropies = [reading.entropies for reading in readings]
    return torch.cat([reading.contexts for reading in readings]), torch.cat(entropies), torch.cat(named_nouns)


def _likeliest(p: Tensor, named_nouns: Tensor, nouns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The k likeliest of some nouns: probabilities, places among all nouns, and whether they are named, (T, k) each.

    Args:
        p: (T, N) the probability of each noun.
        named_nouns: (T, N) bool.
        nouns: (N',) places.
    """
    top = p[:, nouns].topk(min(PER_WORD, len(nouns)), 1)
    places = nouns[top.indices]
    return top.values, places, named_nouns.gather(1, places)


def _pairs(lens: Lens, readings: Sequence[PhotoReading], fitted: Tensor) -> list[Tensor]:
    """Of words and their likeliest nouns: logit of the noun's softmax, entropy of the map, size of the noun, whether
    it is named."""
    contexts, entropies, named_nouns = _words_of(readings)
    top, places, is_named = _likeliest(contexts.softmax(-1) @ lens.membership, named_nouns, fitted)
    x, size = torch.logit(top.clamp(1e-6, 1 - 1e-6)), sizes(lens.membership)[places]
    return [column.flatten() for column in (x, entropies[:, None].expand_as(x), size, is_named.float())]


def _regression(features: Sequence[Tensor], is_named: Tensor) -> tuple[float, ...]:
    """The weights of each feature (P,), and the offset."""
    columns = torch.stack(list(features), 1).double().numpy()
    return tuple(logistic_regression(columns, is_named.numpy(), ridge=RIDGE * len(columns)).tolist())


def _words(
    lens: Lens, calibration: Calibration, readings: Sequence[PhotoReading]
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """`doubtful` and `companions` of a calibration."""
    of_correct: dict[str, list[float]] = defaultdict(list)
    beside: dict[str, Counter[str]] = defaultdict(Counter)
    for reading in readings:
        probabilities = calibration.probabilities(reading.contexts, reading.entropies, lens.membership)
        for word, p in zip(reading.caption.words, probabilities, strict=True):
            nouns = lens.nouns.of_word(word)
            if not any(reading.named[lens.places[noun]] for noun in nouns):
                continue
            key = "person" if "person" in nouns else word.lower()
            of_correct[key].append(max(float(p[lens.places[noun]]) for noun in nouns))
            thing = lens.things(p, 1)[0]
            if thing.probability >= SURE and not any(lens.nouns.related(thing.noun, noun) for noun in nouns):
                beside[key][thing.noun] += 1
    doubtful = {
        word: round(float(np.quantile(values, RARELY)), 4)
        for word, values in of_correct.items()
        if len(values) >= OFTEN and word != "person" and np.quantile(values, RARELY) >= READABLE
    }
    companions = {key: sorted(beside[key]) for key in (*doubtful, "person") if beside[key]}
    return doubtful, companions


def _neighbours(regions: Tensor, count: int) -> tuple[Tensor, float]:
    """The directions of mean regions (N, D) as uint8, and the distance from neighbours that few of them exceed."""
    largest = regions.clamp(min=0).amax(1, keepdim=True).clamp(min=1e-6)
    directions = (regions.clamp(min=0) / largest * 255).round().to(torch.uint8)
    normalized = functional.normalize(directions.float(), dim=1)
    similar = (functional.normalize(regions, dim=1) @ normalized.T).fill_diagonal_(-1)
    distances = 1 - similar.topk(min(count, len(directions) - 1), 1).values.mean(1)
    return directions, float(distances.quantile(1 - FALSE_ALARMS))
