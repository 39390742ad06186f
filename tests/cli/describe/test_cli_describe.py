"""`caption describe`: captions on stdout, pictures in the files asked for, and each bad photo on stderr."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.command_line import Cli, check_refused
from helpers.tiny_captioner import captioner, photo
from PIL import Image
from pycocotools.coco import COCO

import caption
import caption.visualize
from caption.attention import Multinoulli
from caption.attention.stochastic import stochastic_parts
from caption.captioner import Captioner
from caption.cli import main as command_line
from caption.cli.describe import command
from caption.cli.describe.outputs import Outputs
from caption.cli.describe.printer import Printer
from caption.core.errors import ImageError
from caption.core.regions import Views
from caption.models import checkpoint, model_zoo
from caption.models.ensemble import ensemble
from caption.search import BeamSearch, Greedy, Search
from caption.search.base import Hypotheses

CARD = Path(__file__).parents[3] / "docs" / "results" / "model-card.md"
pytestmark = pytest.mark.slow


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Three photos of different sizes, two of them with the same name."""
    paths = [tmp_path / "a" / "x.png", tmp_path / "b" / "x.png", tmp_path / "y.jpg"]
    for seed, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        photo(80, 40 + 8 * seed, seed).save(path)
    return paths


@pytest.fixture(scope="module")
def expected(model: Path) -> list[caption.Caption]:
    return captioner().describe([photo(80, 40 + 8 * seed, seed) for seed in range(2)])


# -- formats ---------------------------------------------------------------------------------------------------


def test_one_photo_is_a_sentence_and_captions_of_several_name_their_photos(cli: Cli, model, photos, expected):
    assert cli("describe", photos[0], "--model", model) == (0, f"{expected[0]}\n", "")
    ran = cli("describe", *photos[:2], "--model", model)
    assert ran == (0, "".join(f"{path}\t{each}\n" for path, each in zip(photos, expected, strict=False)), "")


def test_json_is_a_list_of_captions_and_jsonl_a_line_each(cli: Cli, model, photos, expected):
    ran = cli("describe", *photos, "--model", model, "--format", "json")
    entries = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert [entry["image"] for entry in entries] == [str(path) for path in photos]
    assert {entry["model"] for entry in entries} == {str(model)}
    for entry, caption_ in zip(entries, expected, strict=False):
        fields = {"text", "words", "log_prob", "word_log_probs", "gates", "finished", "box"}
        assert fields <= entry.keys()
        assert "weights" not in entry
        assert entry["text"] == caption_.text == " ".join(entry["words"])
        assert entry["log_prob"] == pytest.approx(caption_.log_prob, abs=1e-5)
        assert entry["gates"] == pytest.approx(caption_.gates.tolist(), abs=1e-5)
        assert len(entry["word_log_probs"]) == len(entry["words"])
        assert entry["box"] == list(caption_.box)
    lines = cli("describe", *photos, "--model", model, "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == entries


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "json", "coco"])
def test_every_caption_is_pushed_out_at_once_with_letters_of_all_scripts(expected, monkeypatch, form: str):
    """Output is flushed, so that readers need not wait for a full buffer and captions survive a crash."""

    class Stream(io.StringIO):
        encoding, pushed = "utf-8", ""

        def flush(self) -> None:
            self.pushed = self.getvalue()

    stream = Stream()
    monkeypatch.setattr("sys.stdout", stream)
    printer = Printer(form, "model", several=False)
    for text in ("一隻狗\x9b\u2028\udcff", "一隻貓"):
        printer.add("狗.png", dataclasses.replace(expected[0], text=text))
        assert stream.pushed == stream.getvalue()
        assert text[:3] in stream.pushed
    if "json" in form or form == "coco":
        printer.finish()
        written = stream.getvalue()
        assert "一隻狗\\u009b\\u2028\\udcff" in written  # what is no letter is escaped
        entry = json.loads(written.splitlines()[0]) if form == "jsonl" else json.loads(written)[0]
        assert entry.get("text", entry.get("caption")) == "一隻狗\x9b\u2028\udcff"


