"""The page of mechanisms side by side: its numbers against teacher forcing, and a reader's ways through it."""

from __future__ import annotations

import base64
import io
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import caption
from caption.analysis.pointing_game import point
from caption.captioner import Captioner
from caption.data.decoding import open_image
from caption.data.shapes import Shapes
from caption.decoders import ShowAndTellDecoder
from caption.text.mentions import find_mentions
from caption.text.vocabulary import START
from tools.compare_attention.page import read_by, save_page

SCENES = 2


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    reader = Shapes(str(tmp_path_factory.mktemp("shapes")), train=1, val=1, test=SCENES)
    return reader.read()["test"], reader.boxes("test")


@pytest.fixture(scope="module")
def models():
    """Two that attend, and one that does not, which is not trained."""
    soft = caption.load("shapes")
    torch.manual_seed(0)
    plain = Captioner(soft.encoder, ShowAndTellDecoder(8, 8), soft.vocabulary, soft.transform).eval()
    return {"additive": soft, "hard": caption.load("shapes-hard"), "show_and_tell": plain}


@pytest.fixture(scope="module")
def file(models, shapes, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "attention_gallery.html"
    assert save_page(models, mechanisms(models), *shapes, path) == []
    return path


def mechanisms(names):
    families = {"additive": "scoring", "hard": "hard attention", "show_and_tell": "pooling"}
    return {name: SimpleNamespace(title=f"How {name} <b>looks</b>", family=families[name]) for name in names}


def told(file):
    script = re.search(
        r'<script type="application/json">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL
    )
    return json.loads(script[1])


def forced(model, scene):
    """Weights (T, rows, cols) and log-probabilities (T,) by teacher forcing, all steps at once."""
    views = model.encoder(model.transform(open_image(scene.path))[None])
    words = [model.vocabulary[word] for word in scene.captions[0].split()]
    with torch.no_grad():
        unrolled = model.unroll(views, torch.tensor([[[START, *words[:-1]]]]), torch.tensor([[len(words)]]))
    weights = unrolled.unpack(unrolled.trace.weights)[0, 0].view(-1, *model.grids(views)[0])
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))[0, 0]
    return weights.numpy(), log_probs[range(len(words)), words].numpy()


def test_a_sentence_is_read_as_in_teacher_forcing(models, shapes):
    for scene in shapes[0]:
        weights, log_probs = forced(models["additive"], scene)
        found = read_by(models["additive"], scene)
        assert found.words == scene.captions[0].split()
        np.testing.assert_allclose(found.weights, weights, atol=1e-5)
        np.testing.assert_allclose(found.word_log_probs, log_probs, atol=1e-4)


def test_the_page_is_told_where_each_looks_and_whether_that_is_the_object(file, models, shapes):
    data = told(file)
    assert [family["members"] for family in data["families"]] == [["additive"], ["hard"], ["show_and_tell"]]
    scenes, boxes = shapes
    for number, scene in enumerate(scenes):
        weights, _ = forced(models["additive"], scene)
        reading = data["mechanisms"]["additive"]["scenes"][number]
        assert reading["said"] == str(models["additive"](scene.path))
        mentions = find_mentions(scene.captions[0].split(), boxes[scene.id])
        assert mentions
        for mention in mentions:
            x, y = point(weights[mention.word], reading["photo"]["captions"][0]["box"])
            within = [left <= x <= right and top <= y <= bottom for left, top, right, bottom in mention.boxes]
            assert reading["hits"][str(mention.word)] == any(within)
            assert data["scenes"][number]["boxes"][str(mention.word)] == [list(box) for box in mention.boxes]
        without = data["mechanisms"]["show_and_tell"]["scenes"][number]
        assert (without["photo"], without["hits"]) == (None, {})
        assert len(without["log_probs"]) == len(scene.captions[0].split())


def test_the_page_keeps_what_it_shows_of_models_that_are_not_here(file, models, shapes, tmp_path):
    again = tmp_path / "again.html"
    again.write_bytes(file.read_bytes())
    swapped = {"additive": models["hard"], "hard": None, "show_and_tell": None}
    assert save_page(swapped, mechanisms(models), *shapes, again) == []
    before, after = told(file)["mechanisms"], told(again)["mechanisms"]
    assert after["additive"]["scenes"] == before["hard"]["scenes"] != before["additive"]["scenes"]
    assert {name: after[name] for name in ("hard", "show_and_tell")} == {
        name: before[name] for name in ("hard", "show_and_tell")
    }

    written = again.read_bytes()
    unknown = {**swapped, "dot": None}
    assert save_page(unknown, mechanisms(models), *shapes, again) == ["dot"]
    assert again.read_bytes() == written
    of_other_scenes = (shapes[0][:1], shapes[1])
    assert save_page(swapped, mechanisms(models), *of_other_scenes, again) == ["hard", "show_and_tell"]
    assert save_page(swapped, mechanisms(models), *shapes, tmp_path / "new.html") == ["hard", "show_and_tell"]


