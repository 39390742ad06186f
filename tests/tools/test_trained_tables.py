"""The engine of tables: what is trained, kept, resumed, published and shown, with 40 scenes and one epoch."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import TINY
from scipy.stats import false_discovery_control, ttest_ind

from caption.cli.main import main as caption
from caption.metrics.java import java_fault
from caption.models import checkpoint
from caption.training.module import CaptionTraining
from tools.documents import read_sections, write_sections
from tools.tables import columns, comparisons, figures, measures, render, runs, significance
from tools.tables.__main__ import SOME_FAILED, WRONG_USAGE, main
from tools.tables.table import FOLDER, RESULTS, ROOT, Row, TrainedTable, digest_of, read_table

NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
every_table = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name == "attention")) for name in NAMES]
)
EPOCH = ["--trainer.max_epochs=1", "--trainer.enable_progress_bar=false"]
SECTION = "<!-- section tiny begins -->\nold\n<!-- section tiny ends -->\n"
YAML = """\
document: {folder}/tiny.md
numbers: {folder}/tiny.json
seeds: [0]
rows:
  soft: {{configs: [{folder}/tiny.yaml], title: Soft}}
  dot: # reads the stored regions of a frozen encoder
    configs: [shapes_soft, training/frozen_encoder, {folder}/dot.yaml]
    arguments: ["--data.reader.init_args={{train: 40, val: 8, test: 8}}"]
  trained_on: {{configs: [{folder}/tiny.yaml], warm_start: soft}}
  wrong: {{configs: [{folder}/tiny.yaml, {folder}/wrong.yaml]}}
data: ["--data.reader.init_args.folder={{out}}/scenes"]
tests: {{test: []}}
measures: [model, deletion]
sections:
  - section: tiny
    text: "Written by `{{command}}`."
    head: model
    columns:
      - {{title: NLL, score: NLL}}
      - {{title: deletion, area: gain}}
      - {{title: regions, field: regions, show: last, form: ""}}
"""


@pytest.fixture
def folder(tmp_path: Path, shapes: Path) -> Path:
    """With a table, its document, and a folder `runs`."""
    (tmp_path / "tiny.yaml").write_text(TINY.format(folder=tmp_path, shapes=shapes), encoding="utf-8")
    score = "{init_args: {attention: {init_args: {score: {class_path: caption.attention.DotScore}}}}}"
    (tmp_path / "dot.yaml").write_text(f"model: {{decoder: {score}}}\n", encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text("model: {decoder: {class_path: caption.decoders.None}}\n")
    (tmp_path / "table.yaml").write_text(YAML.format(folder=tmp_path), encoding="utf-8")
    (tmp_path / "tiny.md").write_text(f"# Mine\n\n{SECTION}\nmore\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def make(folder: Path) -> Callable[..., int]:
    """The command, with this table and one epoch."""
    return lambda *more: main(
        [str(folder / "table.yaml"), "--out", str(folder / "runs"), *EPOCH, *map(str, more)]
    )


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The `caption` commands that run."""
    ran: list[list[str]] = []
    monkeypatch.setattr(runs, "caption", lambda arguments: ran.append(arguments) or caption(arguments))
    return ran


def published(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "tiny.json").read_text(encoding="utf-8"))