def test_coco_is_a_results_file(cli: Cli, model, tmp_path, expected):
    paths = [tmp_path / "COCO_val2014_000000000042.jpg", tmp_path / "holiday.png"]
    for path in paths:
        photo(80, 40, 0).save(path)
    ran = cli("describe", *paths, "--model", model, "--format", "coco")
    results = json.loads(ran.out)
    assert [result["image_id"] for result in results] == [42, "holiday"]
    assert all(result.keys() == {"image_id", "caption"} for result in results)
    references = {"images": [{"id": 42}, {"id": "holiday"}, {"id": 7}], "annotations": [], "info": {}}
    (tmp_path / "captions.json").write_text(json.dumps(references))
    (tmp_path / "results.json").write_text(ran.out)
    read = COCO(str(tmp_path / "captions.json")).loadRes(str(tmp_path / "results.json"))
    assert [read.imgToAnns[name][0]["caption"] for name in (42, "holiday")] == [r["caption"] for r in results]


# -- search ----------------------------------------------------------------------------------------------------


def described(cli: Cli, *args: object) -> dict:
    return json.loads(cli("describe", *args, "--format", "jsonl").out)


def test_options_reach_the_search(cli: Cli, model, photos):
    for options, search in (
        (("--beam-size", 1), Greedy(max_length=8)),
        (("--length-normalization", 1), BeamSearch(3, 8, length_normalization=1.0)),
    ):
        found = described(cli, photos[0], "--model", model, *options)
        caption_ = captioner().describe(photo(80, 40, 0), search)
        assert found["words"] == caption_.words
        assert found["log_prob"] == pytest.approx(caption_.log_prob, abs=1e-5)


@pytest.mark.parametrize(("form", "count"), [("text", 3), ("csv", 3), ("jsonl", 5)])
def test_candidates_widen_the_beam_and_come_best_first(cli: Cli, model, photos, form: str, count: int):
    path = photos[0].rename(photos[0].with_name('red, "round".png'))
    out = cli("describe", path, "--model", model, "--candidates", count, "--format", form).out
    best = captioner().describe(photo(80, 40, 0), BeamSearch(count, 8, candidates=count))
    texts = [each.text for each in (best, *best.alternatives)]
    assert len(texts) == count
    if form == "text":
        assert out.splitlines() == texts
    elif form == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [row["text"] for row in rows] == texts
        assert {row["image"] for row in rows} == {str(path)}
        assert float(rows[0]["log_prob"]) == pytest.approx(best.log_prob, abs=1e-5)
        assert rows[0]["finished"] == str(best.finished)
    else:
        entry = json.loads(out)
        assert [entry["text"], *(other["text"] for other in entry["alternatives"])] == texts


def test_an_empty_caption_is_not_an_empty_line(cli: Cli, photos, tmp_path):
    silent = captioner()
    with torch.no_grad():
        silent.decoder.readout.to_words.bias[2] = 50.0  # the end token comes first
    checkpoint.save(silent, tmp_path / "silent.ckpt")
    ran = cli("describe", photos[0], "--model", tmp_path / "silent.ckpt")
    assert (ran.code, ran.out) == (0, "(no words)\n")
    assert described(cli, photos[0], "--model", tmp_path / "silent.ckpt")["text"] == ""


def test_hard_attention_can_be_set_for_describe(cli: Cli, model, tmp_path: Path, photos):
    hard = tmp_path / "hard.ckpt"
    checkpoint.save(captioner(alignment=Multinoulli()), hard)
    log_probs = []
    for how in ("expectation", "argmax"):
        log_probs.append(described(cli, photos[0], "--model", hard, "--at-test", how)["log_prob"])
        of_it = captioner(alignment=Multinoulli(at_test=how)).describe(str(photos[0]))
        assert log_probs[-1] == pytest.approx(of_it.log_prob, abs=1e-5)
    assert log_probs[0] != log_probs[1]


# -- sheets, two models ----------------------------------------------------------------------------------------


def test_a_contact_sheet_shows_all_photos_that_could_be_read(cli: Cli, model, photos, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"nothing")
    sheet = tmp_path / "sheet.png"
    ran = cli("describe", *photos, tmp_path / "broken.png", "--model", model, "--contact-sheet", sheet)
    assert ran.code == 1
    with Image.open(sheet) as drawn:
        assert drawn.width > drawn.height > 100
    assert sheet.stat().st_size <= 400_000
    ran = cli("describe", *[photos[0]] * 101, "--model", model, "--contact-sheet", sheet)
    check_refused(ran, "holds 100 photos, but there are 101")


