"""The contact sheet: photos, maps and captions on one scale."""

import numpy as np
import pytest
from helpers.captions import caption_of
from PIL import Image

from caption.regions import WeightProperties
from caption.visualize import contact_sheet
from caption.visualize.contact_sheet import summary_map

WIDE, TALL = (500, 375), (160, 240)


@pytest.fixture
def dog():
    weights = [[[0.7, 0.1, 0.2], [0, 0, 0]], [[0, 0.2, 0.2], [0.2, 0.2, 0.2]]]
    return caption_of(["$dog$", "runs"], weights, gates=[0.25, 0.75])


def test_a_sheet_shows_every_photo_its_map_and_its_caption_on_one_scale(dog):
    cat = caption_of(["cat"], np.full((1, 4, 4), 1 / 16), TALL)
    photos = [Image.new("RGB", WIDE), Image.new("RGB", TALL)]
    fig = contact_sheet([dog, cat], photos, columns=1)
    first, first_map, second, second_map, legend = fig.axes
    assert [text.get_text() for text in fig.texts] == ["$dog$ runs", "cat"]
    assert [len(ax.images) for ax in fig.axes[:4]] == [1, 2, 1, 2]
    assert first.get_xlim() == (0, WIDE[0])
    assert second.get_xlim() == (0, TALL[0])
    high = float(np.float32(0.7))
    assert first_map.images[1].get_clim() == second_map.images[1].get_clim() == (0, high)
    np.testing.assert_allclose(first_map.images[1].get_array(), [[0.7, 0.2, 0.2], [0.2, 0.2, 0.2]], rtol=1e-6)
    assert "one scale for all photos" in legend.texts[0].get_text()


def test_summaries_go_over_words(dog):
    np.testing.assert_allclose(summary_map(dog), [[0.7, 0.2, 0.2], [0.2, 0.2, 0.2]], rtol=1e-6)
    silent = caption_of([], np.zeros((0, 2, 3)))
    assert summary_map(silent).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_sheet_uses_the_photos_that_captions_carry(dog):
    dog.image = Image.new("RGB", WIDE)
    assert len(contact_sheet([dog, dog, dog, dog]).axes) == 9


@pytest.mark.parametrize(
    ("number", "arguments", "said"),
    [
        (0, {}, "at least one"),
        (1, {}, "carry no photo"),
        (2, {"images": [Image.new("RGB", WIDE)]}, "2 captions need as many photos, not 1"),
        (1, {"images": [Image.new("RGB", WIDE)], "columns": 0}, "columns"),
    ],
)
def test_an_impossible_sheet_raises_an_error(dog, number, arguments, said):
    with pytest.raises(ValueError, match=said):
        contact_sheet([dog] * number, **arguments)


def test_signed_maps_keep_the_weight_furthest_from_zero(dog):
    dog.properties = WeightProperties(sums_to_one=False, signed=True)
    dog.weights[1, 0, 0] = -0.9
    np.testing.assert_allclose(summary_map(dog)[0, 0], -0.9)
    fig = contact_sheet([dog], [Image.new("RGB", WIDE)])
    high = float(np.float32(0.9))
    assert fig.axes[1].images[1].get_clim() == (-high, high)
    assert "orange above 0" in fig.axes[-1].texts[0].get_text()
