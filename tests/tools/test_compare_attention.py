"""The comparison of attention mechanisms, at a budget of seconds: what is trained, kept, resumed and written."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from caption import checkpoint
from caption.encoders import Encoder, SmallCNN
from caption.errors import UserError
from tools.compare_attention import __main__ as tool
from tools.compare_attention import bench as benches
from tools.compare_attention import (
    data_sets,
    differences,
    lessons,
    mechanisms,
    pictures,
    published,
    report,
)

BUDGET = ["--epochs", "1", "--images", "30", "--test-images", "6", "--seeds", "1"]
OVERLAYS = {
    "hard": """\
# Hard: s ~ Multinoulli(α), z = a_s | sampled.
# Source: Xu et al. 2015,
# section 4.1.
#
#   caption fit ...
trainer: {max_epochs: 4}
model:
  decoder:
    init_args:
      attention:
        class_path: caption.attention.ScoredAttention
        init_args:
          score: {class_path: caption.attention.AdditiveScore, init_args: {size: 128}}
          alignment: {class_path: caption.attention.Multinoulli, init_args: {expectation: 0.0}}
  objective:
    class_path: caption.objectives.Reinforce
    init_args: {baseline: {class_path: caption.objectives.LeaveOneOut}, samples: 2, reward_weight: 1.0}
  warm_start: runs/attention/additive/best.ckpt
""",
    "show_and_tell": """\
# The image once.
# Source: Vinyals et al. 2015.
model:
  decoder:
    class_path: caption.decoders.ShowAndTellDecoder
    init_args: {embedding_size: 16, hidden_size: 16}
""",
    "signed": """\
# De-attention.
# Source: Tay et al. 2019.
model:
  decoder:
    init_args:
      attention: {class_path: caption.attention.CompositionalDeAttention, init_args: {size: 16}}
""",
    "wrong": """\
# Nothing.
# Source: nowhere.
model:
  decoder:
    init_args:
      attention: {class_path: caption.attention.NoSuchAttention}
