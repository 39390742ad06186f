"""The page of `caption serve` in a real browser: drop, point, paint, undo, keyboard, and what goes wrong."""

import io
import json
import os
import re
import signal
import subprocess
import sys

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
PIECE = """(async () => {
  const canvas = document.createElement('canvas'); canvas.width = 80; canvas.height = 80;
  const context = canvas.getContext('2d'); context.fillStyle = '#b63'; context.fillRect(20, 20, 30, 40);
  const blob = %s; const files = new DataTransfer(); files.items.add(new File([blob], %s));
  window.dispatchEvent(new DragEvent('drop', {dataTransfer: files, cancelable: true}));
})()"""
PHOTO = "await new Promise(done => canvas.toBlob(done))"


@pytest.fixture(scope="module")
def service():
    heads = captioner(
        decoder=ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=8), embedding_size=6, hidden_size=7)
    )
    return Service({"one": captioner(), "two <b>": heads}, kept_photos=2)


@pytest.fixture(scope="module")
def port(service):
    with serving(service, largest_photo=50_000) as port:
        yield port


@pytest.fixture
def visit(browser, port):
    opened = []

    def visit(address=None, **options):
        opened.append(browser.open(f"http://127.0.0.1:{address or port}/", **{"width": 1400, **options}))
        return opened[-1]

    yield visit
    for page in opened:
        page.close()


def drop(page, content=PHOTO, name="brick.png"):
    page.run(PIECE % (content, json.dumps(name)))


def opened(page, **options):
    drop(page, **options)
    page.wait_for("document.querySelectorAll('.satt-said').length === 2")
    return page


def card(number):
    return f"document.querySelectorAll('figure')[{number}]"


def words(page):
    return page.run(f"[...{card(0)}.querySelectorAll('.satt-word')].map(chip => chip.firstChild.data)")


def count(page, selector, root="document"):
    return page.run(f"{root}.querySelectorAll('{selector}').length")


def look(page, word, place=(0.95, 0.95)):
    page.click(".satt-word", word)
    page.drag(".satt-photo", place)
    page.wait_for(CHANGED)
    page.wait_for(READY)


def tab_to(page, selector, shift=False):
    """Press Tab until the focus is on such an element."""
    for _ in range(40):
        page.press("Tab", shift=shift)
        if page.run(f"document.activeElement.matches({json.dumps(selector)})"):
            return
    pytest.fail(f"Tab does not reach {selector}")


def alert(page):
    return page.run("[...document.querySelectorAll('[role=alert]')].map(line => line.textContent).join('')")


def test_a_word_is_made_to_look_elsewhere_by_click_by_paint_and_by_keys_alone(visit):
    page = opened(visit())
    assert [page.text(".satt-model", card) for card in range(2)] == ["one", "two <b>"]
    before = words(page)
    page.click(".satt-word", 2)
    page.hover(".satt-word", 3)  # on the way to the photo
    page.drag(".satt-photo", (0.95, 0.95))
    page.wait_for(CHANGED)
    assert page.pressed("figure:first-of-type") == [words(page)[2]]
    assert words(page)[:2] == before[:2]
    assert page.text("figure .satt-status").count("row 8, column 8 of 8 × 8") == 1
    assert [count(page, ".satt-moved", card(number)) for number in (0, 1)] == [1, 0]
    # Painted over three cells, for another word.
    page.click(".satt-word", 3)
    page.drag(".satt-photo", (0.06, 0.06), (0.18, 0.06), (0.18, 0.18))
    page.wait_for("document.querySelectorAll('.satt-cell-force').length === 3")
    page.wait_for(READY)
    assert count(page, ".satt-moved") == 2
    page.click(".satt-undo")
    page.wait_for("document.querySelectorAll('.satt-moved').length === 1")
    page.click(".satt-reset")
    page.wait_for(RESET)
    assert words(page) == before
    # By keys alone, from the top of the page.
    page.run("document.activeElement.blur()")
    tab_to(page, ".satt-word")
    page.press("Home")
    page.press("ArrowRight")
    assert page.pressed("figure:first-of-type") == [before[2]]
    tab_to(page, ".satt-photo", shift=True)
    for key in ("ArrowRight", "ArrowDown"):
        page.press(key, shift=True)
    page.press(" ")
    page.wait_for("document.querySelectorAll('.satt-moved').length === 1")
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
    assert alert(page) == ""
    assert page.complaints() == []


