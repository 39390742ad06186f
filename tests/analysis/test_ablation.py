"""What hiding does to the weights, and what it means to a model."""

from __future__ import annotations

import pytest
import torch
from tiny_captioner import captioner, photo

from caption.analysis.faithfulness.ablation import Removed, Replaced, mean_region
from caption.analysis.replay import Replay, encode, sentences
from caption.errors import UserError
from caption.tensor_tree import State

WEIGHTS = torch.tensor([[[0.5, 0.3, 0.2, 0.0]]])
KEPT = torch.tensor(
    [[[True, True, True, True], [False, True, True, True], [False, False, False, True], [False] * 4]]
)


def test_removed_regions_leave_their_share_to_the_others():
    left = Removed()(WEIGHTS, KEPT)
    assert left[0, 0].tolist() == WEIGHTS[0, 0].tolist()
    assert left[0, 1].tolist() == pytest.approx([0, 0.6, 0.4, 0])
    assert not left[0, 2].any()  # nothing is left to share
    assert not left[0, 3].any()
    assert left.isfinite().all()


def test_what_is_read_is_as_much_as_before():
    """A mechanism with a sentinel, say, gives the regions less than 1."""
    assert Removed()(WEIGHTS / 2, KEPT)[0, 1].sum() == pytest.approx(0.5)


def test_replaced_regions_leave_theirs_to_the_vector():
    extended = torch.cat((WEIGHTS, torch.zeros(1, 1, 1)), -1)
    left = Replaced()(extended, KEPT)
    assert left[0].tolist() == [
        pytest.approx(row)
        for row in ([0.5, 0.3, 0.2, 0, 0], [0, 0.3, 0.2, 0, 0.5], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1])
    ]


def test_removing_is_masking_the_memory():
    """For a softmax: the weights left, shared anew, are those of attention that never had the region."""
    model, hide = captioner(), Removed()
    (batch,) = sentences(model, [photo(), photo(seed=1)])
    kept = torch.rand(2, 1, 64, generator=torch.Generator().manual_seed(0)) > 0.4
    replay = Replay(model.decoder)
    for moment in replay.moments(batch):
        mask = kept[moment.rows, 0]
        masked = State(replay.decoder.project(moment.vectors, mask), moment.state.carried, None)
        with torch.no_grad():
            expected, _ = replay.decoder.step(masked, moment.fed)
        found = replay.say(moment, hide(moment.weights[:, None], kept[moment.rows]))
        assert torch.allclose(found, expected, atol=1e-5)
    assert moment.step >= 2


def test_replacing_is_another_vector_in_the_average():
    model = captioner()
    blank = torch.linspace(-1, 1, model.encoder.region_size)
    hide = Replaced(blank)
    (plain,) = sentences(model, photo())
    batch = hide.prepare(plain)
    replay = Replay(model.decoder)
    moment, same = next(replay.moments(batch)), next(replay.moments(plain))
    # The further region is masked: until something is hidden, nothing is changed by it, h[0] included.
    assert torch.equal(moment.weights[:, -1], torch.zeros(1))
    assert torch.allclose(moment.log_probs, same.log_probs, atol=1e-6)
    kept = torch.ones(1, 1, 64, dtype=torch.bool)
    kept[..., 10:30] = False
    changed = plain.vectors.clone()
    changed[:, 10:30] = blank
    memory = moment.state.shared._replace(values=torch.cat((changed, batch.vectors[:, -1:]), 1))
    with torch.no_grad():
        expected, _ = replay.decoder.step(State(memory, moment.state.carried, None), moment.fed)
    found = replay.say(moment, hide(moment.weights[:, None], kept))
    assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(found[:, 0], moment.log_probs, atol=1e-3)


def test_the_image_itself_gives_the_vector_where_none_is_given():
    (batch,) = sentences(captioner(), [photo(), photo(seed=1)])
    prepared = Replaced().prepare(batch)
    assert torch.equal(prepared.vectors[:, :-1], batch.vectors)
    assert torch.allclose(prepared.vectors[:, -1], batch.vectors.mean(1))
    assert prepared.mask.sum(1).tolist() == [64, 64]


def test_a_vector_of_another_length_and_a_masked_memory_are_refused():
    (batch,) = sentences(captioner(), photo())
    with pytest.raises(ValueError, match=r"replaced by \(6,\) numbers, not \(5,\)"):
        Replaced(torch.zeros(5)).prepare(batch)
    with pytest.raises(UserError, match="without a mask"):
        Replaced().prepare(batch._replace(mask=torch.ones(1, 64, dtype=torch.bool)))


def test_the_mean_region_is_over_all_regions_of_all_photos():
    model = captioner().train()
    photos = [photo(seed=seed) for seed in range(3)]
    mean = mean_region(model, photos, batch_size=2)
    assert model.training
    assert torch.allclose(mean, encode(model.eval(), photos)[1].mean((0, 1)), atol=1e-6)
