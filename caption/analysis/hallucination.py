"""Hallucination: does a model know when it names what is not there? Nouns that no reference names, and their scores.

Each noun that a caption uses and the lens knows is named by a reference, itself or by a less or more general word, or
by none (the idea of CHAIR, Rohrbach et al. 2018, "Object Hallucination in Image Captioning", without boxes). A score
is good if it is higher for nouns that nobody names: its AUROC is the probability that it orders a pair of both kinds
rightly. Of pairs of the same word, "camera is often wrong" earns nothing.

The lens is read with the model's own map and, as controls, with the mean map, the map of another image and even
weights. The last is the classifier on the whole photo, Rohrbach's image consistency: what attention adds is the
distance from it. Its calibration is not used.

Whatever is chosen or fitted is chosen on other photos than those that are scored.

    uses = noun_uses(captioner, make_lens(captioner), photos, references)
    print(hallucination_table(uses))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from caption.analysis import baseline_maps
from caption.analysis.lens.lens import Lens, read_weights, regions_of
from caption.analysis.per_word import PerWord
from caption.analysis.reliability import logistic_regression
from caption.analysis.replay import Replay, sentences
from caption.analysis.table import Table, Value
from caption.attention.map_entropy import entropy
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import Regions, WeightProperties
from caption.data.decoding import Photo
from caption.metrics.significance import Estimate
from caption.results.caption import Caption

OWN, MEAN, OTHER, EVEN = "own map", "mean map", "another image's map", "even map"
WORD, MODEL = "the word alone", "word and model together"
JOINT = {MODEL: (), f"with lens, {EVEN}": (EVEN,), f"with lens, {EVEN} and {OWN}": (EVEN, OWN)}
"""Logistic regressions on the word, what the model says, and the lens read with these maps."""
GAINS = {
    f"lens, {EVEN}, less −log p": (f"lens, {EVEN}", "−log p"),
    f"lens: {OWN} less {EVEN}": (f"lens, {OWN}", f"lens, {EVEN}"),
    f"lens: {OWN} less {OTHER}": (f"lens, {OWN}", f"lens, {OTHER}"),
    "word and model: with lens less without": (f"with lens, {EVEN}", MODEL),
}
"""Two scores whose AUROCs are subtracted, by the row's name."""
SCALED = WeightProperties(sums_to_one=False)
DRAWS = 1000
FOLDS = 5
"""Parts of the photos; what is fitted for one is fitted on the others."""
PRIOR_USES = 5
"""Uses of a word that its share of wrong ones begins with, at the mean of all words."""


@dataclass(frozen=True, repr=False)
class NounUses(PerWord):
    """N nouns in captions of a model, words for people left out: the classes know next to nothing of them."""

    unnamed: np.ndarray
    """(N,) bool: no reference names it."""
    model: dict[str, np.ndarray]
    """(N,) what the model itself says: "−log p" of the noun's words, the sum of their "entropy" before they are said in
    nats, "map entropy" of α at the last one in nats, and "gate" β at it where there is one."""
    lens: dict[str, np.ndarray]
    """By the map that the lens reads: (N,) −log of the probability of the word's classes."""


def noun_uses(
    captioner: Captioner,
    lens: Lens,
    photos: Iterable[Photo],
    references: Sequence[Sequence[str]],
    batch_size: int = 32,
) -> NounUses:
    """Caption photos, and measure each noun.

    The regions of all photos are in memory, in half precision: 0.4 GB for 1,000 photos of 13 x 13 regions.

    Args:
        captioner: the model.
        lens: of its encoder; a calibration is not used.
        photos: any number above one.
        references: the captions that people wrote of each.
        batch_size: photos at once.

    Raises:
        caption.core.errors.ImageError: a photo cannot be read.
        ValueError: fewer than two photos have captions.
    """
    replay = Replay(captioner.decoder)
    captions: list[Caption] = []
    entropies: list[np.ndarray] = []
    regions: list[Regions] = []
    for batch in sentences(captioner, photos, batch_size=batch_size):
        uncertain = np.zeros(batch.words.shape)
        for step in replay.steps(batch):
            log_probs = step.log_probs.float()
            uncertain[step.rows.cpu(), step.number] = -(log_probs.exp() * log_probs).sum(1).cpu()
        for index, caption in enumerate(batch.captions):
            captions.append(caption)
            entropies.append(uncertain[index, : len(caption.words)])
            of_photo = regions_of(batch.encoded, index)
            regions.append(of_photo._replace(vectors=of_photo.vectors.half()))
    return measure(lens, captions, entropies, regions, references)


