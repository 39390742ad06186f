"""The interactive page in a real browser: a single caption, a gallery of two models, and the tree of a search."""

import json
import math
import re
import time

import numpy as np
import pytest
from helpers.captions import caption_of
from helpers.drawing import draw_overlay
from PIL import Image

from caption.core.box import cell_box
from caption.core.regions import WeightProperties
from caption.results.beam_tree import BeamNode, BeamTree
from caption.results.caption import AttentionMaps, Caption
from caption.results.lens_reading import Doubt, LensReading, Seen
from caption.visualize import to_fragment, to_html
from caption.visualize.styles import ABOVE, BELOW, SIGNED_TINT, STYLE_NAMES, STYLES, OverlayStyle

WIDE, TALL = (300, 200), (180, 320)
WHOLE = (0, 0, *WIDE)
GREY = 128
OPACITY = STYLES["cells"].opacity
EVIL = '</script><b onclick="x()">$a$ &amp; '
CHIPS = "[...document.querySelectorAll('%s')].map(chip => chip.firstChild.textContent)"


def pointing(size, box, grid, cells, words=None, **fields):
    """A caption whose words each attend to a single cell."""
    weights = np.zeros((len(cells), *grid))
    for step, cell in enumerate(cells):
        weights[(step, *cell)] = 1
    words = words or [f"word{step}" for step in range(len(cells))]
    log_probs = np.log(np.full(len(cells), 0.5))
    fields = {"image": Image.new("RGB", size, (GREY,) * 3), **fields}
    return Caption(" ".join(words), words, weights, -3.0, log_probs, box, **fields)


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


# -- one caption ---------------------------------------------------------------------------------------------------

CELLS = [(0, 0), (2, 3), (3, 5), (1, 1)]
WORDS = ["a", "dog", "runs", "on"]


def described():
    """A caption with all that a page can tell of its words, and another one."""
    coarse = np.zeros((4, 2, 2, 2))
    coarse[:, 0, 0, 1] = coarse[:, 1, 1, 0] = 1
    dog = pointing(WIDE, WHOLE, (4, 6), CELLS, WORDS, gates=[0.1, 0.9, 0.5, 0.3])
    dog.maps, dog.log_prob = AttentionMaps({"heads": coarse}), -0.001
    dog.word_log_probs = np.log([0.998, 0.99999, 1.0, 0.05])
    dog.likeliest = [
        [("a", -0.1)],
        [("dog", -0.5), ("<b>cat</b>", -1.0), ("(end)", -3.0)],
        [("hops", -0.4), ("runs", -0.5)],
        [("on", -0.1)],
    ]
    seen = [[Seen("cat", 0.84)], [Seen("wall", 0.3)], [Seen("car", 0.91)], []]
    dog.lens = LensReading(seen, [[]] * 4, [], [Doubt(2, "runs", "car", 0.91)])
    dog.alternatives = [pointing(WIDE, WHOLE, (2, 2), [(1, 0), (0, 1)], ["a", EVIL], finished=False)]
    dog.image.filename = "/home/me/secret/my dog.jpg"
    return dog


def test_the_page_names_the_method_of_a_map_that_is_not_the_attention(show):
    dog = pointing(WIDE, WHOLE, (4, 6), CELLS, WORDS)
    dog.method = "gradcam"
    page = show(to_html([dog]), width=1400)
    page.hover(".satt-word", 2)
    assert page.text(".satt-status").endswith(
        "gradcam is highest at the centre (row 3, column 4 of 4 × 6), w 1, 24.0× even"
    )
    assert page.text(".satt-scale").startswith("w (gradcam) from 0 to 1")
    page.hover_at(".satt-photo", 3.5 / 6, 2.5 / 4)
    assert page.text(".satt-status").startswith("High here: “dog”")
    assert "α" not in page.text(".satt-scale") + page.text(".satt-strip")


