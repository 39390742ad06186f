"""The interactive page in a real browser: the word under the pointer highlights its cells and no others."""

import json

import numpy as np
import pytest
from PIL import Image

from caption.box import cell_box
from caption.lens_reading import Doubt, LensReading, Seen
from caption.regions import WeightProperties
from caption.result import AttentionMaps, Caption
from caption.visualize import to_fragment, to_html
from caption.visualize.styles import ABOVE, BELOW, SIGNED_TINT, STYLES

WIDE, TALL = (300, 200), (180, 320)
GREY = 128
OPACITY, TINT = STYLES["cells"].opacity, STYLES["cells"].tint

# Photo size, box, grid (rows, cols), cells of the words, and what the model has seen where it is not the box.
BESIDE_A_CROP = (WIDE, (30, -20, 230, 180), (4, 4), [(2, 0), (3, 3)], (50, 0, 250, 200))
PLACES = {
    "grid not square": (TALL, (0, 0, 180, 320), (4, 9), [(3, 8), (0, 1)], None),
    "padded": (WIDE, (0, -50, 300, 250), (6, 6), [(3, 2), (1, 5)], None),
    "shrunk to fit": ((2400, 1600), (0, 0, 2400, 1600), (7, 7), [(1, 5), (6, 0)], None),
    "beside a crop": BESIDE_A_CROP,
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
def dog_page(browser, tmp_path_factory):
    """The page of that caption, which tests leave as they have found it."""
    path = tmp_path_factory.mktemp("pages") / "dog.html"
    path.write_text(a_dog_runs().to_html(style="cells"), encoding="utf-8")
    page = browser.open(path.as_uri())
    yield page
    assert page.complaints() == []
    page.close()


def lit_cell(shape, photo, box, grid, cell, whole=None):
    """Masks of the element's pixels surely within the cell and surely outside; an edge may blur between."""
    scale = shape[1] / photo[0]
    left, top, right, bottom = (edge * scale for edge in cell_box(grid, box, cell, whole))
    x, y = np.arange(shape[1]) + 0.5, np.arange(shape[0])[:, None] + 0.5
    blur = 1.5 + scale / 2
    inside = (x > left + blur) & (x < right - blur) & (y > top + blur) & (y < bottom - blur)
    outside = (x < left - blur) | (x > right + blur) | (y < top - blur) | (y > bottom + blur)
    return inside, outside


def assert_lit(page, size, box, grid, cell, whole=None, photo=".satt-photo"):
    """The photo is lit at the cell, and dark everywhere else."""
    picture = page.picture(photo)[..., 0]
    inside, outside = lit_cell(picture.shape, size, box, grid, cell, whole)
    assert inside.any()
    assert (picture[inside] > GREY + 10).all()
    assert (picture[outside] < GREY - 10).all()
    return picture


@pytest.mark.parametrize("place", PLACES)
def test_hovering_a_word_lights_its_own_cell_and_nothing_else(show, place):
    size, box, grid, cells, whole = PLACES[place]
    page = show(pointing(size, box, grid, cells, seen=whole).to_html(style="cells"))
    page.hover(".satt-word", 0)
    plain = page.picture(".satt-photo")
    assert np.abs(plain - GREY).max() <= 2
    for step, cell in enumerate(cells):
        page.hover(".satt-word", step + 1)
        picture = assert_lit(page, size, box, grid, cell, whole)
    crop = "crop" in place
    assert crop == ("hatched" in page.text(".satt-scale"))
    if crop and size == WIDE:
        assert picture[:, : int(50 * picture.shape[1] / WIDE[0]) - 3].std() > 5
    page.hover(".satt-word", 0)
    assert np.abs(page.picture(".satt-photo") - plain).max() == 0


def test_pointing_beside_the_grid_finds_the_nearest_cell(show):
    size, box, grid, cells, whole = BESIDE_A_CROP
    page = show(pointing(size, box, grid, cells, seen=whole).to_html())

    def said_at(x, y):
        page.run(
            "(stage => { const frame = stage.getBoundingClientRect();"
            "stage.dispatchEvent(new PointerEvent('pointermove', {"
            f"clientX: frame.left + frame.width * {x / size[0]}, clientY: frame.top + frame.height * {y / size[1]}"
            "})); })(document.querySelector('.satt-photo'))"
        )
        return page.text("[role=status]")

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
    nodes = dog_page.call("Accessibility.getFullAXTree")["nodes"]
    found = {}
    for node in nodes:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            found.setdefault(node["role"]["value"], []).append((name, node))
    names = {role: [name for name, _ in parts] for role, parts in found.items()}
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
    meter = found["meter"][0][1]
    assert float(meter["value"]["value"]) == pytest.approx(0.9, abs=1e-6)


def test_the_length_of_the_bar_is_the_gate(show, dog_page):
    for step, gate in enumerate([0.1, 0.9, 0.5]):
        dog_page.hover(".satt-word", step + 1)
        whole, bar = (dog_page.box_of(part)[2] for part in (".satt-meter", ".satt-meter > span"))
        whole -= 2
        assert bar / whole == pytest.approx(gate, abs=0.02)
    ungated = show(pointing(WIDE, (0, 0, 300, 200), (2, 2), [(0, 0)]).to_html(style="cells"))
    assert ungated.box_of(".satt-gate")[2:] == ungated.box_of(".satt-map")[2:] == [0, 0]


def test_each_of_the_best_captions_has_its_own_maps(show, dog):
    cat = pointing(WIDE, (0, 0, 300, 200), (2, 2), [(1, 0), (0, 1)], ["a", "cat"], finished=False)
    dog.alternatives, dog.log_prob = [cat], -0.001
    page = show(dog.to_html(style="cells"))
    assert page.text(".satt-choice small") == "log p 0.00"
    page.hover(".satt-word", 3)
    page.click(".satt-choice input", 1)
    words = "[...document.querySelectorAll('.satt-word')].map(chip => chip.firstChild.data)"
    assert page.run(words) == ["photo", "a", "cat"]
    assert "unfinished" in page.run("document.querySelectorAll('.satt-choice label')[1].textContent")
    page.hover(".satt-word", 1)
    assert_lit(page, WIDE, cat.box, (2, 2), (1, 0))
    page.click(".satt-choice input", 0)
    assert page.run("document.querySelectorAll('.satt-word').length") == 4


def test_each_map_can_be_chosen_and_has_its_own_grid(show, dog):
    coarse = np.zeros((3, 2, 2, 2))
    coarse[:, 0, 0, 1] = coarse[:, 1, 1, 0] = 1
    dog.maps = AttentionMaps({"heads": coarse})
    dog.alternatives = [pointing(WIDE, (0, 0, 300, 200), (2, 2), [(1, 1)], ["cat"])]
    page = show(dog.to_html(style="cells"))
    options = "[...document.querySelectorAll('.satt-map option')].map(option => option.textContent)"
    assert page.run(options) == ["summary", "heads[0]", "heads[1]"]
    page.hover(".satt-word", 2)
    for choice, (grid, cell) in enumerate([((4, 6), (2, 3)), ((2, 2), (0, 1)), ((2, 2), (1, 0))]):
        page.run(
            f"(select => {{ select.selectedIndex = {choice}; select.dispatchEvent(new Event('change')); }})"
            "(document.querySelector('.satt-map select'))"
        )
        assert page.pressed() == ["dog"]
        assert_lit(page, WIDE, dog.box, grid, cell)
    page.click(".satt-choice input", 1)
    assert page.box_of(".satt-map")[2:] == [0, 0]


def test_signed_weights_are_orange_and_blue_and_a_point_is_crossed(show):
    weights = np.array([[[-0.4, -0.1, 0, 0.1, 0.4]]])
    photo = Image.new("RGB", (500, 100), (GREY,) * 3)
    signed = WeightProperties(sums_to_one=False, signed=True)
    caption = Caption(
        "dog",
        ["dog"],
        weights,
        -1,
        [-1],
        (0, 0, 500, 100),
        image=photo,
        maps=AttentionMaps(points=[[150, 50]]),
        properties=signed,
    )
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


def test_the_sentinels_share_is_shown(show, dog):
    dog.properties = WeightProperties(sentinel=True)
    dog.weights[1] *= 0.75
    page = show(dog.to_html(style="cells"))
    page.hover(".satt-word", 2)
    assert page.text("[role=status]").endswith("α 0.75, 19.7× mean; sentinel 0.25")
    assert "sentinel" in page.text(".satt-scale")


def test_smoothing_peaks_in_the_cell_and_reaches_half_a_cell_further(show, dog, dog_page):
    page = dog_page
    page.hover(".satt-word", 2)
    raw = page.picture(".satt-photo")[..., 0]
    page.click(".satt-smooth")
    smooth = page.picture(".satt-photo")[..., 0]
    scale = raw.shape[1] / WIDE[0]
    cell = [int(edge * scale) for edge in cell_box((4, 6), dog.box, (2, 3))]
    row, col = np.unravel_index(smooth.argmax(), smooth.shape)
    assert cell[0] < col < cell[2]
    assert cell[1] < row < cell[3]
    just_left = (cell[1] + cell[3]) // 2, cell[0] - int(10 * scale)
    far_left = just_left[0], cell[0] - int(30 * scale)
    assert smooth[just_left] > raw[just_left] + 20
    assert abs(smooth[far_left] - raw[far_left]) <= 2
    page.click(".satt-smooth")
    assert (page.picture(".satt-photo")[..., 0] == raw).all()
    begun = show(dog.to_html(style="cells", smooth=True))
    begun.hover(".satt-word", 2)
    assert (begun.picture(".satt-photo")[..., 0] == smooth).all()


def test_opacity_goes_from_the_bare_photo_to_black(dog_page):
    dog_page.hover(".satt-word", 2)

    def seen_at(opacity):
        dog_page.run(
            f"(slider => {{ slider.value = {opacity}; slider.dispatchEvent(new Event('input')); }})"
            "(document.querySelector('.satt-opacity'))"
        )
        return dog_page.picture(".satt-photo")[..., 0]

    assert np.abs(seen_at(0) - GREY).max() <= 2
    assert seen_at(100)[5, 5] == 0
    assert seen_at(30)[5, 5] == pytest.approx(0.7 * GREY, abs=3)
    seen_at(100 * OPACITY)


def test_what_the_encoder_sees_is_said_at_its_word(show):
    caption = pointing(WIDE, (0, 0, 300, 200), (4, 6), [(0, 0), (1, 1), (2, 2)])
    seen = [[Seen("cat", 0.84)], [Seen("wall", 0.3)], [Seen("car", 0.91)]]
    doubts = [Doubt(2, caption.words[2], "car", 0.91)]
    caption.lens = LensReading(seen, [[], [], []], [], doubts)
    page = show(caption.to_html())
    told = []
    for chip in (1, 2, 3):
        page.hover(".satt-word", chip)
        told.append(page.run("document.querySelector('.satt-status').textContent"))
    assert told[0].endswith("; sees cat 0.8")
    assert "sees" not in told[1]
    assert told[2].endswith(f"; says {caption.words[2]}, sees car")


def test_a_phone_shows_all_of_it_and_answers_taps(show, dog):
    dog.words[1] = "d" + "o" * 60 + "g"
    page = show(dog.to_html(style="cells"), width=360, height=740, touch=True)
    page.tap(".satt-word", 3)
    assert page.pressed() == ["runs"]
    assert page.run("document.documentElement.scrollWidth") <= 360
    chips = [page.box_of(".satt-word", index) for index in range(4)]
    assert min(height for *_, height in chips) >= 36  # large enough for a finger
    assert min(width for *_, width, _ in chips) >= 24
    assert_lit(page, WIDE, dog.box, (4, 6), (3, 5))


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


def test_photos_of_a_gallery_are_lit_one_by_one(show, dog):
    cat = pointing(TALL, (0, 0, 180, 320), (2, 2), [(1, 1)], ["cat"])
    page = show(to_html([dog, cat], "Two photos", style="cells"), width=1000)
    page.run("document.querySelectorAll('.satt-photo')[1].classList.add('second')")
    before = page.picture(".second")
    page.hover(".satt-word", 2)
    assert page.pressed() == ["dog", "cat"]
    assert (page.picture(".second") == before).all()
    # Rows line up, although the photos have other shapes.
    first, second = (page.box_of("figure", index) for index in range(2))
    assert first[0] == second[0]
    assert first[1] + first[3] <= second[1]
    strips = [page.box_of(".satt-strip", index) for index in range(2)]
    assert strips[0][0] == strips[1][0]


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
    page = show(
        notebook(
            to_fragment([dog], style="cells"),
            to_fragment([dog], style="cells"),
            to_fragment([other], style="cells"),
        )
    )
    page.hover("#cell1 .satt-word", 2)
    assert [page.pressed(f"#cell{index}") for index in range(3)] == [["a"], ["dog"], ["other"]]
    assert_lit(page, WIDE, dog.box, (4, 6), (2, 3), photo="#cell1 .satt-photo")
    page.click("#cell0 .satt-choice input", 1)
    checked = "[...document.querySelectorAll('.satt-choice input')].map(radio => radio.checked)"
    assert page.run(checked) == [False, True, True, False]
    page.hover("#cell2 .satt-word", 1)
    assert [page.pressed(f"#cell{index}") for index in range(3)] == [["cat"], ["dog"], ["other"]]


def test_words_are_shown_as_they_are(show):
    evil = '</script><b onclick="x()">$a$ &amp; '
    page = show(pointing(WIDE, (0, 0, 300, 200), (2, 2), [(0, 0)], [evil]).to_html(style="cells", title=evil))
    page.hover(".satt-word", 1)
    assert page.pressed() == [evil]
    assert page.run("document.title") == evil.strip()
    assert page.run("document.querySelectorAll('b').length") == 0
    silent = show(pointing(WIDE, (0, 0, 300, 200), (2, 2), []).to_html(style="cells", title="Nothing"))
    assert silent.text("[role=status]") == "The model said nothing."
    silent.click(".satt-word", 0)
    for key in ("ArrowRight", "End", "Home"):
        silent.press(key)
    assert np.abs(silent.picture(".satt-photo") - GREY).max() <= 2


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
