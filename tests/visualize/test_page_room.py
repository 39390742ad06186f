"""What the page does with its room: all words at once, pointing at the photo, models side by side, galleries, files."""

import time

import numpy as np
import pytest
from helpers import captions
from helpers.drawing import draw_overlay
from PIL import Image

from caption.visualize import to_html
from caption.visualize.styles import STYLE_NAMES, STYLES, OverlayStyle

SIZE = (300, 200)
PHOTO = (200, 120, 60)
PALE = STYLES["heat"].saturation * np.ptp(PHOTO)  # how colourful the photo is where no heat is


def caption_of(words, weights=None, size=SIZE, name=None, **fields):
    """Three cells side by side; by default each word looks at the next one, ever more sharply."""
    if weights is None:
        weights = np.full((len(words), 1, 3), 0.2)
        for step in range(len(words)):
            weights[step] -= 0.01 * step
            weights[step, 0, step % 3] = 0.6 + 0.02 * step
    image = Image.new("RGB", size, PHOTO)
    if name is not None:
        image.filename = f"/home/me/secret/{name}"
    return captions.caption_of(words, weights, size, image=image, **fields)


@pytest.fixture
def dog():
    return caption_of(["a", "dog", "runs"], gates=[0.1, 0.9, 0.5])


@pytest.mark.parametrize("width", [390, 1400])
def test_all_words_are_seen_at_once_on_a_phone_and_on_a_desk(show, dog, width):
    phone = width < 500
    if phone:
        dog.words[1] = "d" + "o" * 60 + "g"
    page = show(dog.to_html(), width=width, height=1200, dark=phone, touch=phone)
    assert page.run("document.documentElement.scrollWidth") <= width
    photo, strip = page.box_of(".satt-photo"), page.box_of(".satt-strip")
    if phone:
        chips = [page.box_of(".satt-word", index) for index in range(4)]
        assert min(height for *_, height in chips) >= 36  # large enough for a finger
        assert min(width for *_, width, _ in chips) >= 24
        assert strip[1] > photo[1] + photo[3]
        controls = page.box_of(".satt-style")  # in a bar below the photo, which opens
        assert controls[1] > photo[1] + photo[3]
        page.click(".satt-drawing summary")
        assert page.box_of(".satt-style")[3] > 20
    else:  # words and maps beside the photo, and to the right edge
        words = page.box_of(".satt-words")
        assert photo[2] > 0.4 * width
        assert strip[0] == pytest.approx(words[0], abs=8)
        assert words[0] > photo[0] + photo[2]
        assert words[1] + words[3] < strip[1]
        assert strip[0] + strip[2] > width - 40
        assert page.box_of(".satt-style")[1] < photo[1]
    page.wait_for("document.querySelector('.satt-thumb small').textContent")
    assert len({page.box_of(".satt-thumb", index)[1] for index in range(3)}) == 1
    peaks = [f"{word}{peak}×" for word, peak in zip(dog.words, (1.8, 1.9, 1.9), strict=True)]
    assert [page.text(".satt-thumb", index) for index in range(3)] == peaks
    colour = np.ptp(page.picture(".satt-thumb canvas")[20], axis=-1)
    third = len(colour) // 3
    assert colour[third // 2] > 80
    assert colour[-third // 2] == pytest.approx(PALE, abs=5)
    choose = page.tap if phone else page.click
    choose(".satt-thumb", 0)
    assert page.pressed() == ["a"]
    choose(".satt-word", 3)
    assert page.pressed() == ["runs"]


def test_words_that_looked_at_the_place_under_the_pointer_light_up(show, dog):
    page = show(dog.to_html(), width=1400)
    page.hover_at(".satt-photo", 1 / 6, 0.5)
    seen = page.run(
        "[...document.querySelectorAll('.satt-word')].map(e => e.style.getPropertyValue('--seen'))"
    )
    assert seen == ["", "1.000", "0.000", "0.000"]
    assert page.text("[role=status]") == "Looked here: “a” 1.8× even"
    page.hover_at(".satt-photo", 0.5, 0.5)
    assert page.text("[role=status]").startswith("Looked here: “dog”")
    page.hover(".satt-gate")
    assert "“runs”" in page.text("[role=status]")
    assert page.run("document.querySelectorAll('.satt-pointing').length") == 0


@pytest.mark.nightly
def test_two_models_stand_side_by_side_over_one_photo(show, dog):
    cat = caption_of(["a", "cat"])
    html = to_html({"soft <1>": [dog, cat], "hard": [cat, dog]})
    assert html.count("data:image/jpeg") == 2
    page = show(html, width=1400)
    boxes = [page.box_of(".satt-photo", index) for index in range(4)]
    assert boxes[0][1] == boxes[1][1] < boxes[2][1] == boxes[3][1]
    assert boxes[0][0] + boxes[0][2] < boxes[1][0]
    assert [page.text(".satt-model", index) for index in range(4)] == ["soft <1>", "hard"] * 2
    widths = "[...document.querySelectorAll('.satt-photo img')].map(image => image.naturalWidth)"
    page.wait_for(f"{widths}.every(width => width === 300)")
    assert page.pressed() == ["runs", "cat", "cat", "runs"]
    narrow = show(html, width=390, height=900, touch=True)
    assert narrow.box_of(".satt-photo", 0)[0] == narrow.box_of(".satt-photo", 1)[0]


def test_every_style_has_the_colours_of_the_figures(show):
    weights = np.array([[[0.5, 0.3, 0.14, 0.06, 0]]])
    caption = caption_of(["dog"], weights, (500, 100))
    page = show(caption.to_html())
    for style in reversed(STYLE_NAMES):
        page.choose(".satt-style", style)
        seen = page.picture(".satt-photo")
        seen = seen[seen.shape[0] // 2, ((np.arange(5) + 0.5) * seen.shape[1] / 5).astype(int)]
        scale = OverlayStyle(style).scale_of(weights)
        drawn = draw_overlay(caption.image, weights[0], caption.box, scale, style=style)[50, 50::100]
        np.testing.assert_allclose(seen, drawn, atol=8, err_msg=style)


@pytest.mark.nightly
def test_colour_maps_can_be_chosen_here_and_beforehand(show, dog):
    page = show(dog.to_html())
    page.choose(".satt-cmap", "viridis")
    chosen = page.picture(".satt-photo")
    asked = show(dog.to_html(cmap="viridis")).picture(".satt-photo")
    assert (chosen == asked).all()
    own = show(dog.to_html(cmap="Greens", opacity=1, smooth=False))
    controls = [f"document.querySelector('.satt-{name}')" for name in ("cmap", "opacity", "smooth")]
    assert own.run(f"[{controls[0]}.value, {controls[1]}.value, {controls[2]}.checked]") == [
        "Greens", "100", False,
    ]  # fmt: skip


def test_the_picture_is_saved_with_its_sentence(show, browser, dog, tmp_path):
    dog.image.filename = "/photos/my dog.jpg"
    page = show(dog.to_html(), width=1400)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click(".satt-save")
    path = tmp_path / "my_dog_3.png"
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    assert pixels.shape[1] == 960
    assert pixels.shape[0] > 640
    colour = np.ptp(pixels[320, [160, 480, 800]], axis=-1)
    assert colour[2] > 100
    assert colour[:2] == pytest.approx(PALE, abs=5)
    assert (pixels[640:].min(axis=(1, 2)) < 100).any()  # letters


def test_the_page_starts_on_the_sharpest_word_and_the_address_names_the_word_that_is_chosen(show, dog):
    weights = np.full((2, 1, 3), 0.1)
    weights[0, 0, 1] = 0.8
    page = show(to_html([caption_of(["a", "cat"], weights), dog]))
    assert page.pressed() == ["a", "runs"]
    page.run("document.querySelectorAll('figure')[1].querySelectorAll('.satt-word')[2].click()")
    assert page.run("location.hash") == "#photo=2&word=2"
    page.run("location.hash = '#photo=1&word=2'")
    page.wait_for("document.querySelector('[aria-pressed=true]').firstChild.data === 'cat'")
    for odd in ("#photo=9&word=1", "#photo=1&word=99", "#word=x", "#%E0%A4%A"):
        page.run(f"location.hash = '{odd}'")
    page.settle()
    assert page.pressed() == ["cat", "dog"]


@pytest.mark.nightly
def test_a_gallery_is_filtered_and_sorted(show):
    weights = np.full((1, 1, 3), 0.1)
    weights[0, 0, 0] = 0.8
    gallery = [
        caption_of(["a", "cat"], name="b.jpg", log_prob=-1),
        caption_of(["dog"], weights, name="a.jpg", log_prob=-4),
        caption_of(["a", "bird"], name="c.jpg", log_prob=-3),
    ]
    page = show(to_html(gallery))

    def names():
        shown = "[...document.querySelectorAll('.satt-group')].filter(group => !group.hidden)"
        return page.run(f"{shown}.map(group => group.querySelector('.satt-name').textContent[0]).join('')")

    orders = {
        "file name": "abc",
        "sentence": "cba",
        "surest first": "bca",
        "sharpest first": "abc",
        "as given": "bac",
    }
    for order, expected in orders.items():
        page.choose(".satt-sort", order)
        assert names() == expected, order
    for wanted, expected, count in (("DOG", "a", 1), ("c.jpg", "c", 1), ("bird", "c", 1), ("", "bac", 3)):
        page.choose(".satt-filter", wanted)
        assert names() == expected
        assert page.text(".satt-count") == f"{count} of 3 photos"
    assert show(to_html([caption_of(["cat"])])).run("document.querySelectorAll('.satt-finder').length") == 0


def test_a_gallery_draws_only_what_is_in_view(show):
    page = show(to_html([caption_of(["a", "cat"]) for _ in range(12)]), width=1400, height=700)
    page.settle()
    drawn = "[...document.querySelectorAll('.satt-photo')].map(e => e.querySelector('canvas') ? 1 : 0)"
    assert page.run(drawn)[0] == 1
    assert page.run(drawn)[-1] == 0
    page.run("document.querySelectorAll('figure')[11].scrollIntoView()")
    page.wait_for(f"{drawn}[11] === 1 && {drawn}[0] === 0")
