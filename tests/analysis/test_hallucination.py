"""Nouns of captions that no reference names, and how well scores tell them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo
from helpers.tiny_lens import hand_lens

from caption.analysis.hallucination import (
    EVEN,
    MEAN,
    OTHER,
    OWN,
    NounUses,
    auroc,
    cross_fitted_scores,
    hallucination_table,
    intervals,
    measure,
    noun_uses,
    scores,
)  # fmt: skip
from caption.analysis.lens import Lens
from caption.core.errors import UserError
from caption.core.regions import Regions
from caption.results.caption import Caption
from caption.text.nouns import Nouns
from caption.text.vocabulary import START

SCALE = 4.0
NOUNS = Nouns(
    [("tabby", "cat"), ("Irish terrier", "terrier"), ("hot dog", "hot dog")],
    [("cat", "", ["kitten"]), ("dog", "", []), ("terrier", "dog", []), ("hot dog", "", []), ("person", "", ["man"])],
)  # fmt: skip


def lens(size: int = 3) -> Lens:
    """Three classes, each of which is read in one of the region's numbers."""
    return hand_lens(NOUNS, SCALE * torch.eye(3, size))


def caption_of(words: list[str], maps: list[list[float]]) -> Caption:
    weights = np.array(maps).reshape(-1, 1, 3)
    return Caption(" ".join(words), words, weights, -9.0, -np.arange(1.0, len(words) + 1), (0, 0, 9, 3))


@pytest.fixture(scope="module")
def measured() -> NounUses:
    """Two photos, whose regions are a cat, a terrier and a hot dog each."""
    captions = [
        caption_of(["man", "Dogs", "kitten"], [[1, 0, 0], [0, 3, 0], [0.5, 0, 0.5]]),
        caption_of(["Hot", "dog"], [[1, 0, 0], [0, 0, 1]]),
    ]
    entropies = [np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5])]
    regions = [Regions(torch.eye(3)[None], (1, 3))] * 2
    return measure(lens(), captions, entropies, regions, [["a terrier", "a man"], ["a hot dog"]])


def surprise(logits: Sequence[float], place: int) -> float:
    return -float(np.log(np.exp(logits[place]) / np.exp(logits).sum()))


def test_nouns_are_measured_but_those_for_people(measured: NounUses) -> None:
    assert measured.words == ("dogs", "kitten", "hot dog"), "a noun of two words is one noun"
    assert measured.images.tolist() == [0, 0, 1]
    assert measured.unnamed.tolist() == [False, True, False]
    assert measured.model["−log p"].tolist() == [2, 3, 1 + 2]
    assert measured.model["entropy"] == pytest.approx([0.2, 0.3, 0.4 + 0.5])
    assert measured.model["map entropy"].tolist() == pytest.approx([0, np.log(2), 0])
    assert "gate" not in measured.model


def test_the_lens_reads_four_maps(measured: NounUses) -> None:
    read, (_, terrier, hot_dog) = measured.lens, SCALE * np.eye(3)
    own = [surprise(terrier, 1), surprise([SCALE / 2, 0, SCALE / 2], 0), surprise(hot_dog, 2)]
    assert read[OWN] == pytest.approx(own, rel=1e-5)
    # The maps of the other photo, word by word; the last is repeated.
    other = [surprise(hot_dog, 1), surprise(hot_dog, 0), surprise(terrier, 2)]
    assert read[OTHER] == pytest.approx(other, rel=1e-5)
    mean = [
        SCALE * 2.5 / 7,
        SCALE * 3 / 7,
        SCALE * 1.5 / 7,
    ]  # (1, 0, 0), (0, 3, 0), (½, 0, ½), (1, 0, 0), (0, 0, 1)
    assert read[MEAN] == pytest.approx([surprise(mean, 1), surprise(mean, 0), surprise(mean, 2)], rel=1e-5)
    assert read[EVEN] == pytest.approx(np.full(3, np.log(3)))


def test_entropies_are_those_of_single_steps() -> None:
    model = captioner()
    photos = [photo(seed=seed) for seed in range(3)]
    read = noun_uses(model, lens(6), photos, [["a cat"]] * 3, batch_size=2)
    expected = []
    for one in model(photos):
        state = model.decoder.start(model.project(model.encode([one.image])))
        before = START
        for word in one.words:
            log_probs, state = model.decoder.step(state, torch.tensor([[before]]))
            p = log_probs[0, 0].detach().double().exp().numpy()
            before = model.vocabulary[word]
            if word in ("cat", "dog"):
                expected.append(-sum(q * np.log(q) for q in p if q > 0))
    assert len(expected) >= 2
    assert read.model["entropy"] == pytest.approx(expected, abs=1e-4)
    assert "gate" in read.model