def test_words_from_right_to_left_stand_beside_their_numbers_and_in_their_order(show):
    """In a line from left to right, Hebrew would take the first half of the number with it."""
    page = show(
        to_html([pointing(WIDE, WHOLE, (2, 3), [(0, 0), (1, 1)], ["כלב", "חום"])]), width=900, height=700
    )
    page.wait_for("document.querySelector('.satt-thumb small').textContent !== ''")
    edges = """[...document.querySelectorAll('%s')].map(node => {
        const range = document.createRange(); range.selectNodeContents(node);
        return [...range.getClientRects()].map(part => [part.left, part.right]) })"""
    words, numbers = page.run(edges % ".satt-thumb > span"), page.run(edges % ".satt-thumb > small")
    assert all(len(parts) == 1 for parts in words + numbers)
    assert all(number[0][1] <= word[0][0] for word, number in zip(words, numbers, strict=True))
    assert words[1][0][1] < words[0][0][0]
    first, second = page.run(edges % ".satt-words .satt-word:not(.satt-plain)")
    assert second[0][1] < first[0][0]


def luminance(colour):
    channels = np.asarray(colour, dtype=float) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def assert_readable(page, dark):
    """The contrast of text and ground is at least 4.5 (WCAG 2, AA)."""

    def colours(selector):
        return page.run(
            f"(style => [style.color, style.backgroundColor].map(one => one.match(/[\\d.]+/g).map(Number)))"
            f"(getComputedStyle(document.querySelector('{selector}')))"
        )

    paper = colours("body")[1]
    assert (luminance(paper) < 0.2) == dark
    pairs = [(colours(part)[0], paper) for part in (".satt-word", ".satt-status", ".satt-scale", "h1")]
    for ink, ground in [*pairs, colours(".satt-word[aria-pressed=true]")]:
        lighter, darker = sorted((luminance(ink[:3]), luminance(ground[:3])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_one_caption_by_mouse_keys_and_controls_on_a_desk_and_on_a_phone(show, browser, tmp_path):
    dog = described()
    html = to_html([dog], EVIL, style="cells")
    assert not re.search("secret|<b onclick", html)
    page = show(html, width=1400)
    assert page.run("document.title") == EVIL.strip()
    assert page.run("document.querySelectorAll('b').length") == 0
    # A word shows its cell and nothing else, its gate, and what is known of it; "photo" shows the bare photo.
    page.hover(".satt-word", 0)
    assert np.abs(page.picture(".satt-photo") - GREY).max() <= 2
    told, others = [], []
    for step, cell in enumerate(CELLS):
        page.hover(".satt-word", step + 1)
        assert page.pressed() == [WORDS[step]]
        assert_lit(page, WIDE, WHOLE, (4, 6), cell)
        room, bar = (page.box_of(part)[2] for part in (".satt-meter", ".satt-meter > span"))
        assert bar / (room - 2) == pytest.approx(dog.gates[step], abs=0.02)
        told.append(page.text(".satt-status"))
        others.append(page.text(".satt-others"))
    assert others == ["", "also likely: “<b>cat</b>” 0.368, “(end)” 0.05", "also likely: “hops” 0.67", ""]
    assert [re.search(r", p (.*?):", text)[1] for text in told] == ["0.998", "> 0.999", "1", "0.05"]
    assert told[0].endswith("; sees cat 0.8")
    assert told[1].endswith("looked most at the centre (row 3, column 4 of 4 × 6), α 1, 24.0× even")
    assert told[2].endswith("; sees car where the caption says runs")
    assert page.text(".satt-remarks") == "the lens sees car where the caption says runs"
    assert_readable(page, dark=False)
    # A place of the photo shows the words that looked there.
    page.hover_at(".satt-photo", 3.5 / 6, 2.5 / 4)
    seen = "[...document.querySelectorAll('.satt-word')].map(e => e.style.getPropertyValue('--seen'))"
    assert page.run(seen) == ["", "0.000", "1.000", "0.000", "0.000"]
    assert page.text("[role=status]") == "Looked here: “dog” 24.0× even"
    # Keys.
    page.run("document.querySelector('.satt-word[tabindex=\"0\"]').focus()")
    words = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Escape"):
        page.press(key)
        words += page.pressed()
    assert words == ["a", "dog", "runs", "dog", "on", "on", "photo"]
    check_accessible(page)
    check_controls(page, dog)
    # The picture is saved with its sentence.
    page.hover(".satt-word", 3)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click(".satt-save")
    path, deadline = tmp_path / "my_dog_3.png", time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with Image.open(path) as image:
        saved = np.asarray(image.convert("L")).astype(int)
    assert saved.shape[1] == 960
    assert saved[600, 900] > GREY + 10 > GREY - 10 > saved[100, 100]
    assert saved[640:].min() < 100  # letters
    check_phone(show(html, width=390, height=844, dark=True, still=False))


def check_accessible(page):
    page.hover(".satt-word", 2)
    names, values = {}, {}
    for node in page.call("Accessibility.getFullAXTree")["nodes"]:
        if not node.get("ignored"):
            role = node["role"]["value"]
            names.setdefault(role, []).append(node.get("name", {}).get("value", ""))
            values[role] = node.get("value", {}).get("value")
    assert names["image"] == ["Photo: a dog runs on"]
    assert names["toolbar"] == ["Words of the caption"]
    assert {"photo", *WORDS, "▶ Play", "Save as PNG"} <= set(names["button"])
    assert names["checkbox"] == ["Smooth between cells"]
    assert {"Style", "Colours"} <= set(names["combobox"])
    assert names["slider"] == ["Opacity"]
    assert names["meter"][0].startswith("gate β")
    assert float(values["meter"]) == pytest.approx(0.9, abs=1e-6)


def check_controls(page, dog):
    """Smoothing, opacity, maps, and the other caption, from the word "dog"."""
    raw = page.picture(".satt-photo")[..., 0]
    page.click(".satt-smooth")
    smooth = page.picture(".satt-photo")[..., 0]
    scale = raw.shape[1] / WIDE[0]
    left, top, right, bottom = (int(edge * scale) for edge in cell_box((4, 6), WHOLE, (2, 3)))
    row, col = np.unravel_index(smooth.argmax(), smooth.shape)
    assert left < col < right
    assert top < row < bottom
    middle = (top + bottom) // 2
    assert smooth[middle, left - int(10 * scale)] > raw[middle, left - int(10 * scale)] + 20
    assert abs(smooth[middle, left - int(30 * scale)] - raw[middle, left - int(30 * scale)]) <= 2
    page.click(".satt-smooth")
    dark = []
    for opacity in (0, 100, 30, 100 * OPACITY):
        page.choose(".satt-opacity", str(opacity))
        dark.append(page.picture(".satt-photo")[5, 5, 0])
    assert dark[:3] == [pytest.approx(GREY, abs=2), 0, pytest.approx(0.7 * GREY, abs=3)]
    for choice, (grid, cell) in [("summary", ((4, 6), (2, 3))), ("heads[0]", ((2, 2), (0, 1)))]:
        page.choose(".satt-map select", choice)
        assert page.pressed() == ["dog"]
        assert_lit(page, WIDE, WHOLE, grid, cell)
    page.choose(".satt-map select", "summary")
    assert page.text(".satt-choice small") == "log p 0.00"
    assert "unfinished" in page.text(".satt-choice label", 1)
    page.click(".satt-choice input", 1)
    assert page.run(CHIPS % ".satt-word") == ["photo", "a", EVIL]
    page.hover(".satt-word", 1)
    assert_lit(page, WIDE, WHOLE, (2, 2), (1, 0))
    # It has neither further maps nor gates.
    assert page.box_of(".satt-map")[2:] == page.box_of(".satt-gate")[2:] == [0, 0]
    page.click(".satt-choice input", 0)
    assert page.run(CHIPS % ".satt-word") == ["photo", *dog.words]


def check_phone(page):
    """All is in reach of a finger; light moves to where it jumps on the desk; playing goes through the words."""
    assert page.run("document.documentElement.scrollWidth") <= 390
    chips = [page.box_of(".satt-word", index) for index in range(5)]
    assert min(height for *_, height in chips) >= 36
    photo, controls = page.box_of(".satt-photo"), page.box_of(".satt-style")
    assert controls[1] > photo[1] + photo[3]
    page.click(".satt-drawing summary")
    assert page.box_of(".satt-style")[3] > 20
    smooth = page.run("document.querySelector('.satt-smooth').checked")
    for step in range(5):  # the open bar lies over none of them
        page.click(".satt-thumb", min(step, 3))
        page.click(".satt-word", step)
    assert page.run("document.querySelector('.satt-smooth').checked") == smooth
    assert page.pressed() == [WORDS[3]]
    page.click(".satt-drawing summary")
    page.click(".satt-thumb", 0)
    assert page.pressed() == ["a"]
    page.click(".satt-word", 3)
    page.run("new Promise(done => setTimeout(done, 300))")
    assert_lit(page, WIDE, WHOLE, (4, 6), CELLS[2])
    assert_readable(page, dark=True)
    page.click(".satt-choice input", 1)
    page.click(".satt-play")
    assert page.text(".satt-play") == "❚❚ Pause"
    page.wait_for("document.querySelector('.satt-play').textContent === '▶ Play'")
    assert page.pressed() == [EVIL]


# -- several captions ----------------------------------------------------------------------------------------------

# Photo size, box, grid (rows, cols), cells of the words, and what the model has seen where it is not the box.
PLACES = {
    "grid not square": (TALL, (0, 0, 180, 320), (4, 9), [(3, 8), (0, 1)], None),
    "padded": (WIDE, (0, -50, 300, 250), (6, 6), [(3, 2), (1, 5)], None),
    "shrunk to fit": ((2400, 1600), (0, 0, 2400, 1600), (7, 7), [(1, 5), (6, 0)], None),
    "beside a crop": (WIDE, (30, -20, 230, 180), (4, 4), [(2, 0), (3, 3)], (50, 0, 250, 200)),
}


def gallery():
    """The captions of two models, with names that are markup."""
    soft, hard = [], []
    for number, (size, box, grid, cells, seen) in enumerate(PLACES.values()):
        first = pointing(size, box, grid, cells, seen=seen)
        first.image.filename = f"/home/me/secret/{'bdac'[number]}<i>.jpg"
        first.log_prob = -(1.0 + number)
        soft.append(first)
        hard.append(pointing(size, box, grid, cells[::-1], ["left", "right"], seen=seen))
    soft[1].weights = soft[1].weights * 0.999 + 0.001 / 36  # less sharp than the others
    return {"soft <1>": soft, "hard": hard}


def test_a_gallery_of_two_models_is_searched_and_every_word_lights_its_cell(show):
    html = to_html(gallery(), style="cells")
    assert html.count("data:image/jpeg") == len(PLACES)
    page = show(html, width=1400, height=700)
    drawn = "[...document.querySelectorAll('.satt-photo')].map(e => e.querySelector('canvas') ? 1 : 0)"
    page.wait_for(f"{drawn}[0] === 1")
    assert page.run(drawn)[-1] == 0  # only what is in view
    page.run("document.querySelectorAll('figure')[7].scrollIntoView()")
    page.wait_for(f"{drawn}[7] === 1 && {drawn}[0] === 0")
    page.resize(1400, 4000)  # nothing scrolls under the pointer
    assert [page.text(".satt-model", index) for index in range(4)] == ["soft <1>", "hard"] * 2
    boxes = [page.box_of(".satt-photo", index) for index in range(4)]
    assert boxes[0][1] == boxes[1][1] < boxes[2][1] == boxes[3][1]
    for number, (place, (size, box, grid, cells, seen)) in enumerate(PLACES.items(), start=1):
        for model, order in (("first", cells), ("last", cells[::-1])):
            card = f".satt-group:nth-of-type({number}) figure:{model}-of-type"
            page.hover(f"{card} .satt-word", 0)
            assert np.abs(page.picture(f"{card} .satt-photo") - GREY).max() <= 2
            for step, cell in enumerate(order):
                page.hover(f"{card} .satt-word", step + 1)
                picture = assert_lit(page, size, box, grid, cell, seen, f"{card} .satt-photo")
            assert ("hatched" in page.text(f"{card} .satt-scale")) == (place == "beside a crop")
    assert picture[:, : int(50 * picture.shape[1] / size[0]) - 3].std() > 5
    # Beside the grid the nearest cell is found.
    crop = ".satt-group:nth-of-type(4) figure:first-of-type"
    for x, y, said in [
        (240, 190, "Looked here: “word1”"),  # the grid ends at 230, 180
        (60, 100, "Looked here: “word0”"),
        (40, 100, "The model did not see this part"),  # though the grid begins at 30
    ]:
        page.hover_at(f"{crop} .satt-photo", x / WIDE[0], y / WIDE[1])
        assert page.text(f"{crop} .satt-status").startswith(said)
    check_address(page)
    check_finder(page)
    narrow = show(html, width=390, height=900)
    assert narrow.box_of(".satt-photo", 0)[0] == narrow.box_of(".satt-photo", 1)[0]
    check_colours(show)
    check_notebook(show)


def check_address(page):
    """The address names the word that is chosen."""
    page.run("document.querySelectorAll('.satt-group')[1].querySelectorAll('.satt-word')[2].click()")
    assert page.run("location.hash") == "#photo=2&word=2&model=1"
    page.run("location.hash = '#photo=1&word=1&model=1'")
    page.wait_for("document.querySelector('[aria-pressed=true]').firstChild.data === 'word0'")
    before = page.pressed()
    for odd in ("#photo=9&word=1", "#photo=1&word=99", "#word=x", "#%E0%A4%A"):
        page.run(f"location.hash = '{odd}'")
    page.settle()
    assert page.pressed() == before


def check_finder(page):
    def names():
        shown = "[...document.querySelectorAll('.satt-group')].filter(group => !group.hidden)"
        return page.run(f"{shown}.map(group => group.querySelector('.satt-name').textContent[0]).join('')")

    assert page.text(".satt-name") == "b<i>.jpg"
    for order, expected in (("file name", "abcd"), ("surest first", "bdac"), ("as given", "bdac")):
        page.choose(".satt-sort", order)
        assert names() == expected, order
    page.choose(".satt-sort", "sharpest first")
    assert names().endswith("d")
    page.choose(".satt-sort", "as given")
    for wanted, expected in (("RIGHT", "bdac"), ("c<i>.jpg", "c"), ("bird", ""), ("", "bdac")):
        page.choose(".satt-filter", wanted)
        assert names() == expected
        assert page.text(".satt-count") == f"{len(expected)} of 4 photos"


def check_colours(show):
    """Every style has the colours of the figures; signed weights are orange and blue; a point is crossed."""
    colours, size = (200, 120, 60), (500, 100)
    heat = caption_of(
        ["dog"], np.array([[[0.5, 0.3, 0.14, 0.06, 0]]]), size, image=Image.new("RGB", size, colours)
    )
    weights = np.array([[[-0.4, -0.1, 0, 0.1, 0.4]]])
    signed = caption_of(
        ["dog"], weights, size, image=Image.new("RGB", size, (GREY,) * 3), points=[[150, 50]],
        properties=WeightProperties(sums_to_one=False, signed=True),
    )  # fmt: skip
    silent = pointing(WIDE, WHOLE, (2, 2), [], [])
    page = show(to_html([heat, signed, silent]), height=2500)

    def middles(number, height):
        seen = page.picture(f".satt-group:nth-of-type({number}) .satt-photo")
        return seen, seen[int(height * len(seen)), ((np.arange(5) + 0.5) * seen.shape[1] / 5).astype(int)]

    for style in [*(name for name in STYLE_NAMES if name != "cells"), "cells"]:
        page.choose(".satt-style", style)
        scale = OverlayStyle(style).scale_of(heat.weights)
        drawn = draw_overlay(heat.image, heat.weights[0], heat.box, scale, style=style)[50, 50::100]
        np.testing.assert_allclose(middles(1, 0.5)[1], drawn, atol=8, err_msg=style)
    seen, found = middles(2, 0.25)  # beside the cross
    lightness = np.sqrt(np.abs(weights[0, 0]) / 0.4)[:, None]
    tint = 255 * np.where(weights[0, 0][:, None] < 0, BELOW, ABOVE) * SIGNED_TINT * lightness
    expected = GREY * (1 - OPACITY * (1 - lightness) - SIGNED_TINT * lightness) + tint
    np.testing.assert_allclose(found, expected, atol=6)
    assert (seen[len(seen) // 2, int(0.3 * seen.shape[1])] > 200).all()
    said = page.text(".satt-scale", 1)
    assert "orange above 0, blue below" in said
    assert "cross" in said
    assert "evenly" not in said
    assert [page.text(part, 2) for part in (".satt-name", ".satt-status")] == [
        "photo 3", "This caption has no words.",
    ]  # fmt: skip
    assert np.abs(page.picture(".satt-group:nth-of-type(3) .satt-photo") - GREY).max() <= 2
    page.choose(".satt-style", "heat")
    page.choose(".satt-cmap", "viridis")
    chosen = page.picture(".satt-photo")
    assert (chosen == show(to_html([heat, signed, silent], cmap="viridis")).picture(".satt-photo")).all()


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


def check_notebook(show):
    """A notebook shows several outputs, one of them twice."""
    other = pointing(WIDE, WHOLE, (2, 2), [(0, 0)], ["other"])
    outputs = [to_fragment([caption], style="cells") for caption in (described(), described(), other)]
    page = show(notebook(*outputs))
    page.hover("#cell0 .satt-word", 1)
    page.hover("#cell1 .satt-word", 2)
    assert [page.pressed(f"#cell{index}") for index in range(3)] == [["a"], ["dog"], ["other"]]
    assert_lit(page, WIDE, WHOLE, (4, 6), (2, 3), photo="#cell1 .satt-photo")
    page.click("#cell0 .satt-choice input", 1)
    checked = "[...document.querySelectorAll('.satt-choice input')].map(radio => radio.checked)"
    assert page.run(checked) == [False, True, True, False]


# -- the tree of a search ------------------------------------------------------------------------------------------


def node(word, parent, p, total, map_index):
    return BeamNode(word, parent, math.log(p), math.log(total), word == "(end)", map_index)


def searched():
    """ "a dog" is the caption, "the" the other one; "the cat" is dropped, "a dog runs" is alive at the end."""
    steps = [
        [node("a", None, 0.5, 0.5, 0), node("the", None, 0.4, 0.4, 0)],
        [node("dog", 0, 0.8, 0.4, 1), node("(end)", 1, 0.5, 0.2, 2), node("cat", 1, 0.1, 0.04, 2)],
        [node("(end)", 0, 0.9, 0.36, 3), node("runs", 0, 0.05, 0.02, 3)],
    ]
    weights = np.zeros((4, 4, 6), np.float32)
    for number, cell in enumerate(CELLS):
        weights[(number, *cell)] = 1
    caption = pointing(WIDE, WHOLE, (4, 6), CELLS[:2], ["a", "dog"])
    caption.alternatives = [pointing(WIDE, WHOLE, (4, 6), CELLS[:1], ["the"], image=None)]
    caption.beam_tree = BeamTree(steps, weights, [[0, 0, 0], [1, 1]], 3)
    return caption


def opened(page):
    page.run("document.querySelector('.satt-beam').open = true")
    page.wait_for("!!document.querySelector('.satt-node')")
    page.settle()
    return page


TOLD = {
    2: "“a dog”: p 0.8, log p so far −0.92; the caption goes on from here",
    3: "“the (end)”: p 0.5, log p so far −1.61; this is caption 2; 100 % of its attention lay elsewhere",
    5: "“a dog (end)”: p 0.9, log p so far −1.02; this is the caption",
    6: "“a dog runs”: p 0.05, log p so far −3.91; the search stopped, because it could no longer",
    4: "“the cat”: p 0.1, log p so far −3.22; it is dropped at the next step; 100 %",
}


def test_a_hypothesis_lights_its_cell_and_tells_its_sentence_by_mouse_and_by_keys(show):
    page = show(searched().to_html(style="cells"))
    assert page.run("document.querySelectorAll('.satt-node').length") == 0
    assert page.text(".satt-beam summary") == "The search: a beam of 3"
    opened(page)
    assert page.run(CHIPS % ".satt-node") == ["a", "the", "dog", "(end)", "cat", "(end)", "runs"]
    assert page.run(CHIPS % ".satt-best") == ["a", "dog", "(end)"]
    assert page.run(CHIPS % ".satt-dropped") == ["cat"]
    assert page.run("document.querySelectorAll('.satt-tree path').length") == 5
    for number, told in TOLD.items():
        page.hover(".satt-node", number)
        assert page.text(".satt-told p").startswith(told)
        assert page.text(".satt-status").startswith(told)
    assert page.pressed() == []
    assert page.run(CHIPS % ".satt-line") == ["the", "cat"]
    assert_lit(page, WIDE, WHOLE, (4, 6), CELLS[2])
    page.hover(".satt-word", 1)
    assert page.pressed() == ["a"]
    assert_lit(page, WIDE, WHOLE, (4, 6), CELLS[0])
    assert page.run(CHIPS % ".satt-line") == []
    # The share of attention that lay elsewhere is an orange bar, at two nodes.
    assert page.run("document.querySelectorAll('.satt-moved-share').length") == 2
    below = page.picture(".satt-node:nth-of-type(4)")[-5:]
    assert (below[..., 0] - below[..., 2]).max() > 60
    page.run("document.querySelector('.satt-beam summary').focus()")
    page.press("Tab")
    visited = [page.run("document.activeElement.firstChild.textContent")]
    for key in ["ArrowDown", "ArrowRight", "ArrowUp", "ArrowDown", "ArrowDown", "Home", "End", "ArrowRight"]:
        page.press(key)
        visited.append(page.run("document.activeElement.firstChild.textContent"))
    assert visited == ["a", "dog", "(end)", "the", "(end)", "(end)", "a", "(end)", "runs"]
    label = page.run("document.activeElement.getAttribute('aria-label')")
    assert label == "a dog runs; the search stopped, because it could no longer win"
    assert page.text(".satt-told p").startswith("“a dog runs”")
    assert_lit(page, WIDE, WHOLE, (4, 6), CELLS[3])
    page.press("Tab")  # leaves the tree in one step
    assert not page.run("document.activeElement.matches('.satt-node')")
    page.click(".satt-choice input", 1)
    assert page.run(CHIPS % ".satt-best") == ["the", "(end)"]
    # A wide beam scrolls in its own box.
    caption = searched()
    wide = [node(f"word{place}", None, 0.04, 0.04, 0) for place in range(20)]
    caption.beam_tree = BeamTree([wide], caption.beam_tree.weights, [[0]], 20)
    page = opened(show(caption.to_html(), width=390, height=844))
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("(box => box.scrollWidth > box.clientWidth)(document.querySelector('.satt-tree-scroll'))")
