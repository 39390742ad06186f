"""The interactive page in a real browser: the word under the pointer highlights its cells and no others."""

import json
import re

import numpy as np
import pytest
from helpers.captions import caption_of
from PIL import Image

from caption.core.box import cell_box
from caption.core.regions import WeightProperties
from caption.results.caption import AttentionMaps, Caption
from caption.results.lens_reading import Doubt, LensReading, Seen
from caption.visualize import to_fragment, to_html
from caption.visualize.styles import ABOVE, BELOW, SIGNED_TINT, STYLES

WIDE, TALL = (300, 200), (180, 320)
GREY = 128
OPACITY, TINT = STYLES["cells"].opacity, STYLES["cells"].tint

# Photo size, box, grid (rows, cols), cells of the words, and what the model has seen where it is not the box.
PLACES = {
    "grid not square": (TALL, (0, 0, 180, 320), (4, 9), [(3, 8), (0, 1)], None),
    "padded": (WIDE, (0, -50, 300, 250), (6, 6), [(3, 2), (1, 5)], None),
    "shrunk to fit": ((2400, 1600), (0, 0, 2400, 1600), (7, 7), [(1, 5), (6, 0)], None),
    "beside a crop": (WIDE, (30, -20, 230, 180), (4, 4), [(2, 0), (3, 3)], (50, 0, 250, 200)),
}


def pointing(size, box, grid, cells, words=None, **fields):
    """A caption whose words each attend to a single cell."""
    weights = np.zeros((len(cells), *grid))
    for step, cell in enumerate(cells):
        weights[(step, *cell)] = 1
    words = words or [f"word{step}" for step in range(len(cells))]
    log_probs = np.log(np.full(len(cells), 0.5))
    fields = {"image": Image.new("RGB", size, (GREY,) * 3), **fields}
    return Caption(" ".join(words), words, weights, -3.0, log_probs, box, **fields)


def a_dog_runs():
    cells, words = [(0, 0), (2, 3), (3, 5)], ["a", "dog", "runs"]
    return pointing(WIDE, (0, 0, 300, 200), (4, 6), cells, words, gates=[0.1, 0.9, 0.5])


@pytest.fixture
def dog():
    return a_dog_runs()


@pytest.fixture(scope="module")
def dog_page(keep):
    return keep(a_dog_runs().to_html(style="cells"))


@pytest.fixture(scope="module")
def places_page(keep):
    """A gallery of all places, in a window in which nothing scrolls under the pointer."""
    captions = [
        pointing(size, box, grid, cells, seen=seen) for size, box, grid, cells, seen in PLACES.values()
    ]
    return keep(to_html(captions, style="cells"), width=1000, height=4000)


def assert_lit(page, size, box, grid, cell, seen=None, photo=".satt-photo"):
    """The photo is lit at the cell, and dark everywhere else; an edge may blur between."""
    picture = page.picture(photo)[..., 0]
    scale = picture.shape[1] / size[0]
    left, top, right, bottom = (edge * scale for edge in cell_box(grid, box, cell, seen))
    x, y = np.arange(picture.shape[1]) + 0.5, np.arange(picture.shape[0])[:, None] + 0.5
    blur = 1.5 + scale / 2
    inside = (x > left + blur) & (x < right - blur) & (y > top + blur) & (y < bottom - blur)
    outside = (x < left - blur) | (x > right + blur) | (y < top - blur) | (y > bottom + blur)
    assert inside.any()
    assert (picture[inside] > GREY + 10).all()
    assert (picture[outside] < GREY - 10).all()
    return picture


