"""`caption describe`: captions on stdout, pictures in the files asked for, and each bad photo on stderr."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command_line import Ran, start_command
from helpers.tiny_captioner import captioner, photo
from PIL import Image
from pycocotools.coco import COCO

import caption
import caption.visualize
from caption import checkpoint
from caption.attention import Multinoulli
from caption.cli.describe import command
from caption.cli.describe.drawing import Pictures
from caption.cli.describe.printer import Printer
from caption.search import BeamSearch, Greedy, Search

Cli = Callable[..., Ran]


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


def test_json_is_a_list_of_captions_without_weights_and_jsonl_has_a_line_each(
    cli: Cli, model, photos, expected
):
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
    lines = cli("describe", *photos, "--model", model, "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == entries


@pytest.mark.parametrize("form", ["json", "jsonl", "coco"])
def test_json_has_letters_of_all_scripts_and_escapes_what_is_none(expected, capsys, form: str):
    printer = Printer(form, "model", several=False)
    printer.add("狗.png", dataclasses.replace(expected[0], text="一隻狗\x9b\u2028\udcff"))
    printer.finish()
    out = capsys.readouterr().out
    assert "一隻狗\\u009b\\u2028\\udcff" in out
    (entry,) = json.loads(out) if form != "jsonl" else [json.loads(out)]
    assert entry.get("text", entry.get("caption")) == "一隻狗\x9b\u2028\udcff"


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
    references = {"images": [{"id": 42}, {"id": "holiday"}, {"id": 7}], "annotations": [], "info": {}}
    (tmp_path / "captions.json").write_text(json.dumps(references))
    (tmp_path / "results.json").write_text(ran.out)
    read = COCO(str(tmp_path / "captions.json")).loadRes(str(tmp_path / "results.json"))
    assert [read.imgToAnns[name][0]["caption"] for name in (42, "holiday")] == [r["caption"] for r in results]


# -- search ----------------------------------------------------------------------------------------------------


def described(cli: Cli, *args: object) -> dict:
    return json.loads(cli("describe", *args, "--format", "json").out)[0]


@pytest.mark.parametrize(
    ("option", "search"),
    [
        (("--beam-size", 1), Greedy(max_length=8)),
        (("--length-normalization", 1), BeamSearch(3, 8, length_normalization=1.0)),
    ],
    ids=str,
)
def test_options_reach_the_search(cli: Cli, model, photos, option: tuple, search: Search):
    found, expected = described(cli, photos[0], "--model", model, *option), captioner()
    caption_ = expected.describe(photo(80, 40, 0), search)
    assert found["words"] == caption_.words
    assert found["log_prob"] == pytest.approx(caption_.log_prob, abs=1e-5)


@pytest.mark.parametrize(("form", "count"), [("text", 3), ("csv", 3), ("json", 3), ("json", 5)])
def test_candidates_are_several_captions_best_first_for_which_the_beam_widens(
    cli: Cli, model, photos, form: str, count: int
):
    ran = cli("describe", photos[0], "--model", model, "--candidates", count, "--format", form)
    best = captioner().describe(photo(80, 40, 0), BeamSearch(count, 8, candidates=count))
    texts = [each.text for each in (best, *best.alternatives)]
    assert len(texts) == count
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


def test_a_model_is_never_overwritten(cli: Cli, model, photos, tmp_path):
    before = model.read_bytes()
    for suffix in ("html", "npz", "png"):
        link = tmp_path / f"link.{suffix}"
        link.symlink_to(model)
        option = {"html": "--html", "npz": "--attention", "png": "--contact-sheet"}[suffix]
        ran = cli("describe", photos[0], "--model", model, option, link)
        assert (ran.code, ran.out) == (2, "")
        assert f"would overwrite the input '{model}'" in ran.err
        assert link.is_symlink()
        assert model.read_bytes() == before


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
    """Files that are not photos, by a word of the reason."""
    paths = {"does not exist": tmp_path / "missing.jpg"}
    for reason, name in (("empty", "empty.jpg"), ("not an image", "text.jpg"), ("folder", "folder.jpg")):
        paths[reason] = tmp_path / name
    paths["empty"].touch()
    paths["not an image"].write_text("This is no photo.")
    paths["folder"].mkdir()
    noise = Image.effect_noise((200, 200), 80).convert("RGB")
    for name in ("truncated.jpg", "truncated.png"):
        noise.save(tmp_path / name)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        paths[name.partition(".")[0] if name.endswith("jpg") else "truncated PNG"] = tmp_path / name
    return paths


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_bad_photo_is_named_with_its_reason_and_the_others_are_answered(
    cli: Cli, model, photos, bad, expected, form: str
):
    ran = cli("describe", photos[0], *bad.values(), photos[1], "--model", model, "--format", form)
    assert ran.code == 1
    for complaint, (reason, path) in zip(ran.err.splitlines(), bad.items(), strict=True):
        assert str(path) in complaint
        assert reason.removesuffix(" PNG") in complaint
    assert all(each.text in ran.out for each in expected)
    if form in ("json", "coco"):
        assert len(json.loads(ran.out)) == 2


def test_captions_match_their_photos_among_bad_ones_and_beyond_a_batch(
    cli: Cli, model, photos, bad, expected, tmp_path
):
    mixed = [bad["empty"], *[photos[0]] * 20, bad["not an image"], *[photos[1]] * 20, bad["folder"]]
    ran = cli("describe", *mixed, "--model", model, "--format", "json", "--attention", tmp_path / "numbers")
    entries = json.loads(ran.out)
    assert [entry["image"] for entry in entries] == [str(photos[0])] * 20 + [str(photos[1])] * 20
    log_probs = [entry["log_prob"] for entry in entries]
    assert log_probs == pytest.approx([each.log_prob for each in expected for _ in range(20)], abs=1e-5)
    files = ["x.npz", *(f"x-{number}.npz" for number in range(2, 41))]
    assert {path.name for path in (tmp_path / "numbers").iterdir()} == set(files)
    for name, caption_ in (("x-20.npz", expected[0]), ("x-21.npz", expected[1])):
        with np.load(tmp_path / "numbers" / name) as arrays:
            np.testing.assert_allclose(arrays["weights"], caption_.weights, atol=1e-5)


HEADER = "image,text,log_prob,finished"


@pytest.mark.parametrize(
    ("form", "nothing"), [("text", ""), ("jsonl", ""), ("json", "[]"), ("coco", "[]"), ("csv", HEADER)]
)
def test_only_bad_photos_are_an_empty_answer(cli: Cli, model, bad, tmp_path, form: str, nothing: str):
    ran = cli("describe", *bad.values(), "--model", model, "--format", form, "--html", tmp_path / "page.html")
    assert (ran.code, ran.out.strip()) == (1, nothing)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.skipif(
    os.name == "nt" or os.uname().sysname == "Darwin", reason="file names are any bytes on Linux only"
)
def test_a_name_that_is_not_unicode(command, model, tmp_path):
    name = os.fsdecode(bytes(tmp_path) + b"/\xff.png")
    photo(80, 40, 0).save(name)
    photo(80, 40, 0).save(tmp_path / "y.png")
    ran = command("describe", name, tmp_path / "y.png", "--model", model)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{name}\t")


# -- files that are not models ---------------------------------------------------------------------------------


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
        (("--compare", "shapes"), "name --html FILE or --heatmap FILE"),
        (("--compare", model, "--html", page), "which is shown already"),
        (("--compare", "shpaes", "--html", page), "did you mean shapes?"),
        (("--compare", "shapes", "--heatmap", maps, "--rows", "2"), "--rows is for figures of one model"),
    ):
        ran = cli("describe", photos[0], "--model", model, *wrong)
        assert (ran.code, ran.out, said in ran.err) == (2, "", True), ran.err


def test_names_that_are_too_long_condemn_nothing_else(cli: Cli, model, photos, expected):
    long = "x" * 400
    ran = cli("describe", long, photos[0], "--model", model)
    assert (ran.code, ran.out) == (1, f"{photos[0]}\t{expected[0]}\n")
    assert "File name too long" in ran.err
    assert cli("describe", photos[0], "--model", long).code == 2
    assert cli("describe", photos[0], "--model", model, "--html", f"~nobody-of-this-name/{long}").code == 2
    ran = cli("describe", photos[0], "--model", model, "--length-normalization", "1e300")
    assert (ran.code, "exponent from 0 to 100" in ran.err) == (2, True)


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "cpu:x", "mps"])
def test_a_device_that_is_not_there(cli: Cli, model, photos, device: str):
    ran = cli("describe", photos[0], "--model", model, "--device", device)
    assert (ran.code, ran.out) == (2, "")
    assert device in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err) < 400


# -- hard attention --------------------------------------------------------------------------------------------


def test_hard_attention_can_be_set_for_describe(cli: Cli, model, tmp_path: Path, photos):
    hard = tmp_path / "hard.ckpt"
    checkpoint.save(captioner(alignment=Multinoulli()), hard)
    log_probs = []
    for how in ("expectation", "argmax"):
        log_probs.append(described(cli, photos[0], "--model", hard, "--at-test", how)["log_prob"])
        of_it = captioner(alignment=Multinoulli(at_test=how)).describe(str(photos[0]))
        assert log_probs[-1] == pytest.approx(of_it.log_prob, abs=1e-5)
    assert log_probs[0] != log_probs[1]
    ran = cli("describe", photos[0], "--model", model, "--at-test", "argmax")
    assert ran.code == 2
    assert "--at-test is for hard attention" in ran.err


# -- many photos -----------------------------------------------------------------------------------------------


@pytest.fixture
def stopped_at_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the second caption is being written."""
    whole = Printer.add

    def add(self: Printer, photo: str, caption_: caption.Caption, *more: object) -> None:
        if photo.endswith("y.jpg"):
            raise KeyboardInterrupt
        whole(self, photo, caption_, *more)

    monkeypatch.setattr(Printer, "add", add)


