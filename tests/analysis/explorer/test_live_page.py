"""The page of `caption serve` in a real browser: drop, point, paint, undo, keys, and what goes wrong."""

import io
import json
from types import SimpleNamespace

import pytest
from helpers.explore_server import send, serving
from helpers.tiny_captioner import captioner, photo
from helpers.tiny_lens import NOUNS, tiny_lens

from caption.analysis.explorer.service import Service
from caption.attention import MultiHeadAttention
from caption.decoders import ShowAttendAndTellDecoder

READY = "!document.querySelector('[aria-busy]') && !!document.querySelector('.satt-said')"
CHANGED = "!!document.querySelector('.satt-sentence')"
RESET = "!document.querySelector('.satt-sentence')"
DROP = """(async () => {
  const canvas = document.createElement('canvas'); canvas.width = 80; canvas.height = 80;
  const context = canvas.getContext('2d'); context.fillStyle = '#b63'; context.fillRect(20, 20, 30, 40);
  const blob = %s; const files = new DataTransfer(); files.items.add(new File([blob], %s));
  window.dispatchEvent(new DragEvent('drop', {dataTransfer: files, cancelable: true}));
})()"""
PHOTO = "await new Promise(done => canvas.toBlob(done))"


@pytest.fixture
def port():
    heads = captioner(
        decoder=ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=8), embedding_size=6, hidden_size=7)
    )
    with_lens = captioner()
    with_lens.lens = tiny_lens()
    models = {"one": with_lens, "two <b>": heads}
    with serving(Service(models, kept_photos=2), largest_photo=50_000) as port:
        yield port


def drop(page, content=PHOTO, name="brick.png"):
    page.run(DROP % (content, json.dumps(name)))


def card(number):
    return f"document.querySelectorAll('figure')[{number}]"


def words(page):
    return page.run(f"[...{card(0)}.querySelectorAll('.satt-word')].map(chip => chip.firstChild.data)")


def count(page, selector, root="document"):
    return page.run(f"{root}.querySelectorAll('{selector}').length")


def moved(page, number):
    """Wait until so many words have been made to look elsewhere."""
    page.wait_for(f"document.querySelectorAll('.satt-moved').length === {number}")
    page.wait_for(READY)


def tab_to(page, selector, shift=False):
    """Press Tab until the focus is on such an element."""
    for _ in range(60):
        page.press("Tab", shift=shift)
        if page.run(f"document.activeElement.matches({json.dumps(selector)})"):
            return
    pytest.fail(f"Tab does not reach {selector}")


def alert(page):
    return page.run("[...document.querySelectorAll('[role=alert]')].map(line => line.textContent).join('')")


def test_the_question_to_a_model_is_above_the_photo(browser):
    asked = captioner()
    asked.decoder.model = SimpleNamespace(question="What is <b>left</b>?")
    with serving(Service({"one": captioner(), "two": asked})) as port:
        page = browser.open(f"http://127.0.0.1:{port}/", width=1400)
        drop(page)
        page.wait_for("document.querySelectorAll('.satt-said').length === 2")
        above = [page.text(".satt-model", number) for number in range(3)]
        assert page.complaints() == []
        page.close()
    assert above == ["one", "two", "Question: What is <b>left</b>?"]


def test_a_photo_is_dropped_and_a_word_is_made_to_look_elsewhere_and_back(browser, port):
    page = browser.open(f"http://127.0.0.1:{port}/", width=1400)
    check_refusals(page)
    drop(page)
    page.wait_for("document.querySelectorAll('.satt-said').length === 2")
    assert alert(page) == ""
    assert [page.text(".satt-model", number) for number in range(2)] == ["one", "two <b>"]
    before = words(page)
    page.click(".satt-word", 0)  # the photo alone: no word
    page.drag(".satt-photo", (0.5, 0.5))
    assert alert(page).startswith("Choose a word first")
    page.click(".satt-word", 2)
    page.hover(".satt-word", 3)  # on the way to the photo
    page.drag(".satt-photo", (0.95, 0.95))
    moved(page, 1)
    assert page.pressed("figure:first-of-type") == [words(page)[2]]
    assert words(page)[:2] == before[:2]
    assert page.text("figure .satt-status").count("row 8, column 8 of 8 × 8") == 1
    assert [count(page, ".satt-moved", card(number)) for number in (0, 1)] == [1, 0]
    check_tree(page)
    # Painted over three cells, for another word.
    page.click(".satt-word", 3)
    page.drag(".satt-photo", (0.06, 0.06), (0.18, 0.06), (0.18, 0.18))
    page.wait_for("document.querySelectorAll('.satt-cell-force').length === 3")
    moved(page, 2)
    page.click(".satt-undo")
    moved(page, 1)
    page.click(".satt-reset")
    page.wait_for(RESET)
    assert words(page) == before
    check_keys(page, before)
    check_lens(page)
    check_other_tools(page)
    # The server has forgotten the photo, and gets it again.
    file = io.BytesIO()
    photo().save(file, "PNG")
    for _ in range(2):
        send(port, "/api/photos", file.getvalue())
    page.click(".satt-word", 1)
    page.drag(".satt-photo", (0.95, 0.95))
    page.wait_for(CHANGED)
    assert alert(page) == ""
    page.close()
    phone = browser.open(f"http://127.0.0.1:{port}/", width=390, height=844, dark=True)
    phone.click(".satt-example")
    phone.wait_for(READY)
    assert phone.run("document.documentElement.scrollWidth") <= 390
    parts = [".satt-choose", ".satt-photo", ".satt-words", ".satt-said"]
    tops = [phone.box_of(part)[1] for part in parts]
    assert tops == sorted(tops)
    assert phone.complaints() == []
    phone.close()