def test_models_are_compared_on_the_page_and_in_figures(cli: Cli, model, photos, tmp_path):
    page, maps = tmp_path / "page.html", tmp_path / "maps"
    several = ("--model", model, "--compare", "shapes", "--compare", "shapes-hard")
    assert cli("describe", *photos[:2], *several, "--html", page, "--heatmap", maps).code == 0
    html = page.read_text()
    assert (html.count("<figure>"), html.count("data:image/jpeg")) == (6, 2)
    assert all(html.count(f'<p class="satt-model">{name}</p>') == 2 for name in ("shapes", "shapes-hard"))
    alone = tmp_path / "alone.png"
    assert cli("describe", photos[0], "--model", model, "--heatmap", alone).code == 0
    heights = [Image.open(path).height for path in (alone, maps / f"{photos[0].stem}.png")]
    assert heights[1] > 2 * heights[0]
    for wrong, said in (
        (("--compare", "shapes"), "name --html FILE or --heatmap FILE.png"),
        (
            ("--compare", "shapes", "--heatmap", tmp_path / "words", "--per-word"),
            "--compare needs a page or a figure",
        ),
        (("--compare", "shapes", "--heatmap", tmp_path / "moving.gif"), "--compare needs a page or a figure"),
        (("--compare", model, "--html", page), "which is shown already"),
        (("--compare", "shpaes", "--html", page), "did you mean shapes?"),
        (("--compare", "shapes", "--heatmap", maps, "--rows", "2"), "--rows is for figures of one model"),
    ):
        check_refused(cli("describe", photos[0], "--model", model, *wrong), said)


def test_options_of_search_and_of_hard_attention_are_for_all_models_that_are_compared(
    cli: Cli, model, photos, tmp_path, monkeypatch
):
    searched = []
    each = Captioner.generate

    def generate(self: Captioner, views: Views, search: Search, *more: Any) -> Hypotheses:
        searched.append((search.beam_size, [part.at_test for part in stochastic_parts(self)]))
        return each(self, views, search, *more)

    monkeypatch.setattr(Captioner, "generate", generate)
    several = ("--model", model, "--compare", "shapes-hard", "--html", tmp_path / "page.html")
    assert cli("describe", photos[0], *several, "--beam-size", 2, "--at-test", "argmax").code == 0
    assert searched == [(2, []), (2, ["argmax"])]
    ran = cli("describe", photos[0], "--model", model, "--at-test", "argmax")
    check_refused(ran, "has soft attention: leave it out")


# -- which model ----------------------------------------------------------------------------------------------


def test_several_models_are_averaged_if_they_fit_together(cli: Cli, model, photos, tmp_path):
    other = captioner()
    with torch.no_grad():
        other.decoder.embed.weight.neg_()
    checkpoint.save(other, tmp_path / "other.ckpt")
    models = [model, tmp_path / "other.ckpt"]
    ran = cli("describe", photos[0], "--model", models[0], "--model", models[1], "--format", "jsonl")
    expected = ensemble([caption.load(path) for path in models]).describe(str(photos[0]))
    entry = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert entry["words"] == expected.words
    assert entry["log_prob"] == pytest.approx(expected.log_prob, rel=1e-4)
    assert entry["model"] == f"{models[0]} + {models[1]}"
    ran = cli("describe", photos[0], "--model", model, "--model", "shapes")
    check_refused(ran, "must have the same vocabulary")


def test_without_a_model_the_installed_one_for_photos_is_used(cli: Cli, model, photos, expected, monkeypatch):
    monkeypatch.setattr(model_zoo, "_installed", lambda: {"photos": model})
    assert cli("describe", photos[0]) == (0, f"{expected[0]}\n", "")  # nothing in logs
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    ran = cli("describe", *photos)
    assert ran.err.count("caption describe: uses the installed model photos, a small model") == 1
    (count,) = re.findall(r"trained on ([\d,]+ photos)", ran.err)
    assert count in CARD.read_text(encoding="utf-8")
    assert "expect mistakes" not in cli("describe", photos[0], "--model", "photos").err
    monkeypatch.setattr(model_zoo, "_installed", lambda: {"shapes": model})
    said = "name a model with --model: a checkpoint, or an installed model (shapes)"
    check_refused(cli("describe", photos[0]), said)


def test_a_photo_given_to_the_model_of_scenes_gets_a_warning(cli: Cli, photos, tmp_path, shapes):
    scene = min(shapes.rglob("*.png"))
    said = f"shapes knows only drawn scenes of coloured shapes, and {photos[0]} is not one"
    both = cli("describe", scene, *photos, "--model", "shapes")
    assert both.code == 0
    assert both.err.count("not one") == 1
    assert both.err.startswith(f"caption describe: {said}")
    assert cli("describe", scene, "--model", "shapes").err == ""
    large = tmp_path / "large.png"
    Image.new("RGB", (300, 300)).save(large)
    assert f"{large} is not one" in cli("describe", large, "--model", "shapes-hard").err