@pytest.mark.nightly
def test_a_table_from_configurations_to_the_document(
    folder: Path, make: Callable[..., int], commands: list[list[str]], capsys: pytest.CaptureFixture[str]
):
    assert make("--rows", "dot", "--write") == 0
    assert [command[0] for command in commands] == ["features", "fit", "test"]
    run = published(folder)["dot"]["0"]
    assert run["epochs"] == 1
    assert run["regions"] == "8×8×128"
    assert {"NLL", "CIDEr", "pointing_accuracy", "faithfulness"} <= run["scores"]["test"].keys()
    text = (folder / "tiny.md").read_text(encoding="utf-8")
    assert text.startswith("# Mine\n")
    assert text.endswith("\nmore\n")
    row = f"| `dot` | {run['scores']['test']['NLL']:.3f} | "
    assert row in text
    assert "old" not in text
    assert "Written by `python -m tools.tables table --trainer.max_epochs=1 " in text
    # The same as typed by hand, to the bit.
    hand = ["-c", "shapes_soft", "-c", "training/frozen_encoder", "-c", str(folder / "dot.yaml"), *EPOCH]
    reader = {"folder": str(folder / "runs" / "scenes"), "train": 40, "val": 8, "test": 8}
    hand += [f"--data.reader.init_args={json.dumps(reader)}", f"--data.features={commands[0][-1][6:]}"]
    assert caption(["fit", *hand, f"--trainer.default_root_dir={folder / 'hand'}"]) == 0
    (best,) = (folder / "runs").glob("dot-0-*/best.ckpt")
    ours, by_hand = (checkpoint.read(file)["state_dict"] for file in (best, folder / "hand" / "best.ckpt"))
    assert all(torch.equal(ours[name], by_hand[name]) for name in by_hand)
    # What is done is not repeated: in its folder, and published with the folder gone; other settings are.
    commands.clear()
    assert make("--rows", "dot") == 0
    assert make("--rows", "dot", "--trainer.precision=bf16-mixed", "--out", folder / "other") == 0
    assert commands == []
    capsys.readouterr()
    assert make("--rows", "dot", "--data.batch_size=10") == 0
    assert [command[0] for command in commands] == ["features", "fit", "test"]
    assert row not in capsys.readouterr().out  # the new numbers
    assert published(folder)["dot"]["0"] == run
    # Another name is no other setting, if one says so.
    file = folder / "dot.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("DotScore", "scores.DotScore"), encoding="utf-8")
    assert make("--rows", "--renamed", "--write") == 0
    commands.clear()
    assert make("--rows", "dot") == 0
    assert commands == []
    assert published(folder)["dot"]["0"]["scores"] == run["scores"]


@pytest.mark.nightly
def test_after_a_stop_the_same_command_goes_on(
    folder: Path, make: Callable[..., int], commands: list[list[str]]
):
    end = CaptionTraining.on_train_batch_end

    def on_train_batch_end(self: Any, outputs: Any, data: Any, number: int) -> None:
        end(self, outputs, data, number)
        if number == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit, match="143"):  # noqa: PT012
        patch.setattr(CaptionTraining, "on_train_batch_end", on_train_batch_end)
        make("--rows", "trained_on")
    assert [command[0] for command in commands] == ["fit"]  # that of soft, from which it starts
    assert not list((folder / "runs").glob("*/done.json"))
    assert make("--rows", "trained_on") == 0
    assert [command[0] for command in commands[1:]] == ["fit", "fit", "test"]
    assert "--ckpt_path=auto" in commands[1]
    assert any(argument.startswith("--model.warm_start=") for argument in commands[2])


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--rows", "dott"], WRONG_USAGE, "the table table has no row dott"),
        (["--rows", "dot", "-c", "nowhere"], WRONG_USAGE, "nowhere"),
        (["--rows", "wrong"], SOME_FAILED, "wrong, seed 0, failed"),
    ],
)
def test_wrong_usage_is_named(
    make: Callable[..., int],
    arguments: list[str],
    code: int,
    complaint: str,
    capsys: pytest.CaptureFixture[str],
):
    assert make(*arguments) == code
    assert complaint in capsys.readouterr().err


# -- settings --------------------------------------------------------------------------------------------------


def test_the_digest_is_of_what_is_learned(folder: Path):
    table = read_table(str(folder / "table.yaml"))
    dot, soft, on = (table.row(name) for name in ("dot", "soft", "trained_on"))
    digest = table.digest(dot)
    for same in (
        ["--trainer.precision", "bf16-mixed", "--trainer.accelerator=gpu", "--trainer.devices=2"],
        ["--trainer.max_epochs=4"],  # as its configuration says
        *(["--data.features=a"], ["--data.features=b"]),
    ):
        assert table.digest(dot, same) == digest, same
    for other in (
        *(["--data.features=null"], ["-c", "training/ema"]),
        ["--attention_temperature.start", "16"],
    ):
        assert table.digest(dot, other) != digest, other
    assert table.digest(on) not in (table.digest(soft), table.digest(on, ["--data.min_count=2"]))
    text = (folder / "dot.yaml").read_text(encoding="utf-8")
    (folder / "dot.yaml").write_text(f"# A comment.\n{text}", encoding="utf-8")
    assert table.digest(dot) == digest
    (folder / "dot.yaml").write_text(text.replace("DotScore", "GeneralScore"), encoding="utf-8")
    assert table.digest(dot) != digest