def test_hovering_a_word_lights_its_own_cell_of_its_photo_and_nothing_else(places_page):
    page = places_page
    first = page.picture(".satt-photo")
    for number, (place, (size, box, grid, cells, seen)) in enumerate(PLACES.items(), start=1):
        card = f".satt-group:nth-of-type({number})"
        photo = f"{card} .satt-photo"
        page.hover(f"{card} .satt-word", 0)
        assert np.abs(page.picture(photo) - GREY).max() <= 2
        for step, cell in enumerate(cells):
            page.hover(f"{card} .satt-word", step + 1)
            picture = assert_lit(page, size, box, grid, cell, seen, photo)
        assert ("hatched" in page.text(f"{card} .satt-scale")) == (place == "beside a crop")
        if place == "beside a crop":
            assert picture[:, : int(50 * picture.shape[1] / size[0]) - 3].std() > 5
        page.hover(f"{card} .satt-word", 1)
    assert (page.picture(".satt-photo") == first).all()
    # Rows line up, although the photos have other shapes.
    assert len({page.box_of("figure", index)[0] for index in range(len(PLACES))}) == 1
    assert len({page.box_of(".satt-strip", index)[0] for index in range(len(PLACES))}) == 1


def test_pointing_beside_the_grid_finds_the_nearest_cell(places_page):
    index = [*PLACES].index("beside a crop")
    photo = f".satt-group:nth-of-type({index + 1}) .satt-photo"

    def said_at(x, y):
        places_page.hover_at(photo, x / WIDE[0], y / WIDE[1])
        return places_page.text(".satt-status", index)

    assert said_at(240, 190).startswith("Looked here: “word1”")  # the grid ends at 230, 180
    assert said_at(60, 100).startswith("Looked here: “word0”")
    assert said_at(40, 100) == "The model did not see this part"  # though the grid begins at 30


def test_keys_move_along_the_words_and_speak(show, dog):
    page = show(dog.to_html(style="cells"))
    for _ in range(5):  # past the four controls
        page.press("Tab")
    assert page.run("document.activeElement.textContent") == "a"
    page.press("Escape")
    assert page.run("document.activeElement.textContent") == "photo"
    steps = ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowLeft", "ArrowLeft"]
    words = []
    for key in steps:
        page.press(key)
        words += page.pressed()
        assert page.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert words == ["a", "dog", "a", "runs", "runs", "a", "photo", "photo"]
    page.press("End")
    said = page.text("[role=status]")
    assert said == "“runs”, p 0.5: looked most at the lower right (row 4, column 6 of 4 × 6), α 1, 24.0× even"
    page.press("Escape")
    assert page.pressed() == ["photo"]
    assert page.run("document.querySelectorAll('.satt-words [tabindex=\"0\"].satt-word').length") == 1


def test_a_screen_reader_finds_the_parts(dog_page):
    dog_page.hover(".satt-word", 2)
    names, values = {}, {}
    for node in dog_page.call("Accessibility.getFullAXTree")["nodes"]:
        if not node.get("ignored"):
            role = node["role"]["value"]
            names.setdefault(role, []).append(node.get("name", {}).get("value", ""))
            values[role] = node.get("value", {}).get("value")
    assert names["image"] == ["Photo: a dog runs"]
    assert names["toolbar"] == ["Words of the caption"]
    assert [name for name in names["button"] if len(name) <= 5] == ["photo", "a", "dog", "runs"]
    assert {"▶ Play", "Save as PNG"} < set(names["button"])
    assert names["main"] == [""]
    assert names["checkbox"] == ["Smooth between cells"]
    assert names["combobox"] == ["Style", "Colours"]
    assert names["slider"] == ["Opacity"]
    assert names["meter"][0].startswith("gate β")
    assert "status" in names
    assert float(values["meter"]) == pytest.approx(0.9, abs=1e-6)


def test_the_length_of_the_bar_is_the_gate(dog_page):
    for step, gate in enumerate([0.1, 0.9, 0.5]):
        dog_page.hover(".satt-word", step + 1)
        whole, bar = (dog_page.box_of(part)[2] for part in (".satt-meter", ".satt-meter > span"))
        assert bar / (whole - 2) == pytest.approx(gate, abs=0.02)