def bottom_of(page, selector):
    _, top, _, height = page.box_of(selector)
    return top + height


def test_on_a_phone_all_is_in_reach_and_regions_are_erased_and_masked_and_heads_chosen(visit):
    """Photo, words and result stand together, and the tools after them."""
    page = visit(width=390, height=844, dark=True)
    assert bottom_of(page, ".satt-choose") < 120
    page.click(".satt-example")
    page.wait_for(READY)
    look(page, 2)
    parts = [".satt-choose", ".satt-photo", ".satt-words", ".satt-said", ".satt-sentences"]
    parts += [".satt-tool", ".satt-tools", ".satt-status", ".satt-strip"]
    ends = [bottom_of(page, part) for part in parts]
    assert ends == sorted(ends)
    assert bottom_of(page, ".satt-sentences") < page.run("innerHeight") - page.box_of(".satt-drawing")[3]
    first = "document.querySelector('.satt-tokens')"
    assert page.run(f"{first}.scrollWidth > {first}.clientWidth")
    start = page.run(f"{first}.scrollLeft + {first}.offsetLeft")
    assert start == page.run(f"{first}.children[1].offsetLeft")  # the word that looks elsewhere
    assert page.run("document.documentElement.scrollWidth") <= 390
    # The first model's regions; another search; a head of the second model.
    page.click(".satt-tool input", 3)
    page.drag(".satt-photo", (0.5, 0.5))
    page.wait_for("!!document.querySelector('.satt-cell-erase')")
    page.click(".satt-tool input", 2)
    page.drag(".satt-photo", (0.1, 0.5))
    page.wait_for("!!document.querySelector('.satt-cell-mask')")
    page.wait_for(READY)
    page.choose(".satt-search", "greedy")
    page.wait_for(RESET)
    assert page.run("document.querySelector('.satt-undo').disabled")
    second = card(1)
    assert count(page, ".satt-map option", second) == 3
    page.run(f"{second}.querySelector('.satt-map select').selectedIndex = 2")
    page.run(f"{second}.querySelector('.satt-map select').dispatchEvent(new Event('change'))")
    page.run("document.querySelectorAll('.satt-photo')[1].classList.add('second')")
    page.drag(".second", (0.5, 0.5))
    page.wait_for(f"!!{second}.querySelector('.satt-sentence')")
    assert page.run(f"{second}.querySelector('.satt-map select').value") == "heads[1]"
    assert count(page, ".satt-moved", card(0)) == 0
    assert page.complaints() == []