@every_table
def test_rows_differ_and_documents_say_what_the_numbers_say(name: str):
    table = read_table(name)
    published_runs = runs.read_runs(table.numbers)
    assert published_runs.keys() <= table.rows.keys()
    assert len({table.digest(row) for row in table.rows.values()}) == len(table.rows)
    texts = render.sections(table, published_runs)
    for document, sections in table.documents.items():
        shown = read_sections(document)
        assert [shown[section] for section in sections] == [texts[section] for section in sections]


def test_the_tables_of_coco_have_the_numbers_of_the_file_beside_them():
    document = RESULTS / "coco.md"
    text = document.read_text(encoding="utf-8")
    for section in read_sections(document).values():
        text = text.replace(section, "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    numbers = re.findall(r"\d+\.\d\d+|\d+ %", " ".join(rows))
    known = re.findall(r"\d+\.\d\d+|\d+ %", (RESULTS / "coco.tsv").read_text(encoding="utf-8"))
    assert len(numbers) > 15
    assert [number for number in numbers if number not in known] == []


LINKS = re.compile(r"\]\(([\w./-]+\.(?:json|tsv|csv|md))")
NO_RESULTS = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|Python \d\.\d+", re.DOTALL)
"""Output of commands, settings, targets of links, and versions."""


def numbers_of(text: str) -> set[float]:
    """The numbers of a file, shares also where they are per cent."""
    found = re.findall(r"(\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(\s?%)?", text)
    values = [(float(number.replace(",", "")), bool(percent)) for number, percent in found]
    return {value for value, _ in values} | {value / 100 for value, percent in values if percent}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "docs/analysis.md", *sorted(RESULTS.glob("*.md"))],
    ids=lambda page: page.stem,
)
def test_every_number_of_a_page_is_in_the_files_beside_it(page: Path):
    """Numbers with two decimals, and per cent: in a file that the page links to, or in a section that a command wrote,
    of this page or of one that it links to."""
    text = page.read_text(encoding="utf-8")
    linked = [path for link in LINKS.findall(text) if (path := page.parent / link).is_file()]
    sources = [path.read_text(encoding="utf-8") for path in linked if path.suffix != ".md"]
    generated = ""
    for written in (page, *(path for path in linked if path.suffix == ".md")):
        generated += "\n".join(read_sections(written).values())
    sources.append(generated)
    known = set[float]().union(*map(numbers_of, sources))
    for section in read_sections(page).values():
        text = text.replace(section, "")
    unknown = []
    for number in re.findall(r"\d[\d,]*\.\d\d+|\d+(?= %)", NO_RESULTS.sub("", text)):
        value, decimals = float(number.replace(",", "")), len(number.partition(".")[2])
        shown = [(value, decimals)] if decimals else [(value, 0), (value / 100, 2)]
        if not any(abs(round(each, places) - one) < 1e-9 for one, places in shown for each in known):
            unknown.append(number)
    assert unknown == []
    # A corrected p-value is in a cell of such a section, and not any number of a file.
    assert [p for p in re.findall(r"\bp (0\.\d{3})\b", text) if f"({p})" not in generated] == []