""",
}


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[None]:
    """The tool sets the number of threads of the process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("configs")
    for name in ("additive", "dot", "multi_head"):
        shutil.copy(data_sets.CONFIGS / "attention" / f"{name}.yaml", folder)
    for name, text in OVERLAYS.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def done(configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of additive attention and of the dot score, both trained; not to be changed by a test."""
    folder = tmp_path_factory.mktemp("done")
    names = ["--names", "additive", "dot"]
    assert tool.main([*BUDGET, *names, "--configs", str(configs), "--out", str(folder)]) == 0
    return folder


Run = Callable[..., int]


@pytest.fixture
def out(done: Path, tmp_path: Path) -> Path:
    """A copy of `done`, modification times included."""
    return Path(shutil.copytree(done, tmp_path / "out"))


@pytest.fixture
def run(configs: Path, out: Path) -> Run:
    def run(*args: object) -> int:
        return tool.main([*BUDGET, "--configs", str(configs), "--out", str(out), *map(str, args)])

    return run


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "attention.md"
    path.write_text(
        "# Mine\n\n<!-- section mechanisms begins -->\nold\n<!-- section mechanisms ends -->\n\n"
        "<!-- section mechanisms lessons begins -->\nold\n<!-- section mechanisms lessons ends -->\n\nmore\n",
        encoding="utf-8",
    )
    return path


def modified(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}


def read(folder: Path) -> dict[str, mechanisms.Mechanism]:
    return mechanisms.read_mechanisms(folder, data_sets.ShapesData.base)


def test_a_run_leaves_its_numbers_and_a_model(done: Path):
    assert set(modified(done)) == {"additive-0.json", "additive-0.ckpt", "dot-0.json", "dot-0.ckpt"}
    found = json.loads((done / "dot-0.json").read_text(encoding="utf-8"))
    assert found["budget"] == {
        "epochs": 1,
        "images": 30,
        "test_images": 6,
        "captions_per_image": 1,
        "shared_encoder": True,
    }
    assert found["regions"] == "shared"
    assert {"NLL", "BLEU-4", "CIDEr", "pointing_accuracy", "attention_entropy"} <= set(found["numbers"])
    assert "split:test" in found["signature"]
    areas = found["faithfulness"]
    assert len(areas["images"]) == len(areas["attention"]) == len(areas["random"]) > 0
    model = checkpoint.load(done / "dot-0.ckpt")
    trained = [*model.decoder.parameters()]
    assert found["parameters"] == sum(each.numel() for each in trained)


def test_mechanisms_share_the_frozen_encoder(done: Path):
    from caption import load

    shared = load(data_sets.SHARED).encoder.state_dict()
    for name in ("additive", "dot"):
        own = checkpoint.load(done / f"{name}-0.ckpt").encoder.state_dict()
        assert all(torch.equal(own[key], shared[key]) for key in shared)


def test_what_is_done_is_not_done_again(run: Run, out: Path):
    before = modified(out)
    assert run("--names", "additive", "dot") == 0
    assert modified(out) == before


def test_a_new_mechanism_is_added_to_the_documents(run: Run, out: Path, document: Path):
    before = modified(out)
    names = ["--names", "multi_head", "show_and_tell", "signed", "--processes", "2"]
    assert run(*names, "--write", "--document", document) == 0
    after = modified(out)
    assert {name: after[name] for name in before} == before
    assert {"multi_head-0.json", "show_and_tell-0.json", "signed-0.json"} <= set(after)
    text = document.read_text(encoding="utf-8")
    assert text.startswith("# Mine\n")
    assert text.endswith("\n\nmore\n")
    assert "old" not in text
    for name in ("additive", "dot", "multi_head", "show_and_tell", "signed"):
        assert text.count(f"| `{name}` |") == 2  # numbers, and equation
    without = next(line for line in text.splitlines() if line.startswith("| `show_and_tell` | shared"))
    assert without.endswith("| – | – | – | – | – | – |")
    numbers = json.loads(document.with_suffix(".json").read_text(encoding="utf-8"))
    assert set(numbers["mechanisms"]) == {"additive", "dot", "multi_head", "show_and_tell", "signed"}
    assert numbers["mechanisms"]["dot"]["source"].startswith("Luong et al. 2015")
    assert document.with_suffix(".png").stat().st_size > 20_000
    page = document.with_suffix(".html").read_text(encoding="utf-8")
    assert len(page.encode()) < pictures.PAGE_BYTES
    assert page.count('<p class="satt-model">multi_head</p>') == pictures.PAGE_SCENES
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page)


def test_published_runs_are_not_repeated_without_their_folder(
    run: Run, configs: Path, document: Path, tmp_path: Path, capsys: Any
):
    assert run("--names", "--write", "--document", document) == 0
    first = document.read_text(encoding="utf-8")
    picture = document.with_suffix(".png").stat().st_mtime_ns
    fresh = tmp_path / "fresh"
    again = ["--configs", str(configs), "--out", str(fresh), "--document", str(document)]
    assert tool.main([*BUDGET, *again, "--names", "additive", "dot", "--write"]) == 0
    assert not list(fresh.glob("*.ckpt"))
    assert document.read_text(encoding="utf-8") == first
    assert document.with_suffix(".png").stat().st_mtime_ns == picture
    assert "the picture and the page stay, without checkpoints of additive, dot" in capsys.readouterr().err
    numbers = document.with_suffix(".json")
    budget = data_sets.Budget(1, 30, 6, 1, True)
    assert set(published.read_published(numbers, budget)) == {("additive", 0), ("dot", 0)}
    assert published.read_published(numbers, replace(budget, images=31)) == {}


def test_published_seeds_are_not_lost_when_fewer_are_asked_for(
    run: Run, configs: Path, document: Path, tmp_path: Path
):
    assert run("--names", "--write", "--document", document) == 0
    numbers = document.with_suffix(".json")
    content = json.loads(numbers.read_text(encoding="utf-8"))
    for found in content["mechanisms"].values():
        found["runs"].append({**found["runs"][0], "seed": 1})
    numbers.write_text(json.dumps(content), encoding="utf-8")
    marks = "<!-- section mechanisms differences {} -->\n"
    text = document.read_text(encoding="utf-8") + marks.format("begins") + marks.format("ends")
    document.write_text(text, encoding="utf-8")
    again = ["--configs", str(configs), "--out", str(tmp_path / "fresh"), "--document", str(document)]
    assert tool.main([*BUDGET, *again, "--names", "--write"]) == 0
    kept = published.read_published(numbers, data_sets.Budget(1, 30, 6, 1, True))
    assert set(kept) == {(name, seed) for name in ("additive", "dot") for seed in (0, 1)}


def test_what_is_published_of_faithfulness_gives_the_same_interval():
    areas = {
        "images": [2, 0, 2, 0, 1],
        "attention": [0.1, 0.4, 0.3, 0.2, 0.5],
        "random": [0.3, 0.9, 0.5, 0.1, 0.6],
    }
    result = {"mechanism": "dot", "budget": {}, "seed": 0, "faithfulness": areas}
    kept = published.to_publish(result)
    assert kept == {
        "seed": 0,
        "faithfulness": {
            "images": [0, 1, 2],
            "words": [2, 1, 2],
            "attention": [0.3, 0.5, 0.2],
            "random": [0.5, 0.6, 0.4],
        },
    }
    read = {**kept, "faithfulness": published._by_word(kept["faithfulness"])}
    assert benches.faithfulness([read]) == pytest.approx(benches.faithfulness([result]))


def test_ctrl_c_loses_the_present_run_only(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    measure = benches.evaluate
    calls = []

    def stopped(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(*args)

    before = modified(out)
    with monkeypatch.context() as patch:
        patch.setattr(benches, "evaluate", stopped)
        assert run("--names", "multi_head", "signed") == tool.STOPPED
    assert "the same command goes on" in capsys.readouterr().err
    kept = modified(out)
    assert set(kept) == {*before, "multi_head-0.json", "multi_head-0.ckpt"}
    assert run("--names", "multi_head", "signed") == 0
    after = modified(out)
    assert {name: after[name] for name in kept} == kept
    assert "signed-0.json" in after


def test_sampled_attention_starts_from_the_additive_model(run: Run, out: Path, capsys: Any):
    (out / "additive-0.json").unlink()
    assert run("--names", "hard") == 0
    err = capsys.readouterr().err
    assert err.index("additive, seed 0: NLL") < err.index("hard, seed 0: NLL")
    found = json.loads((out / "hard-0.json").read_text(encoding="utf-8"))
    assert found["warm_start"] == "additive"
    hard, soft = (checkpoint.load(out / f"{name}-0.ckpt").decoder for name in ("hard", "additive"))
    distance = (hard.embed.weight - soft.embed.weight).norm() / soft.embed.weight.norm()
    assert distance < 0.05  # fresh weights would be as far away as they are long


def test_a_mechanism_that_fails_does_not_end_the_others(run: Run, out: Path, capsys: Any):
    assert run("--names", "wrong", "signed") == tool.SOME_FAILED
    assert "NoSuchAttention" in capsys.readouterr().err
    assert "signed-0.json" in modified(out)
    assert "wrong-0.json" not in modified(out)


def test_another_budget_is_refused(run: Run, out: Path, capsys: Any):
    before = modified(out)
    assert run("--names", "additive", "--epochs", "2") == tool.WRONG_USAGE
    assert "another budget" in capsys.readouterr().err
    assert modified(out) == before


def test_an_unknown_name_is_refused(run: Run, capsys: Any):
    assert run("--names", "aditive") == tool.WRONG_USAGE
    assert "no mechanism is called aditive: choose from additive, dot" in capsys.readouterr().err


def test_a_changed_configuration_is_trained_again(configs: Path, out: Path):
    budget = data_sets.Budget(1, 30, 6, 1, True)
    bench = benches.Bench(budget, out, data_sets.ShapesData(budget, out / "shapes"))
    mechanism = read(configs)["dot"]
    assert bench.result(mechanism, 0) is not None
    assert bench.result(replace(mechanism, digest="other"), 0) is None


def test_the_digest_is_of_settings_not_of_comments(configs: Path, tmp_path: Path):
    text = (configs / "dot.yaml").read_text(encoding="utf-8")
    (tmp_path / "dot.yaml").write_text("# A comment.\n" + text, encoding="utf-8")
    (tmp_path / "general.yaml").write_text(text.replace("DotScore", "GeneralScore"), encoding="utf-8")
    found, original = read(tmp_path), read(configs)["dot"]
    assert found["dot"].digest == original.digest != found["general"].digest


def test_the_header_gives_equation_and_source(configs: Path):
    hard = read(configs)["hard"]
    assert hard.equation == "Hard: s ~ Multinoulli(α), z = a_s | sampled."
    assert hard.source == "Xu et al. 2015, section 4.1."
    assert hard.warm
    assert hard.epochs(6) == 3  # 4 of the 8 of shapes_soft.yaml
    assert read(configs)["dot"].epochs(6) == 6


def test_a_folder_without_configurations_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="holds no configuration"):
        read(tmp_path)


def test_an_overlay_of_other_data_is_left_out(configs: Path, tmp_path: Path):
    text = (configs / "dot.yaml").read_text(encoding="utf-8")
    (tmp_path / "dot.yaml").write_text(text, encoding="utf-8")
    photos = text.replace("configs/shapes_soft.yaml", "configs/flickr8k_soft.yaml")
    (tmp_path / "photos.yaml").write_text(photos, encoding="utf-8")
    assert list(read(tmp_path)) == ["dot"]


class Two(Encoder):
    """The shared architecture, and another beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SmallCNN(), SmallCNN((4, 4, 8))
        self.region_sizes = (128, 8)

    def normalise(self, images: Tensor) -> Tensor:
        return self.first.normalise(images)

    def features(self, images: Tensor) -> tuple[Tensor, ...]:
        return self.first.features(images), self.second.features(images)


def test_an_overlay_with_the_sizes_of_the_base_goes_first(configs: Path, tmp_path: Path):
    base = data_sets.Flickr8kData.base
    folder = Path(shutil.copytree(configs, tmp_path / "attention"))
    (folder / base.stem).mkdir()
    shutil.copy(
        data_sets.CONFIGS / "attention" / base.stem / "top_down.yaml", folder / base.stem / "dot.yaml"
    )
    found = mechanisms.read_mechanisms(folder, base, ("dot", "additive"))
    assert found["dot"].path == folder / base.stem / "dot.yaml"
    assert found["dot"].source.startswith("Anderson et al. 2018")
    assert found["additive"].path == folder / "additive.yaml"
    assert found["additive"].base == base
    assert found["additive"].digest != read(configs)["additive"].digest
    with pytest.raises(UserError, match=r"none\.yaml"):
        mechanisms.read_mechanisms(folder, base, ("none",))


def test_every_mechanism_of_flickr8k_has_its_overlay():
    data = data_sets.Flickr8kData
    found = mechanisms.read_mechanisms(data_sets.CONFIGS / "attention", data.base, data.names)
    assert tuple(found) == data.names
    assert [name for name, each in found.items() if each.warm] == ["hard"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder laid out like Flickr8k, of six images, and the weights of an encoder."""
    from PIL import Image

    from caption.encoders import TorchvisionEncoder

    root = tmp_path_factory.mktemp("flickr8k")
    (root / "images").mkdir()
    captions = []
    for number in range(6):
        Image.new("RGB", (40, 40), (40 * number, 90, 120)).save(root / "images" / f"{number}.jpg")
        captions += [f"{number}.jpg#{k}\ta dog sees the dog in a cat" for k in range(5)]
    (root / "Flickr8k.token.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
    for split, numbers in {"train": "012", "dev": "3", "test": "45"}.items():
        lines = "".join(f"{number}.jpg\n" for number in numbers)
        (root / f"Flickr_8k.{split}Images.txt").write_text(lines, encoding="utf-8")
    encoder = TorchvisionEncoder("mobilenet_v2", "features")
    weights = {key: value for key, value in encoder.state_dict().items() if key.startswith("trunk.")}
    torch.save({key.removeprefix("trunk."): value for key, value in weights.items()}, root / "weights.pth")
    return root, root / "weights.pth"


def test_photos_are_read_from_one_store_for_each_encoder(
    photos: tuple[Path, Path], tmp_path: Path, document: Path
):
    root, weights = photos
    document.write_text(
        "<!-- section flickr8k begins -->\n<!-- section flickr8k ends -->\n", encoding="utf-8"
    )
    common = [
        "--flickr8k",
        root,
        "--weights",
        weights,
        "--seeds",
        1,
        "--epochs",
        1,
        "--out",
        tmp_path / "out",
    ]
    run = [*common, "--names", "dot", "hierarchical", "--write", "--document", document]
    assert tool.main([str(word) for word in run]) == 0
    assert {path.name for path in (tmp_path / "out" / "regions").iterdir()} == {"1280", "96_1280"}
    text = document.read_text(encoding="utf-8")
    assert "| `dot` | 7×7×1280 |" in text
    assert "| `hierarchical` | 14×14×96 + 7×7×1280 |" in text
    assert "pointing" not in text
    numbers = json.loads((tmp_path / "attention_flickr8k.json").read_text(encoding="utf-8"))
    assert set(numbers["mechanisms"]) == {"dot", "hierarchical"}
    assert not document.with_suffix(".png").exists()
    model = checkpoint.load(tmp_path / "out" / "dot-0.ckpt")
    expected = torch.load(weights, weights_only=True)
    assert torch.equal(
        model.encoder.state_dict()["trunk.features.0.0.weight"], expected["features.0.0.weight"]
    )


def test_a_missing_file_of_flickr8k_is_named(tmp_path: Path, capsys: Any):
    words = [
        "--flickr8k",
        str(tmp_path),
        "--weights",
        str(tmp_path / "none.pth"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert tool.main(words) == tool.WRONG_USAGE
    assert "Flickr8k.token.txt does not exist: --flickr8k takes the folder" in capsys.readouterr().err


def test_of_several_encoders_the_shared_one_is_frozen():
    shared, encoder = SmallCNN(), Two()
    assert not data_sets.share(encoder, shared)
    encoder.train()
    assert not encoder.first.training
    assert not any(parameter.requires_grad for parameter in encoder.first.parameters())
    assert all(parameter.requires_grad for parameter in encoder.second.parameters())
    assert torch.equal(encoder.first.layers[0].weight, shared.layers[0].weight)


def test_the_difference_has_an_interval_over_the_scenes_of_all_seeds():
    areas = {"images": [0, 0, 1, 2], "attention": [0.2, 0.3, 0.2, 0.4], "random": [0.6, 0.7, 0.5, 0.9]}
    found = benches.faithfulness([{"faithfulness": areas}, {"faithfulness": areas}])
    assert found is not None
    assert found["random_less_attention"] == pytest.approx(0.4)
    assert 0.29 < found["low"] < 0.4 < found["high"] < 0.51
    assert benches.faithfulness([{"faithfulness": None}]) is None


def test_captions_without_words_are_not_measured():
    class Silent:
        caption = type("Caption", (), {"words": []})

    scenes = type("Scenes", (), {"images": [type("Image", (), {"path": "scene.png"})]})
    assert benches.deletion(None, scenes, [Silent()]) is None  # type: ignore[arg-type]


def test_a_cell_has_mean_and_deviation_over_seeds():
    assert report._cell(report._spread([0.5, 0.7]), 2) == "0.60 ± 0.14"
    assert report._cell(report._spread([0.5]), 2) == "0.50"
    assert report._cell(report._spread([None]), 2) == "–"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_workers_end_with_the_tool_that_is_killed(configs: Path, tmp_path: Path):
    names = [
        "--names",
        "additive",
        "dot",
        "--images",
        "4000",
        "--epochs",
        "50",
        "--seeds",
        "1",
        "--processes",
        "2",
    ]
    command = [sys.executable, "-m", "tools.compare_attention", *names]
    command += ["--configs", str(configs), "--out", str(tmp_path / "out")]
    tool_process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=data_sets.CONFIGS.parent)
    try:
        workers = wait_for(lambda: children(tool_process.pid), 2)
    finally:
        tool_process.kill()
        tool_process.wait()
    assert wait_for(lambda: [pid for pid in workers if not Path(f"/proc/{pid}").exists()], 2)


def children(pid: int) -> list[int]:
    """The spawned workers of a process."""
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(each) for each in tasks.read_text(encoding="utf-8").split()] if tasks.exists() else []
    return [each for each in found if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def wait_for(found: Callable[[], list[int]], number: int) -> list[int]:
    """What is found once it is so many."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if len(there := found()) >= number:
            return there
        time.sleep(0.2)
    raise AssertionError(f"{len(found())} instead of {number}")


# -- differences -----------------------------------------------------------------------------------------------


def test_a_gap_is_welchs_interval():
    # By hand: means 2 and 5, variances 1 and 4, error sqrt(1/3 + 4/3), 2 degrees of freedom.
    found = differences.gap([1.0, 2.0, 3.0], [3.0, 5.0, 7.0])
    assert found is not None
    assert found.difference == pytest.approx(-3.0)
    assert found.high - found.difference == pytest.approx(4.303 * (5 / 3) ** 0.5)
    assert not found.clear
    near = differences.gap([1.0, 1.01, 0.99], [3.0, 3.01, 2.99])
    assert near is not None
    assert near.clear
    assert differences.gap([1.0], [3.0, 5.0]) is None


def test_differences_from_additive_attention_have_intervals():
    def found(*pointing: float, other: float = 0.2) -> dict[str, Any]:
        numbers = [{"NLL": 0.1, "pointing_accuracy": each, "pointing_other_word": other} for each in pointing]
        return {"runs": [{"numbers": each} for each in numbers]}

    text = differences.differences({"additive": found(0.9, 0.91), "far": found(0.1, 0.12), "one": found(0.5)})
    rows = {line.split(" | ")[0].strip("| `"): line for line in text.splitlines() if line.startswith("| `")}
    assert rows["additive"].count("(reference)") == 4
    assert "**−0.795 [" in rows["far"]
    assert "+0.000 [+0.000, +0.000]" in rows["far"]
    assert rows["one"].endswith("| – | – | – | – | – |")
    assert "1 to 2 each" in text
    assert "has not been run" in differences.differences({"far": found(0.1)})


def test_lessons_follow_from_intervals():
    def found(
        nll: float,
        pointing: float,
        gain: tuple[float, float, float] | None,
        other: float = 0.2,
        apart: float = 0.001,
    ) -> dict[str, Any]:
        runs = [
            {
                "numbers": {
                    "NLL": nll + step,
                    "pointing_accuracy": pointing + step / 0.001 * apart,
                    "pointing_other_word": other,
                }
            }
            for step in (-0.001, 0.0, 0.001)
        ]
        areas = (
            None if gain is None else dict(zip(("random_less_attention", "low", "high"), gain, strict=True))
        )
        return {"runs": runs, "faithfulness": areas}

    summaries = {
        "additive": found(0.15, 0.9, (0.25, 0.24, 0.26)),
        "sharper": found(0.10, 0.92, (0.30, 0.29, 0.31)),
        "equal": found(0.1501, 0.9, (0.245, 0.235, 0.255)),
        "seeming": found(0.2, 0.95, (0.10, 0.09, 0.11)),
        "blind": found(0.5, 0.2, (0.0, -0.01, 0.01)),
        "mapless": found(0.9, 0.2, None),
        "torn": found(0.2, 0.6, (0.10, 0.09, 0.11), apart=0.3),
    }
    describing, looking, by_seed, depending, seeming = lessons.lessons(summaries).split("\n\n")
    assert "4 of 6 mechanisms are worse, most of all `mapless` +0.750 [+0.7" in describing
    assert "1 are better: `sharper` −0.050 [" in describing
    assert "1 cannot be told apart" in describing
    assert "4 of 7, most of all `seeming` +0.750" in looking
    assert looking.endswith("the seeds disagree: `blind`, `mapless`, `torn`.")
    assert "for 1 of 7: `torn` 0.30 / 0.60 / 0.90. A single" in by_seed
    assert "5 of 6, most of all for `sharper` +0.300 [+0.290, +0.310]" in depending
    assert depending.endswith("It does not for `blind` +0.000 [−0.010, +0.010].")
    assert seeming.endswith("1, most of all `seeming` +0.100 [+0.090, +0.110].")

    for each in summaries.values():
        del each["runs"][1:]
    only = lessons.lessons(summaries)
    assert only.startswith(depending)
    assert "waits for 3 seeds" in only
    assert "NLL" not in only
