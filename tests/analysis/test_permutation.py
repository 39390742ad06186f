"""Words under other maps: permuted, of other words, and as far from α as the prediction permits."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import planted
from helpers.planted import REGIONS, caption_of, log_p, photo
from helpers.tiny_captioner import captioner
from helpers.tiny_captioner import photo as noise

from caption.analysis.ablation import mean_regions
from caption.analysis.faithfulness.adversary import Adversaries, adversarial_maps
from caption.analysis.faithfulness.interchange import interchange
from caption.analysis.faithfulness.permutation import permute, permuted
from caption.analysis.replay import Replay, sentences
from caption.attention import MultiHeadAttention
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.decoders import ShowAttendAndTellDecoder

ON_ONE, ON_TWO, ON_THREE = np.eye(REGIONS)[1:4].tolist()
FIRST, SECOND = [0.4, 0.6, 0, 0, 0, 0], [0, 0, 0.7, 0.3, 0, 0]


def test_even_weights_by_hand():
    swapped = permute(planted.captioner(ON_TWO), photo(), [caption_of("two")])
    even = [1 / REGIONS] * REGIONS
    assert swapped.log_probs == pytest.approx([log_p(2, ON_TWO)], abs=1e-6)
    assert swapped.falls["uniform"] == pytest.approx([log_p(2, ON_TWO) - log_p(2, even)], abs=1e-5)
    # After the change, the six words have equal probabilities, and so do the four special tokens.
    before = [math.exp(log_p(word, ON_TWO)) for word in range(6)] + [math.exp(log_p(0, ON_TWO))] * 4
    special = math.exp(log_p(0, even) - planted.STRENGTH / REGIONS)
    after = [math.exp(log_p(0, even))] * 6 + [special] * 4
    distance = sum(abs(a - b) for a, b in zip(before, after, strict=True)) / 2
    assert swapped.distances["uniform"] == pytest.approx([distance], abs=1e-5)


def test_a_permutation_keeps_the_weights_and_moves_them():
    """The only nonzero weight stays in its region with probability 1/6."""
    swapped = permute(planted.captioner(ON_TWO), photo(), [caption_of("two")], draws=3000)
    lost = log_p(2, ON_TWO) - log_p(2, [1, 0, 0, 0, 0, 0])
    assert swapped.falls["permuted"][0] == pytest.approx(lost * 5 / 6, abs=0.2)
    assert swapped.changed["permuted"][0] == pytest.approx(5 / 6, abs=0.03)


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Regions 1 and 4 of all photos are masked; what is real."""
    real = [number not in (1, 4) for number in range(REGIONS)]
    plain = planted.UnitRegions.forward

    def forward(self: planted.UnitRegions, images: torch.Tensor) -> Views:
        views = plain(self, images)
        return tuple(view._replace(mask=torch.tensor(real).expand(len(images), -1)) for view in views)

    monkeypatch.setattr(planted.UnitRegions, "forward", forward)
    return real


def test_masked_regions_get_no_weight(masked: list[bool]):
    """The only nonzero weight stays in its region with probability 1/4, and is never on a masked one."""
    swapped = permute(planted.captioner(ON_TWO), photo(), [caption_of("two")], draws=3000)
    even = [is_real / 4 for is_real in masked]
    assert swapped.falls["uniform"] == pytest.approx([log_p(2, ON_TWO) - log_p(2, even)], abs=1e-5)
    assert swapped.changed["permuted"][0] == pytest.approx(3 / 4, abs=0.03)
    model = planted.captioner([0.4, 0, 0.6, 0, 0, 0])
    (batch,), replay = sentences(model, photo(), [caption_of("two")]), Replay(model.decoder)
    (step,) = replay.steps(batch)
    maps = {"attention": torch.tensor([[[0.5, 0, 0.3, 0.2, 0, 0]]])}
    drawn = permuted(replay, step, maps, 999, torch.Generator())["attention"]
    assert drawn[..., ~torch.tensor(masked)].eq(0).all()
    assert drawn.sort(-1).values.eq(torch.tensor([0, 0, 0, 0.2, 0.3, 0.5])).all()
    assert len(drawn.unique(dim=1)[0]) == 24
    found = adversarial_maps(model, photo(), [caption_of("two")], tolerance=0.9)
    assert (found.weights[0] > 0).tolist() == masked


def test_the_mean_of_many_photos_leaves_masked_regions_out(masked: list[bool]):
    (mean,) = mean_regions(planted.captioner(ON_ONE), [photo(0), photo(3)])
    assert mean.tolist() == pytest.approx([*(is_real / 4 for is_real in masked), 1.5])