def test_captions_judged_by_eye_are_counted_from_their_files():
    verdicts = ("right", "nearly", "wrong")
    with (RESULTS / "unlike_photos_answers.tsv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file, delimiter="\t")]
    lines = (RESULTS / "lens.md").read_text(encoding="utf-8").splitlines()
    for column, begin in (("the caption is", "| the caption of"), ("the lens is", "| the lens, the")):
        (line,) = (line for line in lines if line.startswith(begin))
        judged = [row[column] for row in rows]
        assert line.split("|")[2:5] == [f" {judged.count(verdict)} " for verdict in verdicts]
    card = (RESULTS / "model-card.md").read_text(encoding="utf-8")
    with (RESULTS / "sixteen_photos.tsv").open(encoding="utf-8") as file:
        judged = [row["we call it"] for row in csv.DictReader(file, delimiter="\t")]
    right, nearly, wrong = map(judged.count, verdicts)
    assert f"{right} captions right, {nearly} nearly right, {wrong} wrong" in " ".join(card.split())


def test_every_mechanism_has_a_family_and_an_equation():
    table = read_table("attention")
    headers = {name: row.header() for name, row in table.rows.items()}
    assert {header["family"] for header in headers.values()} == set(table.families)
    assert all(header["equation"] and header["source"] for header in headers.values())
    assert headers["dot"]["equation"].startswith("Dot-product score: e_i = ")
    bounded = headers["activated_general"]
    assert bounded["formula"] == "Activated general score: e_i = tanh(a_iᵀ W h + b)."  # without the remark
    assert bounded["citation"] == "Ma et al. 2017, section 2."


README_ROWS = {
    "Shapes, soft": ("hard_on_shapes", "soft", "soft"),
    "Shapes, soft, trained on": ("hard_on_shapes", "soft_on", "soft"),
    "Shapes, hard (leave-one-out), from soft": ("hard_on_shapes", "leave_one_out", "expectation"),
    "Flickr8k, Show and Tell": ("flickr8k", "show_and_tell", "test"),
    "Flickr8k, soft": ("hard_on_flickr8k", "soft", "soft"),
    "Flickr8k, soft, trained on": ("hard_on_flickr8k", "soft_on", "soft"),
    "Flickr8k, hard (authors' weights), from soft": ("hard_on_flickr8k", "authors", "expectation"),
}
"""The table, row and test of each row of README's results."""


def test_every_result_in_the_readme_is_in_the_published_runs():
    text = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Results\n")[2].partition("\n## ")[0]
    )
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]
    shown = {label: cells for label, _epochs, *cells in lines[2:]}
    assert shown.keys() == README_ROWS.keys()
    for label, (name, row, test) in README_ROWS.items():
        by_seed = runs.read_runs(read_table(name).numbers)[row].values()
        scores = [run["scores"][test] for run in by_seed]
        bleu, cider, pointing = (
            statistics.mean(of.get(score, 0) for of in scores)
            for score in ("BLEU-4", "CIDEr", "pointing_accuracy")
        )
        form = ".2f" if cider > 1 else ".3f"
        found = [f"{bleu:.3f}", f"{cider:{form}}", f"{pointing:.0%}".replace("%", " %") if pointing else ""]
        assert len(by_seed) == 3
        assert shown[label] == found
    prose = text[text.index("Does attention help") :]
    generated = read_sections(RESULTS / "flickr8k.md")["flickr8k_controls"]
    numbers = re.findall(r"[+−]?\d\.\d{3}", prose)
    assert len(numbers) == 12
    assert [number for number in numbers if number not in generated] == []


# -- what is shown ---------------------------------------------------------------------------------------------


def test_the_smallest_p_value_is_multiplied_by_the_number_of_comparisons_and_the_next_by_one_less():
    # 4 · 0.005, 3 · 0.01, 2 · 0.03, and 0.04, which is not below the one before it.
    assert significance.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert significance.holm([0.4, 0.9, 0.5]) == pytest.approx([1, 1, 1])


def test_of_benjamini_and_hochberg_no_p_value_is_larger_than_the_one_after_it():
    for p_values in ([0.01, 0.04, 0.03, 0.005], [0.4, 0.9, 0.5], [0.02, 0.02, 0.001, 0.9, 0.03]):
        assert significance.benjamini_hochberg(p_values) == pytest.approx(false_discovery_control(p_values))


def by_seed(*values: float) -> dict[str, float]:
    return {str(seed): value for seed, value in enumerate(values)}


def test_seeds_that_both_have_are_pairs_and_unequal_numbers_have_welchs_interval():
    # Differences 1, 2, 6 by hand: mean 3, variance 7, error √(7/3), 2 degrees of freedom, p = 1 − t / √(2 + t²).
    found = significance.over_seeds(by_seed(2, 4, 9), by_seed(1, 2, 3))
    assert found is not None
    error = (7 / 3) ** 0.5
    t, half = 3 / error, 4.3027 * error
    assert found[:3] == pytest.approx((3, 3 - half, 3 + half), rel=1e-4)
    assert (found.p_value, found.spread) == pytest.approx((1 - t / (2 + t * t) ** 0.5, 7**0.5))
    assert significance.over_seeds(by_seed(1, 2, 6)) == found
    assert significance.over_seeds(by_seed(1, 2), by_seed(1, 2)) == (0, 0, 0, 1, 1, 1, 0)
    assert significance.over_seeds(by_seed(1)) is significance.over_seeds(by_seed(1, 2), {}) is None
    # Means 2 and 6; variances 1 / 3 and 10 / 5; degrees (7/3)² / ((1/3)² / 2 + 2² / 4) = 5.16.
    found = significance.over_seeds(by_seed(1, 2, 3), by_seed(2, 4, 6, 8, 10))
    assert found is not None
    theirs = ttest_ind([1, 2, 3], [2, 4, 6, 8, 10], equal_var=False)
    assert found[:4] == pytest.approx((-4, *theirs.confidence_interval(), theirs.pvalue))


