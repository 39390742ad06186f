"""docs/own-data.md: from a table and a folder of photos to captions, by the commands of the page."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from helpers.captioned_photos import write_captioned
from helpers.command_line import QUIET, Cli, check_refused
from helpers.fonts import installed_font
from helpers.tiny_captioner import photo

from caption.cli.configuration.own_data import next_commands, own_data_configuration
from caption.core.parts import Part
from caption.core.runtime.trust import make
from caption.data.check import Check, SplitSummary
from caption.data.findings import Findings
from caption.encoders import EfficientNetLite
from caption.models import model_zoo
from caption.search import search_spec

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text(encoding="utf-8")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the page: 30 photos with five captions each."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with (tmp_path / "own.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption"])
        for number in range(30):
            name = "beach.jpg" if number == 0 else f"photo{number}.jpg"
            photo(128, 96, number).save(tmp_path / "photos" / name)
            thing = f"{('red', 'green', 'blue')[number % 3]} {('circle', 'square')[number % 2]}"
            texts = [f"{start} {thing}." for start in ("A", "There is a", "One", "The")]
            texts.append(f"I see a {thing} of cardboard, a thingamajig.")
            table.writerows([name, each] for each in texts)
    return tmp_path


@pytest.mark.nightly
def test_the_page_leads_from_a_table_to_captions(cli: Cli, own: Path, monkeypatch, caplog):
    monkeypatch.setattr(EfficientNetLite, "load_pretrained", lambda self: pytest.fail("weights were wanted"))
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    verbs = []
    for verb, *args in (shlex.split(line)[1:] for line in block.splitlines() if line.startswith("caption ")):
        more = {"fit": ["--trainer.max_epochs", "1", "--data.transform.size", "65"]}.get(verb, [])  # faster
        ran = cli(verb, *args, *more)
        assert ran.code == 0, f"{verb}: {ran.err}"
        verbs.append(verb)
    start = "start from photos: 4,502 words keep their weights; new, with those of the unknown word: "
    assert f"{start}1 (thingamajig)" in caplog.text
    assert verbs == ["check", "fit", "describe"]
    assert (own / "beach_heatmap.png").is_file()
    assert ran.out.strip()


def test_the_written_configuration_starts_from_the_installed_model(cli: Cli, own: Path):
    ran = cli("check", "own.csv", "--images", "photos", "--write", "own.yaml")
    assert ran.code == 0, ran.err
    assert "the data has no splits, so they are train=0.7 val=0.15 test=0.15" in ran.err
    commands = "caption fit -c own.yaml\n  caption describe PHOTO --model runs/own/best.ckpt\n"
    assert ran.err.endswith(f"wrote own.yaml. Next:\n  {commands}")
    assert "those of the model that training starts from, and 1 new; training captions, count 2" in ran.out
    text = (own / "own.yaml").read_text()
    config = yaml.safe_load(text)
    reader = config["data"]["reader"]
    assert reader["class_path"] == "caption.data.readers.Csv"
    assert reader["init_args"]["fractions"] == {"train": 0.7, "val": 0.15, "test": 0.15}
    assert (config["data"]["batch_size"], config["trainer"]["log_every_n_steps"]) == (4, 1)
    assert config["trainer"]["default_root_dir"] == "runs/own"
    assert "features" not in config["data"]
    installed = model_zoo.load("photos")
    for name in ("encoder", "refiner", "decoder"):
        spec = config["model"][name]
        assert make(spec, Part).spec == getattr(installed, name).spec
    assert config["model"]["warm_start"] == "photos"
    assert config["data"]["transform"] == installed.transform.to_dict()
    assert config["model"]["search"]["class_path"] == search_spec(installed.search)["class_path"]
    ran = cli("check", "own.csv", "--images", "photos", "--write", "own.yaml")
    check_refused(ran, "own.yaml exists")
    assert (own / "own.yaml").read_text() == text


@pytest.mark.parametrize(("images", "epochs"), [(42, 6), (350, 3), (5000, 3)])
def test_epochs_and_batches_follow_from_the_number_of_photos(images: int, epochs: int):
    splits = {"train": SplitSummary(images, [], []), "val": SplitSummary(9, [], [])}
    check = Check(Findings(), splits, None, 0, 0)
    config = own_data_configuration("own_photos", "own", {"class_path": "x"}, {}, check)
    assert config["trainer"]["max_epochs"] == epochs
    stored = images == 5000
    assert ("features" in config["data"]) == stored
    command = next_commands(Path("own.yaml"), config)[0]
    store = "caption features -c own.yaml --model photos --out runs/own_features"
    assert command.startswith(store) == stored


def test_an_encoder_that_learns_has_no_store():
    splits = {"train": SplitSummary(5000, [], []), "val": SplitSummary(9, [], [])}
    check = Check(Findings(), splits, None, 0, 0)
    config = own_data_configuration("shapes_soft", "own", {"class_path": "x"}, {}, check)
    assert "features" not in config["data"]
    assert next_commands(Path("own.yaml"), config)[0] == "caption fit -c own.yaml"


def test_another_base_needs_no_store(cli: Cli, own: Path):
    ran = cli("check", "own.csv", "--images", "photos", "--base", "flickr8k_small", "--write", "own.yaml")
    assert ran.code == 0, ran.err
    assert "features" not in yaml.safe_load((own / "own.yaml").read_text())["data"]


def test_unknown_words_are_announced(cli: Cli, own: Path):
    table = (own / "own.csv").read_text().replace("I see a", "Je vois un").replace("There is", "Voici")
    (own / "french.csv").write_text(table)
    ran = cli("check", "french.csv", "--images", "photos", "--write", "french.yaml")
    few = r"note: 1 model that knows few of the words\. It starts .*\n  2\d % of the training"
    assert re.search(few, ran.out)


def test_a_check_alone_counts_as_one_that_writes_a_configuration(cli: Cli, own: Path):
    data = ("check", "own.csv", "--images", "photos")
    alone, writing = cli(*data), cli(*data, "--write", "own.yaml")
    assert (alone.code, alone.out) == (writing.code, writing.out)
    assert "unknown words" in alone.out
    assert "--splits" in alone.err


def test_nothing_is_written_for_data_with_faults_or_without_validation(cli: Cli, own: Path):
    write = ("check", "own.csv", "--images", "photos", "--write", "own.yaml", "--splits")
    ran = cli(*write, "train=1")
    assert (ran.code, "--splits train=0.7 val=0.15 test=0.15" in ran.err) == (2, True)
    (own / "photos" / "photo3.jpg").write_bytes(b"")
    assert cli(*write, "train=0.7", "val=0.15", "test=0.15").code == 1
    assert not (own / "own.yaml").exists()


# -- captions in Chinese: read, learnt, said, scored and drawn by character ----------------------------------------

PATTERNS = ("一张{}的图。", "这是{}的图片。", "图里都是{}。")
COLOURS = ("红色", "绿色", "蓝色")


@pytest.mark.nightly
def test_a_model_in_chinese(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    splits, letters = [*["train"] * 18, *["val"] * 3, *["test"] * 3], {*"".join((*PATTERNS, *COLOURS))}
    write_captioned(tmp_path, splits, lambda number: [each.format(COLOURS[number % 3]) for each in PATTERNS])
    data = ("check", "captions.jsonl")
    assert "take the tokenizer 'characters'" in cli(*data).out
    base = ("--base", "shapes_soft", "--tokenizer", "characters", "--write", "own.yaml")
    assert cli(*data, *base).code == 0
    short = ("--trainer.max_epochs", "3", "--model.scheduler", "null")
    assert cli("fit", "-c", "own.yaml", *QUIET, *short).code == 0
    with installed_font(tmp_path / "squares.ttf", "".join(letters)):
        args = ("describe", "1.png", "--model", "runs/own/best.ckpt", "--format", "jsonl")
        said = cli(*args, "--heatmap", "map.png", "--html", "page.html")
    assert (said.code, "font" in said.err) == (0, False), said.err
    caption = json.loads(said.out)
    assert caption["text"] == "".join(caption["words"])
    assert {*caption["words"]} <= letters
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert caption["words"][0] in page or json.dumps(caption["words"][0])[1:-1] in page
    tested = cli("test", "-c", "own.yaml", "--ckpt_path", "runs/own/best.ckpt")
    assert "tok:characters-1" in tested.out, tested.err
    (captions,) = tmp_path.glob("runs/own/**/test_captions.json")
    references = captions.with_name("test_references.json")
    files = ("score", "--candidates", captions, "--references", references)
    assert cli(*files, "--tokenizer", "characters").code == 0
    check_refused(cli(*files), "'characters'")
