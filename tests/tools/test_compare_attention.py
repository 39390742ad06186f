"""The comparison of attention mechanisms, at a budget of seconds: what is trained, kept, resumed and written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from caption import checkpoint
from caption.cli.configs import FAMILIES
from caption.cli.main import main as caption
from caption.errors import UserError
from tools.compare_attention import __main__ as tool
from tools.compare_attention import differences, gallery, mechanisms, report, runs
from tools.documents import mean_and_deviation, read_sections
from tools.reproduce.runs import CONFIGS

SHAPES = CONFIGS / "shapes_soft.yaml"
FLICKR8K = CONFIGS / "flickr8k_small.yaml"
HARD = """\
# Hard: s ~ Multinoulli(α), z = a_s | sampled.
# Source: Xu et al. 2015,
# section 4.1.
#
#   caption fit ...
model:
  warm_start: runs/attention/additive/best.ckpt
"""


def budget(folder: Path) -> list[str]:
    """Further arguments with which a training takes a second."""
    reader = {"folder": folder, "train": 50, "val": 8, "test": 8}
    options = {f"data.reader.init_args.{name}": value for name, value in reader.items()}
    options |= {"trainer.max_epochs": 1, "trainer.enable_progress_bar": "false"}
    return [f"--{name}={value}" for name, value in options.items()]


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("configs")
    for name in ("additive", "dot", "show_and_tell"):
        shutil.copy(CONFIGS / "attention" / f"{name}.yaml", folder)
    (folder / "hard.yaml").write_text(HARD, encoding="utf-8")
    (folder / "wrong.yaml").write_text("# Nothing.\nmodel: {decoder: {class_path: caption.decoders.None}}\n")
    return folder


@pytest.fixture(scope="module")
def done(configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a mechanism that the tool has trained; not to be changed by a test."""
    out = tmp_path_factory.mktemp("done")
    arguments = ["--names", "dot", "--seeds", "1", *budget(out.parent / "shapes")]
    assert tool.main(["--configs", str(configs), "--out", str(out), *arguments]) == 0
    return out


Run = Callable[..., int]