def test_each_of_the_best_captions_and_each_map_can_be_chosen(show, dog):
    coarse = np.zeros((3, 2, 2, 2))
    coarse[:, 0, 0, 1] = coarse[:, 1, 1, 0] = 1
    dog.maps, dog.log_prob = AttentionMaps({"heads": coarse}), -0.001
    cat = pointing(WIDE, (0, 0, 300, 200), (2, 2), [(1, 0), (0, 1)], ["a", "cat"], finished=False)
    dog.alternatives = [cat]
    page = show(dog.to_html(style="cells"))
    options = "[...document.querySelectorAll('.satt-map option')].map(option => option.textContent)"
    assert page.run(options) == ["summary", "heads[0]", "heads[1]"]
    page.hover(".satt-word", 2)
    for choice, (grid, cell) in [("summary", ((4, 6), (2, 3))), ("heads[0]", ((2, 2), (0, 1)))]:
        page.choose(".satt-map select", choice)
        assert page.pressed() == ["dog"]
        assert_lit(page, WIDE, dog.box, grid, cell)
    assert page.text(".satt-choice small") == "log p 0.00"
    assert "unfinished" in page.text(".satt-choice label", 1)
    page.click(".satt-choice input", 1)
    words = "[...document.querySelectorAll('.satt-word')].map(chip => chip.firstChild.data)"
    assert page.run(words) == ["photo", "a", "cat"]
    page.hover(".satt-word", 1)
    assert_lit(page, WIDE, cat.box, (2, 2), (1, 0))
    # The other caption has neither further maps nor gates.
    assert page.box_of(".satt-map")[2:] == page.box_of(".satt-gate")[2:] == [0, 0]
    page.click(".satt-choice input", 0)
    assert page.run(words) == ["photo", *dog.words]