def fake_runs(**others: list[float]) -> runs.Runs:
    """NLL by row and seed; the gain of deletion is the same number. Less base: 1 ± .01, surely; ½ ± .1732, whose t is 5
    and p .038, twice that after correction; and about 0."""
    rows = {
        "base": [1, 2, 3],
        "worse": [2, 3.01, 3.99],
        "maybe": [1.3268, 2.5, 3.6732],
        "same": [1.1, 2, 2.9],
    }
    areas = {"images": [0, 1], "words": [3, 1], "attention": [0.0, 0.0]}

    def run(value: float) -> dict[str, Any]:
        scores = {"test": {"NLL": value, "half": value / 2}}
        return {"scores": scores, "deletion": {**areas, "random": [value, value]}}

    return {
        name: {seed: run(value) for seed, value in by_seed(*values).items()}
        for name, values in (rows | others).items()
    }


def test_verdicts_count_differences_before_and_after_correction():
    known = fake_runs(far=[-2, 9, -4])
    for _ in range(2):
        known["far"].popitem()
    less = {"less": "base", "form": "+.2f"}
    columns = [
        {"title": "Δ", "score": "NLL", **less},
        {"title": "Δ gain", "area": "gain", **less, "given": {"score": "NLL", "less": "base", "above": 0.1}},
    ]
    section = {"columns": columns, "apart": {"NLL": 2.1}, "head": "question"}
    text = comparisons.verdicts(read_table("seeds"), section, known)
    for line in (
        "| question | comparisons | above 0 | below 0 | undecided |",
        "| Δ | 3 | 2 / 1 / 1 | 0 / 0 / 0 | 2 |",  # of maybe p is 0.038, three halves of which are 0.056
        "| Δ gain | 1 | 1 / 1 / 1 | 0 / 0 / 0 | 0 |",  # the interval of maybe begins at 0.07
        "apart for 1 of 5: `maybe` (1.33, 2.50, 3.67).",
    ):
        assert line in text
    # The median of the three standard deviations is 0.1: 0.1 / √3 times the t of 0.05 / 3, which is 7.65.
    assert text.count("| 0.44 |") == 2


def test_intervals_in_tables_are_marked_before_and_after_correction():
    known = fake_runs()
    column = {"title": "Δ", "score": "NLL", "less": "base", "form": "+.1f", "show": "interval"}
    table = read_table("seeds")
    table = replace(table, rows=dict.fromkeys(known, next(iter(table.rows.values()))))
    shown = render._table(table, {"columns": [column]}, known).splitlines()[2:]
    cells = [line.split(" | ")[1].rstrip(" |") for line in shown]
    assert cells == ["(reference)", "**+1.0 [+1.0, +1.0]**", "*+0.5 [+0.1, +0.9]*", "+0.0 [−0.2, +0.2]"]
    for change, shown in [({"less": {"maybe": "same"}}, "+0.5"), ({"less": "", "other": "half"}, "+1.2")]:
        section = {"rows": ["maybe"], "columns": [{**column, **change}]}
        assert shown in render._table(table, section, known)


def test_differences_are_of_the_seeds_that_both_rows_have_and_corrected_together():
    known = fake_runs(fewer=[1.001, 2.002])
    section = {
        "section": "mine",
        "differences": [{"row": name, "less": "base"} for name in ("worse", "maybe", "same", "fewer")],
        "columns": [
            {"title": "NLL", "score": "NLL", "form": "+.2f", "margin": 0.01},
            {"title": "BLEU-4", "score": "BLEU-4"},
        ],
    }
    described = replace(with_rows(known, "all"), sections=[section])
    # Four comparisons: 0.038, of maybe, is the second smallest and multiplied by 3.
    assert comparisons.differences(described, section, known).splitlines()[2:] == [
        "| worse − base | 3 | **+1.00 [+0.98, +1.02] (<0.001)** | – |",
        "| maybe − base | 3 | +0.50 [+0.07, +0.93] (0.113) | – |",
        "| same − base | 3 | +0.00 [−0.25, +0.25] (1.000) | – |",
        "| fewer − base | 2 | +0.00 [−0.00, +0.01] ≈ (0.410) | – |",
    ]
    # Two tables of one section are one family, and others are not of it.
    halves = [{**section, "differences": section["differences"][part]} for part in (slice(2), slice(2, 4))]
    others = [{**section, "section": "another"}, {"section": "mine", "columns": []}]
    described = replace(described, sections=[*halves, *others])
    assert [
        line for half in halves for line in comparisons.differences(described, half, known).splitlines()[2:]
    ] == comparisons.differences(described, others[0], known).splitlines()[2:]