def check_refusals(page):
    for content, name, sentence in [
        ("'no photo'", "a.txt", "'a.txt' is not an image"),
        ("new Uint8Array(60000)", "large.png", "“large.png” has 1 MB; at most 0.05 MB are accepted"),
        ("''", "empty.png", "no photo has arrived"),
    ]:
        drop(page, content, name)
        page.wait_for(f"document.querySelector('.satt-problem').textContent.includes({json.dumps(sentence)})")
    page.run(
        "window.dispatchEvent(new DragEvent('drop', {dataTransfer: new DataTransfer(), cancelable: true}))"
    )
    assert alert(page) == "That was not a photo: drop a JPEG or PNG file."


def check_tree(page):
    """The tree of the search follows a change at the second word."""
    page.run("document.querySelector('.satt-beam').open = true")
    page.wait_for("!!document.querySelector('.satt-node')")
    assert page.text(".satt-beam summary") == "The search: a beam of 3"
    said = words(page)[1:]
    best = page.run(f"[...{card(0)}.querySelectorAll('.satt-best')].map(chip => chip.firstChild.textContent)")
    assert best[: len(said)] == said
    rows = page.run(f"[...{card(0)}.querySelectorAll('.satt-node')].map(chip => +chip.style.gridRowStart)")
    assert [rows.count(step) for step in (1, 2)] == [1, 3]  # a single word is kept
    page.run("document.querySelector('.satt-beam').open = false")


def check_keys(page, before):
    """By keys alone, from the top of the page."""
    page.run("document.activeElement.blur()")
    tab_to(page, ".satt-word")
    page.press("Home")
    page.press("ArrowRight")
    assert page.pressed("figure:first-of-type") == [before[2]]
    tab_to(page, ".satt-photo", shift=True)
    for key in ("ArrowRight", "ArrowDown"):
        page.press(key, shift=True)
    page.press(" ")
    moved(page, 1)
    assert [page.text(".satt-moved")] == page.pressed("figure:first-of-type")
    assert words(page)[:2] == before[:2]
    assert count(page, ".satt-cell-force") == 3
    tab_to(page, ".satt-tool input")
    page.press("ArrowDown")
    assert page.run("document.activeElement.value") == "mask"
    tab_to(page, ".satt-undo")
    page.press(" ")
    page.wait_for(RESET)
    assert words(page) == before


def check_lens(page):
    """A word is made to look at a thing that the lens sees."""
    first, second = card(0), card(1)
    assert count(page, ".satt-things", second) == 0
    things = page.run(f"[...{first}.querySelectorAll('.satt-thing')].map(each => each.textContent)")
    assert things
    assert {*things} <= {*NOUNS}
    page.click(".satt-word", 1)
    chosen = page.run(f"{first}.querySelector('.satt-thing').value")
    page.click(".satt-thing")
    moved(page, 1)
    assert page.run("document.querySelector('.satt-thing[aria-pressed=true]').value") == chosen
    field = f"{first}.querySelector('.satt-things input')"
    page.run(f"{field}.focus()")
    page.run(f"{field}.value = 'zebra'")
    page.press("Enter")
    page.wait_for(f"{first}.querySelector('.satt-problem').textContent.includes('does not know')")
    page.click(".satt-reset")
    page.wait_for(RESET)
    assert page.run(f"{field}.value") == ""


def check_other_tools(page):
    """Regions are erased and masked; another search begins anew; a head of the second model is changed."""
    page.click(".satt-tool input", 3)
    page.drag(".satt-photo", (0.5, 0.5))
    page.wait_for("!!document.querySelector('.satt-cell-erase')")
    page.wait_for(READY)
    page.click(".satt-tool input", 2)
    page.click(".satt-word", 1)
    page.drag(".satt-photo", (0.1, 0.5))
    page.wait_for("!!document.querySelector('.satt-cell-mask')")
    page.wait_for(READY)
    page.choose(".satt-search", "greedy")
    page.wait_for(RESET)
    assert page.run("document.querySelector('.satt-undo').disabled")
    assert page.run("document.querySelector('.satt-beam').hidden")
    second = card(1)
    assert count(page, ".satt-map option", second) == 3
    page.run(f"{second}.querySelector('.satt-map select').selectedIndex = 2")
    page.run(f"{second}.querySelector('.satt-map select').dispatchEvent(new Event('change'))")
    page.run(f"{second}.querySelector('.satt-photo').classList.add('second')")
    page.drag(".second", (0.5, 0.5))
    page.wait_for(f"!!{second}.querySelector('.satt-sentence')")
    assert page.run(f"{second}.querySelector('.satt-map select').value") == "heads[1]"
    assert count(page, ".satt-moved", card(0)) == 0
