"""The styles: what each does to a photo where there is more, and where there is less than even attention."""

import numpy as np
import pytest
from helpers.drawing import draw_overlay
from PIL import Image

from caption.visualize.gaussian import enlarged
from caption.visualize.scale import Scale, scale_of
from caption.visualize.styles import STYLE_NAMES, STYLES, OverlayStyle, ease

EVEN = 1 / 8
PHOTO = (200, 120, 60)


def draw(weights, scale=None, photo=PHOTO, **look):
    """RGB in the middle of every cell of one row, (cells, 3)."""
    weights = np.asarray(weights, dtype=float)[None]
    size = (20 * weights.size, 20)
    return draw_overlay(Image.new("RGB", size, photo), weights, (0, 0, *size), scale, **look)[10, 10::20]


WEIGHTS = np.array([0, 0.05, EVEN, 0.13, 0.2, 0.495])  # with two more cells of 0, they sum to 1
SCALE = Scale(0, 0.495, mean=EVEN)
GREY = np.dot(PHOTO, [0.2126, 0.7152, 0.0722])
PALE = GREY + STYLES["heat"].saturation * (np.array(PHOTO) - GREY)


def test_heat_is_pale_up_to_even_attention_and_coloured_above():
    seen = draw(WEIGHTS, SCALE, style="heat")
    np.testing.assert_allclose(seen[:3], [PALE] * 3, atol=1)
    assert (np.diff(np.abs(seen[2:] - PALE).sum(axis=1)) > 0).all()
    assert np.ptp(seen[-1]) > 120


def test_glow_brightens_what_is_above_even_attention():
    look = STYLES["glow"]
    seen = draw(WEIGHTS, SCALE, style="glow")
    value = ease(np.clip((WEIGHTS - EVEN) / (0.495 - EVEN), 0, 1))[:, None]
    photo = np.array(PHOTO) * (1 - look.opacity * (1 - value) - look.tint * value)
    np.testing.assert_allclose(seen, photo + 255 * np.array(look.colour) * look.tint * value, atol=3)
    assert (np.diff(seen[2:].sum(axis=1)) > 0).all()


def test_paper_is_white_over_the_photo_in_proportion_to_the_weight():
    """As the authors' notebook: grey from black, the lowest weight, to white, the highest, with an opacity of 0.8."""
    seen = draw(WEIGHTS, SCALE, style="paper", smooth=False)
    grey = 255 * WEIGHTS[:, None] / 0.495
    np.testing.assert_allclose(seen, 0.2 * np.array(PHOTO) + 0.8 * grey, atol=2)


def test_paper_goes_from_the_lowest_to_the_highest_blurred_weight():
    weights = np.random.default_rng(0).dirichlet(np.full(49, 0.3), 3).reshape(3, 7, 7)
    scale, blurred = OverlayStyle("paper").scale_of(*weights), enlarged(weights)
    assert (scale.low, scale.high) == (blurred.min(), blurred.max())
    assert scale.mean == pytest.approx(1 / 49)
    photo = Image.new("RGB", (112, 112))
    grey = draw_overlay(photo, weights[0], (0, 0, 112, 112), scale, style="paper")[..., 0]
    expected = 255 * 0.8 * (blurred[0] - scale.low) / (scale.high - scale.low)
    np.testing.assert_allclose(grey, expected, atol=3)
    assert OverlayStyle("paper", smooth=False).scale_of(*weights) == scale_of(*weights)
    assert OverlayStyle("heat").scale_of(*weights) == scale_of(*weights)


@pytest.mark.parametrize("style", [name for name in STYLE_NAMES if not STYLES[name].blurred])
def test_smooth_maps_have_their_own_value_at_the_centres_of_cells(style):
    smooth, sharp = (draw(WEIGHTS, SCALE, style=style, smooth=smooth) for smooth in (True, False))
    np.testing.assert_allclose(smooth, sharp, atol=6)


@pytest.mark.parametrize("style", STYLE_NAMES)
def test_no_opacity_leaves_the_photo_and_signed_weights_are_orange_and_blue(style):
    seen = draw(WEIGHTS, SCALE, style=style, opacity=0)
    np.testing.assert_allclose(seen, [PALE if style == "heat" else PHOTO] * len(WEIGHTS), atol=1)
    below, zero, above = draw([-0.5, 0, 0.5], Scale(-0.5, 0.5, True), (128, 128, 128), style=style)
    assert below[2] > below[0] + 50
    assert above[0] > above[2] + 50
    assert np.ptp(zero) <= 16  # its middle pixel is not its centre


def test_a_colour_map_takes_the_place_of_heat_above_even_attention():
    seen = draw(WEIGHTS, SCALE, style="heat", cmap="Greens", opacity=1)
    np.testing.assert_allclose(seen[:3], [PALE] * 3, atol=1)
    assert seen[-1, 1] > seen[-1, 0]
    assert seen[-1, 1] > seen[-1, 2]


@pytest.mark.parametrize("style", STYLE_NAMES)
def test_equal_weights_have_one_colour_and_no_noise(style):
    weights = np.full(8, 1 / 8) + np.array([1e-9, -1e-9] * 4)
    seen = draw(weights, scale_of(weights), style=style)
    assert np.ptp(seen, axis=0).max() <= 1
    if style == "heat":
        np.testing.assert_allclose(seen, [PALE] * 8, atol=1)