def test_an_effect_is_the_mean_of_some_rows_less_that_of_others():
    known = fake_runs()  # NLL of seed 0, 1, 2
    rows = {name: [run["scores"]["test"]["NLL"] for run in of.values()] for name, of in known.items()}
    pair = {"title": "effect", "row": ["worse", "maybe"], "less": ["base", "same"]}
    columns = [{"title": "NLL", "score": "NLL", "form": "+.3f"}]
    section = {"section": "mine", "differences": [pair], "columns": columns}
    described = replace(with_rows(known, "all"), sections=[section])
    of_rows = [rows[name] for name in pair["row"] + pair["less"]]
    effects = [(w + m - b - s) / 2 for w, m, b, s in zip(*of_rows, strict=True)]
    estimate = significance.over_seeds(dict(enumerate(effects)))
    assert estimate is not None
    line = comparisons.differences(described, section, known).splitlines()[2]
    assert (
        line.replace("−", "-")
        .replace("*", "")
        .startswith(f"| effect | 3 | {estimate.mean:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]")
    )
    del known["same"]["0"]  # seeds that one of the rows lacks are left out
    assert "| effect | 2 |" in comparisons.differences(described, section, known)
    del known["same"]
    assert "| effect | 0 | – |" in comparisons.differences(described, section, known)


def test_figures_show_means_and_differences_with_their_intervals():
    known = fake_runs()
    panel = {
        "title": "gain",
        "score": "NLL",
        "series": {
            "of means": ["base", "worse"],
            "of pairs": [["worse", "base"], ["maybe", "absent"]],
            "gap": [None, "base"],
        },
    }
    drawn = figures.figure({"x": ["few", "many"], "label": "pixels", "panels": [panel, panel]}, known)
    axes = drawn.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["few", "many"]
    assert [axes.get_title(), axes.get_xlabel()] == ["gain", "pixels"]
    of_means, of_pairs, gap = axes.containers
    worse = [run["scores"]["test"]["NLL"] for run in known["worse"].values()]
    estimate = significance.over_seeds(dict(enumerate(worse)))
    assert estimate is not None
    assert of_means[0].get_ydata()[1] == pytest.approx(statistics.mean(worse))
    low, high = of_means[2][0].get_segments()[1][:, 1]
    assert [low, high] == pytest.approx([estimate.low, estimate.high])
    assert of_pairs[0].get_ydata() == pytest.approx([1.0, math.nan], nan_ok=True)  # `absent` has no runs
    assert [math.isnan(value) for value in gap[0].get_ydata()] == [True, False]


def with_rows(known: runs.Runs, *families: str) -> TrainedTable:
    """A table with these rows, titled by their names, of two families by turns."""

    class Named(Row):
        def header(self) -> dict[str, str]:
            return {"family": families[[*known].index(self.name) % len(families)]}

    rows = {name: Named(name, name, [0]) for name in known}
    return replace(read_table("seeds"), rows=rows, families=dict.fromkeys(families, ""))


LESS = {"title": "NLL", "score": "NLL", "less": "base", "form": "+.2f"}


def test_a_section_of_a_few_rows_is_corrected_for_all():
    known = fake_runs()
    section = {"rows": ["maybe"], "columns": [{**LESS, "show": "interval"}]}
    of_three = "*+0.50 [+0.07, +0.93]*"
    assert of_three in render._table(with_rows(known, "all"), section, known)
    # A pair of rows of its own is a family of its own.
    section["columns"] = [{**LESS, "less": {"maybe": "base"}, "show": "interval"}]
    assert f"*{of_three}*" in render._table(with_rows(known, "all"), section, known)


