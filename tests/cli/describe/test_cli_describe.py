"""`caption describe`: captions on stdout, pictures in the files asked for, and each bad photo on stderr."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command_line import Ran
from helpers.tiny_captioner import captioner, photo
from PIL import Image

import caption
from caption import checkpoint
from caption.attention import Multinoulli
from caption.cli.describe import pictures
from caption.cli.describe.command import Printer, coco_id
from caption.data.resize import ImageTransform
from caption.search import BeamSearch, Greedy
from caption.visualize.styles import STYLE_NAMES

Cli = Callable[..., Ran]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.ckpt"
    checkpoint.save(captioner(), path)
    return path


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


def test_one_photo_is_a_sentence_and_nothing_else(cli: Cli, model, photos, expected):
    ran = cli("describe", photos[0], "--model", model)
    assert ran == (0, f"{expected[0]}\n", "")


def test_captions_name_their_photos(cli: Cli, model, photos, expected):
    ran = cli("describe", *photos[:2], "--model", model)
    assert ran == (0, "".join(f"{path}\t{each}\n" for path, each in zip(photos, expected, strict=False)), "")


def test_json_is_a_list_of_captions_without_weights(cli: Cli, model, photos, expected):
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
    assert [entry["box"] for entry in entries[:2]] == [list(each.box) for each in expected]


def test_jsonl_is_the_same_a_line_each(cli: Cli, model, photos):
    whole = cli("describe", *photos, "--model", model, "--format", "json")
    lines = cli("describe", *photos, "--model", model, "--format", "jsonl")
    assert [json.loads(line) for line in lines.out.splitlines()] == json.loads(whole.out)


def test_csv_is_a_table_that_survives_commas_in_names(cli: Cli, model, tmp_path, expected):
    path = tmp_path / 'red, "round".png'
    photo(80, 40, 0).save(path)
    ran = cli("describe", path, "--model", model, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(ran.out))
    assert row["image"] == str(path)
    assert row["text"] == expected[0].text
    assert float(row["log_prob"]) == pytest.approx(expected[0].log_prob, abs=1e-5)
    assert row["finished"] == str(expected[0].finished)


def test_coco_is_a_results_file(cli: Cli, model, tmp_path, expected):
    paths = [tmp_path / "COCO_val2014_000000000042.jpg", tmp_path / "holiday.png"]
    for path in paths:
        photo(80, 40, 0).save(path)
    ran = cli("describe", *paths, "--model", model, "--format", "coco")
    results = json.loads(ran.out)
    assert [result["image_id"] for result in results] == [42, "holiday"]
    assert all(result.keys() == {"image_id", "caption"} for result in results)


@pytest.mark.parametrize(
    ("name", "expected_id"),
    [
        ("COCO_val2014_000000000042.jpg", 42),
        ("folder/000000000042.jpg", 42),
        ("7.png", 7),
        ("photo7.png", "photo7"),
        ("COCO_val2014_x.jpg", "COCO_val2014_x"),
        ("1000268201_693b08cb0e.jpg", "1000268201_693b08cb0e"),
    ],
)
def test_coco_ids(name: str, expected_id: int | str):
    assert coco_id(name) == expected_id


# -- search ----------------------------------------------------------------------------------------------------


def described(cli: Cli, *args: object) -> dict:
    return json.loads(cli("describe", *args, "--format", "json").out)[0]


def test_the_models_own_search_is_the_default(cli: Cli, photos, tmp_path):
    searches = {"narrow": BeamSearch(3, max_length=3), "wide": BeamSearch(3, max_length=8)}
    words = []
    for name, search in searches.items():
        checkpoint.save(captioner(search=search), tmp_path / f"{name}.ckpt")
        words.append(described(cli, photos[0], "--model", tmp_path / f"{name}.ckpt")["words"])
    assert len(words[0]) <= 3 < len(words[1])


def test_a_beam_of_one_is_greedy_search(cli: Cli, model, photos):
    greedy = captioner().describe(photo(80, 40, 0), Greedy(max_length=8))
    found = described(cli, photos[0], "--model", model, "--beam-size", 1)
    assert found["words"] == greedy.words
    assert found["log_prob"] == pytest.approx(greedy.log_prob, abs=1e-5)


def test_length_normalization_reaches_the_search(cli: Cli, model, photos):
    found = described(cli, photos[0], "--model", model, "--length-normalization", 1)
    search = BeamSearch(3, 8, length_normalization=1.0)
    assert found["words"] == captioner().describe(photo(80, 40, 0), search).words


@pytest.mark.parametrize("form", ["text", "csv", "json"])
def test_candidates_are_several_captions_best_first(cli: Cli, model, photos, form: str):
    ran = cli("describe", photos[0], "--model", model, "--candidates", 3, "--format", form)
    best = captioner().describe(photo(80, 40, 0), BeamSearch(3, 8, candidates=3))
    texts = [each.text for each in (best, *best.alternatives)]
    assert len(texts) == 3
    if form == "text":
        assert ran.out.splitlines() == texts
    elif form == "csv":
        assert [row["text"] for row in csv.DictReader(io.StringIO(ran.out))] == texts
    else:
        (entry,) = json.loads(ran.out)
        assert [entry["text"], *(other["text"] for other in entry["alternatives"])] == texts


@pytest.mark.parametrize(
    "options",
    [
        ["--beam-size", "0"],
        ["--candidates", "0"],
        ["--candidates", "4", "--beam-size", "3"],
        ["--length-normalization", "-1"],
    ],
)
def test_an_impossible_search_is_wrong_usage(cli: Cli, model, photos, options: list[str]):
    ran = cli("describe", photos[0], "--model", model, *options)
    assert (ran.code, ran.out) == (2, "")
    assert options[1] in ran.err
    assert "Traceback" not in ran.err


def test_more_candidates_than_the_models_beam_widen_it(cli: Cli, model, photos):
    entry = described(cli, photos[0], "--model", model, "--candidates", 5)
    best = captioner().describe(photo(80, 40, 0), BeamSearch(5, 8, candidates=5))
    texts = [each.text for each in (best, *best.alternatives)]
    assert len(texts) == 5
    assert [entry["text"], *(other["text"] for other in entry["alternatives"])] == texts


def test_an_empty_caption_is_not_an_empty_line(cli: Cli, photos, tmp_path):
    silent = captioner()
    with torch.no_grad():
        silent.decoder.readout.to_words.bias[2] = 50.0  # the end token comes first
    checkpoint.save(silent, tmp_path / "silent.ckpt")
    ran = cli("describe", photos[0], "--model", tmp_path / "silent.ckpt")
    assert (ran.code, ran.out) == (0, "(no words)\n")
    assert described(cli, photos[0], "--model", tmp_path / "silent.ckpt")["text"] == ""


# -- attention, heatmaps, pages --------------------------------------------------------------------------------


def test_attention_is_written_as_numbers(cli: Cli, model, photos, tmp_path, expected):
    ran = cli("describe", photos[0], "--model", model, "--attention", tmp_path / "out.npz")
    assert ran == (0, f"{expected[0]}\n", "")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        assert arrays["words"].tolist() == expected[0].words
        assert arrays["weights"].shape == (len(expected[0].words), 8, 8)
        np.testing.assert_allclose(arrays["weights"].sum((1, 2)), 1, atol=1e-5)
        np.testing.assert_allclose(arrays["weights"], expected[0].weights, atol=1e-5)
        np.testing.assert_allclose(arrays["gates"], expected[0].gates, atol=1e-5)
        assert arrays["box"].tolist() == list(expected[0].box) == [20, 0, 60, 40]  # the centre of 80x40


def test_outputs_of_one_name_do_not_overwrite_each_other(cli: Cli, model, photos, tmp_path):
    photos.append(tmp_path / "x-2.png")
    photo(96, 40, 3).save(photos[-1])
    ran = cli("describe", *photos, "--model", model, "--attention", tmp_path / "numbers", "--format", "json")
    files = {path.name for path in (tmp_path / "numbers").iterdir()}
    assert files == {"x.npz", "x-2.npz", "y.npz", "x-2-2.npz"}
    for name, entry in zip(["x", "x-2", "y", "x-2-2"], json.loads(ran.out), strict=True):
        with np.load(tmp_path / "numbers" / f"{name}.npz") as arrays:
            assert arrays["words"].tolist() == entry["words"]
            assert arrays["box"].tolist() == entry["box"]


def test_heatmaps_are_figures_in_a_file_or_a_folder(cli: Cli, model, photos, tmp_path):
    assert cli("describe", photos[0], "--model", model, "--heatmap", tmp_path / "one.png").code == 0
    with Image.open(tmp_path / "one.png") as figure:
        assert figure.format == "PNG"
        assert min(figure.size) > 100
    assert cli("describe", *photos[:2], "--model", model, "--heatmap", tmp_path / "many").code == 0
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == ["x-2.png", "x.png"]
    drawn = {(tmp_path / "one.png").read_bytes()}
    for look in (
        "--style paper",
        "--style glow",
        "--style cells",
        "--no-smooth",
        "--cmap viridis",
        "--opacity 0.2",
    ):
        assert (
            cli(
                "describe", photos[0], "--model", model, "--heatmap", tmp_path / "look.png", *look.split()
            ).code
            == 0
        )
        drawn.add((tmp_path / "look.png").read_bytes())
    assert len(drawn) == 7


def test_the_look_is_checked_before_anything_is_done(cli: Cli, model, photos, tmp_path):
    for look, said in (
        ("--cmap rainbows", "no colour map 'rainbows'"),
        ("--opacity 2", "between 0 and 1"),
        ("--style neon", "invalid choice: 'neon'"),
    ):
        ran = cli("describe", photos[0], "--model", model, "--heatmap", tmp_path / "x.png", *look.split())
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err


def test_styles_of_the_command_line_are_those_of_figures():
    assert pictures.STYLES == STYLE_NAMES


def test_a_contact_sheet_shows_all_photos_that_could_be_read(cli: Cli, model, photos, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"nothing")
    sheet = tmp_path / "sheet.png"
    ran = cli("describe", *photos, tmp_path / "broken.png", "--model", model, "--contact-sheet", sheet)
    assert ran.code == 1
    with Image.open(sheet) as drawn:
        assert drawn.width > drawn.height > 100
    assert sheet.stat().st_size <= 400_000
    ran = cli("describe", *[photos[0]] * 101, "--model", model, "--contact-sheet", sheet)
    assert (ran.code, ran.out) == (2, "")
    assert "holds 100 photos, and there are 101" in ran.err


def test_two_models_are_compared_on_the_page(cli: Cli, model, photos, tmp_path):
    page = tmp_path / "page.html"
    ran = cli("describe", *photos[:2], "--model", model, "--compare", "shapes", "--html", page)
    assert ran.code == 0
    html = page.read_text()
    assert html.count("<figure>") == 4
    assert html.count("data:image/jpeg") == 2
    assert html.count('<p class="satt-model">shapes</p>') == 2
    for wrong, said in (
        (("--compare", "shapes"), "with --html"),
        (("--compare", model, "--html", page), "names the model itself"),
        (("--compare", "no such model", "--html", page), "no such model"),
    ):
        ran = cli("describe", photos[0], "--model", model, *wrong)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err


def test_smooth_is_for_the_page_too(cli: Cli, model, photos, tmp_path):
    pages = []
    for smooth in ("--smooth", "--no-smooth"):
        assert (
            cli("describe", photos[0], "--model", model, "--html", tmp_path / "page.html", smooth).code == 0
        )
        pages.append((tmp_path / "page.html").read_text())
    assert '"smooth":true' in pages[0]
    assert '"smooth":false' in pages[1]


def test_a_page_holds_all_photos(cli: Cli, model, photos, tmp_path, expected):
    ran = cli("describe", *photos[:2], "--model", model, "--html", tmp_path / "new" / "page.html")
    assert (ran.code, ran.err) == (0, "")
    page = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/") >= 2
    assert all(word in page for each in expected for word in each.words)


def test_one_file_for_several_photos_is_refused_before_anything_is_loaded(cli: Cli, photos, tmp_path):
    ran = cli("describe", *photos, "--model", "no such model", "--heatmap", tmp_path / "one.png")
    assert (ran.code, ran.out) == (2, "")
    assert "one.png is one file for 3 photos" in ran.err


@pytest.mark.parametrize("option", ["--heatmap", "--attention", "--html"])
def test_an_output_that_cannot_be_written_is_an_error_of_the_user(
    cli: Cli, model, photos, tmp_path, option: str
):
    (tmp_path / "file").write_text("not a folder")
    ran = cli("describe", photos[0], "--model", model, option, tmp_path / "file" / "out.png")
    assert (ran.code, ran.out) == (2, "")
    assert option in ran.err
    assert "Traceback" not in ran.err


def test_an_unknown_kind_of_figure_is_an_error_of_the_user(cli: Cli, model, photos, tmp_path):
    ran = cli("describe", photos[0], "--model", model, "--heatmap", tmp_path / "out.docx")
    assert ran.code == 2
    assert "out.docx" in ran.err
    assert "png" in ran.err


def test_hard_attention_reports_its_locations(cli: Cli, photos, tmp_path):
    checkpoint.save(captioner(alignment=Multinoulli(at_test="argmax")), tmp_path / "hard.ckpt")
    found = described(cli, photos[0], "--model", tmp_path / "hard.ckpt")
    assert np.array(found["locations"]).shape == (len(found["words"]), 2)


@pytest.mark.parametrize("option", ["--heatmap", "--attention", "--html"])
def test_photos_and_models_are_never_overwritten(cli: Cli, model, photos, tmp_path, option: str):
    kept = {path: path.read_bytes() for path in [*photos, model]}
    folder = tmp_path / "own"
    (tmp_path / "a").rename(folder)
    kept[folder / "x.png"] = kept.pop(photos[0])
    for target in (folder, folder / "x.png", model):
        ran = cli("describe", folder / "x.png", "--model", model, option, target)
        if target == folder and option != "--heatmap":
            continue  # x.npz is another file, and a page needs a name
        assert (ran.code, ran.out) == (2, ""), (option, target)
        assert str(target) in ran.err
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_the_same_command_runs_twice(cli: Cli, model, photos, tmp_path):
    outputs = (
        "--heatmap",
        tmp_path / "maps",
        "--attention",
        tmp_path / "maps",
        "--html",
        tmp_path / "page.html",
    )
    for _ in range(2):
        assert cli("describe", *photos, "--model", model, *outputs).code == 0


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


# -- photos that cannot be read --------------------------------------------------------------------------------


@pytest.fixture
def bad(tmp_path: Path) -> dict[str, Path]:
    whole = {}
    for suffix in ("jpg", "png"):
        buffer = io.BytesIO()
        Image.effect_noise((200, 200), 80).convert("RGB").save(buffer, {"jpg": "JPEG", "png": "PNG"}[suffix])
        whole[suffix] = buffer.getvalue()
    paths = {
        "missing": tmp_path / "missing.jpg",
        "empty": tmp_path / "empty.jpg",
        "truncated JPEG": tmp_path / "cut.jpg",
        "truncated PNG": tmp_path / "cut.png",
        "text": tmp_path / "text.jpg",
        "folder": tmp_path / "folder.jpg",
    }
    paths["empty"].touch()
    paths["truncated JPEG"].write_bytes(whole["jpg"][: len(whole["jpg"]) // 2])
    paths["truncated PNG"].write_bytes(whole["png"][: len(whole["png"]) // 2])
    paths["text"].write_text("This is no photo.")
    paths["folder"].mkdir()
    return paths


REASONS = {
    "missing": "does not exist",
    "empty": "empty",
    "truncated JPEG": "truncated",
    "truncated PNG": "truncated",
    "text": "not an image",
    "folder": "folder",
}


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv", "coco"])
def test_every_bad_photo_is_named_with_its_reason_and_the_others_are_answered(
    cli: Cli, model, photos, bad, expected, form: str
):
    mixed = [photos[0], *bad.values(), photos[1]]
    ran = cli("describe", *mixed, "--model", model, "--format", form)
    assert ran.code == 1
    complaints = ran.err.splitlines()
    assert len(complaints) == len(bad)
    for complaint, (kind, path) in zip(complaints, bad.items(), strict=True):
        assert str(path) in complaint
        assert REASONS[kind] in complaint
    assert all(each.text in ran.out for each in expected)
    if form in ("json", "coco"):
        assert len(json.loads(ran.out)) == 2


def test_a_folder_without_images_is_called_that(cli: Cli, model, photos, tmp_path):
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    ran = cli("describe", tmp_path / "empty", photos[0], "--model", model)
    assert ran.code == 1
    assert f"'{tmp_path / 'empty'}' is a folder without images" in ran.err


def test_captions_match_their_photos_among_bad_ones(cli: Cli, model, photos, bad, expected, tmp_path):
    mixed = [bad["empty"], photos[0], bad["text"], photos[1], bad["folder"]]
    ran = cli("describe", *mixed, "--model", model, "--format", "json", "--attention", tmp_path / "numbers")
    entries = json.loads(ran.out)
    assert [entry["image"] for entry in entries] == [str(photos[0]), str(photos[1])]
    assert [entry["log_prob"] for entry in entries] == pytest.approx(
        [each.log_prob for each in expected], abs=1e-5
    )
    assert sorted(path.name for path in (tmp_path / "numbers").iterdir()) == ["x-2.npz", "x.npz"]


def test_more_photos_than_a_batch(cli: Cli, model, photos, bad, expected):
    mixed = [*[photos[0]] * 20, bad["empty"], *[photos[1]] * 20]
    ran = cli("describe", *mixed, "--model", model, "--format", "json")
    entries = json.loads(ran.out)
    assert [entry["image"] for entry in entries] == [str(photos[0])] * 20 + [str(photos[1])] * 20
    assert [entry["text"] for entry in entries] == [expected[0].text] * 20 + [expected[1].text] * 20


@pytest.mark.parametrize(("form", "nothing"), [("text", ""), ("jsonl", ""), ("json", "[]"), ("coco", "[]")])
def test_only_bad_photos_are_an_empty_answer(cli: Cli, model, bad, tmp_path, form: str, nothing: str):
    ran = cli("describe", *bad.values(), "--model", model, "--format", form, "--html", tmp_path / "page.html")
    assert (ran.code, ran.out.strip()) == (1, nothing)
    assert not (tmp_path / "page.html").exists()


def test_only_bad_photos_are_a_table_without_rows(cli: Cli, model, bad):
    ran = cli("describe", *bad.values(), "--model", model, "--format", "csv")
    assert (ran.code, list(csv.DictReader(io.StringIO(ran.out)))) == (1, [])
    assert ran.out.startswith("image,text,")


@pytest.mark.skipif(
    os.name == "nt" or os.uname().sysname == "Darwin", reason="file names are any bytes on Linux only"
)
def test_a_name_that_is_not_unicode(command, model, tmp_path):
    name = os.fsdecode(bytes(tmp_path) + b"/\xff.png")
    photo(80, 40, 0).save(name)
    photo(80, 40, 0).save(tmp_path / "y.png")
    strict = {"PYTHONIOENCODING": "utf-8:strict"}  # as in any locale except POSIX
    ran = command(
        "describe", name, tmp_path / "y.png", "--model", model, errors="surrogateescape", env=strict
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{name}\t")


# -- files that are not models ---------------------------------------------------------------------------------


@pytest.fixture
def impostors(tmp_path: Path, model: Path) -> dict[str, Path]:
    paths = {
        name: tmp_path / f"{name}.ckpt" for name in ("text", "pickle", "state", "objects", "cut", "missing")
    }
    paths["text"].write_text("weights")
    paths["pickle"].write_bytes(pickle.dumps({"state_dict": print}))
    torch.save({"weight": torch.zeros(2)}, paths["state"])
    torch.save({**torch.load(model, weights_only=True), "more": print}, paths["objects"])
    paths["cut"].write_bytes(model.read_bytes()[:-1000])
    return paths


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("text", "not a checkpoint of this package"),
        ("pickle", "pickle"),
        ("state", "not a checkpoint of this package"),
        ("objects", "refused"),
        ("cut", "damaged"),
        ("missing", "there is no"),
    ],
)
def test_other_files_are_refused_as_checkpoints(cli: Cli, photos, impostors, kind: str, reason: str):
    ran = cli("describe", photos[0], "--model", impostors[kind])
    assert (ran.code, ran.out) == (2, "")
    assert str(impostors[kind]) in ran.err
    assert reason in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) == 1


def test_an_unknown_model_lists_the_installed_ones(cli: Cli, photos):
    ran = cli("describe", photos[0], "--model", "nonesuch")
    assert (ran.code, ran.out) == (2, "")
    assert "nonesuch" in ran.err
    assert "installed" in ran.err


def test_a_misspelt_model_gets_a_hint(cli: Cli, photos, monkeypatch):
    monkeypatch.setattr("caption.models.model_zoo.installed_models", lambda: ["shapes", "shapes-hard"])
    ran = cli("describe", photos[0], "--model", "shpaes")
    assert ran.code == 2
    assert "did you mean shapes?" in ran.err


def test_an_installed_model_goes_by_its_name(cli: Cli, photos, model, monkeypatch, tmp_path):
    (tmp_path / "package" / "models").mkdir(parents=True)
    (tmp_path / "package" / "models" / "shapes.ckpt").write_bytes(model.read_bytes())
    monkeypatch.setattr("caption.models.model_zoo.files", lambda name: tmp_path / "package")
    by_name = cli("describe", photos[0], "--model", "shapes")
    assert by_name[:2] == cli("describe", photos[0], "--model", model)[:2]
    missing = cli("describe", photos[0], "--model", "other")
    assert missing.code == 2
    assert "shapes" in missing.err


def test_a_file_goes_before_an_installed_model_of_its_name(cli: Cli, photos, model, monkeypatch, tmp_path):
    other = captioner(transform=ImageTransform(32, "squash"))
    checkpoint.save(other, tmp_path / "shapes")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "shapes.ckpt").write_bytes(model.read_bytes())
    monkeypatch.setattr("caption.models.model_zoo.files", lambda name: tmp_path)
    monkeypatch.chdir(tmp_path)
    assert described(cli, photos[0], "--model", "shapes")["box"] == [0, 0, 80, 40]


def test_names_that_are_too_long_condemn_nothing_else(cli: Cli, model, photos, expected):
    long = "x" * 400
    ran = cli("describe", long, photos[0], "--model", model)
    assert (ran.code, ran.out) == (1, f"{photos[0]}\t{expected[0]}\n")
    assert "File name too long" in ran.err
    assert cli("describe", photos[0], "--model", long).code == 2
    assert cli("describe", photos[0], "--model", model, "--html", f"~nobody-of-this-name/{long}").code == 2
    ran = cli("describe", photos[0], "--model", model, "--length-normalization", "1e300")
    assert (ran.code, "exponent from 0 to 100" in ran.err) == (2, True)


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "cpu:x"])
def test_a_device_that_is_not_there(cli: Cli, model, photos, device: str):
    ran = cli("describe", photos[0], "--model", model, "--device", device)
    assert (ran.code, ran.out) == (2, "")
    assert device in ran.err
    assert "Traceback" not in ran.err


# -- as a process ----------------------------------------------------------------------------------------------


def test_as_a_process_stdout_carries_data_only(command, model, photos, bad, tmp_path, expected):
    ran = command(
        "describe",
        photos[0],
        bad["truncated JPEG"],
        photos[1],
        *(
            "--model",
            model,
            "--format",
            "json",
            "--heatmap",
            tmp_path / "maps",
            "--html",
            tmp_path / "page.html",
        ),
    )
    assert ran.code == 1
    assert [entry["text"] for entry in json.loads(ran.out)] == [each.text for each in expected]
    assert len(ran.err.splitlines()) == 1
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert len(list((tmp_path / "maps").iterdir())) == 2


UNUSED = {
    *("pytorch_lightning", "lightning_fabric", "torchmetrics", "tensorboard", "jsonargparse", "yaml"),
    *("matplotlib", "nltk", "pandas", "pycocotools", "scipy", "torchvision"),
}
LOOK = """
import sys
from caption.cli.main import main
code = main(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
sys.exit(code)
"""


def test_unused_packages_are_not_imported(model, photos):
    """torchvision is not imported either, if the encoder is not one of its models."""
    command = [sys.executable, "-c", LOOK, "describe", photos[0], "--model", model]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert {"caption", "torch", "PIL"} <= loaded
    assert not loaded & UNUSED


# -- hard attention --------------------------------------------------------------------------------------------


def test_hard_attention_can_be_set_for_describe(cli: Cli, tmp_path: Path, photos):
    checkpoint.save(captioner(alignment=Multinoulli()), tmp_path / "hard.ckpt")
    found = {}
    for how in ("expectation", "argmax"):
        ran = cli(
            "describe", photos[0], "--model", tmp_path / "hard.ckpt", "--at-test", how, "--format", "json"
        )
        found[how] = json.loads(ran.out)[0]["log_prob"]
        made_so = captioner(alignment=Multinoulli(at_test=how)).describe(str(photos[0]))
        assert found[how] == pytest.approx(made_so.log_prob, abs=1e-5)
    assert found["expectation"] != found["argmax"]


def test_soft_attention_has_no_such_choice(cli: Cli, model, photos):
    ran = cli("describe", photos[0], "--model", model, "--at-test", "argmax")
    assert ran.code == 2
    assert "--at-test is for hard attention" in ran.err


# -- many photos -----------------------------------------------------------------------------------------------


def test_a_folder_is_its_photos(cli: Cli, model, photos):
    folder = photos[-1].parent
    (folder / "notes.txt").write_text("no photo")
    ran = cli("describe", folder, folder / "b", "--model", model, "--format", "csv")
    left_out = "left out a, b, notes.txt (subfolders, or not images)"
    assert (ran.code, ran.err) == (0, f"caption describe: '{folder}': {left_out}\n")
    found = [row["image"] for row in csv.DictReader(io.StringIO(ran.out))]
    assert found == [str(folder / "y.jpg"), str(folder / "b" / "x.png")]


@pytest.fixture
def stopped_at_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the second caption is being written."""
    whole = Printer.add

    def add(self: Printer, photo: str, caption_: caption.Caption) -> None:
        if photo.endswith("y.jpg"):
            raise KeyboardInterrupt
        whole(self, photo, caption_)

    monkeypatch.setattr(Printer, "add", add)


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv", "coco"])
def test_output_written_before_ctrl_c_is_kept(
    cli: Cli, model, photos, expected, stopped_at_second, tmp_path, form
):
    mixed = [photos[0], photos[2], photos[1]]
    page = tmp_path / "page.html"
    ran = cli("describe", *mixed, "--model", model, "--format", form, "--html", page)
    assert ran.code == 130
    assert "stopped after 1 of 3 photos" in ran.err
    alone = cli("describe", photos[0], "--model", model, "--format", form)
    one = ran.out.removeprefix(f"{photos[0]}\t" if form == "text" else "")
    number = re.compile(r"-?\d+\.\d+")  # the last digits depend on the batch
    assert number.sub("0.0", one) == number.sub("0.0", alone.out)
    assert all(word in page.read_text(encoding="utf-8") for word in expected[0].words)


def test_captions_go_out_before_the_last_photo_is_read(
    cli: Cli, model, photos, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The third photo is created only after the first caption has been written."""
    written = []

    texts = [captioner().describe(str(path)) for path in photos]

    def stream(captioner_: object, names: list[str], search: object) -> Iterator[caption.Caption]:
        for name, found in zip(names, texts, strict=True):
            if name == str(photos[2]):
                written.append(capsys.readouterr().out)
            yield found

    monkeypatch.setattr("caption.captioner.Captioner.describe_each", stream)
    for form in ("text", "jsonl", "csv", "json", "coco"):
        assert cli("describe", *photos, "--model", model, "--format", form).code == 0
        assert written[-1].count("\n") >= 2


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "json", "coco"])
def test_every_caption_is_pushed_out_at_once(expected, monkeypatch: pytest.MonkeyPatch, form: str):
    """Output is flushed, so that readers need not wait for a full buffer and captions survive a crash."""

    class Stream(io.StringIO):
        pushed = ""

        def flush(self) -> None:
            self.pushed = self.getvalue()

    stream = Stream()
    monkeypatch.setattr("sys.stdout", stream)
    printer = Printer(form, "model", several=False)
    for each in expected:
        printer.add("x.png", each)
        assert stream.pushed == stream.getvalue()
        assert each.text in stream.pushed


def test_long_work_reports_its_progress(cli: Cli, model, photos, bad, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("caption.runtime.progress.LOG_INTERVAL", 0.0)
    ran = cli("describe", bad["empty"], *photos, "--model", model)
    assert [line.split(",")[0] for line in ran.err.splitlines()[1:]] == [
        f"captioning: {done} of 4 photos" for done in (1, 2, 3)
    ]


def in_terminal(both: bool, *args: object) -> tuple[int, str, str]:
    """The command with stderr, or both outputs, on a terminal: exit code, stdout elsewhere, text on the terminal."""
    import pty

    master, slave = pty.openpty()
    command = [sys.executable, "-m", "caption", "describe", *map(str, args)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    running = subprocess.Popen(
        command, stdout=slave if both else subprocess.PIPE, stderr=slave, env=environment, text=True
    )
    os.close(slave)
    shown = []
    try:
        while data := os.read(master, 65536):
            shown.append(data)
    except OSError:  # the command has ended
        pass
    os.close(master)
    out, _ = running.communicate(timeout=120)
    return running.returncode, out or "", b"".join(shown).decode().replace("\r\n", "\n")


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals on Windows")
def test_the_bar_on_a_terminal_keeps_out_of_the_data(model, photos, expected):
    code, out, shown = in_terminal(False, *photos[:2], "--model", model)
    assert code == 0
    assert out == "".join(f"{path}\t{each}\n" for path, each in zip(photos, expected, strict=False))
    assert "captioning" in shown
    assert "of 2 photos" in shown
    assert shown.count("\x1b[2K") > 0  # the bar is erased
    assert expected[0].text not in shown


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals on Windows")
def test_captions_and_bar_share_a_terminal(model, photos, bad, expected):
    mixed = (photos[0], bad["empty"], photos[1])
    code, _, shown = in_terminal(True, *mixed, "--model", model, "--format", "csv")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown)
    assert code == 1
    assert f"{photos[0]},{expected[0].text}," in text
    assert f"{photos[1]},{expected[1].text}," in text
    assert f"caption describe: '{bad['empty']}'" in text