def measure(
    lens: Lens,
    captions: Sequence[Caption],
    entropies: Sequence[np.ndarray],
    regions: Sequence[Regions],
    references: Sequence[Sequence[str]],
) -> NounUses:
    """The nouns of given captions: with the entropies (T,) of each's words, and regions (1, L, D) of each photo."""
    read = [caption.with_weights(read_weights(caption)) for caption in captions]
    maps = {OWN: read, MEAN: baseline_maps.mean_map(read), OTHER: baseline_maps.other_image(read)}
    words: list[str] = []
    images: list[int] = []
    unnamed: list[bool] = []
    model: dict[str, list[np.ndarray]] = defaultdict(list)
    read_at: dict[str, list[np.ndarray]] = defaultdict(list)
    for index, caption in enumerate(captions):
        spoken = lens.nouns.spoken([word.lower() for word in caption.words])
        spoken = [(span, nouns) for span, nouns in spoken if "person" not in nouns]
        if not spoken:
            continue
        spans, steps = [span for span, _ in spoken], [span.stop - 1 for span, _ in spoken]
        named = lens.nouns.named(references[index])
        spread = entropy(torch.from_numpy(read[index].weights).double().flatten(1), SCALED).numpy()
        classes = torch.stack(
            [lens.membership[:, [lens.places[noun] for noun in nouns]].amax(1) for _, nouns in spoken]
        )
        contexts = {
            name: lens.logits(regions[index], of_map[index].weights[None, steps])[0]
            for name, of_map in maps.items()
        }
        contexts[EVEN] = lens.logits(regions[index])[0].expand(len(steps), -1)
        for name, of_map in contexts.items():
            read_at[name].append(_surprise(of_map, classes))
        words += [" ".join(caption.words[span]).lower() for span in spans]
        images += [index] * len(spans)
        unnamed += [named.isdisjoint(nouns) for _, nouns in spoken]
        model["−log p"].append(np.array([-caption.word_log_probs[span].sum() for span in spans]))
        model["entropy"].append(np.array([entropies[index][span].sum() for span in spans]))
        model["map entropy"].append(spread[steps])
        if caption.gates is not None:
            model["gate"].append(caption.gates[steps])
    arrays = [
        {name: np.concatenate(parts).astype(float) for name, parts in each.items()}
        for each in (model, read_at)
    ]
    return NounUses(tuple(words), np.array(images, np.int64), np.array(unnamed, bool), *arrays)


def scores(fitted: NounUses, scored: NounUses) -> dict[str, np.ndarray]:
    """The scores of nouns, by name: higher = rather named by nobody.

    Args:
        fitted: of the photos on which signs and weights are chosen, such as the validation split.
        scored: of those whose scores are given.
    """
    by_name = {WORD: _often_wrong(fitted, scored)}
    for name, values in scored.model.items():
        sign = 1 if auroc(fitted.model[name], fitted) >= 0.5 else -1
        by_name[name] = sign * values
    by_name |= {f"lens, {name}": scored.lens[name] for name in (EVEN, MEAN, OTHER, OWN)}
    words = _often_wrong(fitted, fitted, FOLDS), by_name[WORD]
    for title, names in JOINT.items():
        columns = [
            np.stack([_logit(wrong), *uses.model.values(), *(uses.lens[name] for name in names)], 1)
            for wrong, uses in zip(words, (fitted, scored), strict=True)
        ]
        *slopes, offset = logistic_regression(columns[0], fitted.unnamed)
        by_name[title] = columns[1] @ np.array(slopes) + offset
    return by_name


def cross_fitted_scores(uses: NounUses) -> dict[str, np.ndarray]:
    """`scores` of all nouns, each fitted on other photos: those of the other parts, of `FOLDS`."""
    by_name: dict[str, np.ndarray] = {}
    for fold in range(FOLDS):
        here = uses.images % FOLDS == fold
        if here.any():
            for name, values in scores(uses.where(~here), uses.where(here)).items():
                by_name.setdefault(name, np.zeros(len(uses)))[here] = values
    return by_name