def test_leads_count_and_name_what_is_better_and_say_what_later_seeds_say():
    known = fake_runs(five=[0, 1, 2.01, 3, 4])
    later = [{"title": "NLL", "score": "NLL", "less": "base", "form": "+.1f", "better": "below"}]
    section = {"columns": later, "later": 3, "head": "family"}
    known["five"] = {str(seed): {"scores": {"test": {"NLL": -50 + seed / 9}}} for seed in range(5)}
    text = comparisons.leads(with_rows(known, "odd", "even"), section, known)
    assert "- **NLL**: 1 (1) of 4 are worse, 1 (1) better; `five` −51.8 [" in text
    assert ", with seeds 3 and 4 alone −51.6 [" in text
    assert [line.split(" | ")[:3] for line in text.splitlines()[-2:]] == [
        ["| odd", "2", "+1 |"],  # without the base
        ["| even", "2", "−1 |"],
    ]


def test_each_row_is_one_observation_whatever_its_number_of_seeds():
    def run(first: float) -> dict[str, Any]:
        return {"scores": {"a": {"x": first}, "b": {"x": 0.0}}}

    known = {"p": {"0": run(1.0), "1": run(3.0)}, "q": {"0": run(4.0)}, "r": {"0": {"scores": {}}}}
    columns = [{"title": "a − b", "score": "x", "test": "a", "other_test": "b", "form": "+.1f"}]
    text = comparisons.over_rows(
        with_rows(known, "all"), {"rows": ["p", "q", "r"], "columns": columns}, known
    )
    # 2 and 4: mean 3, error 1, and the t of one degree of freedom.
    assert text.splitlines()[-1] == "| a − b | +3.0 [−9.7, +15.7] | 0.2 | 0.2 | +2.0 | +4.0 | – |"


def test_a_difference_of_a_test_is_marked_if_every_run_says_so():
    def run(gain: float, p_value: float) -> dict[str, Any]:
        gains = {"sure": (gain, p_value), "unsure": (0.1, 0.06)}
        differences = {
            test: {"x": {"mean": mean, "low": mean - 1, "high": mean + 1, "p_value": p}}
            for test, (mean, p) in gains.items()
        }
        return {
            "scores": {"base": {"x": 1.0}, "sure": {"x": 1 + gain}, "unsure": {"x": 1.1}},
            "differences": differences,
        }

    known = {"p": {"0": run(2.0, 0.001), "1": run(4.0, 0.02)}}
    section: dict[str, Any] = {"head": "map", "columns": [{"title": "X", "score": "x", "form": "+.1f"}]}

    def shown(known: dict[str, Any]) -> list[str]:
        return comparisons.by_test(with_rows(known, "all"), section, known).splitlines()[2:]

    assert shown(known) == ["| base | +1.0 |", "| sure | **+4.0** |", "| unsure | +1.1 |"]
    both = {**known, "q": {"0": run(-2.0, 0.001)}}
    assert shown(both)[1] == "| sure | **+4.0** *−1.0* |"
    section["together"] = True
    assert shown(both)[1] == "| sure | +1.5 |"
    del section["together"]
    section["columns"][0]["better"] = "below"
    assert shown(both)[1] == "| sure | *+4.0* **−1.0** |"
    known["p"]["1"]["differences"]["sure"]["x"]["p_value"] = 0.06
    assert shown(known)[1] == "| sure | +4.0 |"
    lines = comparisons.differences_of_runs(with_rows(known, "all"), section, known).splitlines()
    assert lines[0] == "model,seed,map,scale,difference,low,high,p,p Holm"
    assert lines[1] == "p,0,sure,x,2.000,1.000,3.000,0.001,0.002"
    assert lines[-1] == "p,1,unsure,x,0.100,-0.900,1.100,0.06,0.12"


def test_a_file_of_all_rows_has_a_cell_for_each_head(tmp_path: Path):
    known = fake_runs(once=[3])
    columns = [{"title": "n", "field": "seed", "show": "count", "form": ""}, {"title": "NLL", "score": "NLL"}]
    section = {"head": "row", "columns": [*columns, {**LESS, "title": "Δ", "show": "interval"}]}
    text = render._csv(with_rows(known, "all"), section, known)
    lines = {line["row"]: line for line in csv.DictReader(io.StringIO(text))}
    assert lines["worse"]["Δ low"] == "+0.98"
    assert float(lines["maybe"]["Δ p Holm"]) == pytest.approx(2 * float(lines["maybe"]["Δ p"]), rel=0.05)
    assert (lines["once"]["n"], lines["once"]["NLL"], lines["once"]["Δ"]) == ("1", "3.000", "")
    file = tmp_path / "rows.csv"
    write_sections(file, {"rows.csv": text})
    write_sections(file, {"rows.csv": text})
    assert file.read_text(encoding="utf-8") == text
    assert read_sections(file) == {"rows.csv": text.strip()}


