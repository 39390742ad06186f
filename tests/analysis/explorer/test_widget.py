"""The explorer as a notebook's widget: its state in Python, and its page in a real browser."""

import json
import sys

import pytest
from helpers.tiny_captioner import captioner, photo

import caption
from caption.analysis.explorer import Explorer
from caption.core.errors import UserError

CHANGE = {"kind": "force", "steps": [1], "cells": [[7, 7]]}


@pytest.fixture
def widget():
    return caption.explore(captioner(), photo(), name="noise.png")


def test_python_reads_what_the_page_has_asked_for_and_the_page_follows_python(widget, monkeypatch, tmp_path):
    sent, explorer = [], widget.explorer
    monkeypatch.setattr(widget, "send", sent.append)
    widget._answer(widget, {"id": 1, "model": 0, "changes": [CHANGE]}, [])
    assert sent[0] == {"id": 1, "record": widget.photos[0]}
    assert widget.photos[0]["change"]["requests"] == [CHANGE]
    assert explorer.change.steps == (1,)
    assert explorer.change.changed is explorer.caption
    widget._answer(widget, {"id": 2, "model": 0, "changes": [{"kind": "x"}]}, [])
    assert sent[1]["error"].startswith("changes[0].kind is x")
    explorer.reset()
    assert widget.photos[0]["change"]["after"] is None
    explorer.force((7, 7), at=1)
    assert widget.photos == [sent[0]["record"]]
    widget.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert str(explorer.original) in page
    assert str(explorer.caption) in page
    explorer.undo()
    assert widget.photos[0]["change"]["requests"] == []
    explorer.search = {"kind": "greedy"}
    assert widget.photos[0]["search"] == {"kind": "greedy"}


def test_models_stand_side_by_side():
    widget = caption.explore(captioner(), photo(), beside={"other": captioner()})
    assert [record["model"] for record in widget.photos] == ["this", "other"]
    widget.explorer.erase((0, 0))
    assert widget.to_html().count("<figure>") == 3


def test_without_anywidget_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "caption.analysis.explorer.widget", raising=False)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(UserError, match=r"pip install 'show-attend-and-tell\[notebooks\]'"):
        caption.explore(captioner(), photo())


def notebook(widget, answer):
    """A page that renders the widget as a notebook does, with a model that has one answer."""
    state = {"styles": widget.styles, "image": widget.image, "photos": widget.photos}
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
    page.run("listeners['change:photos']()")
    assert page.run("document.querySelectorAll('.satt-moved').length") == 0  # as Python has it
    assert page.complaints() == []
    page.close()