def test_photos_that_would_have_one_id_are_refused_in_cocos_format(cli: Cli, model, photos, tmp_path):
    (tmp_path / "other").mkdir()
    for name in ("1.png", "other/01.png"):
        shutil.copy(photos[0], tmp_path / name)
    ran = cli("describe", tmp_path / "1.png", tmp_path / "other/01.png", "--model", model, "--format", "coco")
    check_refused(ran, "would both have the image_id 1:")


# -- wrong usage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--length-normalization -1", "-1"),
        ("--length-normalization 1e300", "exponent from 0 to 10 "),
        ("--device cuda:99", "cuda:99"),
        ("--device cpu:x", "cpu:x"),
        ("--html link.html", "would overwrite the input '"),
        (f"--model {'x' * 300}", "there is no checkpoint xxx"),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, model, photos, tmp_path, monkeypatch, options: str, said: str):
    monkeypatch.chdir(tmp_path)
    Path("link.html").symlink_to(model)
    before = model.read_bytes()
    models = () if "--model" in options else ("--model", model)
    ran = cli("describe", photos[0], *models, *options.split())
    check_refused(ran, said)
    assert len(ran.err) < 600
    assert Path("link.html").is_symlink()
    assert model.read_bytes() == before


# -- photos that cannot be read --------------------------------------------------------------------------------


