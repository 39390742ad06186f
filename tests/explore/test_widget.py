"""The explorer as a notebook's widget: its state in Python, and its page in a real browser."""

import json

import pytest
from helpers.tiny_captioner import captioner, photo
from helpers.tiny_lens import tiny_lens

from caption.errors import UserError
from caption.explore import Explorer

CHANGE = {"kind": "force", "steps": [1], "cells": [[7, 7]]}


@pytest.fixture
def widget():
    return captioner().explore(photo(), name="noise.png")


def test_python_reads_what_the_page_has_asked_for_and_the_page_follows_python(widget, monkeypatch, tmp_path):
    sent = []
    monkeypatch.setattr(widget, "send", sent.append)
    assert widget.change is None
    widget._answer(widget, {"id": 1, "model": 0, "changes": [CHANGE]}, [])
    assert sent[0]["id"] == 1
    assert sent[0]["record"]["change"]["requests"] == [CHANGE]
    assert widget.change.steps == (1,)
    assert widget.change.changed is widget.caption
    widget._answer(widget, {"id": 2, "model": 0, "changes": [{"kind": "x"}]}, [])
    assert sent[1]["error"].startswith("a change has a kind")
    widget.reset()
    assert widget.photos[0]["change"]["after"] is None
    widget.force((7, 7), at=1)
    assert widget.photos == [sent[0]["record"]]
    widget.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert str(widget.original) in page
    assert str(widget.caption) in page
    widget.undo()
    assert widget.caption is widget.original


def test_a_word_is_made_to_look_at_a_thing_from_python():
    model = captioner()
    model.lens = tiny_lens()
    widget = model.explore(photo())
    widget.look_at("saxophone", at=1)
    request = {"kind": "force", "steps": [1], "thing": "saxophone"}
    assert widget.photos[0]["change"]["requests"] == [request]
    assert widget.caption.lens.words[1][0].noun == "saxophone"


def test_models_stand_side_by_side():
    widget = captioner().explore(photo(), beside={"other": captioner()})
    assert [record["model"] for record in widget.photos] == ["this", "other"]
    widget.erase((0, 0))
    assert widget.to_html().count("<figure>") == 3


def test_without_anywidget_the_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "caption.explore.widget", None)
    with pytest.raises(UserError, match=r"pip install 'show-attend-and-tell\[notebooks\]'"):
        captioner().explore(photo())


def notebook(widget, answer):
    """A page that renders the widget as a notebook does, with a model that has one answer."""
    state = {"look": widget.look, "image": widget.image, "photos": widget.photos}
    module = widget._esm.replace("export default", "const widget =")
    script = f"""{module}
const state = {json.dumps(state)}, listeners = {{}}, asked = [];
const model = {{
  get: (name) => state[name],
  on: (name, listener) => (listeners[name] = listener),
  off: () => null,
  send: (message) => {{
    asked.push(message);
    setTimeout(() => listeners["msg:custom"]({{ id: message.id, record: {json.dumps(answer)} }}), 0);
  }},
}};
Object.assign(window, {{ asked, state, listeners }});
widget.render({{ model, el: document.body }});"""
    escaped = script.replace("</", "<\\/")
    head = f'<!DOCTYPE html><meta charset="utf-8"><style>{widget._css}</style>'
    return f'{head}<body><script type="module">{escaped}</script>'


def test_a_click_in_the_notebook_asks_python_and_shows_its_answer(browser, widget, tmp_path):
    answer = {**Explorer(captioner(), photo(), name="noise.png").answer({"changes": [CHANGE]}), "model": ""}
    path = tmp_path / "notebook.html"
    path.write_text(notebook(widget, answer), encoding="utf-8")
    page = browser.open(path.as_uri())
    page.wait_for("!!document.querySelector('.satt-said')")
    page.click(".satt-word", 2)
    page.drag(".satt-photo", (0.74, 0.95))  # of a photo twice as wide as high, whose middle the model sees
    page.wait_for("!!document.querySelector('.satt-sentence')")
    assert page.run("asked") == [{"id": 1, "model": 0, "changes": [CHANGE], "search": None}]
    assert page.run("document.querySelectorAll('.satt-moved').length") == 1
    page.run("listeners['change:photos']()")
    assert page.run("document.querySelectorAll('.satt-moved').length") == 0  # as Python has it
    assert page.complaints() == []
    page.close()
