"""The configurations in configs/: they parse, agree with each other, and have headers with commands to run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.configurations import parse

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
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        found |= flat(value, name) if isinstance(value, dict) else {name: value}
    return found


def having(name: str) -> list[Path]:
    return [path for path in FILES if name in flat(load(path))]


def header(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(
        line for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]
    )


def test_soft_and_hard_are_there_for_each_dataset():
    assert {path.stem for path in FILES} >= {
        f"{data}_{attention}" for data in PAIRS for attention in ("soft", "hard")
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_parses_to_its_values(path: Path):
    config = parse(path)
    written = load(path)
    assert config["trainer"]["max_epochs"] == written["trainer"]["max_epochs"]
    assert config["model"]["decoder"]["class_path"] == written["model"]["decoder"]["class_path"]
    assert config["data"]["reader"]["class_path"] == written["data"]["reader"]["class_path"]
    assert config["checkpoint"]["monitor"] == "val/CIDEr"


@pytest.mark.parametrize(
    "path", [path for path in FILES if "coco" not in path.stem], ids=lambda path: path.stem
)
def test_its_parts_make_a_model(path: Path):
    """The parts also accept the values. (VGG19 is left out: it takes seconds and half a gigabyte.)"""
    _describe_with(load(path)["model"], load(path)["data"]["transform"])


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
    found = re.search(r"caption fit -c (configs/\w+\.yaml) -c configs/(attention|training)/", header(overlay))
    assert found
    return REPOSITORY / found[1]


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
    captioner.eval().describe([_grey()])


def _grey() -> Any:
    from PIL import Image

    return Image.new("RGB", (80, 60), "grey")


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_run_has_a_folder_of_its_own_and_a_seed(path: Path):
    config = load(path)
    assert config["trainer"]["default_root_dir"] == f"runs/{path.stem}"
    assert config["seed_everything"] == 0
    assert sum(load(other)["trainer"]["default_root_dir"] == f"runs/{path.stem}" for other in FILES) == 1


@pytest.mark.parametrize("path", having("data.features"), ids=lambda path: path.stem)
def test_features_that_are_read_are_made_by_a_command_of_the_header(path: Path):
    assert f"--out {load(path)['data']['features']}" in header(path)


@pytest.mark.parametrize("path", having("model.scheduler.T_max"), ids=lambda path: path.stem)
def test_a_schedule_ends_with_the_training(path: Path):
    config = flat(load(path))
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
        "trainer.max_epochs",
        "trainer.default_root_dir",
        "model.decoder.attention.alignment",
        "model.objective",
        "model.optimizer",
        "model.scheduler",
        "model.encoder_learning_rate",
        "model.warm_start",
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
