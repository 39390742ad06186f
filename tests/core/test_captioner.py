"""The captioner: from photos to captions with words, weights on the grid and the grid's box in the photo."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo

from caption.core.errors import ImageError, UserError
from caption.core.regions import Regions, Views
from caption.data.photos import ImageTransform
from caption.decoders import Trace
from caption.encoders import Refiner
from caption.results.caption import Caption
from caption.search import BeamSearch, Greedy, Hypotheses
from caption.text.vocabulary import START


def same(one: Caption, other: Caption) -> None:
    assert one.words == other.words
    assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
    assert one.box == other.box


# -- the contents of a caption -----------------------------------------------------------------------------


def test_a_captioner_is_called_like_the_command():
    model, photos = captioner(), [photo(seed=seed) for seed in range(2)]
    same(model(photos[0]), model.describe(photos[0]))
    assert [str(each) for each in model(photos)] == [str(each) for each in model.describe(photos)]
    search = BeamSearch(beam_size=4, max_length=8, length_normalization=0.5, candidates=3)
    found = model(photos[0], beam_size=4, candidates=3, length_normalization=0.5)
    searched = model.describe(photos[0], search)
    same(found, searched)
    assert [*map(str, found.alternatives)] == [*map(str, searched.alternatives)]
    assert len(model(photos[0], candidates=5).alternatives) == 4  # the beam of 3 is widened
    same(model(photos[0], beam_size=1), model.describe(photos[0], Greedy(max_length=8)))
    with pytest.raises(UserError, match="beam_size is 0"):
        model(photos[0], beam_size=0)
    with pytest.raises(TypeError, match="beam_sise"):
        model(photos[0], beam_sise=3)


def test_its_numbers_are_those_of_teacher_forcing():
    model = captioner()
    caption = model.describe(photo())
    ids = [model.vocabulary[word] for word in caption.words]
    views = model.encoder(model.transform(photo())[None])
    with torch.no_grad():
        unrolled = model.unroll(views, torch.tensor([[[START, *ids]]]), torch.tensor([[len(ids) + 1]]))
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))[0, 0]
    words = log_probs[range(len(ids)), ids]
    np.testing.assert_allclose(caption.word_log_probs, words, atol=1e-4)
    weights = unrolled.unpack(unrolled.trace.weights)[0, 0, : len(ids)]
    np.testing.assert_allclose(caption.weights.reshape(len(ids), -1), weights, atol=1e-4)
    gates = unrolled.unpack(unrolled.trace.gate)[0, 0, : len(ids)]
    np.testing.assert_allclose(caption.gates, gates, atol=1e-4)
    end = log_probs[len(ids), model.vocabulary["<end>"]] if caption.finished else 0.0
    assert caption.log_prob == pytest.approx(float(words.sum() + end), abs=1e-3)


@pytest.mark.parametrize(("bias", "words", "finished"), [(-100.0, 2, False), (100.0, 0, True)])
def test_captions_may_be_unfinished_or_have_no_words(bias: float, words: int, finished: bool):
    model = captioner(search=Greedy(max_length=2))
    with torch.no_grad():
        model.decoder.readout.to_words.bias[2] = bias
    caption = model.describe(photo())
    assert (len(caption.words), caption.finished) == (words, finished)
    assert caption.weights.shape == (words, 8, 8)


# -- the grid's box in the photo ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fit", "box", "turned"),
    [
        ("crop", (20, 0, 60, 40), (0, 20, 40, 60)),
        ("squash", (0, 0, 80, 40), (0, 0, 40, 80)),
        ("pad", (0, -20, 80, 60), (-20, 0, 60, 80)),
    ],
)
def test_the_box_is_the_part_of_each_upright_photo_that_the_grid_covers(
    fit: Any, box: tuple[float, ...], turned: tuple[float, ...], tmp_path: Path
):
    on_its_side = photo(80, 40)
    exif = on_its_side.getexif()
    exif[0x0112] = 6  # the camera was held upright
    on_its_side.save(tmp_path / "turned.jpg", exif=exif)
    photos = [photo(80, 40), tmp_path / "turned.jpg", photo(64, 64)]
    boxes = [caption.box for caption in captioner(ImageTransform(32, fit)).describe(photos)]
    assert boxes == [box, turned, (0, 0, 64, 64)]


# -- maps and points ---------------------------------------------------------------------------------------


def two_words(**trace: Any) -> Hypotheses:
    """One image, two candidates: the better of two words, the other of one. Weights over 2x3 regions count up."""
    words = torch.tensor([[[4, 5], [6, 2]]])
    weights = torch.arange(24.0).view(1, 2, 2, 6)
    log_probs = torch.tensor([[-1.0, -2.0]])
    return Hypotheses(
        words=words,
        lengths=torch.tensor([[2, 1]]),
        log_probs=log_probs,
        word_log_probs=torch.zeros(1, 2, 3),
        scores=log_probs,
        finished=torch.tensor([[True, True]]),
        trace=Trace(weights, **{"maps": {}, **trace}),
    )


def test_captions_have_the_maps_of_all_grids(monkeypatch: pytest.MonkeyPatch):
    model = captioner()
    monkeypatch.setattr(model.decoder.attention, "map_views", {"heads": 0, "coarse": 1})
    maps = {
        "heads": torch.arange(96.0).view(1, 2, 2, 4, 6),  # four heads
        "coarse": torch.arange(8.0).view(1, 2, 2, 2).half(),
        "sentinel": torch.zeros(1, 2, 2, 1),  # not over regions
    }
    (caption,) = model.captions(two_words(maps=maps), [(2, 3), (1, 2)], [(0, 0, 6, 4)])
    (other,) = caption.alternatives
    assert caption.weights.tolist() == np.arange(12).reshape(2, 2, 3).tolist()
    assert other.weights.tolist() == np.arange(12, 18).reshape(1, 2, 3).tolist()
    assert set(caption.maps) == {"heads", "coarse"}
    assert caption.maps["heads"].tolist() == np.arange(48).reshape(2, 4, 2, 3).tolist()
    assert other.maps["heads"].tolist() == np.arange(48, 72).reshape(1, 4, 2, 3).tolist()
    assert (caption.maps["coarse"].tolist(), caption.maps["coarse"].dtype) == (
        [[[0, 1]], [[2, 3]]],
        np.float32,
    )
    assert other.maps["coarse"].tolist() == [[[4, 5]]]


def test_a_point_across_the_grid_is_one_in_the_photo_if_all_words_chose_one():
    points = torch.tensor([[[[0.0, 0.25], [1.0, 0.5]], [[0.1, 1.0], [torch.nan, torch.nan]]]])
    (caption,) = captioner().captions(two_words(location=points), [(2, 3)], [(20, -10, 60, 70)])
    assert caption.maps.points is not None
    assert caption.maps.points.tolist() == [[20, 10], [60, 30]]
    assert caption.maps.locations is None
    np.testing.assert_allclose(caption.alternatives[0].maps.points, [[24, 70]], rtol=1e-6)
    points[0, 0, 1] = torch.nan
    (caption,) = captioner().captions(two_words(location=points), [(2, 3)], [(0, 0, 6, 4)])
    assert caption.maps.points is None
    assert caption.alternatives[0].maps.points is not None


def test_a_region_that_was_chosen_is_a_row_and_a_column():
    chosen = two_words(location=torch.tensor([[[4, 2], [-1, -1]]]))
    (caption,) = captioner().captions(chosen, [(2, 3)], [(0, 0, 6, 4)])
    assert caption.maps.locations is not None
    assert caption.maps.locations.tolist() == [[1, 1], [0, 2]]
    assert caption.maps.points is None
    assert caption.alternatives[0].maps.locations is None


# -- inputs ------------------------------------------------------------------------------------------------


def test_a_list_gives_a_list_in_its_order_and_a_photo_that_cannot_be_read_is_named(tmp_path: Path):
    model = captioner()
    photos = [photo(80, 40, seed) for seed in range(5)]
    one_by_one = [model.describe(image) for image in photos]
    assert len({caption.log_prob for caption in one_by_one}) == 5
    for batch_size in (2, 32):
        together = model.describe(photos, batch_size=batch_size)
        for image, caption, alone in zip(photos, together, one_by_one, strict=True):
            same(caption, alone)
            assert caption.image is image
    assert model.describe([]) == []
    (only,) = model.describe(photos[:1])
    same(only, one_by_one[0])
    with pytest.raises(ImageError, match=r"nowhere\.jpg"):
        model.describe([photo(), tmp_path / "nowhere.jpg"])


# -- search ------------------------------------------------------------------------------------------------


def test_other_candidates_are_alternatives():
    search = BeamSearch(beam_size=6, max_length=8, candidates=4)
    best = captioner().describe(photo(), search)
    ranked = [best, *best.alternatives]
    assert len(ranked) == 4
    assert len({caption.text for caption in ranked}) == 4
    finished = [caption.log_prob for caption in ranked if caption.finished]
    assert finished == sorted(finished, reverse=True)
    for caption in ranked:
        assert caption.weights.shape == (len(caption.words), 8, 8)
        assert caption.box == best.box
    assert all(other.alternatives == [] for other in best.alternatives)
    # There are only 6 captions of at most one word: the empty one and five words.
    caption = captioner().describe(photo(), BeamSearch(beam_size=9, max_length=1, candidates=9))
    assert len(caption.alternatives) == 5


def test_the_regions_are_projected_once_for_all_hypotheses(monkeypatch: pytest.MonkeyPatch):
    model = captioner()
    score = model.decoder.attention.score
    keys = Mock(wraps=score.keys)
    monkeypatch.setattr(score, "keys", keys)
    model.describe([photo(), photo(seed=1)], BeamSearch(beam_size=5, max_length=8))
    assert [call.args[0].vectors.shape for call in keys.call_args_list] == [(2, 64, 6)]


# -- modes and gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("training", "frozen"), [(True, False), (False, True)])
def test_describing_evaluates_without_gradients_and_restores_the_mode(training: bool, frozen: bool):
    model = captioner()
    model.encoder.freeze(frozen)
    expected = model.describe(photo())
    model.train(training)
    seen = []
    for part in (model.decoder.initial, model.decoder.readout):  # before the search, and in it
        part.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled()))
    before = {name: module.training for name, module in model.named_modules()}
    buffers = [buffer.clone() for buffer in model.buffers()]
    same(model.describe(photo()), expected)  # no dropout, no statistics of the batch
    assert seen
    assert not any(seen)
    assert torch.is_grad_enabled()
    assert {name: module.training for name, module in model.named_modules()} == before
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))


# -- refined and stored regions ----------------------------------------------------------------------------


class Halved(Refiner):
    """Keeps the upper half of the grid."""

    def build(self, region_sizes: tuple[int, ...]) -> None:
        self.region_sizes = region_sizes

    def grids(self, grids: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(rows // 2, cols) for rows, cols in grids]

    def forward(self, views: Views) -> Views:
        grids = self.grids([view.grid for view in views])
        halves = [view.vectors[:, : rows * cols] for view, (rows, cols) in zip(views, grids, strict=True)]
        return tuple(map(Regions, halves, grids))


def test_a_refiner_may_give_another_grid():
    caption = captioner(refiner=Halved()).describe(photo())
    assert caption.weights.shape == (len(caption.words), 4, 8)
