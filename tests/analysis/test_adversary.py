"""The map farthest from α that gives the same prediction, on models whose reading is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import planted
from helpers.planted import REGIONS, caption_of, photo
from helpers.tiny_captioner import captioner
from helpers.tiny_captioner import photo as noise

from caption.analysis.faithfulness.adversary import Adversaries, adversarial_maps
from caption.attention import MultiHeadAttention
from caption.decoders import ShowAttendAndTellDecoder

ON_TWO = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
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