@pytest.mark.parametrize("form", ["text", "json"])
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

    def stream(captioner_: object, names: list[str], *_: object, **__: object) -> Iterator[caption.Caption]:
        for name, found in zip(names, texts, strict=True):
            if name == str(photos[2]):
                written.append(capsys.readouterr().out)
            yield found

    monkeypatch.setattr("caption.captioner.Captioner.describe_each", stream)
    for form in ("text", "json"):
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


def test_the_bar_counts_a_photo_whose_caption_is_printed(
    cli: Cli, model, photos, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    """And not only when its pictures are drawn."""
    events = []

    @contextmanager
    def bar(*_: object, **__: object) -> Iterator[Callable[[int], None]]:
        yield lambda count: events.append("counted")

    monkeypatch.setattr(command, "progress_bar", bar)
    for kind, event in ((Printer, "printed"), (Pictures, "drawn")):
        monkeypatch.setattr(kind, "add", lambda *_, event=event: events.append(event))
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"broken")
    assert cli("describe", photos[0], bad, "--model", model).code == 1
    assert events == ["printed", "counted", "drawn", "counted"]


def in_terminal(*args: object) -> tuple[int, str, str]:
    """The command with stderr on a terminal: exit code, stdout, text on the terminal."""
    import pty

    master, slave = pty.openpty()
    running = start_command("describe", *args, env={"TERM": "xterm"}, stderr=slave)
    os.close(slave)
    shown = []
    try:
        while data := os.read(master, 65536):
            shown.append(data)
    except OSError:  # the command has ended
        pass
    os.close(master)
    ran = running.finish()
    return ran.code, ran.out, b"".join(shown).decode().replace("\r\n", "\n")


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals on Windows")
def test_the_bar_on_a_terminal_keeps_out_of_the_data(model, photos, expected):
    code, out, shown = in_terminal(*photos[:2], "--model", model)
    assert code == 0
    assert out == "".join(f"{path}\t{each}\n" for path, each in zip(photos, expected, strict=False))
    assert "captioning" in shown
    assert "of 2 photos" in shown
    assert shown.count("\x1b[2K") > 0  # the bar is erased
    assert expected[0].text not in shown


