"""The tree of the search in the page: pointing at a hypothesis shows where the model looked for it."""

import json
import math

import numpy as np
from test_page import assert_lit, pointing

from caption.analysis.explorer.requests import check
from caption.results.beam_tree import BeamNode, BeamTree
from caption.visualize import page_data, to_html
from caption.visualize.page_data import photo_record

SIZE, BOX, GRID = (300, 200), (0, 0, 300, 200), (4, 6)
CELLS = [(0, 0), (2, 3), (3, 5), (1, 1), (0, 5)]


def node(word, parent, p, total, look):
    return BeamNode(word, parent, math.log(p), math.log(total), word == "(end)", look)


def searched():
    """ "a dog" is the caption, "the" the other one; "the cat" is dropped, "a dog runs" is alive at the end."""
    steps = [
        [node("a", None, 0.5, 0.5, 0), node("the", None, 0.4, 0.4, 0)],
        [node("dog", 0, 0.8, 0.4, 1), node("(end)", 1, 0.5, 0.2, 2), node("cat", 1, 0.1, 0.04, 2)],
        [node("(end)", 0, 0.9, 0.36, 3), node("runs", 0, 0.05, 0.02, 3)],
    ]
    weights = np.zeros((4, *GRID), np.float32)
    for look, cell in enumerate(CELLS[:4]):
        weights[(look, *cell)] = 1
    caption = pointing(SIZE, BOX, GRID, CELLS[:2], ["a", "dog"])
    caption.alternatives = [pointing(SIZE, BOX, GRID, CELLS[:1], ["the"], image=None)]
    caption.beam_tree = BeamTree(steps, weights, [[0, 0, 0], [1, 1]], 3)
    return caption


def record(caption):
    return json.loads(json.dumps(photo_record(caption, "dog.png", SIZE, SIZE), allow_nan=False))


def opened(page):
    page.run("document.querySelector('.satt-beam').open = true")
    page.wait_for("!!document.querySelector('.satt-node')")
    page.settle()
    return page


def chips(page, selector):
    return page.run(f"[...document.querySelectorAll('{selector}')].map(chip => chip.firstChild.textContent)")


def test_pointing_at_a_hypothesis_lights_its_cell_and_tells_its_sentence(show):
    page = show(searched().to_html(style="cells"))
    assert page.run("document.querySelectorAll('.satt-node').length") == 0
    assert page.text(".satt-beam summary") == "The search: a beam of 3"
    opened(page)
    assert chips(page, ".satt-node") == ["a", "the", "dog", "(end)", "cat", "(end)", "runs"]
    assert chips(page, ".satt-best") == ["a", "dog", "(end)"]
    assert chips(page, ".satt-dropped") == ["cat"]
    assert page.run("document.querySelectorAll('.satt-tree path').length") == 5
    for number, told in [
        (2, "“a dog”: p 0.8, log p so far −0.92; the caption goes on from here"),
        (
            3,
            "“the (end)”: p 0.5, log p so far −1.61; this is caption 2; 100 % of its attention lay elsewhere",
        ),
        (5, "“a dog (end)”: p 0.9, log p so far −1.02; this is the caption"),
        (6, "“a dog runs”: p 0.05, log p so far −3.91; the search stopped, because it could no longer"),
        (4, "“the cat”: p 0.1, log p so far −3.22; it is dropped at the next step; 100 %"),
    ]:
        page.hover(".satt-node", number)
        assert page.text(".satt-told p").startswith(told)
        assert page.text(".satt-status").startswith(told)
    assert page.pressed() == []
    assert chips(page, ".satt-line") == ["the", "cat"]
    assert_lit(page, SIZE, BOX, GRID, CELLS[2])
    page.hover(".satt-word", 1)
    assert page.pressed() == ["a"]
    assert_lit(page, SIZE, BOX, GRID, CELLS[0])
    assert chips(page, ".satt-line") == []
    # The share of attention that lay elsewhere is an orange bar, at two nodes.
    assert page.run("document.querySelectorAll('.satt-moved-share').length") == 2
    below = page.picture(".satt-node:nth-of-type(4)")[-5:]
    assert (below[..., 0] - below[..., 2]).max() > 60
    page.click(".satt-choice input", 1)
    assert chips(page, ".satt-best") == ["the", "(end)"]
    assert page.run("document.querySelectorAll('.satt-edge-best').length") == 1


def test_keys_alone_go_through_the_tree(show):
    page = opened(show(searched().to_html(style="cells"), width=390, height=844))
    page.run("document.querySelector('.satt-beam summary').focus()")
    page.press("Tab")
    keys = ["ArrowDown", "ArrowRight", "ArrowUp", "ArrowDown", "ArrowDown", "Home", "End", "ArrowRight"]
    visited = [page.run("document.activeElement.firstChild.textContent")]
    for key in keys:
        page.press(key)
        visited.append(page.run("document.activeElement.firstChild.textContent"))
    assert visited == ["a", "dog", "(end)", "the", "(end)", "(end)", "a", "(end)", "runs"]
    label = page.run("document.activeElement.getAttribute('aria-label')")
    assert label == "a dog runs; the search stopped, because it could no longer win"
    assert page.text(".satt-told p").startswith("“a dog runs”")
    assert_lit(page, SIZE, BOX, GRID, CELLS[3])
    assert page.run("document.querySelectorAll('.satt-node[tabindex=\"0\"]').length") == 1
    page.press("Tab")  # leaves the tree in one step
    assert not page.run("document.activeElement.matches('.satt-node')")
    assert page.pressed() == ["a"]


def test_a_wide_beam_scrolls_in_its_own_box(show):
    caption = searched()
    wide = [node(f"word{place}", None, 0.04, 0.04, 0) for place in range(20)]
    caption.beam_tree = BeamTree([wide], caption.beam_tree.weights, [[0]], 20)
    page = opened(show(caption.to_html(), width=390, height=844))
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("(box => box.scrollWidth > box.clientWidth)(document.querySelector('.satt-tree-scroll'))")


def test_what_finds_no_room_in_the_record_is_said(monkeypatch, show):
    """Maps of hypotheses, and too many hypotheses; a caption of another search has none."""
    found = record(searched())
    check(found, "Photo")
    assert found["beam"]["steps"][1][2] == {
        "word": "cat", "parent": 1, "log_prob": -2.3026, "total": -3.2189, "ended": False, "map_index": 2,
        "moved_share": 1.0,
    }  # fmt: skip
    monkeypatch.setattr(page_data, "MAP_BYTES", 160)
    check(record(searched()), "Photo")
    page = opened(show(searched().to_html(style="cells")))
    assert page.text(".satt-note").endswith("There was no room for their maps.")
    page.hover(".satt-node", 4)
    assert page.text(".satt-told p").startswith("“the cat”")
    monkeypatch.setattr(page_data, "MOST_NODES", 6)
    crowded = record(searched())
    check(crowded, "Photo")
    assert (crowded["beam"]["count"], crowded["beam"]["steps"]) == (7, [])
    page = show(to_html([searched(), pointing(SIZE, BOX, GRID, CELLS[:2])]))
    page.run("document.querySelector('.satt-beam').open = true")
    note = "document.querySelector('.satt-note').textContent"
    page.wait_for(f"{note}.includes('7 hypotheses, too many to draw')")
    assert page.run("document.querySelectorAll('.satt-beam:not(.satt-alignment)')[1].hidden")