@pytest.mark.nightly
def test_a_word_is_made_to_look_at_a_thing_that_the_lens_sees(browser):
    with_lens = captioner()
    with_lens.lens = tiny_lens()
    with serving(Service({"lens": with_lens, "none": captioner()})) as port:
        page = opened(browser.open(f"http://127.0.0.1:{port}/", width=1400))
        first, second = card(0), card(1)
        assert count(page, ".satt-things", second) == 0
        things = page.run(f"[...{first}.querySelectorAll('.satt-thing')].map(each => each.textContent)")
        assert things
        assert {*things} <= {*NOUNS}
        page.run("document.activeElement.blur()")
        tab_to(page, ".satt-word")
        page.press("Home")
        tab_to(page, ".satt-things button:first-of-type", shift=True)
        chosen = page.run("document.activeElement.value")
        page.press(" ")
        page.wait_for(f"!!{first}.querySelector('.satt-sentence')")
        assert page.run("document.querySelector('.satt-thing[aria-pressed=true]').value") == chosen
        assert count(page, ".satt-moved") == 1
        told = ""
        for cell in range(64):
            page.hover_at(".satt-photo", (cell % 8 + 0.5) / 8, (cell // 8 + 0.5) / 8)
            told = page.text("figure .satt-status")
            if "the encoder sees" in told:
                break
        assert re.search(r"; the encoder sees \w+ [01]\.\d here$", told)
        page.click(".satt-word", 1)
        page.run(f"{first}.querySelector('.satt-things input').focus()")
        page.run(f"{first}.querySelector('.satt-things input').value = 'zebra'")
        page.press("Enter")
        page.wait_for(f"{first}.querySelector('.satt-problem').textContent.includes('knows no')")
        assert count(page, ".satt-moved", second) == 0
        page.click(".satt-reset")
        page.wait_for(f"!{first}.querySelector('.satt-sentence')")
        assert page.run(f"{first}.querySelector('.satt-things input').value") == ""
        page.close()


def test_what_goes_wrong_is_said_in_the_page(visit, port):
    page = visit()
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
    opened(page)
    assert alert(page) == ""
    page.click(".satt-word", 0)  # the photo alone: no word
    page.drag(".satt-photo", (0.5, 0.5))
    assert alert(page).startswith("Choose a word first")
    # Open for a day: the server has forgotten the photo, and gets it again.
    file = io.BytesIO()
    photo().save(file, "PNG")
    for _ in range(2):
        send(port, "/api/photos", file.getvalue())
    look(page, 1)
    assert alert(page) == ""


@pytest.mark.nightly
def test_the_command_serves_until_it_is_stopped_and_the_page_says_so(visit):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "caption", "serve", "--model", "shapes", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.stderr.read()
        page = visit(address.split(":")[2].strip("/"))
        page.click(".satt-example")
        page.wait_for("!!document.querySelector('.satt-said')")
        scene = words(page)
        assert len(scene) > 3
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, 128 + signal.SIGTERM)
    assert "Traceback" not in errors
    page.click(".satt-word", 1)
    page.drag(".satt-photo", (0.5, 0.5))
    page.wait_for(
        "[...document.querySelectorAll('[role=alert]')].some(line => line.textContent.includes('does not answer'))"
    )
    assert words(page) == scene


@pytest.mark.nightly
def test_photos_that_made_room_for_others_are_not_kept(visit):
    """Nodes and listeners after garbage collection, with the tenth photo as with the second."""
    page, counted = visit(), []
    for number in range(10):
        drop(page, name=f"{number}.png")
        page.wait_for(
            f"(name => name && name.textContent === '{number}.png')(document.querySelector('.satt-name'))"
        )
        page.wait_for("!document.querySelector('[aria-busy]')")
        if number in (1, 9):
            page.settle()
            page.call("HeapProfiler.collectGarbage")
            counted.append(page.call("Memory.getDOMCounters"))
    before, after = counted
    assert after["nodes"] <= before["nodes"] + 20
    assert after["jsEventListeners"] <= before["jsEventListeners"] + 5


@pytest.mark.nightly
def test_the_tree_of_the_search_follows_the_changes(visit):
    page = opened(visit(width=390, height=844))
    page.run("document.querySelector('.satt-beam').open = true")
    page.wait_for("!!document.querySelector('.satt-node')")
    assert page.text(".satt-beam summary") == "The search: a beam of 3"
    said = words(page)[1:]
    best = "[...document.querySelectorAll('.satt-best')].map(chip => chip.firstChild.textContent)"
    assert page.run(best)[: len(said)] == said
    look(page, 3)
    rows = page.run("[...document.querySelectorAll('.satt-node')].map(chip => +chip.style.gridRowStart)")
    assert [rows.count(step) for step in (1, 2, 3)] == [1, 1, 3]  # two words are kept
    said = words(page)[1:]
    assert page.run(best)[: len(said)] == said
    page.hover(".satt-node", 2)
    start = json.dumps(f"“{' '.join(said[:2])}")
    page.wait_for(f"document.querySelector('.satt-told p').textContent.startsWith({start})")
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.choose(".satt-search", "greedy")
    page.wait_for(RESET)
    assert page.run("document.querySelector('.satt-beam').hidden")
    page.choose(".satt-search", "beam")
    page.wait_for("!document.querySelector('.satt-beam').hidden")
    assert page.text(".satt-beam summary") == "The search: a beam of 5"
    assert count(page, ".satt-node") > 10
    assert page.complaints() == []