@pytest.fixture
def bad(tmp_path: Path) -> dict[str, Path]:
    """Files that are not photos, by a word of the reason."""
    named = ("missing.jpg", "empty.jpg", "text.jpg", "folder.jpg", "truncated.jpg", "x" * 400)
    reasons = ("does not exist", "empty", "not an image", "folder", "truncated", "File name too long")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("This is no photo.")
    (tmp_path / "folder.jpg").mkdir()
    whole = io.BytesIO()
    Image.effect_noise((200, 200), 80).save(whole, "JPEG")
    (tmp_path / "truncated.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    return {reason: tmp_path / name for reason, name in zip(reasons, named, strict=True)}


def test_captions_match_their_photos_among_bad_ones(cli: Cli, model, photos, bad, expected, tmp_path):
    first, *others = bad.values()
    mixed = [first, *[photos[0]] * 20, *others, *[photos[1]] * 20]
    ran = cli("describe", *mixed, "--model", model, "--format", "json", "--attention", tmp_path / "numbers")
    assert ran.code == 1
    for complaint, (reason, path) in zip(ran.err.splitlines(), bad.items(), strict=True):
        assert str(path)[:100] in complaint
        assert reason in complaint
    entries = json.loads(ran.out)
    assert [entry["image"] for entry in entries] == [str(photos[0])] * 20 + [str(photos[1])] * 20
    log_probs = [entry["log_prob"] for entry in entries]
    assert log_probs == pytest.approx([each.log_prob for each in expected for _ in range(20)], abs=1e-5)
    files = ["x.npz", *(f"x-{number}.npz" for number in range(2, 41))]
    assert {path.name for path in (tmp_path / "numbers").iterdir()} == set(files)
    for name, caption_ in (("x-20.npz", expected[0]), ("x-21.npz", expected[1])):
        with np.load(tmp_path / "numbers" / name, allow_pickle=False) as arrays:
            assert arrays["words"].tolist() == caption_.words
            np.testing.assert_allclose(arrays["weights"], caption_.weights, atol=1e-5)
            assert arrays["box"].tolist() == list(caption_.box)


HEADER = "image,text,log_prob,finished"


@pytest.mark.parametrize(
    ("form", "nothing"), [("text", ""), ("jsonl", ""), ("json", "[]"), ("coco", "[]"), ("csv", HEADER)]
)
def test_only_bad_photos_are_an_empty_answer(cli: Cli, model, bad, tmp_path, form: str, nothing: str):
    ran = cli("describe", *bad.values(), "--model", model, "--format", form, "--html", tmp_path / "page.html")
    assert (ran.code, ran.out.strip()) == (1, nothing)
    assert not (tmp_path / "page.html").exists()


def test_a_line_of_text_is_a_photo_whatever_its_name(cli: Cli, model, photos, tmp_path, expected):
    folder = tmp_path / "odd"
    folder.mkdir()
    photo(80, 40, 0).save(folder / "a\nb.png")
    (folder / "c\nd.png").touch()
    (folder / "notes.txt").touch()
    ran = cli("describe", folder, "--model", model)
    assert (ran.code, ran.out) == (1, f"{folder}/a\\nb.png\t{expected[0]}\n")
    note, complaint = ran.err.splitlines()
    assert "left out notes.txt (" in note
    assert "c\\nd.png" in complaint


@pytest.mark.skipif(sys.platform != "linux", reason="file names are any bytes on Linux only")
def test_a_name_that_is_not_unicode(model, tmp_path, expected, monkeypatch: pytest.MonkeyPatch):
    name = os.fsdecode(bytes(tmp_path) + b"/\xff.png")
    photo(80, 40, 0).save(name)
    photo(80, 40, 0).save(tmp_path / "y.png")
    monkeypatch.setattr(command_line, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(
        sys, "argv", ["caption", "describe", name, str(tmp_path / "y.png"), "--model", str(model)]
    )
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    assert command_line.main() == 0
    assert written.getvalue().startswith(os.fsencode(f"{name}\t{expected[0]}\n"))


# -- many photos -----------------------------------------------------------------------------------------------


def test_a_caption_is_printed_before_it_is_drawn(cli: Cli, model, photos, expected, monkeypatch):
    events = []

    def stream(*_: object, **__: object) -> Iterator[object]:
        for found in (expected[0], ImageError("broken"), expected[1]):
            events.append("read")
            yield found

    @contextmanager
    def bar(*_: object, **__: object) -> Iterator[Callable[[int], None]]:
        yield lambda count: events.append("counted")

    monkeypatch.setattr("caption.captioner.Captioner.describe_each", stream)
    monkeypatch.setattr(command, "progress_bar", bar)
    for kind, event in ((Printer, "printed"), (Outputs, "drawn")):
        monkeypatch.setattr(kind, "add", lambda *_, event=event: events.append(event))
    assert cli("describe", *photos, "--model", model).code == 1
    whole = ["read", "printed", "counted", "drawn"]
    assert events == [*whole, "read", "counted", *whole]


def test_the_bar_on_a_terminal_keeps_out_of_the_data(cli: Cli, model, photos, expected, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    ran = cli("describe", *photos[:2], "--model", model)
    said = [f"{path}\t{each}" for path, each in zip(photos, expected, strict=False)]
    assert (ran.code, ran.out.splitlines()) == (0, said)
    assert "captioning" in ran.err
    assert "of 2 photos" in ran.err
    assert "\x1b[2K" in ran.err  # the bar is erased
    assert expected[0].text not in ran.err


# -- forms of input --------------------------------------------------------------------------------------------


def test_a_photo_may_come_from_standard_input(cli: Cli, model, photos, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def stdin(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    stdin(photos[0].read_bytes())
    assert cli("describe", "-", "--model", model) == (0, f"{expected[0]}\n", "")
    stdin(photos[0].read_bytes())
    outputs = ("--html", "page.html", "--compare", "shapes", "--attention", "arrays")
    ran = cli("describe", "-", photos[1], "--model", model, *outputs, "--format", "csv")
    assert ran.code == 0
    assert [row["image"] for row in csv.DictReader(io.StringIO(ran.out))] == ["stdin", str(photos[1])]
    assert sorted(path.name for path in Path("arrays").glob("*.npz")) == ["stdin.npz", "x.npz"]
    stdin(b"a.jpg\nb.jpg\n")
    ran = cli("describe", "-", photos[0], "--model", model)
    assert ran.code == 1
    assert "standard input" in ran.err
    stdin(b"")
    assert cli("describe", "-", "--model", model).code == 1


def test_patterns_urls_and_empty_folders_are_named(cli: Cli, model, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = "https://example.org/a/dog.jpg"
    (tmp_path / "top" / "below").mkdir(parents=True)
    photos[0].rename(tmp_path / "top" / "below" / "x.png")
    ran = cli("describe", url, "b/*.png", "b/*.gif", "top", "--model", model)
    assert ran.code == 1
    assert len(ran.out.splitlines()) == 1
    assert all(f"'{name}'" in ran.err for name in (url, "b/*.gif", "top"))
    assert cli("describe", "top", "--recursive", "--model", model).code == 0