@pytest.fixture
def visit(browser, file):
    opened = []

    def visit(**options):
        opened.append(browser.open(f"{file.as_uri()}{options.pop('anchor', '')}", **options))
        opened[-1].wait_for("!!document.querySelector('.satt-word[aria-pressed=true]')")
        opened[-1].wait_for("document.querySelector('.satt-panel small').textContent !== ''")
        return opened[-1]

    yield visit
    for page in opened:
        assert page.complaints() == []
        assert [url.partition("#")[0] for url in page.requests()] == [file.as_uri()]
        page.close()


def panels(page):
    return page.run(
        "[...document.querySelectorAll('.satt-panel')].filter(panel => panel.checkVisibility())"
        ".map(panel => panel.querySelector('span').textContent)"
    )


def test_a_reader_changes_word_and_scene_with_the_mouse(visit, models, shapes):
    page = visit(width=1400)
    assert panels(page) == ["additive", "hard", "show_and_tell"]
    assert page.text(".satt-kin h2", 1) == "Hard attentionone place is drawn, and no others are read"
    assert page.text(".satt-panel small", 2).endswith("no map")
    page.choose(".satt-style", "cells")
    scenes, _ = shapes
    page.click(".satt-scenes input", 1)
    for word in (0, 3):
        page.click(".satt-word", word)
        assert page.pressed() == [scenes[1].captions[0].split()[word]]
        page.settle()
        weights, log_probs = forced(models["additive"], scenes[1])
        row, col = np.unravel_index(weights[word].argmax(), weights[word].shape)
        picture = page.run("document.querySelector('.satt-panel canvas').toDataURL()").partition(",")[2]
        lit = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB"))
        lit = lit.reshape(8, 24, 8, 24, 3)
        cells = lit.mean(axis=(1, 3, 4))
        assert np.unravel_index(cells.argmax(), cells.shape) == (row, col)
        p = float(re.search(r"p (?:> )?([\d.]+)", page.text(".satt-panel small"))[1])
        assert p == pytest.approx(np.exp(log_probs[word]), abs=6e-3)
    assert page.run("location.hash") == "#scene=2&word=4"
    page.hover(".satt-word", 1)
    assert page.pressed() == [scenes[1].captions[0].split()[1]]
    page.hover(".satt-panel", 0)
    assert page.pressed() == [scenes[1].captions[0].split()[3]]


def test_keys_alone_lead_to_every_mechanism(visit, shapes, file):
    page = visit(width=390, height=844, dark=True, anchor="#scene=2&word=2")
    words = shapes[0][1].captions[0].split()
    assert page.pressed() == [words[1]]
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.run("document.querySelector('.satt-scenes :checked').focus()")
    page.press("ArrowLeft")
    data = told(file)
    first = int(next(iter(data["scenes"][0]["boxes"])))
    assert page.pressed() == [data["scenes"][0]["words"][first]]
    hits = [each["scenes"][0]["hits"].get(str(first)) for each in data["mechanisms"].values()]
    count = f"{hits.count(True)} of 2 with a map look most at the object that it names."
    assert page.text(".satt-top .satt-status") == f"“{data['scenes'][0]['words'][first]}”: {count}"
    page.press("Tab")
    page.press("End")
    assert page.pressed() == [data["scenes"][0]["words"][-1]]
    page.press("Tab")
    assert page.run("document.activeElement.textContent").startswith("additive")
    page.press("ArrowRight")
    assert page.run("document.activeElement.textContent").startswith("hard")
    page.press(" ")
    page.wait_for("document.querySelector('dialog').open")
    assert page.text("dialog h2") == "hard"
    assert page.text("dialog p") == "How hard <b>looks</b>"
    assert page.pressed("dialog") == [data["scenes"][0]["words"][-1]]
    said = data["mechanisms"]["hard"]["scenes"][0]["said"]
    assert page.text(".satt-own") == f"Its own caption of the scene: “{said}”"
    page.press("Escape")
    page.wait_for("!document.querySelector('dialog').open")
    page.press("End")
    page.press(" ")
    page.wait_for("document.querySelector('dialog').open")
    assert "no map" in page.text("dialog")


def test_mechanisms_are_found_by_family_and_by_name(visit):
    page = visit()
    page.choose(".satt-family", "scoring")
    assert panels(page) == ["additive"]
    assert " of 1 with a map look" in page.text(".satt-top .satt-status")
    page.choose(".satt-family", "")
    page.choose(".satt-filter", "how SHOW")
    assert panels(page) == ["show_and_tell"]
    assert page.run("document.querySelectorAll('.satt-kin:not([hidden])').length") == 1
