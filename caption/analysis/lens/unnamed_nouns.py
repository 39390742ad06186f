"""Does a model know when it names what is not there? Nouns of its captions that no reference names, and their scores.

Each noun that a caption uses and the lens knows is named by a reference, itself or by a less or more general word, or
by none (the idea of CHAIR, Rohrbach et al. 2018, "Object Hallucination in Image Captioning", without boxes). A score
is good if it is higher for nouns that nobody names: its AUROC is the probability that it orders a pair of both kinds
rightly. Within words, only pairs of the same word count, so that "camera is often wrong" earns nothing.

The lens is read with the model's own map and, as controls, with the mean map, the map of another photo and even
weights. The last is the classifier on the whole photo, Rohrbach's image consistency: what attention adds is the
distance from it.

Whatever is chosen or fitted is chosen on other photos than those that are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from caption.analysis import baseline_maps
from caption.analysis.lens.lens import Lens, read_weights
from caption.analysis.per_word import PerWord
from caption.analysis.replay import batches
from caption.attention.stochastic import override_at_test
from caption.captioner import Captioner
from caption.data.batch_inference import decode, encode
from caption.data.decoding import Photo
from caption.metrics.significance import Estimate
from caption.regions import Regions, Views
from caption.result import Caption
from caption.runtime.eval_mode import eval_mode
from caption.text.vocabulary import PAD, START

OWN, MEAN, OTHER, EVEN = "own map", "mean map", "another photo's map", "even map"
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Of the context's logits in the mixture with those of the whole photo; the last is the context alone."""
ALONE = "context alone"
TOGETHER = "word and model together"
JOINT = {TOGETHER: (), f"with lens, {EVEN}": (EVEN,), f"with lens, {EVEN} and {OWN}": (EVEN, OWN)}
"""Logistic regressions on the word, what the model says, and the lens read with these maps."""
DRAWS = 1000
FOLDS = 5
"""Parts of the photos; how often a word is wrong in one is taken from the others."""
PRIOR_USES = 5
"""Uses of a word that its share of wrong ones begins with, at the mean of all words."""


@dataclass(frozen=True)
class NounUses(PerWord):
    """N nouns in captions of a model, words for people left out: the classes know next to nothing of them."""

    unnamed: np.ndarray
    """(N,) bool: no reference names it."""
    of_model: dict[str, np.ndarray]
    """(N,) what the model itself says: "−log p" of the noun's words, the sum of their "entropy" before they are said in
    nats, "map entropy" of α at the last one in nats, and "gate" β at it where there is one."""
    surprise: dict[str, np.ndarray]
    """By the map that the lens reads: (N, SHARES) −log of the probability of the word's classes."""