@pytest.fixture
def run(configs: Path, done: Path, tmp_path: Path) -> Run:
    """The tool with a copy of `done`."""
    out = Path(shutil.copytree(done, tmp_path / "out"))
    common = ["--configs", str(configs), "--out", str(out), "--seeds", "1", *budget(done.parent / "shapes")]
    return lambda *arguments: tool.main([*common, *map(str, arguments)])


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would run; training and testing do nothing, and fail for the mechanism `wrong`."""
    commands: list[list[str]] = []

    def command(*arguments: str) -> None:
        commands.append([*arguments])
        if any("wrong" in argument for argument in arguments):
            raise SystemExit(2)
        raise SystemExit(143)

    monkeypatch.setattr(runs, "fit", lambda folder, arguments: command("fit", *arguments))
    monkeypatch.setattr(runs, "run", lambda *arguments: commands.append([*arguments]))
    return commands


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "attention.md"
    parts = ("gallery", "verdicts", "differences", "equations")
    sections = ("mechanisms", *(f"mechanisms {part}" for part in parts))
    marks = [f"<!-- section {name} begins -->\nold\n<!-- section {name} ends -->" for name in sections]
    path.write_text("\n\n".join(["# Mine", *marks, "more\n"]), encoding="utf-8")
    return path


# -- runs ------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_run_is_what_caption_fit_and_caption_test_give(done: Path, tmp_path: Path):
    """Typed by hand: the same weights and the same scores, to the bit."""
    files = ("shapes_soft", "training/frozen_encoder", "attention/dot")
    configs = [part for name in files for part in ("-c", f"configs/{name}.yaml")]
    hand = [*configs, *budget(done.parent / "shapes"), "--seed_everything=1"]
    hand += [f"--trainer.default_root_dir={tmp_path}", f"--data.features={done / 'regions' / 'all'}"]
    assert caption(["fit", *hand]) == 0
    assert caption(["test", *hand, "--ckpt_path", str(tmp_path / "best.ckpt")]) == 0
    for name in ("best.ckpt", "last.ckpt"):
        ours, theirs = (checkpoint.read(path / name)["state_dict"] for path in (done / "dot-1", tmp_path))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    (scores,) = tmp_path.glob("logs/*/test_scores.json")
    expected = json.loads(scores.read_text())
    result = json.loads((done / "dot-1" / "result.json").read_text())
    assert result["numbers"] == expected["scores"]
    assert result["signature"] == expected["signature"]
    captions = json.loads(next(tmp_path.glob("logs/*/test_captions.json")).read_text())
    assert json.loads((done / "dot-1" / "test_captions.json").read_text()) == captions


def test_a_result_has_what_the_document_says(done: Path):
    result = json.loads((done / "dot-1" / "result.json").read_text(encoding="utf-8"))
    assert (result["regions"], result["epochs"], result["warm_start"]) == ("8×8×128", 1, None)
    decoder = checkpoint.load(done / "dot-1" / "best.ckpt").decoder
    assert result["parameters"] == sum(parameter.numel() for parameter in decoder.parameters())
    scores = result["numbers"]
    assert {"NLL", "BLEU-4", "CIDEr", "pointing_accuracy", "attention_entropy"} <= set(scores)
    without = [name for name in scores if not name.startswith(("attention", "pointing"))]
    assert [*runs.without_maps(scores)] == without


def test_nothing_that_is_done_is_done_again(run: Run, commands: list[list[str]]):
    assert run("--names", "dot") == 0
    assert not commands


def test_a_run_of_other_settings_is_refused(run: Run, commands: list[list[str]], capsys: Any):
    assert run("--names", "dot", "--trainer.max_epochs=2") == tool.WRONG_USAGE
    assert re.search(r"dot-1 is a run of other settings: delete it, or .* --out", capsys.readouterr().err)
    assert not commands


def test_a_stop_ends_the_command_and_a_failure_does_not(run: Run, commands: list[list[str]], capsys: Any):
    assert run("--names", "wrong") == tool.SOME_FAILED
    assert "wrong, seed 1, failed" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="143"):
        run("--names", "wrong", "additive")
    assert [command[6].rpartition("/")[2] for command in commands if command[0] == "fit"] == [
        "wrong.yaml",
        "wrong.yaml",
        "additive.yaml",
    ]


def test_one_that_starts_from_another_comes_behind_it(
    run: Run, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    order = []
    monkeypatch.setattr(runs.Bench, "run", lambda bench, mechanism, seed: order.append(mechanism.name))
    assert run("--names", "hard") == 0
    assert order == ["additive", "hard"]
    hard = mechanisms.read_mechanisms(CONFIGS / "attention", FLICKR8K, ("hard",))["hard"]
    bench = runs.Bench(tmp_path, ["--trainer.max_epochs=2"], stored=True)
    arguments = bench.arguments(hard, 3)
    start = arguments[arguments.index("--model.warm_start") + 1]
    assert start == str(tmp_path / "additive-3" / "best.ckpt")
    assert arguments[-3:] == ["--trainer.max_epochs=2", "--seed_everything", "3"]


# -- mechanisms ------------------------------------------------------------------------------------------------


def test_a_published_run_stands_wherever_the_data_lies(configs: Path, tmp_path: Path):
    mechanism = mechanisms.read_mechanisms(configs, SHAPES)["dot"]
    published = [{"mechanism": "dot", "seed": 0, "digest": mechanism.digest([])}]
    elsewhere = "--data.reader.init_args.folder=elsewhere"
    bench = runs.Bench(tmp_path, data=[elsewhere], published=published)
    assert bench.result(mechanism, 0) == published[0]
    assert elsewhere in bench.arguments(mechanism, 0)
    assert runs.Bench(tmp_path, [elsewhere], published=published).result(mechanism, 0) is None


def test_the_header_gives_equation_and_source(configs: Path):
    hard = mechanisms.read_mechanisms(configs, SHAPES)["hard"]
    assert hard.equation == "Hard: s ~ Multinoulli(α), z = a_s | sampled."
    assert hard.source == "Xu et al. 2015, section 4.1."
    assert hard.warm


def test_the_digest_is_of_settings_not_of_comments(configs: Path, tmp_path: Path):
    text = (configs / "dot.yaml").read_text(encoding="utf-8")
    (tmp_path / "dot.yaml").write_text("# A comment.\n" + text, encoding="utf-8")
    (tmp_path / "general.yaml").write_text(text.replace("DotScore", "GeneralScore"), encoding="utf-8")
    original = mechanisms.read_mechanisms(configs, SHAPES)["dot"].digest([])
    digests = {name: each.digest([]) for name, each in mechanisms.read_mechanisms(tmp_path, SHAPES).items()}
    assert digests["dot"] == original != digests["general"]
    assert mechanisms.read_mechanisms(configs, SHAPES)["dot"].digest(["--x"]) != original
    assert mechanisms.read_mechanisms(configs, FLICKR8K, ("dot",))["dot"].digest([]) != original


def test_overlays_go_with_their_base(configs: Path, tmp_path: Path):
    folder = Path(shutil.copytree(configs, tmp_path / "attention"))
    (folder / FLICKR8K.stem).mkdir()
    own = folder / FLICKR8K.stem / "dot.yaml"
    shutil.copy(CONFIGS / "attention" / FLICKR8K.stem / "top_down.yaml", own)
    text = (configs / "dot.yaml").read_text(encoding="utf-8")
    photos = text.replace("configs/shapes_soft.yaml", "configs/flickr8k_soft.yaml")
    (folder / "photos.yaml").write_text(photos, encoding="utf-8")
    assert "photos" not in mechanisms.read_mechanisms(folder, SHAPES)
    found = mechanisms.read_mechanisms(folder, FLICKR8K, ("dot", "additive"))
    assert found["dot"].paths == (FLICKR8K, own)
    assert found["dot"].source.startswith("Anderson et al. 2018")
    assert found["additive"].paths == (FLICKR8K, folder / "additive.yaml")
    with pytest.raises(UserError, match=r"none\.yaml"):
        mechanisms.read_mechanisms(folder, FLICKR8K, ("none",))
    with pytest.raises(UserError, match="holds no configuration"):
        mechanisms.read_mechanisms(tmp_path, SHAPES)
    with pytest.raises(UserError, match="no mechanism is called aditive: choose from dot, additive"):
        mechanisms.choose(found, ["aditive"])


def test_every_mechanism_has_a_family_and_its_regions():
    over = [CONFIGS / f"{name}.yaml" for name in tool.SHAPES.over]
    found = mechanisms.read_mechanisms(CONFIGS / "attention", SHAPES, over=over)
    families = mechanisms.by_family(found, found)
    assert list(families) == list(FAMILIES)
    assert families["hard attention"] == ["glimpse", "gumbel", "hard"]
    assert mechanisms.by_family(["gone", "dot"], found) == {"scoring": ["dot"], "": ["gone"]}
    two = {name for name, mechanism in found.items() if mechanism.learns_encoder}
    controls = {"additive_two_depths", "additive_two_encoders"}
    assert two == {"cross_attention", "feature_pyramid", "meta_embedding"} | controls
    bench = runs.Bench(Path("out"), stored=True)
    learnt, frozen = (bench.arguments(found[name], 0) for name in ("meta_embedding", "rotatory"))
    assert "--data.features=null" in learnt
    assert "--model.encoder_learning_rate=0.002" in learnt
    assert "--trainer.max_epochs=8" in learnt
    assert frozen[frozen.index("--data.features") + 1] == str(Path("out/regions") / found["rotatory"].regions)
    assert found["rotatory"].regions == found["parent_weighted"].regions != found["dot"].regions == "all"


def test_verdicts_name_what_differs():
    def summary(nll: float, *pointing: float, gain: float, low: float, high: float) -> dict[str, Any]:
        numbers = [
            {"NLL": nll + 0.001 * seed, "pointing_accuracy": each, "pointing_other_word": 0.2}
            for seed, each in enumerate(pointing)
        ]
        areas = {"random_less_attention": gain, "low": low, "high": high}
        return {"runs": [{"numbers": each} for each in numbers], "faithfulness": areas}

    text = gallery.verdicts(
        {
            "additive": summary(0.2, 0.9, 0.91, 0.92, gain=0.24, low=0.23, high=0.25),
            "near": summary(0.2, 0.9, 0.91, 0.92, gain=0.1, low=0.09, high=0.11),
            "far": summary(0.5, 0.1, 0.95, 0.94, gain=0.0, low=-0.1, high=0.1),
        }
    )
    assert "1 of 2 mechanisms are worse, most of all `far` +0.300 [" in text
    assert "none is better; 1 cannot be told apart" in text
    assert "for 1 of 2, most of all `near` +0.710 [" in text
    assert "for 1 of 3: `far` (0.10 / 0.94 / 0.95)." in text
    assert "for 1 of 2, most of all `near` +0.100 [+0.090, +0.110]. It does not for `far`." in text
    assert "1 point no worse than `additive`" in text
    assert "(below 0.230), least of all `near` +0.100" in text


def test_one_seed_of_each_gives_no_verdict_over_seeds():
    def summary(nll: float) -> dict[str, Any]:
        areas = {"random_less_attention": 0.2, "low": 0.1, "high": 0.3}
        numbers = {"NLL": nll, "pointing_accuracy": 0.9, "pointing_other_word": 0.2}
        return {"runs": [{"seed": 0, "numbers": numbers}], "faithfulness": areas}

    summaries = {"additive": summary(0.2), "worse": summary(0.9)}
    text = gallery.verdicts(summaries)
    assert text.startswith("- **One seed of each.**")
    assert "faster than in a random order for 1 of 1" in text
    assert "of 0" not in text
    assert differences.differences(summaries, {}) == "None can be given: there is one seed of each."


def test_every_mechanism_of_flickr8k_has_its_overlay():
    found = mechanisms.read_mechanisms(CONFIGS / "attention", FLICKR8K, tool.FLICKR8K.names)
    assert tuple(found) == tool.FLICKR8K.names
    assert [name for name, mechanism in found.items() if mechanism.warm] == ["hard"]


# -- documents -------------------------------------------------------------------------------------------------


def test_the_document_has_tables_picture_and_page(run: Run, document: Path):
    assert run("--names", "--write", "--document", document) == 0
    text = document.read_text(encoding="utf-8")
    assert text.startswith("# Mine\n")
    assert text.endswith("\n\nmore\n")
    assert "\nold\n" not in text
    assert re.search(
        r"Written by `python -m tools.compare_attention --seeds 1 .*--trainer.max_epochs=1 .*--write`", text
    )
    assert text.count("| `dot` |") == 3  # gallery, numbers, and equation
    assert "![Where the mechanisms of the family look](attention_scoring.png)" in text
    assert (
        "| `dot` | Dot-product score: e_i = h · (W a_i + b) | `caption fit -c shapes_soft -c attention/dot` |"
        in text
    )
    assert "| `additive` | not measured yet |" in text
    assert text.index("**scoring**") < text.index("**pooling**")
    assert "`additive` has not been run" in text
    numbers = report.read_published(document.with_suffix(".json"))
    assert set(numbers["mechanisms"]) == {"dot"}
    with Image.open(document.with_name("attention_scoring.png")) as drawn:
        assert 700 < drawn.width < 800
    assert not document.with_name("attention_pooling.png").exists()  # none of them was trained
    page = tool.page_of(document).read_text(encoding="utf-8")
    assert page.count('"image":"data:image/jpeg;base64,') == tool.SCENES
    assert '"members":["dot"]' in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page)


def test_what_is_published_is_not_repeated_and_not_lost(
    run: Run, document: Path, commands: list[list[str]], tmp_path: Path, capsys: Any
):
    """In a fresh folder, with fewer seeds and fewer mechanisms."""
    assert run("--names", "--write", "--document", document) == 0
    numbers, first = document.with_suffix(".json"), document.read_text(encoding="utf-8")
    content = json.loads(numbers.read_text(encoding="utf-8"))
    for summary in content["mechanisms"].values():
        summary["runs"].append({**summary["runs"][0], "seed": 2})
    numbers.write_text(json.dumps(content), encoding="utf-8")
    fresh = ["--out", tmp_path / "fresh", "--document", document, "--write"]
    assert run("--names", "dot", *fresh) == 0
    assert not commands
    said = f"no checkpoints of dot in {tmp_path / 'fresh'}: the pictures of their families stay, and what the page"
    assert said in capsys.readouterr().err
    again = json.loads(numbers.read_text(encoding="utf-8"))
    assert [run["seed"] for run in again["mechanisms"]["dot"]["runs"]] == [1, 2]
    assert document.read_text(encoding="utf-8") != first
    with pytest.raises(SystemExit):
        run("--names", "dot", "--anew", *fresh)
    assert commands


@pytest.mark.parametrize("base", [tool.SHAPES, tool.FLICKR8K], ids=lambda base: base.name)
def test_the_documents_numbers_follow_from_their_runs(base: tool.Base):
    document = CONFIGS.parent / "docs" / "results" / "attention.md"
    published = report.read_published(document.with_name(f"attention{base.suffix}.json"))
    found = mechanisms.read_mechanisms(CONFIGS / "attention", CONFIGS / f"{base.name}.yaml", base.names)
    sections = read_sections(document)
    for name, text in tool._sections(base, published, found, document).items():
        assert sections[name] == text
    summary = published["mechanisms"]["additive"]
    assert report.faithfulness(summary["runs"]) == pytest.approx(summary["faithfulness"], abs=1e-5)
    mechanism: Any = SimpleNamespace(equation="", source="")
    again = report.summarise(summary["runs"], mechanism)
    assert again["seconds_per_epoch"] == summary["seconds_per_epoch"]


def test_faithfulness_has_an_interval_over_the_images_of_all_seeds():
    areas = {
        "images": [0, 1, 2],
        "words": [2, 1, 1],
        "attention": [0.25, 0.2, 0.4],
        "random": [0.65, 0.5, 0.9],
    }
    found = report.faithfulness([{"faithfulness": areas}, {"faithfulness": areas}, {"faithfulness": None}])
    assert found is not None
    assert found["random_less_attention"] == pytest.approx(0.4)
    assert 0.29 < found["low"] < 0.4 < found["high"] < 0.51
    assert report.faithfulness([{"faithfulness": None}]) is None


def test_a_cell_has_mean_and_deviation_over_seeds():
    assert mean_and_deviation([0.5, 0.7], 2) == "0.60 ± 0.14"
    assert mean_and_deviation([0.5], 2, signed=True) == "+0.50"
    assert mean_and_deviation([], 2) == "–"


def test_a_gap_is_welchs_interval():
    # By hand: means 2 and 5, variances 1 and 4, error sqrt(1/3 + 4/3), 2 degrees of freedom.
    gap = differences.gap([1.0, 2.0, 3.0], [3.0, 5.0, 7.0])
    assert gap is not None
    assert gap.difference == pytest.approx(-3.0)
    assert gap.high - gap.difference == pytest.approx(4.303 * (5 / 3) ** 0.5)
    assert gap.text(1) == "−3.0 [−8.6, +2.6]"
    near = differences.gap([1.0, 1.01, 0.99], [3.0, 3.01, 2.99])
    assert near is not None
    assert near.text(1) == "**−2.0 [−2.0, −2.0]**"
    assert differences.gap([1.0], [3.0, 5.0]) is None


def test_differences_from_additive_attention_have_intervals():
    def summary(*pointing: float, other: float = 0.2) -> dict[str, Any]:
        numbers = [{"NLL": 0.1, "pointing_accuracy": each, "pointing_other_word": other} for each in pointing]
        return {"runs": [{"numbers": each} for each in numbers]}

    text = differences.differences(
        {"additive": summary(0.9, 0.91), "far": summary(0.1, 0.12), "one": summary(0.5)}, {}
    )
    rows = {line.split(" | ")[0].strip("| `"): line for line in text.splitlines() if line.startswith("| `")}
    assert rows["additive"].count("(reference)") == 4
    assert "**−0.795 [" in rows["far"]
    assert "+0.000 [+0.000, +0.000]" in rows["far"]
    assert rows["one"].endswith("| – | – | – | – | – |")
    assert "1 to 2 each" in text


def test_the_cap_stands_beside_mechanisms_that_have_one():
    def summary(*caps: float) -> dict[str, Any]:
        runs = [{"numbers": {"NLL": 0.1}, "largest_weight": cap} for cap in caps]
        return {"regions": "", "parameters": 1, "seconds_per_epoch": 1.0, "faithfulness": None, "runs": runs}

    content = {"capped": summary(0.105, 0.105), "free": summary(1.0, 0.999)}
    head, _, *rows = report.tables({"setting": "", "mechanisms": content}, {}).split("\n\n")[-1].splitlines()
    place = head.split(" | ").index("cap of α")
    assert [row.split(" | ")[place] for row in rows if "`" in row] == ["0.105", ""]
    free = report.tables({"setting": "", "mechanisms": {"free": content["free"]}}, {})
    assert "cap of α" not in free