def test_the_map_of_another_word_of_the_caption():
    swapped = permute(planted.captioner(FIRST, SECOND), photo(), [caption_of("one three")])
    assert swapped.falls["other word"] == pytest.approx(
        [log_p(1, FIRST) - log_p(1, SECOND), log_p(3, SECOND) - log_p(3, FIRST)], abs=1e-5
    )
    # "one" gives way to "two"; "three" was not the likeliest before, and is not now.
    assert swapped.changed["other word"].tolist() == [1, 1]


def test_the_map_of_another_image_at_the_same_step_or_its_last():
    photos = [photo(0), photo(3), photo(1)]
    captions = [caption_of(text) for text in ("one three", "", "two")]
    swapped = permute(planted.captioner(FIRST, SECOND), photos, captions)
    assert swapped.images.tolist() == [0, 2, 0]
    assert swapped.words == ("one", "two", "three")
    turned = np.roll(FIRST, 1)  # the third photo's only map; the second has no further map
    expected = [
        log_p(1, FIRST) - log_p(1, turned),
        log_p(2, turned) - log_p(2, FIRST),
        log_p(3, SECOND) - log_p(3, turned),
    ]
    assert swapped.falls["other image"] == pytest.approx(expected, abs=1e-5)


def test_measures_without_a_partner_are_nan():
    swapped = permute(planted.captioner(FIRST), photo(), [caption_of("one")])
    for measured in (swapped.falls, swapped.distances, swapped.changed):
        assert np.isnan(measured["other word"]).all()
        assert np.isnan(measured["other image"]).all()
        assert np.isfinite(measured["permuted"]).all()
    # Maps of photos in other batches are not used.
    apart = permute(planted.captioner(FIRST), [photo(), photo(1)], [caption_of("one")] * 2, batch_size=1)
    assert np.isnan(apart.falls["other image"]).all()
    assert apart.images.tolist() == [0, 1]


@pytest.mark.parametrize("in_turn", [False, True])
def test_captions_of_one_photo_are_of_one_image(in_turn: bool, tmp_path: Path):
    paths = [str(tmp_path / f"{turn}.png") for turn in range(3)]
    for turn, path in enumerate(paths):
        photo(turn).save(path)
    captions = [caption_of(text) for text in ("one three", "two", "two one")]
    model, rows = planted.captioner(FIRST, SECOND), [0, 1, 2] * 3 if in_turn else [0, 0, 0, 1, 1, 1, 2, 2, 2]
    single = permute(model, paths, captions)
    repeated = permute(model, [paths[row] for row in rows], [captions[row] for row in rows])
    assert set(repeated.images.tolist()) == ({0, 1, 2} if in_turn else {0, 3, 6})
    for name in ("uniform", "other image"):
        assert repeated.mean(repeated.falls[name]) == pytest.approx(single.mean(single.falls[name]), abs=1e-6)
    alone = permute(model, paths[:1] * 2, captions[:2])
    assert np.isnan(alone.falls["other image"]).all()


# -- two words exchange their maps ---------------------------------------------------------------------------------

NUMBERS = ("one", "two", "three")


def test_a_word_that_is_read_where_it_looks_follows_the_look():
    swapped = interchange(planted.captioner(ON_ONE, ON_TWO), photo(), NUMBERS, [caption_of("one two")])
    assert swapped.words == ("one", "two")
    assert swapped.others.tolist() == ["two", "one"]
    assert swapped.follows["its own"].tolist() == [0, 0]
    assert swapped.stays["its own"].tolist() == [1, 1]
    assert swapped.follows["of the other"].tolist() == [1, 1]
    assert swapped.stays["of the other"].tolist() == [0, 0]
    lead = log_p(1, ON_ONE) - log_p(2, ON_ONE)
    assert swapped.leads["its own"] == pytest.approx([-lead, -lead], abs=1e-5)
    assert swapped.leads["of the other"] == pytest.approx([lead, lead], abs=1e-5)
    assert repr(swapped).startswith("Interchange(2 words, means its own: 0.00, of the other: 1.00")
    assert str(swapped).splitlines()[1].startswith("one → two ")


def test_the_permuted_map_lies_on_the_others_place_by_chance_only():
    model = planted.captioner(ON_ONE, ON_TWO)
    swapped = interchange(model, photo(), NUMBERS, [caption_of("one two")], draws=3000)
    for measured in (swapped.follows, swapped.stays):
        assert measured["of the other, permuted"] == pytest.approx([1 / 6, 1 / 6], abs=0.03)