def uses_of(words: str, unnamed: list[int], images: list[int], **values: list[float]) -> NounUses:
    lens = {name: np.linspace(0, 1, len(unnamed)) for name in (OWN, MEAN, OTHER, EVEN)}
    model = {name: np.array(numbers, float) for name, numbers in values.items()}
    return NounUses(tuple(words), np.array(images), np.array(unnamed, bool), model, lens)


def test_auroc_counts_pairs() -> None:
    generator = np.random.default_rng(0)
    score = generator.integers(0, 4, 30).astype(float)
    unnamed, words = generator.random(30) < 0.4, "".join(generator.choice(list("ab"), 30))
    uses = uses_of(words, list(unnamed), [0] * 30)
    for within in (False, True):
        pairs = [
            (score[i], score[j])
            for i in range(30)
            for j in range(30)
            if unnamed[i] and not unnamed[j] and (words[i] == words[j] or not within)
        ]
        higher = sum((x > y) + 0.5 * (x == y) for x, y in pairs)
        assert auroc(score, uses, within) == pytest.approx(higher / len(pairs))
    assert np.isnan(auroc(score[:2], uses_of("ab", [1, 0], [0, 0]), within=True))


def test_intervals_draw_photos_and_subtract_on_the_same_draws() -> None:
    generator = np.random.default_rng(1)
    uses = uses_of("a" * 80, list((np.arange(80) // 2) % 2), list(np.arange(80) // 4))
    noisy = uses.unnamed + generator.normal(size=80)
    found = intervals({"noisy": noisy, "copy": noisy}, uses)
    assert found["noisy"].mean == pytest.approx(auroc(noisy, uses))
    assert found["noisy"].low < found["noisy"].mean < found["noisy"].high
    assert intervals({"noisy": noisy, "copy": noisy}, uses, less="noisy")["copy"] == (0, 0, 0)
    # A noun twice in each photo tells nothing new.
    twice = uses_of("a" * 160, list(uses.unnamed.repeat(2)), list(uses.images.repeat(2)))
    assert intervals({"noisy": noisy.repeat(2)}, twice)["noisy"] == pytest.approx(found["noisy"])


def test_signs_and_weights_are_chosen_on_other_photos() -> None:
    fitted = uses_of("aabb", [1, 0, 1, 0], [0, 1, 2, 3], gate=[0, 1, 0, 1])
    scored = uses_of("aab", [0, 1, 1], [0, 1, 2], gate=[0.2, 0.4, 0.6])
    found = scores(fitted, scored)
    assert found["gate"].tolist() == [-0.2, -0.4, -0.6]  # although here a high one would be right
    assert found[f"lens, {OWN}"].tolist() == scored.lens[OWN].tolist()
    assert (np.diff(found["word and model together"][:2]) < 0).all()


def test_a_word_alone_is_as_doubtful_as_it_was_wrong() -> None:
    fitted = uses_of("aaaab", [1, 1, 1, 1, 0], [0, 1, 2, 3, 4], gate=[0, 1, 0, 1, 0])
    found = scores(fitted, uses_of("abc", [0, 1, 1], [0, 1, 2], gate=[0, 0, 0]))["the word alone"]
    assert found == pytest.approx([(4 + 5 * 0.8) / 9, 5 * 0.8 / 6, 0.8])


def test_every_noun_is_scored_by_what_other_photos_say() -> None:
    """Two nouns in every photo; −log p tells the unnamed ones nearly always, the words never."""
    generator, photos = np.random.default_rng(0), 60
    unnamed = generator.random(2 * photos) < 0.4
    noise = generator.normal(size=(2, 2 * photos))
    values = {"−log p": list(unnamed + 0.3 * noise[0]), "gate": list(noise[1])}
    uses = uses_of("ab" * photos, list(unnamed), list(np.repeat(np.arange(photos), 2)), **values)
    part, word = uses.images % 5 == 2, "the word alone"
    expected = scores(uses.where(~part), uses.where(part))[word]
    assert cross_fitted_scores(uses)[word][part] == pytest.approx(expected)
    table = hallucination_table(uses)
    cells = {row[0]: row[1] for row in table.rows}
    assert cells["−log p"].estimate.mean > 0.95
    assert 0.3 < cells["gate"].estimate.mean < 0.7
    assert cells["word and model together"].estimate.mean > 0.9
    assert cells[f"lens, {EVEN}, less −log p"].estimate.high < 0
    assert "of 120 nouns are named by nobody; −log p tells them with an AUROC of 0.9" in table.findings[0]


def test_nouns_of_one_kind_cannot_be_told_apart() -> None:
    with pytest.raises(UserError, match="of 4 nouns in its captions, 0 are named by no reference: too few"):
        hallucination_table(uses_of("abab", [0, 0, 0, 0], [0, 1, 2, 3]))
