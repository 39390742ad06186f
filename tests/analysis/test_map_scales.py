"""Scales of maps: random weights, noise, agreement, and the true effect of objects that are taken out of a scene."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import tiny_captioner
from helpers.captions import caption_of
from PIL import Image, ImageFilter

from caption.analysis.maps import METHODS, blurring, scales
from caption.analysis.reference_attention import attend
from caption.analysis.replay import words_alone
from caption.attention import MultiHeadAttention
from caption.core.errors import UserError
from caption.data.photos import ImageTransform
from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene
from caption.decoders import ShowAttendAndTellDecoder

DEPEND = [name for name, method in METHODS.items() if method.replays] + ["attention"]
"""Methods whose maps claim to depend on what the model has learned."""


@pytest.fixture(scope="module")
def model():
    """With 4 x 4 regions."""
    return tiny_captioner.captioner(transform=ImageTransform(16, "squash"))


@pytest.fixture(scope="module")
def photos():
    return [tiny_captioner.photo(seed=seed) for seed in range(3)]


@pytest.mark.parametrize("name", [*DEPEND, "middle"])
def test_random_weights_destroy_every_map_that_depends_on_them(name, model, photos):
    captions = model.describe(photos)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = scales.draw(model, name, photos, captions).captions
    *_, similar = scales.after_redrawing(model, name, photos, captions, drawn).values()
    if name == "middle":
        assert similar == pytest.approx(np.ones(len(similar)))
    else:
        assert abs(np.nanmean(similar)) < 0.5
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_weights_are_redrawn_with_their_mean_and_deviation_and_come_back(model):
    weights = max(model.parameters(), key=torch.numel)
    before = weights.detach().clone()
    with scales.redrawn([weights]):
        assert not torch.allclose(weights, before)
        assert float(weights.detach().std()) == pytest.approx(float(before.std()), rel=0.3)
    assert torch.equal(weights, before)


def test_layers_are_redrawn_from_the_words_down_to_the_pixels(model, photos):
    (caption,) = model.describe(photos[:1])
    layers = scales.layers_from_the_top(model, photos[0], caption)
    names = list(layers)
    order = ["decoder.readout", "decoder.cell", "decoder.embed", "encoder.layers.7", "encoder.layers.0"]
    assert [name for name in names if name in order] == order
    weights = [tensor for of_layer in layers.values() for tensor in of_layer]
    assert {id(tensor) for tensor in weights} == {id(tensor) for tensor in model.parameters()}
    assert len(weights) == len(set(weights))
    similar = scales.after_redrawing(model, "attention", photos[:1], [caption], [caption])
    assert list(similar) == names
    # The first word's attention has read nothing of the read-out; that of all layers is another.
    assert similar["decoder.readout"] == pytest.approx(np.ones(len(caption.words)))
    assert similar[names[-1]].mean() < 0.5


def test_weights_that_layers_share_are_redrawn_once(model, photos):
    tied = tiny_captioner.captioner(transform=ImageTransform(16, "squash"))
    tied.decoder.again = torch.nn.Sequential(tied.decoder.cell)
    layers = scales.layers_from_the_top(tied, photos[0], tied.describe(photos[0]))
    weights = [id(tensor) for of_layer in layers.values() for tensor in of_layer]
    assert sorted(weights) == sorted(id(tensor) for tensor in tied.parameters())


def test_without_noise_maps_stay(model, photos, monkeypatch: pytest.MonkeyPatch):
    captions = model.describe(photos)
    monkeypatch.setattr(scales, "COPIES", 2)
    for name in ("attention", "gradient"):
        drawn = scales.draw(model, name, photos, captions).captions
        noisy = scales.under_noise(model, name, photos, captions, drawn)["similarity"]
        assert noisy.mean() < 1
        assert len(noisy) == len(scales.images_of(captions))
        with monkeypatch.context() as patch:
            patch.setattr(scales, "NOISE", 0.0)
            still = scales.under_noise(model, name, photos, captions, drawn)["similarity"]
        assert still == pytest.approx(np.ones(len(still)), abs=1e-6)


def test_the_peak_memory_of_a_map_is_that_of_its_largest_word(model, photos):
    captions = model.describe(photos[:1])
    few, many = (scales.peak_bytes(model, name, photos[:1], captions) for name in ("attention", "occlusion"))
    assert few == 0
    regions, size = 16, 7 * 4  # each of which has a state of its own when it is hidden
    assert many > regions * size
    words = captions[0].words
    assert scales.peak_bytes(model, "occlusion", photos[:1], [words_alone(words * 5)]) < 2 * many


def test_fed_captions_have_all_maps_of_the_mechanism(photos):
    decoder = ShowAttendAndTellDecoder(MultiHeadAttention(2, 8), embedding_size=6, hidden_size=7)
    model = tiny_captioner.captioner(decoder=decoder)
    captions = model.describe(photos[:2])
    for caption, fed in zip(captions, scales.fed(model, photos[:2], captions), strict=True):
        assert fed.weights == pytest.approx(caption.weights, abs=1e-5)
        assert fed.maps["heads"] == pytest.approx(caption.maps["heads"], abs=1e-5)
    head = scales.draw(model, "heads[1]", photos[:2], captions).captions
    assert np.array_equal(head[0].weights, captions[0].maps["heads"][:, 1])
    mean = scales.draw(model, "heads", photos[:2], captions).captions
    assert mean[0].weights == pytest.approx(captions[0].maps["heads"].mean(1))
    with pytest.raises(UserError, match=r"or one of this model's maps: heads"):
        scales.draw(model, "tails[1]", photos[:2], captions)


def test_similarity_is_of_ranks():
    rising, falling = np.arange(6.0).reshape(1, 2, 3), -(np.arange(6.0).reshape(1, 2, 3) ** 3)
    even = np.ones((1, 2, 3))
    captions = [
        caption_of(["a"], weights) for weights in (rising, falling, rising**2, even, np.ones((1, 3, 3)))
    ]
    first = [captions[0]] * 5
    assert scales.similarity(first, captions) == pytest.approx([1, -1, 1, 0, np.nan], nan_ok=True)
    assert np.isnan(scales.similarity([captions[3]], [captions[0]]))


def test_the_true_effect_of_an_object_is_what_its_word_loses_without_it(model):
    scenes = [random_scene(0, "test", number) for number in (1, 2)]
    captions = list(model.describe([render(scene) for scene in scenes]))
    effects = scales.true_effects(model, scenes, captions)
    for scene, caption, effect in zip(scenes, captions, effects, strict=True):
        assert effect.shape == (len(caption.words), len(scene.objects))
        without = scene._replace(objects=scene.objects[:-1])
        outside = np.asarray(render(scene)) == np.asarray(render(without))
        left, top, right, bottom = scene.objects[-1].box
        assert not outside[top:bottom, left:right].all()
        outside[top:bottom, left:right] = True
        assert outside.all()  # nothing else has changed
        (fed,) = attend(model, render(without), [caption])
        assert effect[:, -1] == pytest.approx(caption.word_log_probs - fed.word_log_probs, abs=1e-4)


def test_a_map_shows_the_effect_if_its_mass_is_on_the_object_that_matters():
    scene = random_scene(0, "test", 1)
    size, objects = scene.size, len(scene.objects)
    maps = np.zeros((3, size, size))
    for word, thing in enumerate((scene.objects[0], scene.objects[1], scene.objects[0])):
        left, top, right, bottom = thing.box
        maps[word, top:bottom, left:right] = 1
    caption = caption_of(["red", "circle", "a"], maps, (size, size))
    effect = np.zeros((3, objects))
    effect[0, 0] = effect[1, 0] = 2.0
    effect[2, 0] = scales.EFFECT / 2  # too little to count
    shown = scales.shows_effect([scene], [effect], [caption])
    assert shown == pytest.approx([1, 0, np.nan], nan_ok=True)
    even = caption.with_weights(np.ones((3, 1, 1)))
    assert scales.shows_effect([scene], [effect], [even])[0] in (0, 1)  # the larger object has more


def test_pixels_lie_in_the_cells_that_the_grid_covers():
    """A grid of 2 x 2 over the middle of 8 x 4 pixels, of which the model has seen columns 2 to 6."""
    caption = caption_of(["a"], np.ones((1, 2, 2)), (8, 4))
    caption.box = caption.seen = (2, 0, 6, 4)
    row = [0, 0, 0, 0, 1, 1, 1, 1]
    expected = [row, row, [2 + cell for cell in row], [2 + cell for cell in row]]
    assert blurring.cells_of_pixels(caption, (8, 4)).tolist() == expected


def test_areas_by_blurring_go_from_the_sharp_to_the_blurred_photo(model, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blurring, "POINTS", 3)
    photo = tiny_captioner.photo(32, 32)
    caption = model.describe(photo)
    areas = blurring.areas_by_blurring(model, [photo], [caption], [caption], {caption.words[0]})
    deletion, insertion = areas["deletion"], areas["insertion"]
    measured = [word == caption.words[0] for word in caption.words]
    assert (~np.isnan(deletion)).tolist() == (~np.isnan(insertion)).tolist() == measured
    blurred = photo.filter(ImageFilter.GaussianBlur(blurring.RADIUS * 32))
    half = caption.weights[0].ravel().argsort()[::-1][:8]  # of 4 x 4 cells of 8 x 8 pixels
    mixed = [np.array(photo), np.array(blurred)]
    for cell in half:
        place = np.s_[cell // 4 * 8 : cell // 4 * 8 + 8, cell % 4 * 8 : cell % 4 * 8 + 8]
        mixed[0][place], mixed[1][place] = np.array(blurred)[place], np.array(photo)[place]
    images = [photo, Image.fromarray(mixed[0]), blurred, Image.fromarray(mixed[1])]
    fed = attend(model, images, [caption] * 4)
    sharp, first_hidden, none, first_shown = (np.exp(of_photo.word_log_probs[0]) for of_photo in fed)
    assert deletion[0] == pytest.approx((sharp + 2 * first_hidden + none) / 4, abs=1e-5)
    assert insertion[0] == pytest.approx((none + 2 * first_shown + sharp) / 4, abs=1e-5)
