"""What the page does with its room: all words at once, pointing at the photo, models side by side, galleries, files."""

import re
import time

import numpy as np
import pytest
from helpers.drawing import draw_overlay
from PIL import Image

from caption.result import Caption
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
    fields = {"log_prob": -3.0, "word_log_probs": np.full(len(words), -0.5), **fields}
    return Caption(" ".join(words), words, weights, box=(0, 0, *size), image=image, **fields)


@pytest.fixture
def dog():
    return caption_of(["a", "dog", "runs"], gates=[0.1, 0.9, 0.5])


@pytest.mark.parametrize("width", [390, 1400])
def test_all_words_are_seen_at_once_on_a_phone_and_on_a_desk(show, dog, width):
    page = show(dog.to_html(), width=width, height=900, dark=width < 500, touch=width < 500)
    assert page.run("document.documentElement.scrollWidth") <= width
    photo, strip = page.box_of(".satt-photo"), page.box_of(".satt-strip")
    thumbs = [page.box_of(".satt-thumb", index) for index in range(3)]
    if width == 390:
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
    assert {thumb[1] for thumb in thumbs} == {thumbs[0][1]}
    assert [page.text(".satt-thumb", index) for index in range(3)] == ["a1.8×", "dog1.9×", "runs1.9×"]
    page.run("document.querySelectorAll('.satt-thumb canvas')[0].classList.add('first')")
    seen = page.picture(".first")
    colour = np.ptp(seen[seen.shape[0] // 2], axis=-1)
    third = len(colour) // 3
    assert colour[third // 2] > 80
    assert colour[-third // 2] == pytest.approx(PALE, abs=5)
    (page.tap if width == 390 else page.click)(".satt-thumb", 0)
    assert page.pressed() == ["a"]


def test_the_page_starts_on_the_word_with_the_sharpest_weights(show, dog):
    assert show(dog.to_html()).pressed() == ["runs"]
    weights = np.full((3, 1, 3), 0.1)
    weights[1, 0, 1] = 0.8
    assert show(caption_of(["a", "dog", "runs"], weights).to_html()).pressed() == ["dog"]


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


def test_every_model_needs_a_caption_of_every_photo(dog):
    with pytest.raises(ValueError, match="1 captions need as many photos, not 2"):
        to_html({"soft": [dog, dog], "hard": [dog]})
    with pytest.raises(ValueError, match="at least one"):
        to_html({})
    with pytest.raises(ValueError, match="1 photos need as many names, not 2"):
        to_html([dog], names=["a", "b"])


@pytest.mark.parametrize("style", STYLE_NAMES)
def test_each_style_has_the_colours_of_the_figures(show, style):
    weights = np.array([[[0.5, 0.3, 0.14, 0.06, 0]]])
    caption = caption_of(["dog"], weights, (500, 100))
    page = show(caption.to_html(style=style))
    seen = page.picture(".satt-photo")
    seen = seen[seen.shape[0] // 2, ((np.arange(5) + 0.5) * seen.shape[1] / 5).astype(int)]
    drawn = draw_overlay(
        caption.image, weights[0], caption.box, OverlayStyle(style).scale_of(weights), style=style
    )[50, 50::100]
    np.testing.assert_allclose(seen, drawn, atol=8)
    page.choose(".satt-style", "cells")
    page.choose(".satt-style", style)
    again = page.picture(".satt-photo")
    np.testing.assert_array_equal(again[again.shape[0] // 2, again.shape[1] // 10], seen[0])


@pytest.mark.nightly
def test_colour_maps_can_be_chosen_here_and_beforehand(show, dog):
    page = show(dog.to_html())
    page.choose(".satt-cmap", "viridis")
    chosen = page.picture(".satt-photo")
    asked = show(dog.to_html(cmap="viridis")).picture(".satt-photo")
    assert (chosen == asked).all()
    own = show(dog.to_html(cmap="Greens", opacity=1))
    assert own.run("document.querySelector('.satt-cmap').value") == "Greens"
    assert own.run("document.querySelector('.satt-opacity').value") == "100"


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


def test_the_address_names_the_word_and_finds_it(show, browser, dog, tmp_path):
    cat = caption_of(["a", "cat"])
    page = show(to_html([cat, dog]))
    page.run("document.querySelectorAll('figure')[1].querySelectorAll('.satt-word')[2].click()")
    assert page.run("location.hash") == "#photo=2&word=2"
    page.run("location.hash = '#photo=1&word=1'")
    page.wait_for("document.querySelector('[aria-pressed=true]').firstChild.data === 'a'")
    for odd in ("#photo=9&word=1", "#photo=1&word=99", "#word=x", "#%E0%A4%A"):
        page.run(f"location.hash = '{odd}'")
    page.settle()
    assert page.pressed() == ["a", "dog"]


def test_photos_have_the_names_of_their_files_without_folders(show):
    evil = "<b onclick=x>.jpg"
    html = to_html([caption_of(["cat"], name=evil), caption_of(["dog"])])
    assert "secret" not in html
    assert "<b onclick" not in html
    page = show(html)
    assert [page.text(".satt-name", index) for index in range(2)] == [evil, "photo 2"]
    own = to_html([caption_of(["cat"])], names=["<i>mine</i>"])
    assert "<i>" not in own
    assert "&lt;i&gt;mine" in own


@pytest.mark.nightly
def test_a_gallery_is_filtered_and_sorted(show):
    weights = np.full((1, 1, 3), 0.1)
    weights[0, 0, 0] = 0.8
    page = show(
        to_html(
            [
                caption_of(["a", "cat"], name="b.jpg", log_prob=-1),
                caption_of(["dog"], weights, name="a.jpg", log_prob=-4),
                caption_of(["a", "bird"], name="c.jpg", log_prob=-3),
            ]
        )
    )

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


def test_the_likeliest_other_words_are_told_and_almost_certain_is_not_certain(show):
    likeliest = [
        [("a", -0.1)],
        [("dog", -0.5), ("<b>cat</b>", -1.0), ("(end)", -3.0)],
        [("hops", -0.4), ("runs", -0.5)],
        [("on", -0.1)],
    ]
    logs = np.log([0.998, 0.99999, 1.0, 0.05])
    page = show(caption_of(["a", "dog", "runs", "on"], word_log_probs=logs, likeliest=likeliest).to_html())
    others, said = [], []
    for step in range(4):
        page.click(".satt-word", step + 1)
        others.append(page.text(".satt-others"))
        said.append(re.search(r", p (.*?):", page.text("[role=status]"))[1])
    assert others == ["", "also likely: “<b>cat</b>” 0.368, “(end)” 0.05", "also likely: “hops” 0.67", ""]
    assert said == ["0.998", "> 0.999", "1", "0.05"]


def test_a_gallery_draws_only_what_is_in_view(show):
    page = show(to_html([caption_of(["a", "cat"]) for _ in range(12)]), width=1400, height=700)
    page.settle()
    drawn = "[...document.querySelectorAll('.satt-photo')].map(e => e.querySelector('canvas') ? 1 : 0)"
    assert page.run(drawn)[0] == 1
    assert page.run(drawn)[-1] == 0
    page.run("document.querySelectorAll('figure')[11].scrollIntoView()")
    page.wait_for(f"{drawn}[11] === 1 && {drawn}[0] === 0")