def noun_uses(
    captioner: Captioner,
    lens: Lens,
    photos: Sequence[Photo],
    references: Sequence[Sequence[str]],
    batch_size: int = 32,
    advance: Callable[[int], None] = lambda count: None,
) -> NounUses:
    """Caption photos, and measure each noun.

    The regions of all photos are in memory, in half precision: 0.4 GB for 1,000 photos of 13 x 13 regions.

    Args:
        captioner: the model.
        lens: of its encoder; a calibration is not used.
        photos: any number above one.
        references: the captions that people wrote of each.
        batch_size: photos at once.
        advance: called with the number of photos that are captioned.

    Raises:
        caption.errors.ImageError: a photo cannot be read.
        ValueError: fewer than two photos have captions.
    """
    captions: list[Caption] = []
    entropies: list[np.ndarray] = []
    regions: list[Regions] = []
    with eval_mode(captioner), torch.no_grad():
        for batch in batches(photos, batch_size):
            decoded = [decode(photo, captioner.transform) for photo in batch]
            views = encode(captioner.encoder, decoded, captioner.device)
            boxes = [photo.box for photo in decoded]
            written = list(captioner.captions(captioner.generate(views), captioner.grids(views), boxes))
            captions += written
            entropies += _entropies(captioner, views, written)
            vectors, grid, mask = views[0]
            masks = [None] * len(vectors) if mask is None else list(mask.cpu())
            regions += [
                Regions(one[None].half().cpu(), grid, None if real is None else real[None])
                for one, real in zip(vectors, masks, strict=True)
            ]
            advance(len(batch))
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
    columns: dict[str, list[float]] = {}
    surprise: dict[str, list[np.ndarray]] = {name: [] for name in (*maps, EVEN)}
    for index, caption in enumerate(captions):
        spoken = lens.nouns.spoken([word.lower() for word in caption.words])
        spoken = [(span, nouns) for span, nouns in spoken if "person" not in nouns]
        if not spoken:
            continue
        steps = [span.stop - 1 for span, _ in spoken]
        named = lens.nouns.named(references[index])
        even = _scaled(read[index].weights)
        classes = torch.stack(
            [lens.membership[:, [lens.places[noun] for noun in nouns]].amax(1) for _, nouns in spoken]
        )
        photo = lens.logits(regions[index])[0]
        for name, of in maps.items():
            contexts = lens.logits(regions[index], of[index].weights[None, steps])[0]
            surprise[name].append(_surprise(contexts, photo, classes))
        surprise[EVEN].append(_surprise(photo.expand(len(steps), -1), photo, classes))
        for (span, nouns), step in zip(spoken, steps, strict=True):
            words.append(" ".join(caption.words[span]).lower())
            values = {
                "image": index,
                "unnamed": named.isdisjoint(nouns),
                "−log p": -caption.word_log_probs[span].sum(),
                "entropy": entropies[index][span].sum(),
                "map entropy": -np.sum(even[step] * np.log(np.maximum(even[step], 1e-12))),
            }
            if caption.gates is not None:
                values["gate"] = caption.gates[step]
            for name, value in values.items():
                columns.setdefault(name, []).append(float(value))
    arrays = {name: np.array(values) for name, values in columns.items()}
    return NounUses(
        tuple(words),
        arrays.pop("image", np.zeros(0)).astype(np.int64),
        arrays.pop("unnamed", np.zeros(0)).astype(bool),
        arrays,
        {name: np.concatenate(parts or [np.zeros((0, len(SHARES)))]) for name, parts in surprise.items()},
    )


def chosen_share(uses: NounUses, name: str) -> int:
    """The place in SHARES of the mixture with the highest AUROC, of a map."""
    return max(
        range(len(SHARES)), key=lambda place: auroc(uses.surprise[name][:, place], uses.unnamed, uses.words)
    )


def scores(fitted: NounUses, scored: NounUses) -> dict[str, np.ndarray]:
    """The scores of nouns, by name: higher = rather named by nobody.

    Args:
        fitted: of the photos on which signs, shares and weights are chosen, such as the validation split.
        scored: of those whose scores are given.
    """
    found = {"the word alone": _often_wrong(fitted, scored)}
    for name, values in scored.of_model.items():
        sign = 1 if auroc(fitted.of_model[name], fitted.unnamed, fitted.words) >= 0.5 else -1
        found[name] = sign * values
    model = [_logit(found["the word alone"]), *scored.of_model.values()]
    model_fitted = [_logit(_often_wrong(fitted, fitted, folds=FOLDS)), *fitted.of_model.values()]
    lens, lens_fitted = {}, {}
    for name in (EVEN, MEAN, OTHER, OWN):
        share = chosen_share(fitted, name)
        lens[name], lens_fitted[name] = scored.surprise[name][:, share], fitted.surprise[name][:, share]
        found[f"lens, {name}"] = lens[name]
    for name in (MEAN, OTHER, OWN):
        found[f"lens, {name}, {ALONE}"] = scored.surprise[name][:, -1]
    for title, names in JOINT.items():
        weights = _logistic(
            np.stack([*model_fitted, *(lens_fitted[name] for name in names)], 1), fitted.unnamed
        )
        found[title] = weights(np.stack([*model, *(lens[name] for name in names)], 1))
    return found


