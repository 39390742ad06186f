"""A planted marker: one bright cell, and the pixels that change are that cell's pixels and no others."""

import numpy as np
import pytest
from helpers.drawing import draw_overlay
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from caption.core.box import cell_box
from caption.visualize import overlay
from caption.visualize.overlay import show_photo
from caption.visualize.scale import Scale, scale_of
from caption.visualize.styles import STYLES

WIDE, TALL = (300, 200), (180, 320)

# Photo size, box, grid (rows, cols), cell, and what the model has seen if it is not the box.
PLACES = {
    "grid not square": (WIDE, (0, 0, 300, 200), (4, 9), (3, 8), None),
    "crop off whole pixels": (WIDE, (40.5, 10.25, 245.5, 190.75), (7, 5), (2, 3), None),
    "padded wide": (WIDE, (0, -50, 300, 250), (6, 6), (3, 2), None),
    "cell cut by the edge": (WIDE, (0, -50, 300, 250), (4, 4), (0, 1), None),
    "cell beyond the photo": (WIDE, (0, -50, 300, 250), (6, 6), (0, 2), None),
    "ends within the photo": (WIDE, (-25, -20, 275, 180), (4, 6), (3, 5), (0, 0, 300, 200)),
    "beside a crop": (WIDE, (30, -20, 230, 180), (4, 4), (2, 0), (50, 0, 250, 200)),
    "columns before the grid": (WIDE, (100, 0, 300, 200), (2, 8), (1, 0), (0, 0, 300, 200)),
    "rows before the grid": (TALL, (0, 160, 180, 320), (8, 2), (0, 1), (0, 0, 180, 320)),
    "beside padding": (WIDE, (-25, -75, 275, 225), (6, 6), (5, 5), (0, -50, 300, 250)),
}
OPACITY, TINT = STYLES["cells"].opacity, STYLES["cells"].tint


def draw(photo, weights, box, vmax, vmin=0, style="cells", **options):
    """The axes' pixels, (height, width) grey levels, one for each of the photo's when it is grey."""
    return draw_overlay(photo, weights, box, Scale(vmin, vmax), style=style, **options).mean(axis=2)


def one_hot(grid, cell):
    weights = np.zeros(grid)
    weights[cell] = 1
    return weights


BACKGROUNDS = [*((place, 128) for place in PLACES), ("padded wide", 0), ("padded wide", 255)]


@pytest.mark.parametrize(("place", "background"), BACKGROUNDS)
def test_the_marker_lights_its_own_cell_and_nothing_else(place, background):
    size, box, grid, cell, seen = PLACES[place]
    photo = Image.new("RGB", size, (background,) * 3)
    dark = draw(photo, np.zeros(grid), box, vmax=1, seen=seen)
    changed = abs(draw(photo, one_hot(grid, cell), box, vmax=1, seen=seen) - dark) > 20
    left, top, right, bottom = cell_box(grid, box, cell, seen)
    x, y = np.arange(size[0]) + 0.5, np.arange(size[1])[:, None] + 0.5
    # A pixel on an edge may have either colour.
    surely_in = (x > left + 0.75) & (x < right - 0.75) & (y > top + 0.75) & (y < bottom - 0.75)
    surely_out = (x < left - 0.75) | (x > right + 0.75) | (y < top - 0.75) | (y > bottom + 0.75)
    assert changed[surely_in].all()
    assert not changed[surely_out].any()
    assert changed.any() == surely_in.any() == (place != "cell beyond the photo")


@pytest.mark.parametrize("place", ["grid not square", "crop off whole pixels"])
def test_smoothed_light_peaks_in_its_cell_and_reaches_its_neighbours_centres(place):
    size, box, grid, cell, _ = PLACES[place]
    left, top, right, bottom = cell_box(grid, box, cell)
    photo = Image.new("RGB", size, (128, 128, 128))
    light = draw(photo, one_hot(grid, cell), box, vmax=1, smooth=True)
    light -= draw(photo, np.zeros(grid), box, vmax=1, smooth=True)
    row, col = np.unravel_index(light.argmax(), light.shape)
    assert top <= row + 0.5 <= bottom
    assert left <= col + 0.5 <= right
    x, y = np.arange(size[0]) + 0.5, np.arange(size[1])[:, None] + 0.5
    width, height = right - left, bottom - top
    far = (x < left - width / 2 - 1) | (x > right + width / 2 + 1)
    far = far | (y < top - height / 2 - 1) | (y > bottom + height / 2 + 1)
    assert np.abs(light[far]).max(initial=0) < 3
    beside = (x > left - width / 4) & (x < left - 1) & (y > top) & (y < bottom)
    assert light[beside].max() > 20