def test_areas_of_deletion_are_means_over_words():
    areas = {"images": [0, 1, 2], "words": [2, 1, 1]}
    areas |= {"attention": [0.25, 0.2, 0.4], "random": [0.65, 0.5, 0.9]}
    found = columns.areas_of({"deletion": areas})
    assert found == pytest.approx({"attention": 0.275, "random": 0.675, "gain": 0.4})
    assert columns.areas_of({}) == {}


def test_scores_and_captions_are_of_the_same_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran: list[str] = []

    def command(verb: str, *arguments: str) -> None:
        beam = next(argument for argument in arguments if argument.startswith("--beam"))
        ran.append(beam)
        version = tmp_path / "logs" / "version_0"
        version.mkdir(parents=True, exist_ok=True)
        for file in ("test_captions.json", "test_scores.json"):
            (version / file).write_text(json.dumps(beam), encoding="utf-8")

    monkeypatch.setattr(runs, "command", command)

    def asked(beam: str) -> tuple[Any, str]:
        scores = runs.tested(tmp_path, "test", [], [beam], tmp_path / "best.ckpt")
        return scores, json.loads((tmp_path / "test_captions.json").read_text(encoding="utf-8"))

    beams = ["--beam=1", "--beam=5", "--beam=1", "--beam=1"]
    assert [asked(beam) for beam in beams] == [(beam, beam) for beam in beams]
    assert ran == ["--beam=1", "--beam=5"]
    # Folders of earlier versions have only the captions of the last test.
    for captions in tmp_path.glob("test_captions-*.json"):
        captions.unlink()
    (tmp_path / f"test-{digest_of(['--beam=5'])}.json").rename(tmp_path / "dev-5.json")
    assert asked("--beam=1") == ("--beam=1", "--beam=1")
    assert ran == ["--beam=1", "--beam=5"]
    assert [asked(beam) for beam in ("--beam=5", "--beam=1")] == [
        ("--beam=5", "--beam=5"),
        ("--beam=1", "--beam=1"),
    ]
    assert ran == ["--beam=1", "--beam=5", "--beam=5", "--beam=1"]


def test_captions_of_papers_before_2015_have_no_brevity_penalty(tmp_path: Path):
    sentence = "a dog runs over the green grass"
    (tmp_path / "Flickr8k.token.txt").write_text(f"1.jpg#0\t{sentence} today\n", encoding="utf-8")
    captions = [{"image_id": "1.jpg", "caption": sentence}]
    (tmp_path / "test_captions.json").write_text(json.dumps(captions), encoding="utf-8")
    run: dict[str, Any] = {"scores": {"test": {"CIDEr": 1.0}}}
    measures.captions(run, tmp_path / "best.ckpt", tmp_path, {"data": tmp_path})
    scores = run["scores"]["test"]
    assert scores["BLEU-4 without brevity penalty"] == pytest.approx(1)
    assert scores["CIDEr"] == 1.0
    assert (measures.METEOR in scores) == (java_fault("pycocoevalcap.meteor") is None)
    step: dict[str, Any] = {"scores": {"dev 3": {}}}
    measures.captions(step, tmp_path / "best.ckpt", tmp_path, {"data": tmp_path})
    assert step == {"scores": {"dev 3": {}}}


def test_the_values_of_seeds_are_shown_in_one_of_these_ways():
    shown = {how: show([0.7, 0.5], ".2f") for how, show in columns.SHOWN.items()}
    assert shown == {
        "mean": "0.60 ± 0.14",
        "average": "0.60",
        "least": "0.50",
        "each": "0.60 (0.70, 0.50)",
        "range": "0.60 (0.50 to 0.70)",
        "sorted": "0.50, 0.70",
        "list": "0.70, 0.50",
        "last": "0.50",
        "count": "2",
        "learned": "2 of 2",
    }
    assert columns.SHOWN["mean"]([0.5], "+.2f") == "+0.50"