def auroc(score: np.ndarray, unnamed: np.ndarray, words: Sequence[str], within: bool = False) -> float:
    """How often a score is higher for an unnamed noun than for a named one, of all pairs; equal counts half.

    Args:
        score: (N,).
        unnamed: (N,) bool.
        words: the N words.
        within: of pairs of the same word alone.
    """
    higher, counted = _pairs(score, unnamed, words, within)
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
        higher, counted = _pairs(score, uses.unnamed, uses.words, within)
        total = ((wrong @ counted) * right).sum(1)
        curves[name] = ((wrong @ higher) * right).sum(1) / np.where(total > 0, total, np.nan)
    if less is not None:
        curves = {name: curve - curves[less] for name, curve in curves.items() if name != less}
    bounds = {name: np.nanquantile(curve[1:], (0.025, 0.975)) for name, curve in curves.items()}
    return {
        name: Estimate(float(curve[0]), float(bounds[name][0]), float(bounds[name][1]))
        for name, curve in curves.items()
    }


def _pairs(
    score: np.ndarray, unnamed: np.ndarray, words: Sequence[str], within: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(unnamed, named): 1 where the unnamed noun scores higher, and 1 where the pair counts."""
    wrong, right = score[unnamed][:, None], score[~unnamed][None]
    higher = (wrong > right) + 0.5 * (wrong == right)
    counted = np.ones_like(higher)
    if within:
        spelled = np.array(list(words))
        counted = (spelled[unnamed][:, None] == spelled[~unnamed][None]).astype(float)
    return higher * counted, counted


def _entropies(captioner: Captioner, views: Views, captions: Sequence[Caption]) -> list[np.ndarray]:
    """For each caption, the entropies (T,) of its next words in nats, each after the caption's words before."""
    ids = [torch.tensor([START, *(captioner.vocabulary[word] for word in one.words)]) for one in captions]
    inputs = pad_sequence(ids, batch_first=True, padding_value=PAD)[:, None].to(captioner.device)
    lengths = torch.tensor([[len(one)] for one in ids], device=captioner.device)
    with override_at_test(captioner.decoder, "expectation"):
        unrolled = captioner.unroll(views, inputs, lengths)
    log_probs = unrolled.logits.float().log_softmax(1)
    by_step = unrolled.unpack(-(log_probs.exp() * log_probs).sum(1))[:, 0].cpu().numpy()
    return [row[: len(one.words)] for row, one in zip(by_step, captions, strict=True)]


def _surprise(contexts: Tensor, photo: Tensor, classes: Tensor) -> np.ndarray:
    """Logits of contexts (N, C) and of the whole photo (1, C), the classes (N, C) of each word -> (N, SHARES)."""
    contexts, photo = contexts.double(), photo.double()
    outside = torch.where(classes > 0, 0.0, -torch.inf)
    return torch.stack(
        [
            -((share * contexts + (1 - share) * photo).log_softmax(-1) + outside).logsumexp(-1)
            for share in SHARES
        ],
        1,
    ).numpy()


def _scaled(weights: np.ndarray) -> np.ndarray:
    flat = weights.reshape(len(weights), -1).astype(np.float64)
    return flat / np.maximum(flat.sum(1, keepdims=True), 1e-12)


def _often_wrong(fitted: NounUses, scored: NounUses, folds: int = 0) -> np.ndarray:
    """(N,) how often each word of `scored` is unnamed in `fitted`; with folds, in the other parts of the photos."""
    mean = fitted.unnamed.mean()
    found = np.empty(len(scored))
    spelled = np.array(fitted.words)
    for place, word in enumerate(scored.words):
        others = spelled == word
        if folds:
            others = others & (fitted.images % folds != scored.images[place] % folds)
        found[place] = (fitted.unnamed[others].sum() + PRIOR_USES * mean) / (others.sum() + PRIOR_USES)
    return found


def _logit(p: np.ndarray) -> np.ndarray:
    return np.log(p / (1 - p))


def _logistic(features: np.ndarray, target: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Logistic regression of (N, F) on (N,) bool by Newton's method, with a small ridge; returns its logit."""
    centre, scale = features.mean(0), features.std(0) + 1e-9

    def with_one(of: np.ndarray) -> np.ndarray:
        return np.column_stack(((of - centre) / scale, np.ones(len(of))))

    x = with_one(features)
    ridge = np.eye(x.shape[1])
    ridge[-1, -1] = 0
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        gradient = x.T @ (p - target) + ridge @ weights
        weights -= np.linalg.solve((x.T * (p * (1 - p))) @ x + ridge + 1e-9 * np.eye(len(weights)), gradient)
    return lambda of: with_one(of) @ weights