def hallucination_table(uses: NounUses) -> Table:
    """How well each score tells the nouns that nobody names: the AUROC of all pairs of nouns, and of pairs of one word.

    Raises:
        UserError: in a part of the photos no noun is named by people, or all are.
    """
    for fold in np.unique(uses.images % FOLDS):
        others = uses.unnamed[uses.images % FOLDS != fold]
        if others.all() or not others.any():
            raise UserError(
                f"of {len(uses)} nouns in its captions, {uses.unnamed.sum()} are named by no reference: too few to "
                "tell both kinds apart; take more photos"
            )
    table, scored = Table(("score", "AUROC, all pairs", "AUROC, same word")), cross_fitted_scores(uses)
    pairs, same = intervals(scored, uses), intervals(scored, uses, within=True)
    table.add([name, Value(pairs[name]), Value(same[name])] for name in scored)
    for name, (better, base) in GAINS.items():
        of_both = {key: scored[key] for key in (better, base)}
        gains = [intervals(of_both, uses, within, less=base)[better] for within in (False, True)]
        table.add([[name, *map(Value, gains)]])
    share, words, lens = uses.unnamed.mean(), Value(pairs["−log p"], 2), Value(pairs[f"lens, {EVEN}"], 2)
    finding = (
        f"{share:.0%} of {len(uses)} nouns are named by nobody; −log p tells them with an AUROC of {words}, the lens "
        f"on the whole image with {lens}."
    )
    table.answer(finding, f"{share:.0%}", f"of {len(uses)} nouns are named by nobody")
    return table


def auroc(score: np.ndarray, uses: NounUses, within: bool = False) -> float:
    """How often a score (N,) is higher for an unnamed noun than for a named one, of all pairs; equal counts half.

    Args:
        score: of the N nouns.
        uses: the nouns.
        within: of pairs of the same word alone.
    """
    higher, counted = _pairs(score, uses, within)
    return float(higher.sum() / counted.sum()) if counted.any() else float("nan")


def intervals(
    scores: Mapping[str, np.ndarray], uses: NounUses, within: bool = False, less: str | None = None
) -> dict[str, Estimate]:
    """The AUROC of each score with its 95 % interval, over bootstrap draws of the photos.

    Args:
        scores: (N,) by name.
        uses: the nouns.
        within: see `auroc`.
        less: name of a score whose AUROC, of the same draws, is subtracted.
    """
    ids, which = np.unique(uses.images, return_inverse=True)
    drawn = np.random.default_rng(0).multinomial(len(ids), np.full(len(ids), 1 / len(ids)), size=DRAWS)
    weights = np.concatenate((np.ones((1, len(which))), drawn[:, which]))
    wrong, right = weights[:, uses.unnamed], weights[:, ~uses.unnamed]
    curves = {}
    for name, score in scores.items():
        higher, counted = _pairs(score, uses, within)
        total = ((wrong @ counted) * right).sum(1)
        curves[name] = ((wrong @ higher) * right).sum(1) / np.where(total > 0, total, np.nan)
    if less is not None:
        curves = {name: curve - curves[less] for name, curve in curves.items() if name != less}
    bounds = {name: np.nanquantile(curve[1:], (0.025, 0.975)) for name, curve in curves.items()}
    return {
        name: Estimate(float(curve[0]), float(bounds[name][0]), float(bounds[name][1]))
        for name, curve in curves.items()
    }


def _pairs(score: np.ndarray, uses: NounUses, within: bool) -> tuple[np.ndarray, np.ndarray]:
    """(unnamed, named): 1 where the unnamed noun scores higher, and 1 where the pair counts."""
    words, unnamed = np.array(uses.words), uses.unnamed
    wrong, right = score[unnamed][:, None], score[~unnamed][None]
    higher = (wrong > right) + 0.5 * (wrong == right)
    is_same_word = words[unnamed][:, None] == words[~unnamed][None]
    counted = is_same_word.astype(float) if within else np.ones_like(higher)
    return higher * counted, counted


def _surprise(contexts: Tensor, classes: Tensor) -> np.ndarray:
    """Logits of contexts (N, C), and the classes (N, C) of each word -> (N,)."""
    outside = torch.where(classes > 0, 0.0, -torch.inf)
    return -(contexts.double().log_softmax(-1) + outside).logsumexp(-1).numpy()


def _often_wrong(fitted: NounUses, scored: NounUses, folds: int = 0) -> np.ndarray:
    """(N,) how often each word of `scored` is unnamed in `fitted`; with folds, in the other parts of the photos."""
    mean = fitted.unnamed.mean()
    shares = np.empty(len(scored))
    spelled = np.array(fitted.words)
    for place, word in enumerate(scored.words):
        others = spelled == word
        if folds:
            others = others & (fitted.images % folds != scored.images[place] % folds)
        shares[place] = (fitted.unnamed[others].sum() + PRIOR_USES * mean) / (others.sum() + PRIOR_USES)
    return shares


def _logit(p: np.ndarray) -> np.ndarray:
    return np.log(p / (1 - p))
