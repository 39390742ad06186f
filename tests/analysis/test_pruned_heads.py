"""Heads removed, least important first."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import tiny_captioner

from caption.analysis.pruned_heads import head_pruning
from caption.attention import MultiHeadAttention
from caption.attention.map_hooks import edit_maps
from caption.captioner import Captioner
from caption.decoders import ShowAttendAndTellDecoder
from caption.errors import UserError
from caption.text.vocabulary import START

PHOTOS = [tiny_captioner.photo(seed=seed) for seed in range(2)]


@pytest.fixture(scope="module")
def captioner() -> Captioner:
    return tiny_captioner.captioner(decoder=ShowAttendAndTellDecoder(MultiHeadAttention(3, size=6), 6, 7))


def test_heads_are_removed_in_the_order_of_what_the_words_lose(captioner: Captioner):
    pruning = head_pruning(captioner, PHOTOS)
    captions = captioner.describe(PHOTOS)
    order = np.lexsort((np.arange(len(pruning)), pruning.images))  # they are measured step by step
    assert [pruning.words[place] for place in order] == [word for one in captions for word in one.words]
    assert sorted(pruning.order) == [0, 1, 2]
    assert list(pruning.importances) == sorted(pruning.importances)
    said = np.concatenate([one.word_log_probs for one in captions])
    assert pruning.log_probs[order, 0] == pytest.approx(said, abs=1e-5)
    falls = pruning.log_probs.mean(0)[0] - pruning.log_probs.mean(0)
    assert falls[1] == pytest.approx(pruning.importances[0], abs=1e-6)


def test_a_removed_head_has_no_weight_at_its_step(captioner: Captioner):
    """Of the first word, whose step depends on no earlier one: forced by a hook in a search of its own."""
    pruning = head_pruning(captioner, PHOTOS[:1])
    caption = captioner.describe(PHOTOS[0])

    def without_first(maps: torch.Tensor, step: int, grid: tuple[int, int]) -> torch.Tensor:
        kept = torch.ones(maps.shape[-2], 1)
        kept[pruning.order[0]] = 0
        return maps * kept

    views = captioner.refine(captioner.encode([PHOTOS[0]]))
    with torch.no_grad(), edit_maps(captioner.decoder, without_first, [views[0].grid]):
        state = captioner.decoder.start(captioner.decoder.project(views))
        log_probs, _ = captioner.decoder.step(state, torch.tensor([[START]]))
    word = captioner.vocabulary[caption.words[0]]
    assert pruning.log_probs[0, 1] == pytest.approx(float(log_probs[0, 0, word]), abs=1e-5)


def test_one_map_cannot_be_pruned():
    with pytest.raises(UserError, match="a single map for each word"):
        head_pruning(tiny_captioner.captioner(), PHOTOS)