def test_signed_weights_are_orange_and_blue_and_a_point_is_crossed(show):
    weights = np.array([[[-0.4, -0.1, 0, 0.1, 0.4]]])
    photo = Image.new("RGB", (500, 100), (GREY,) * 3)
    signed = WeightProperties(sums_to_one=False, signed=True)
    caption = caption_of(["dog"], weights, photo.size, image=photo, points=[[150, 50]], properties=signed)
    page = show(caption.to_html(style="cells"))
    page.hover(".satt-word", 1)
    seen = page.picture(".satt-photo")
    row = seen.shape[0] // 4  # beside the cross
    middles = seen[row, ((np.arange(5) + 0.5) * seen.shape[1] / 5).astype(int)]
    lightness = np.sqrt(np.abs(weights[0, 0]) / 0.4)[:, None]
    colours = np.where(weights[0, 0][:, None] < 0, BELOW, ABOVE)
    expected = GREY * (1 - OPACITY * (1 - lightness) - SIGNED_TINT * lightness)
    np.testing.assert_allclose(middles, expected + 255 * colours * SIGNED_TINT * lightness, atol=6)
    centre = seen[seen.shape[0] // 2, int(0.3 * seen.shape[1])]
    assert (centre > 200).all()
    said = page.text(".satt-scale")
    assert "orange above 0, blue below" in said
    assert "cross" in said
    assert "evenly" not in said


def test_what_is_known_of_a_word_is_told_at_it(show):
    words, cells = ["a", "dog", "runs", "on"], [(0, 0), (2, 3), (3, 5), (1, 1)]
    caption = pointing(WIDE, (0, 0, 300, 200), (4, 6), cells, words)
    caption.properties = WeightProperties(sentinel=True)
    caption.weights[1] *= 0.75
    caption.word_log_probs = np.log([0.998, 0.99999, 1.0, 0.05])
    caption.likeliest = [
        [("a", -0.1)],
        [("dog", -0.5), ("<b>cat</b>", -1.0), ("(end)", -3.0)],
        [("hops", -0.4), ("runs", -0.5)],
        [("on", -0.1)],
    ]
    seen = [[Seen("cat", 0.84)], [Seen("wall", 0.3)], [Seen("car", 0.91)], []]
    caption.lens = LensReading(seen, [[]] * 4, [], [Doubt(2, "runs", "car", 0.91)])
    page = show(caption.to_html())
    told, others = [], []
    for step in range(4):
        page.hover(".satt-word", step + 1)
        told.append(page.text(".satt-status"))
        others.append(page.text(".satt-others"))
    assert others == ["", "also likely: “<b>cat</b>” 0.368, “(end)” 0.05", "also likely: “hops” 0.67", ""]
    assert [re.search(r", p (.*?):", each)[1] for each in told] == ["0.998", "> 0.999", "1", "0.05"]
    assert told[0].endswith("; sees cat 0.8")
    assert told[1].endswith("α 0.75, 19.2× mean; sentinel 0.25")  # a wall is not likely enough
    assert told[2].endswith("; sees car where the caption says runs")
    assert "sentinel" in page.text(".satt-scale")


def test_smoothing_peaks_in_the_cell_and_reaches_half_a_cell_further(dog_page):
    page = dog_page
    page.hover(".satt-word", 2)
    raw = page.picture(".satt-photo")[..., 0]
    page.click(".satt-smooth")
    smooth = page.picture(".satt-photo")[..., 0]
    scale = raw.shape[1] / WIDE[0]
    cell = [int(edge * scale) for edge in cell_box((4, 6), (0, 0, *WIDE), (2, 3))]
    row, col = np.unravel_index(smooth.argmax(), smooth.shape)
    assert cell[0] < col < cell[2]
    assert cell[1] < row < cell[3]
    just_left = (cell[1] + cell[3]) // 2, cell[0] - int(10 * scale)
    far_left = just_left[0], cell[0] - int(30 * scale)
    assert smooth[just_left] > raw[just_left] + 20
    assert abs(smooth[far_left] - raw[far_left]) <= 2
    page.click(".satt-smooth")
    assert (page.picture(".satt-photo")[..., 0] == raw).all()


def test_opacity_goes_from_the_bare_photo_to_black(dog_page):
    dog_page.hover(".satt-word", 2)

    def seen_at(opacity):
        dog_page.choose(".satt-opacity", str(opacity))
        return dog_page.picture(".satt-photo")[..., 0]

    assert np.abs(seen_at(0) - GREY).max() <= 2
    assert seen_at(100)[5, 5] == 0
    assert seen_at(30)[5, 5] == pytest.approx(0.7 * GREY, abs=3)
    seen_at(100 * OPACITY)


def luminance(colour):
    channels = np.asarray(colour, dtype=float) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_by_day_and_by_night(show, dog, dark):
    page = show(dog.to_html(style="cells"), dark=dark)
    page.hover(".satt-word", 2)

    def colours(selector):
        return page.run(
            f"(style => [style.color, style.backgroundColor].map(one => one.match(/[\\d.]+/g).map(Number)))"
            f"(getComputedStyle(document.querySelector('{selector}')))"
        )

    paper = colours("body")[1]
    assert (luminance(paper) < 0.2) == dark
    pairs = [(colours(part)[0], paper) for part in (".satt-word", ".satt-status", ".satt-scale", "h1")]
    pairs.append(colours(".satt-word[aria-pressed=true]"))
    for ink, ground in pairs:
        lighter, darker = sorted((luminance(ink[:3]), luminance(ground[:3])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def notebook(*outputs):
    """A page that inserts outputs like JupyterLab: as HTML text, whose scripts run after they are inserted again."""
    cells = json.dumps(outputs).replace("<", "\\u003c")
    return f"""<!DOCTYPE html><meta charset="utf-8">
<style>button {{ font-size: 50px }} canvas {{ width: 10px }} label {{ display: none }}</style>
<script>
addEventListener("load", () => {cells}.forEach((output, index) => {{
  const cell = document.createElement("div");
  cell.id = "cell" + index;
  cell.innerHTML = output;
  for (const script of cell.querySelectorAll("script")) {{
    const again = document.createElement("script");
    for (const {{ name, value }} of script.attributes) again.setAttribute(name, value);
    again.textContent = script.textContent;
    script.replaceWith(again);
  }}
  document.body.append(cell);
}}));
</script>"""


def test_a_notebook_shows_several_and_one_twice(show, dog):
    dog.alternatives = [pointing(WIDE, (0, 0, 300, 200), (2, 2), [(1, 1)], ["cat"])]
    other = pointing(WIDE, (0, 0, 300, 200), (2, 2), [(0, 0)], ["other"])
    outputs = [to_fragment([caption], style="cells") for caption in (dog, dog, other)]
    page = show(notebook(*outputs))
    page.hover("#cell1 .satt-word", 2)
    assert [page.pressed(f"#cell{index}") for index in range(3)] == [["a"], ["dog"], ["other"]]
    assert_lit(page, WIDE, dog.box, (4, 6), (2, 3), photo="#cell1 .satt-photo")
    page.click("#cell0 .satt-choice input", 1)
    checked = "[...document.querySelectorAll('.satt-choice input')].map(radio => radio.checked)"
    assert page.run(checked) == [False, True, True, False]
    page.hover("#cell2 .satt-word", 1)
    assert [page.pressed(f"#cell{index}") for index in range(3)] == [["cat"], ["dog"], ["other"]]


def test_words_and_names_are_shown_as_they_are(show):
    evil, name = '</script><b onclick="x()">$a$ &amp; ', "<b onclick=x>.jpg"
    caption, silent = (
        pointing(WIDE, (0, 0, 300, 200), (2, 2), [(0, 0)] * len(words), words) for words in ([evil], [])
    )
    caption.image.filename = f"/home/me/secret/{name}"
    caption.alternatives = [pointing(WIDE, (0, 0, 300, 200), (2, 2), [(0, 0)], [evil])]
    html = to_html([caption, silent], evil, style="cells")
    assert "secret" not in html
    assert "<b onclick" not in html
    page = show(html, height=2500)
    page.hover(".satt-word", 1)
    assert page.pressed() == [evil, "photo"]
    assert page.run("document.title") == evil.strip()
    assert page.run("document.querySelectorAll('b').length") == 0
    assert [page.text(".satt-name", index) for index in range(2)] == [name, "photo 2"]
    # A caption without words is a bare photo.
    assert page.text(".satt-status", 1) == "This caption has no words."
    page.click(".satt-group:nth-of-type(2) .satt-word")
    for key in ("ArrowRight", "End", "Home"):
        page.press(key)
    assert np.abs(page.picture(".satt-group:nth-of-type(2) .satt-photo") - GREY).max() <= 2


@pytest.mark.nightly
def test_moving_light_arrives_where_still_light_jumps_to(show, dog):
    pictures = []
    for still in (True, False):
        page = show(dog.to_html(style="cells"), still=still)
        page.hover(".satt-word", 1)
        page.hover(".satt-word", 3)
        if not still:
            page.run("new Promise(done => setTimeout(done, 300))")
        pictures.append(page.picture(".satt-photo"))
    assert (pictures[0] == pictures[1]).all()


def test_playing_goes_through_the_words_and_stops(show):
    runs = pointing(WIDE, (0, 0, 300, 200), (4, 6), [(0, 0), (2, 3)], ["dog", "runs"])
    page = show(runs.to_html(style="cells"))
    page.click(".satt-play")
    assert page.text(".satt-play") == "❚❚ Pause"
    page.wait_for("document.querySelector('.satt-word[aria-pressed=true]').firstChild.data === 'runs'")
    page.wait_for("document.querySelector('.satt-play').textContent === '▶ Play'")
    assert page.pressed() == ["runs"]
