"""Several captioners as one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.tiny_captioner import captioner, photo

from caption.analysis.maps import maps
from caption.attention import MultiHeadAttention, Multinoulli
from caption.attention.stochastic import stochastic_parts
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import ImageTransform
from caption.decoders import ShowAttendAndTellDecoder
from caption.encoders import LinearRefiner, SeveralEncoders, SmallCNN
from caption.models import checkpoint
from caption.models.ensemble import ensemble
from caption.search import BeamSearch, Sampling
from caption.text.vocabulary import START, Vocabulary


def member(seed: int, encoder_seed: int | None = None, **parts) -> Captioner:
    model = captioner(**parts)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
        if encoder_seed is not None:
            for parameter in model.encoder.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def first_step(model: Captioner) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        state = model.decoder.start(model.project(model.encode([photo()])))
        log_probs, after = model.decoder.step(state, torch.full((1, 1), START))
    return log_probs[0, 0], after.trace.weights[0, 0], after.trace.gate[0, 0]


@pytest.mark.parametrize("own", ["decoders", "encoders", "refiners"])
def test_probabilities_weights_and_gates_are_means(own: str):
    members = [member(seed, seed if own == "encoders" else None) for seed in (1, 2, 3)]
    for seed, model in enumerate(members if own == "refiners" else ()):
        torch.manual_seed(seed)
        model.refiner = LinearRefiner(6, dropout=0.0)
        model.refiner.build(model.encoder.region_sizes)
    log_probs, weights, gates = map(torch.stack, zip(*map(first_step, members), strict=True))
    mean_log_probs, mean_weights, mean_gate = first_step(ensemble(members))
    torch.testing.assert_close(mean_log_probs.exp(), log_probs.exp().mean(0))
    torch.testing.assert_close(mean_weights, weights.mean(0))
    torch.testing.assert_close(mean_gate, gates.mean(0))


def test_an_ensemble_of_one_model_twice_is_that_model():
    alone = member(1, search=BeamSearch(beam_size=3, max_length=8, candidates=3))
    together = ensemble([alone, alone])
    one, other = alone.describe(photo()), together.describe(photo())
    assert one.words == other.words
    assert other.log_prob == pytest.approx(one.log_prob, rel=1e-4)
    assert other.weights == pytest.approx(one.weights, rel=1e-4)
    assert [caption.text for caption in one.alternatives] == [caption.text for caption in other.alternatives]
    assert len(together.describe(photo(), Sampling(samples=4)).alternatives) == 3


def test_maps_of_single_heads_are_no_maps_of_an_ensemble():
    heads = [
        captioner(decoder=ShowAttendAndTellDecoder(MultiHeadAttention(2), embedding_size=6, hidden_size=8))
        for _ in range(2)
    ]
    together = ensemble(heads)
    assert (heads[0].decoder.map_views, together.decoder.map_views) == ({"heads": 0}, {})
    with pytest.raises(UserError, match=r"no map 'heads\[1\]'"):
        maps(together, [photo()], method="heads[1]")


def test_stepping_and_unrolling_agree():
    model = ensemble([member(1), member(2, 2)])
    words = torch.tensor([[[4, 5, 6], [7, 4, 0]]])
    fed = torch.cat((torch.full((1, 2, 1), START), words), -1)
    views = model.encode([photo()])
    with torch.no_grad():
        unrolled = model.unroll(views, fed, torch.tensor([[4, 3]]))
        state = model.decoder.start(model.project(views), 2)
        logits, weights = unrolled.unpack(unrolled.logits), unrolled.unpack(unrolled.trace.weights)
        for t in range(4):
            log_probs, state = model.decoder.step(state, fed[..., t])
            real = slice(0, 2 if t < 3 else 1)
            torch.testing.assert_close(logits[0, real, t], log_probs[0, real])
            torch.testing.assert_close(weights[0, real, t], state.trace.weights[0, real])


class Scaled(SmallCNN):
    """Multiplies the regions, with the same weights."""

    def __init__(self, scale: float, weights: str) -> None:
        super().__init__((4, 4, 6))
        self.scale = scale

    def features(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.scale * features for features in super().features(images))


def test_encoders_are_common_if_they_compute_the_same():
    members = [member(1, encoder=Scaled(*arguments)) for arguments in ((1.0, "a"), (1.0, "b"), (2.0, "a"))]
    for other in members[1:]:
        other.encoder.load_state_dict(members[0].encoder.state_dict())
    assert isinstance(ensemble(members[:2]).encoder, Scaled)
    assert isinstance(ensemble(members[1:]).encoder, SeveralEncoders)


def test_it_is_saved_like_any_captioner_and_members_keep_their_weights(tmp_path: Path):
    alone = member(1)
    before = {name: tensor.clone() for name, tensor in alone.state_dict().items()}
    model = ensemble([alone, member(2, 2)])
    assert not model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in alone.state_dict().items())
    checkpoint.save(model, tmp_path / "both.ckpt")
    one, other = model.describe(photo()), checkpoint.load(tmp_path / "both.ckpt").describe(photo())
    assert one.words == other.words
    assert one.log_prob == pytest.approx(other.log_prob)


def test_members_read_what_was_chosen_after_loading():
    hard = member(1, alignment=Multinoulli())
    (part,) = stochastic_parts(hard)
    part.at_test = "argmax"
    assert [part.at_test for part in stochastic_parts(ensemble([hard, hard]))] == ["argmax", "argmax"]


def test_members_must_fit_together():
    other_words = member(1)
    other_words.vocabulary = Vocabulary(["a", "cat", "dog", "sits", "walks"])
    with pytest.raises(UserError, match="must have the same vocabulary"):
        ensemble([member(1), other_words])
    with pytest.raises(UserError, match="must see the same pixels"):
        ensemble([member(1), member(1, transform=ImageTransform(48, "crop"))])
    finer = captioner(encoder=SmallCNN((4, 6)))
    with pytest.raises(UserError, match="8x8 and 16x16"):
        ensemble([member(1), finer]).describe(photo())
