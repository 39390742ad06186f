"""Heads: planted roles, and what words lose without them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import mechanisms, tiny_captioner

from caption.analysis.agreement import compare_maps
from caption.analysis.pruned_heads import head_pruning
from caption.analysis.roles_of_heads import head_roles
from caption.attention import MultiHeadAttention
from caption.attention.map_hooks import edit_maps
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.decoders import ShowAttendAndTellDecoder
from caption.results.caption import AttentionMaps, Caption
from caption.text.vocabulary import START

EVEN = [0.25] * 4
PLACE = [0.0, 0.0, 1.0, 0.0]
WORDS = ["a", "red", "a", "blue", "a", "red", "a", "zebra"]


def caption_of(words: list[str], heads: list[list[list[float]]]) -> Caption:
    """`heads` is (T, M, 4) on a grid of 2 x 2."""
    maps = np.array(heads, dtype=np.float32).reshape(len(words), -1, 2, 2)
    named = AttentionMaps({"heads": maps})
    return Caption(" ".join(words), words, maps.mean(1), 0.0, np.zeros(len(words)), (0, 0, 2, 2), maps=named)


def planted() -> list[Caption]:
    """Two captions, of heads that look at the place, at the rare word's region, and everywhere."""
    heads = [[PLACE, [0, 1, 0, 0] if word == "zebra" else EVEN, EVEN] for word in WORDS]
    return [caption_of(WORDS[:3], heads[:3]), caption_of(WORDS[3:], heads[3:])]


def test_the_planted_roles_are_found():
    roles = head_roles(planted(), rare_below=0.2, classes={"colours": {"red", "blue"}, "animals": {"zebra"}})
    assert roles.labels == ("heads[0]", "heads[1]", "heads[2]")
    assert (roles.words, roles.rare_words) == (8, 2)  # blue and zebra are one word in eight
    assert roles.confidence.tolist() == pytest.approx([1, (7 / 4 + 1) / 8, 1 / 4])
    assert roles.entropy.tolist() == pytest.approx([0, 7 / 8 * math.log(4), math.log(4)])
    # The rare-word head is at cell (0, 1) in one of 8 words, and in seven its maximum is shared by four cells.
    assert roles.cells[:2].tolist() == [[1, 0], [0, 1]]
    assert roles.positional.tolist() == pytest.approx([1, (1 + 7 / 4) / 8, 1 / 4])
    assert roles.positional_others[:2].tolist() == pytest.approx([(7 / 32 + 1 / 4) / 2, (0 + 1 / 4) / 2])
    # At the two rare words: log 4 and 0, against 7/8 log 4 at all.
    assert roles.rare.tolist() == pytest.approx([0, (7 / 8 - 1 / 2) * math.log(4), 0], abs=1e-12)
    assert roles.classes["colours"].tolist() == pytest.approx([0, -1 / 8 * math.log(4), 0], abs=1e-12)
    assert roles.classes["animals"].tolist() == pytest.approx([0, 7 / 8 * math.log(4), 0], abs=1e-12)


def test_divergence_is_that_of_two_models():
    maps = np.concatenate([caption.maps["heads"] for caption in planted()])
    expected = compare_maps(maps[:, 0], maps[:, 1])["divergence"].mean()
    assert head_roles(planted()).divergence[0, 1] == pytest.approx(expected, abs=1e-9)


def test_counts_of_the_training_captions_decide_what_is_rare():
    counts = {"a": 900, "red": 50, "blue": 50}
    assert head_roles(planted(), counts=counts).rare_words == 1  # zebra, which has no count
    assert head_roles(planted(), counts=counts, rare_below=0.051).rare_words == 4
    none = head_roles(planted(), rare_below=0.0)
    assert none.rare_words == 0
    assert np.isnan(none.rare).all()


def test_a_place_where_all_heads_look_shows_in_the_others():
    roles = head_roles([caption_of(["a", "b"], [[PLACE, PLACE], [PLACE, PLACE]])])
    assert roles.positional.tolist() == roles.positional_others.tolist() == [1, 1]


def test_signs_scale_and_empty_maps():
    """Maps are taken as shares of |α|; a map without weight is left out."""
    plain = head_roles([caption_of(["a", "b"], [[[0, 0.75, 0.25, 0]], [[0, 0.75, 0.25, 0]]])])
    signed = head_roles([caption_of(["a", "b"], [[[0, -3, 1, 0]], [[0, 0, 0, 0]]])])
    for measure in ("confidence", "entropy", "positional"):
        assert getattr(signed, measure) == pytest.approx(getattr(plain, measure))
    assert np.isnan(plain.positional_others).all()
    assert plain.divergence.shape == (1, 1)


def test_the_table():
    roles = head_roles(planted(), rare_below=0.2, classes={"colours": {"blue"}, "none": {"x"}})
    found = [" ".join(line.split()) for line in str(roles).splitlines()]
    assert (
        found[0] == "8 words confidence entropy cell positional others rare colours none closest divergence"
    )
    assert found[2] == "heads[1] 0.34 1.21 0, 1 0.34 0.12 +0.52 -0.17 – heads[2] 0.07"


def test_what_cannot_be_measured_is_said():
    with pytest.raises(ValueError, match="these captions have none"):
        head_roles([])
    with pytest.raises(ValueError, match=r"'hops'.*heads"):
        head_roles(planted(), "hops")
    with pytest.raises(ValueError, match="must have one shape"):
        head_roles([*planted(), caption_of(["a"], [[EVEN]])])


# -- heads removed, least important first ----------------------------------------------------------------------


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
    assert list(pruning.columns) == ["0 removed", "1 removed", "2 removed", "3 removed"]
    assert pruning.columns["2 removed"].tolist() == pruning.log_probs[:, 2].tolist()
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


@pytest.mark.parametrize(
    ("mechanism", "heads"),
    [
        ("additive", 0),
        ("hierarchical", 0),
        ("pyramid_attention_pooled", 0),
        ("parent_weighted", 0),
        ("rotatory", 2),
    ],
)
def test_levels_and_further_maps_of_an_attention_are_no_heads(mechanism: str, heads: int):
    model = mechanisms.captioner(mechanisms.decoder(mechanism)).float()
    if heads:
        assert head_pruning(model, PHOTOS).log_probs.shape[1] == 1 + heads
        return
    with pytest.raises(UserError, match="fewer than two heads"):
        head_pruning(model, PHOTOS)