def test_pairs_are_of_different_words_of_one_caption_and_one_kind():
    model = planted.captioner(ON_ONE, ON_TWO, ON_THREE)
    captions = [caption_of(text) for text in ("four two", "one two three", "", "two two one")]
    swapped = interchange(model, [photo(turn) for turn in range(4)], NUMBERS, captions, batch_size=3)
    said = list(zip(swapped.images.tolist(), swapped.words, swapped.others.tolist(), strict=True))
    assert sorted(said) == [
        (1, "one", "three"), (1, "one", "two"), (1, "three", "one"), (1, "three", "two"), (1, "two", "one"),
        (1, "two", "three"), (3, "one", "two"), (3, "one", "two"), (3, "two", "one"), (3, "two", "one"),
    ]  # fmt: skip
    # The second photo rotates all maps by one.
    entry = said.index((1, "one", "two"))
    assert swapped.leads["of the other"][entry] == pytest.approx(
        log_p(2, np.roll(ON_TWO, 1)) - log_p(1, np.roll(ON_TWO, 1)), abs=1e-5
    )


def test_captions_without_a_pair_are_refused():
    captions = [caption_of("one"), caption_of("four five")]
    with pytest.raises(UserError, match="one, two, three"):
        interchange(planted.captioner(ON_ONE), [photo(), photo()], NUMBERS, captions)


# -- the map farthest from α that gives the same prediction ----------------------------------------------------


MIXED = [0.1, 0.2, 0.5, 0.1, 0.05, 0.05]


def far(model: planted.Captioner, tolerance: float = 0.05) -> Adversaries:
    return adversarial_maps(model, photo(), [caption_of("two")], tolerance=tolerance)


def entropy(p: np.ndarray) -> float:
    """In bits."""
    return -sum(share * math.log2(share) for share in p if share > 0)


@pytest.mark.parametrize("own", [ON_TWO, MIXED])
def test_a_decoder_that_ignores_the_context_permits_any_map(own, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(planted, "STRENGTH", 0.0)  # the logits do not depend on what is read
    found = far(planted.captioner(own), tolerance=0.0)
    # Disjoint from α, where α leaves a region free; else on its smallest weight.
    p = np.array(own)
    single = np.eye(REGIONS)[p.argmin()]
    expected = entropy((p + single) / 2) - entropy(p) / 2
    assert found.divergences[0] == pytest.approx(expected, abs=0.02)
    assert found.weights.argmax() in np.flatnonzero(p == p.min())
    assert found.distances == pytest.approx([0], abs=1e-6)


def test_a_decoder_that_needs_each_weight_permits_none():
    found = far(planted.captioner(MIXED), tolerance=0.0)
    assert found.divergences == pytest.approx([0], abs=1e-5)
    assert found.permuted[0] > 0.05
    assert found.permuted_distances[0] > 0.1


def test_the_tolerance_is_kept_and_bounds_the_divergence():
    divergences = []
    for tolerance in (0.01, 0.1, 0.5):
        found = far(planted.captioner(MIXED), tolerance)
        assert found.distances[0] <= tolerance
        divergences.append(found.divergences[0])
    assert divergences == sorted(divergences)
    assert divergences[0] < 0.02 < 0.05 < divergences[-1]


def test_every_head_is_searched_and_the_model_is_left_alone():
    decoder = ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=8), embedding_size=6, hidden_size=7)
    model = captioner(decoder=decoder)
    before = torch.cat([tensor.flatten() for tensor in model.state_dict().values()])
    photos = [noise(), noise(seed=1)]
    found, again = (adversarial_maps(model, photos, steps=5, tolerance=0.2) for _ in range(2))
    assert len(found) == len(found.words) > 0
    assert set(found.images) == {0, 1}
    assert (found.divergences >= 0).all()
    assert (found.distances <= 0.2).all()
    assert np.array_equal(found.divergences, again.divergences)
    assert torch.equal(before, torch.cat([tensor.flatten() for tensor in model.state_dict().values()]))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_no_words_and_a_tolerance_below_zero():
    none = adversarial_maps(planted.captioner(ON_TWO), photo(), [caption_of("")])
    assert len(none) == 0
    assert none.divergences.shape == (0,)
    with pytest.raises(ValueError, match="tolerance -1 must be"):
        far(planted.captioner(ON_TWO), -1)