def test_light_follows_the_formula_and_rises_with_alpha_on_any_photo():
    weights = np.linspace(0, 0.4, 16).reshape(2, 8)
    light = np.sqrt(weights / 0.4)
    for level in (0, 60, 128, 200, 255):
        photo = Image.new("RGB", (80, 20), (level,) * 3)
        seen = draw(photo, weights, (0, 0, 80, 20), vmax=0.4)[5::10, 5::10]
        expected = level * (1 - OPACITY * (1 - light) - TINT * light) + 255 * TINT * light
        np.testing.assert_allclose(seen, expected, atol=2)
        assert (np.diff(seen.ravel()) > 0).all()


def test_signed_weights_are_darkest_where_lowest():
    scale = scale_of(np.array([[-0.5, 1.0]]), np.array([[0.1, 0.2]]))
    assert scale == Scale(-0.5, 1.0, mean=0.2)
    photo = Image.new("RGB", (40, 20), (150, 150, 150))
    weights = np.array([[-0.5, 0.0, 1.0]])
    seen = draw(photo, weights, (0, 0, 40, 20), vmin=scale.low, vmax=scale.high)[10, [5, 20, 35]]
    assert seen[0] < seen[1] < seen[2]
    assert scale_of(np.zeros((2, 3, 3))) == scale_of(np.zeros((0, 3, 3))) == Scale(0, 1)


def test_smooth_heat_holds_its_value_to_the_end_of_what_the_model_has_seen():
    photo = Image.new("RGB", WIDE, (128, 128, 128))
    weights = np.zeros((4, 6))
    weights[:, -1] = 1
    light = draw(photo, weights, (-25, -20, 275, 180), vmax=1, smooth=True, seen=(0, 0, 300, 200))
    assert np.ptp(light[:, 252:]) < 3  # from the centre of the last cell on
    assert light[:, 252:].min() > light[:, :200].max() + 50


def test_the_veil_lies_on_what_the_model_has_not_seen():
    photo = Image.new("RGB", WIDE, (200, 200, 200))
    crop = draw(photo, np.zeros((4, 4)), (30, -20, 230, 180), vmax=1, seen=(50, 0, 250, 200))
    assert crop[:, :45].std() > 5  # hatched, though the grid covers a part of it
    assert crop[:, 55:245].std() < 1  # not hatched, though the grid ends before
    assert crop[:, 255:].std() > 5


def test_a_sampled_location_is_framed():
    photo = Image.new("RGB", WIDE, (128, 128, 128))
    box = (0, 0, 300, 200)
    plain = draw(photo, np.zeros((4, 6)), box, vmax=1)
    framed = draw(photo, np.zeros((4, 6)), box, vmax=1, location=(2, 3))
    rows, cols = np.nonzero(abs(framed - plain) > 20)
    frame = [cols.min(), rows.min(), cols.max(), rows.max()]
    np.testing.assert_allclose(frame, [150, 100, 200, 150], atol=2.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"opacity": 1.5}, "opacity"),
        ({"weights": np.zeros(3)}, "rows, cols"),
        ({"style": "neon"}, "no style 'neon': the styles are heat, paper, glow, cells"),
        ({"cmap": "rainbows"}, "no colour map 'rainbows'"),
    ],
)
def test_nonsense_is_refused(options, said):
    arguments = {"weights": np.zeros((2, 2)), "image": Image.new("RGB", (9, 9)), **options}
    with pytest.raises(ValueError, match=said):
        overlay(Figure().add_subplot(), box=(0, 0, 9, 9), **arguments)


def test_a_photo_larger_than_any_print_is_shrunk_and_stays_in_place_and_another_keeps_its_pixels():
    small = np.random.default_rng(0).integers(256, size=(40, 60, 3), dtype=np.uint8)
    ax = show_photo(Figure(figsize=(3, 2)).add_subplot(), Image.fromarray(small))
    np.testing.assert_array_equal(ax.images[0].get_array(), small)
    pixels = np.zeros((2003, 3001, 3), np.uint8)
    pixels[1500:1600, 2400:2500] = 255
    fig = Figure(figsize=(3.001, 2.003), dpi=100)
    ax = show_photo(fig.add_axes((0, 0, 1, 1)), Image.fromarray(pixels))
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 3001), (2003, 0))
    assert ax.images[0].get_array().shape == (668, 1001, 3)
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    rows, cols = np.nonzero(np.asarray(canvas.buffer_rgba())[..., 0] > 128)
    # Releases of Matplotlib differ by a pixel.
    assert (rows.mean(), cols.mean()) == pytest.approx((154.5, 245), abs=1.1)
    assert (np.ptp(rows) + 1, np.ptp(cols) + 1) == pytest.approx((10, 10), abs=1)
