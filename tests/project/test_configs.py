"""The configurations in configs/: they parse, agree with each other, and have headers with commands to run them."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.configurations import parse
from PIL import Image

REPOSITORY = Path(__file__).parents[2]
FILES = sorted((REPOSITORY / "configs").glob("*.yaml"))
OVERLAYS = sorted((REPOSITORY / "configs" / "attention").rglob("*.yaml"))
"""Overlays, which change parts of another configuration; their headers name it."""
TRAINING = sorted((REPOSITORY / "configs" / "training").glob("*.yaml"))
"""Overlays of other kinds of training."""
PAIRS = ["shapes", "flickr8k", "coco"]


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves by dotted name, with `init_args` left out as on the command line."""
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        name = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        leaves |= flat(value, name) if isinstance(value, dict) else {name: value}
    return leaves


def header(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(takewhile(lambda line: line.startswith("#"), lines))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_parses_to_its_values_and_makes_a_model(path: Path):
    config, written = parse(path), load(path)
    assert config["trainer"]["max_epochs"] == written["trainer"]["max_epochs"]
    assert config["model"]["decoder"]["class_path"] == written["model"]["decoder"]["class_path"]
    assert config["data"]["reader"]["class_path"] == written["data"]["reader"]["class_path"]
    assert config["checkpoint"]["monitor"] == "val/CIDEr"
    if "vgg19" not in path.read_text(encoding="utf-8"):  # which takes seconds and half a gigabyte
        _describe_with(written["model"], written["data"]["transform"])


@pytest.mark.parametrize("path", OVERLAYS + TRAINING, ids=lambda path: path.stem)
def test_an_overlay_changes_its_entries_and_makes_a_model(path: Path):
    before, after = parse(base(path)), parse(base(path), path)
    written, one, other = flat(load(path)), flat(before), flat(after)
    different = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    named = ("config", *(name.removesuffix(".class_path") for name in written))
    parents = {name.rpartition(".")[0] for name in written}
    named += tuple(parent for parent in parents if one.get(parent, "") is None)  # a part where there was none
    assert {
        name for name in different if not f"{name}.".startswith(tuple(f"{part}." for part in named))
    } == set()
    assert {name for name in written if name.endswith("class_path") and other[name] != written[name]} == set()
    if path.parent.name != "attention":  # tests/attention/test_attention_configs.py trains these
        _describe_with(after["model"], load(base(path))["data"]["transform"])


def base(overlay: Path) -> Path:
    """The base configuration of an overlay."""
    match = re.search(r"caption fit -c (configs/\w+\.yaml) -c configs/(attention|training)/", header(overlay))
    assert match
    return REPOSITORY / match[1]


def _describe_with(model: dict[str, Any], transform: dict[str, Any]) -> None:
    """Caption an image with the model that a configuration describes, untrained."""
    from caption.captioner import Captioner
    from caption.data.resize import ImageTransform
    from caption.decoders.base import Decoder
    from caption.encoders import Encoder, Refiner
    from caption.objectives import Objective
    from caption.parts import make
    from caption.search import Search
    from caption.text.vocabulary import Vocabulary

    captioner = Captioner(
        make(model["encoder"], Encoder),
        make(model["decoder"], Decoder),
        Vocabulary(["a"]),
        ImageTransform(**transform),
        make(model["search"], Search),
        make(model["refiner"], Refiner) if model.get("refiner") else None,
    )
    make(model["objective"], Objective)
    captioner.eval().describe([Image.new("RGB", (80, 60), "grey")])


# -- headers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_header_names_the_paper_and_the_commands(path: Path):
    text = header(path)
    assert re.search(r"Follows: .*Xu et al\. 2015", text)
    assert f"caption fit -c configs/{path.name}" in text
    assert (
        f"caption test -c configs/{path.name} --ckpt_path {load(path)['trainer']['default_root_dir']}/best.ckpt"
        in text
    )
    for other in re.findall(r"configs/(\w+\.yaml)", text):
        assert (REPOSITORY / "configs" / other).exists()


@pytest.mark.parametrize("path", OVERLAYS + TRAINING, ids=lambda path: path.stem)
def test_the_header_of_an_overlay_names_the_source_and_the_command(path: Path):
    text = header(path)
    assert re.search(r"^# Source: ([^#]|\n# )*\b(19|20)\d\d\b", text, re.MULTILINE)
    place = path.relative_to(REPOSITORY)
    assert (
        f"caption fit -c configs/{base(path).name} -c {place} \\\n"
        f"#     --trainer.default_root_dir runs/{place.relative_to('configs').with_suffix('')}"
    ) in text


def test_each_run_has_a_folder_of_its_own_and_a_seed():
    configs = {path.stem: load(path) for path in FILES}
    assert [config["trainer"]["default_root_dir"] for config in configs.values()] == [
        f"runs/{name}" for name in configs
    ]
    assert {config["seed_everything"] for config in configs.values()} == {0}


def test_features_are_made_by_a_command_of_the_header_and_schedules_end_with_the_training():
    for path in FILES:
        config = flat(load(path))
        if "data.features" in config:
            assert f"--out {config['data.features']}" in header(path)
        if "model.scheduler.T_max" in config:
            assert config["model.scheduler.T_max"] == config["trainer.max_epochs"]


# -- soft and hard ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", PAIRS)
def test_hard_starts_from_soft_and_differs_only_in_attention_and_how_it_is_trained(data: str):
    soft, hard = (load(REPOSITORY / "configs" / f"{data}_{attention}.yaml") for attention in ("soft", "hard"))
    assert hard["model"]["warm_start"] == f"{soft['trainer']['default_root_dir']}/best.ckpt"
    assert soft["model"]["decoder"]["init_args"]["attention"]["init_args"]["alignment"][
        "class_path"
    ].endswith("Softmax")
    one, other = flat(soft), flat(hard)
    differing = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    may_differ = (
        *("trainer.max_epochs", "trainer.default_root_dir", "model.decoder.attention.alignment"),
        *("model.objective", "model.optimizer", "model.scheduler"),
        *("model.encoder_learning_rate", "model.warm_start"),
    )
    assert {name for name in differing if not name.startswith(may_differ)} == set()
    alignment = other["model.decoder.attention.alignment.class_path"]
    assert alignment == "caption.attention.Multinoulli"
    assert other["model.objective.class_path"] == "caption.objectives.Reinforce"


def test_the_data_of_shapes_is_that_of_the_demo():
    """The reader generates the data with its defaults."""
    for attention in ("soft", "hard"):
        assert load(REPOSITORY / "configs" / f"shapes_{attention}.yaml")["data"]["reader"] == {
            "class_path": "caption.data.shapes.Shapes"
        }


@pytest.mark.parametrize("data", PAIRS)
@pytest.mark.parametrize("estimator", ["authors", "averaged", "leave_one_out", "paper"])
def test_an_estimator_leaves_nothing_of_the_one_that_it_is_laid_over(data: str, estimator: str):
    configs = REPOSITORY / "configs"
    overlay = configs / "estimators" / f"{estimator}.yaml"
    model = parse(configs / f"{data}_hard.yaml", overlay)["model"]
    other = parse(configs / f"{data}_soft.yaml", overlay)["model"]
    assert model["objective"] == other["objective"]
    alignment, expected = (
        each["decoder"]["init_args"]["attention"]["init_args"]["alignment"] for each in (model, other)
    )
    assert alignment == expected


@pytest.mark.parametrize(
    ("data", "estimator"), [("shapes", "leave_one_out"), ("flickr8k", "authors"), ("coco", "authors")]
)
def test_the_estimator_of_hard_attention_is_the_one_that_its_header_names(data: str, estimator: str):
    path = REPOSITORY / "configs" / f"{data}_hard.yaml"
    assert f"estimators/{estimator}.yaml" in header(path)
    chosen, named = (
        parse(path, *over)["model"]
        for over in ([], [REPOSITORY / "configs/estimators" / f"{estimator}.yaml"])
    )
    baseline = chosen["objective"]["init_args"].pop("baseline")
    default = named["objective"]["init_args"].pop("baseline")
    # None is the moving average, with its default.
    assert baseline == default or (baseline is None and default["class_path"].endswith("MovingAverage"))
    assert chosen["objective"] == named["objective"]
    assert (
        chosen["decoder"]["init_args"]["attention"]["init_args"]["alignment"]
        == named["decoder"]["init_args"]["attention"]["init_args"]["alignment"]
    )