# -- forms of input --------------------------------------------------------------------------------------------


def test_a_photo_may_come_from_standard_input(
    cli: Cli, model, photos, expected, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)

    def stdin(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    stdin(photos[0].read_bytes())
    assert cli("describe", "-", "--model", model) == (0, f"{expected[0]}\n", "")
    stdin(photos[0].read_bytes())
    outputs = ("--heatmap", "maps", "--html", "page.html", "--compare", "shapes", "--attention", "arrays")
    ran = cli("describe", "-", photos[1], "--model", model, *outputs, "--format", "csv")
    assert ran.code == 0
    assert [row["image"] for row in csv.DictReader(io.StringIO(ran.out))] == ["stdin", str(photos[1])]
    assert sorted(path.name for path in Path("maps").glob("*.png")) == ["stdin.png", "x.png"]
    stdin(b"a.jpg\nb.jpg\n")
    ran = cli("describe", "-", photos[0], "--model", model)
    assert ran.code == 1
    assert (
        "standard input is text, and not a photo. To give a list of names: ... | xargs caption describe"
        in ran.err
    )
    stdin(b"")
    assert cli("describe", "-", "--model", model).code == 1


def test_patterns_urls_and_folders_without_images_are_named_as_what_they_are(
    cli: Cli, model, photos, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    url = "https://example.org/a/dog.jpg"
    (tmp_path / "top" / "below").mkdir(parents=True)
    photos[0].rename(tmp_path / "top" / "below" / "x.png")
    ran = cli("describe", url, "b/*.png", "b/*.gif", "top", "--model", model)
    assert ran.code == 1
    assert len(ran.out.splitlines()) == 1
    assert f"'{url}' is a URL, and only files are read. Download it, and name the file." in ran.err
    assert "no file matches 'b/*.gif'. Check the pattern." in ran.err
    assert "'top' is a folder without images. Name one with images; --recursive reads subfolders." in ran.err
    assert cli("describe", "top", "--recursive", "--model", model).code == 0
    ran = cli("describe", photos[1], "--model", url)
    assert f"'{url}' is a URL" in ran.err
    assert ran.code == 2
