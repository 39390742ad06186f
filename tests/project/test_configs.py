"""The configurations in configs/: they parse, make models, agree with each other and docs/results/presets_*.tsv."""

from __future__ import annotations

import importlib
import inspect
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from helpers.configurations import CONFIGS, parse
from helpers.pictures import noise
from helpers.tiny_views import WithoutEncoder, one_row
from PIL import Image

from caption import attention, decoders
from caption.captioner import Captioner
from caption.core.runtime.trust import make
from caption.data.photos import ImageTransform
from caption.decoders import Decoder
from caption.encoders import Encoder, Refiner, TorchvisionEncoder
from caption.objectives import CaptionBatch, Objective
from caption.search import BeamSearch, Search
from caption.text.vocabulary import Vocabulary

REPOSITORY = CONFIGS.parent
FILES = sorted(CONFIGS.glob("*.yaml"))
TRAINING = sorted((CONFIGS / "training").glob("*.yaml"))
MECHANISMS = sorted((CONFIGS / "attention").rglob("*.yaml"))
PRESETS = sorted((CONFIGS / "presets").glob("*.yaml"))
COLUMNS = {
    "soft": ("paper_soft", "arctic_soft", "sgrvinod"),
    "hard": ("paper_hard", "arctic_hard"),
    "flickr": ("arctic_hard", "arctic_flickr8k", "arctic_flickr30k"),
}
"""The presets in the columns of docs/results/presets_soft.tsv, presets_hard.tsv and presets_flickr.tsv."""
ABSENT = object()


def each(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def load(path: Path | str) -> dict[str, Any]:
    path = path if isinstance(path, Path) else CONFIGS / "presets" / f"{path}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves by dotted name without `init_args`; the name of a part maps to its class, a list of terms to theirs."""
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        name = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        if key == "class_path":
            leaves[prefix] = value.rpartition(".")[2]
        elif isinstance(value, dict):
            leaves |= flat(value, name)
        elif key == "terms" and value is not None:
            parts = {part["class_path"].rpartition(".")[2]: part.get("init_args", {}) for part in value}
            leaves |= {name: list(parts), **flat(parts, name)}
        else:
            leaves[name] = list(value) if isinstance(value, tuple) else value
    return leaves


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name, ABSENT) != other.get(name, ABSENT)}


def header(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(takewhile(lambda line: line.startswith("#"), lines))


def base(overlay: Path) -> Path:
    """The configuration over which an overlay is laid, by the command of its header."""
    match = re.search(r"caption fit -c (\w+) -c \w+/", header(overlay))
    assert match
    return CONFIGS / f"{match[1]}.yaml"


def check_describes(model: dict[str, Any], transform: dict[str, Any]) -> None:
    """Caption an image with the model that a configuration describes, small, and learn from other captions."""
    captioner = Captioner(
        make(model["encoder"], Encoder),
        make(model["decoder"], Decoder),
        Vocabulary(["a", "red"]),
        ImageTransform(**transform | {"size": 64}),
        make(model["search"], Search),
        make(model["refiner"], Refiner) if model.get("refiner") else None,
    )
    captioner.eval().describe([Image.new("RGB", (80, 60), "grey")])
    with torch.no_grad():
        views = captioner.encoder(torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8))
    objective = make(model["objective"], Objective)
    objective.build(captioner.decoder.query_size, captioner.encoder.region_sizes, len(captioner.vocabulary))
    objective.prepare([[[4, 2]], [[5, 2]]])
    words = torch.tensor([[[1, 4, 5], [1, 5, 4]]]).expand(2, -1, -1)
    captions = CaptionBatch(words, words.roll(-1, -1), torch.tensor([[3, 2], [1, 3]]))
    captioner.decoder.train()
    loss = objective(captioner, views, captions).value
    loss.backward()
    assert loss.isfinite()


def check_replaced(written: Any, before: Any, after: Any, where: str) -> None:
    """All that an overlay writes is there; where it names another class, nothing of the old arguments is left."""
    if isinstance(written, list) and isinstance(after, list):
        for number, (value, entry) in enumerate(zip(written, after, strict=True)):
            check_replaced(value, None, entry, f"{where}[{number}]")
        return
    if not isinstance(written, dict):
        assert after == written, where
        return
    before = before if isinstance(before, dict) else {}
    for key, value in written.items():
        check_replaced(value, before.get(key), after[key], f"{where}.{key}")
    if written.get("class_path", before.get("class_path")) != before.get("class_path"):
        module, _, name = written["class_path"].rpartition(".")
        parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
        for argument in after.get("init_args", {}).keys() - written.get("init_args", {}).keys():
            default, value = parameters[argument].default, after["init_args"][argument]
            default = list(default) if isinstance(default, tuple) else default
            assert value == default, f"{where}: {argument} is left from {before.get('class_path')}"


def family(path: Path) -> str:
    match = re.search("^# Family: (.*)$", header(path), re.MULTILINE)
    return match[1] if match else path.parent.name


FIRST = {family(path): path for path in MECHANISMS[::-1]}.values()
"""The first mechanism of each family; the others are tried at night."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            marks=[pytest.mark.nightly] * (path in MECHANISMS and path not in FIRST),
            id=f"{path.parent.name}-{path.stem}",
        )
        for path in TRAINING + MECHANISMS
    ],
)
def test_an_overlay_changes_its_entries_and_makes_a_model(path: Path):
    before, after, written = parse(base(path)), parse(base(path), path), load(path)
    check_replaced(written, before, after, path.stem)
    names, one, other = flat(written), flat(before), flat(after)
    parents = {name.rpartition(".")[0] for name in names}
    named = ("config", *names, *(parent for parent in parents if one.get(parent, "") is None))
    inside = tuple(f"{name}." for name in named)
    assert {name for name in differing(one, other) if not f"{name}.".startswith(inside)} == set()
    check_describes(after["model"], load(base(path))["data"]["transform"])


@pytest.mark.parametrize(
    ("package", "bases", "without"),
    [
        (
            attention,
            (attention.Attention, attention.Score, attention.Alignment),
            {"ScoredAttention", "NoContext"},
        ),
        (
            decoders,
            (decoders.Decoder, decoders.Gate, decoders.RecurrentCell),
            {"LSTMCell", "ShowAttendAndTellDecoder", "RecurrentDecoder", "EnsembleDecoder"},
        ),
    ],
)
def test_every_mechanism_and_decoder_has_a_configuration(
    package: Any, bases: tuple[type, ...], without: set[str]
):
    """And so the laws: all public classes but the bases, those over which the others are laid, and `NoContext`, a
    control for decoders whose first state sees the image."""
    text = "".join(path.read_text(encoding="utf-8") for path in MECHANISMS)
    for name in {*package.__all__} - without:
        kind = getattr(package, name)
        if isinstance(kind, type) and issubclass(kind, bases) and kind not in bases:
            assert re.search(rf"class_path: {package.__name__}\.{name}\b", text), name


@pytest.mark.slow
@each(FILES)
def test_it_parses_and_makes_a_model(path: Path):
    config, written = parse(path), load(path)
    assert config["trainer"]["max_epochs"] == written["trainer"]["max_epochs"]
    assert config["checkpoint"]["monitor"] == "val/CIDEr"
    if "model.scheduler.T_max" in flat(written):
        assert flat(written)["model.scheduler.T_max"] == written["trainer"]["max_epochs"]
    if "vgg19" not in path.read_text(encoding="utf-8"):  # which takes seconds and half a gigabyte
        check_describes(written["model"], written["data"]["transform"])


# -- headers -------------------------------------------------------------------------------------------------------


@each(FILES)
def test_the_header_names_the_paper_and_the_commands(path: Path):
    text, config = header(path), load(path)
    folder = f"runs/{path.stem}"
    assert (config["trainer"]["default_root_dir"], config["seed_everything"]) == (folder, 0)
    assert re.search(r"Follows: .*Xu et al\. 2015", text)
    assert f"caption fit -c {path.stem}" in text
    assert f"caption test -c {path.stem} --ckpt_path {folder}/best.ckpt" in text
    assert all((CONFIGS / f"{other}.yaml").exists() for other in re.findall(r"-c ([\w/]+)", text))
    if "features" in config["data"]:
        assert f"--out {config['data']['features']}" in text


@each(MECHANISMS + TRAINING)
def test_the_header_of_an_overlay_names_the_source_and_the_command(path: Path):
    text, place = header(path), path.relative_to(CONFIGS).with_suffix("")
    assert re.search(r"^# Source: ([^#]|\n# )*\b(19|20)\d\d\b", text, re.MULTILINE)
    command = f"caption fit -c {base(path).stem} -c {place} \\\n#     --trainer.default_root_dir runs/{place}"
    assert command in text


# -- soft and hard -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["shapes", "flickr8k", "coco"])
def test_hard_starts_from_soft_and_differs_only_in_attention_and_how_it_is_trained(data: str):
    soft, hard = (load(CONFIGS / f"{data}_{attention}.yaml") for attention in ("soft", "hard"))
    assert hard["model"]["warm_start"] == f"{soft['trainer']['default_root_dir']}/best.ckpt"
    one, other = flat(soft), flat(hard)
    alignment = "model.decoder.attention.alignment"
    assert (one[alignment], other[alignment], other["model.objective"]) == (
        "Softmax",
        "Multinoulli",
        "Reinforce",
    )
    may_differ = (
        *("trainer.max_epochs", "trainer.default_root_dir", alignment, "model.objective", "model.optimizer"),
        *("model.scheduler", "model.encoder_learning_rate", "model.warm_start"),
    )
    assert {name for name in differing(one, other) if not name.startswith(may_differ)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["authors", "averaged", "leave_one_out", "paper"])
def test_an_estimator_leaves_nothing_of_the_one_that_it_is_laid_over(estimator: str):
    """And hard attention is trained by the one that its header names."""
    overlay = CONFIGS / "estimators" / f"{estimator}.yaml"
    over_soft, over_hard = (
        flat(parse(CONFIGS / f"shapes_{name}.yaml", overlay)["model"]) for name in ("soft", "hard")
    )
    parts = ("objective", "decoder.attention.alignment")
    assert not [name for name in differing(over_soft, over_hard) if name.startswith(parts)]
    data = {"leave_one_out": "shapes", "authors": "flickr8k"}.get(estimator)
    if data:
        path = CONFIGS / f"{data}_hard.yaml"
        assert f"estimators/{estimator}.yaml" in header(path)
        chosen, named = (flat(parse(*files)["model"]) for files in ([path], [path, overlay]))
        # No baseline is the moving average, with its default.
        assert {name for name in differing(chosen, named) if "baseline" not in name} == set()


# -- presets -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each(PRESETS)
def test_over_a_configuration_all_switches_are_the_presets(path: Path):
    """It sets every option, so neither the configuration below nor a default remains, but for data and encoder."""
    written = load(path)
    merged = parse(base(path), path)
    for part in ("decoder", "objective"):
        assert flat(merged["model"][part]) == flat(written["model"][part])
    assert flat(merged).items() >= flat(written).items()
    assert merged["model"]["encoder"] == parse(base(path))["model"]["encoder"]
    assert written["trainer"]["default_root_dir"] == f"runs/{path.stem}"
    assert all(
        re.search(rf"^# {word}: \S", header(path), re.MULTILINE) for word in ("Source", "Same", "Differs")
    )


@each(PRESETS)
def test_a_presets_decoder_learns_by_its_objective(path: Path):
    torch.manual_seed(0)
    model = load(path)["model"]
    arguments = model["decoder"]["init_args"]
    arguments["embedding_size"], arguments["hidden_size"] = 6, 8
    arguments["attention"]["init_args"]["score"]["init_args"]["size"] = 5
    decoder, objective = make(model["decoder"], Decoder), make(model["objective"], Objective)
    decoder.build((7,), vocabulary_size=9, padding=0, start=1)
    objective.build(decoder.query_size, (7,), 9)
    words = torch.tensor([[[1, 4, 5]], [[1, 6, 0]]])
    captions = CaptionBatch(words, torch.tensor([[[4, 5, 2]], [[6, 2, 0]]]), torch.tensor([[3], [2]]))
    loss = objective(WithoutEncoder(decoder), one_row(torch.randn(2, 4, 7)), captions)
    loss.value.backward()
    assert loss.value.isfinite()
    assert [name for name, parameter in decoder.named_parameters() if parameter.grad is None] == []


@pytest.mark.nightly
def test_vgg19s_regions_go_through_the_papers_model():
    """From a photo through the transform of the configurations to 14x14 regions of 512 numbers and a caption."""
    config = parse(CONFIGS / "flickr8k_vgg.yaml", CONFIGS / "presets" / "paper_soft.yaml")
    assert config["model"]["encoder"]["init_args"]["layer"] == "features.35"
    torch.manual_seed(0)
    captioner = Captioner(
        TorchvisionEncoder("vgg19", "features.35"),
        make(config["model"]["decoder"], Decoder),
        Vocabulary(["a", "dog", "runs"]),
        ImageTransform(**config["data"]["transform"]),
        BeamSearch(2, 4),
    ).eval()
    photo = noise(375, 500)
    with torch.no_grad():
        (regions,) = captioner.encode([photo])
    assert (regions.vectors.shape, regions.grid) == ((1, 196, 512), (14, 14))
    assert regions.vectors.min() == 0  # behind the ReLU
    assert captioner.describe(photo).weights.shape[1:] == (14, 14)


# -- docs/results/presets_*.tsv ------------------------------------------------------------------------------------


def switches(table: str) -> dict[str, dict[str, Any]]:
    """The values of a table by their switch and preset, and the source."""
    path = REPOSITORY / "docs" / "results" / f"presets_{table}.tsv"
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    assert len({switch for switch, *_ in rows}) == len(rows)
    return {switch: dict(zip((*COLUMNS[table], "source"), cells, strict=True)) for switch, *cells in rows}


def value(cell: str) -> Any:
    return ABSENT if cell == "—" else yaml.safe_load(cell.strip("*"))


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("soft", ""),
        ("hard", ("model.decoder.attention.alignment", "model.objective")),
        ("flickr", None),
    ],
)
def test_the_table_is_that_of_the_files(table: str, part: str | tuple[str, ...] | None):
    """It has all switches, those of its part, or all in which its presets differ; and no others."""
    presets = {name: flat(load(name)) for name in COLUMNS[table]}
    expected = {}
    for switch in set().union(*presets.values()) - {"trainer.default_root_dir"}:
        row = {name: preset.get(switch, ABSENT) for name, preset in presets.items()}
        if len(set(map(str, row.values()))) > 1 if part is None else switch.startswith(part):
            expected[switch] = row
    rows = switches(table)
    sources = [row.pop("source") for row in rows.values()]
    assert part is None or all(sources)
    assert {
        switch: {name: value(cell) for name, cell in row.items()} for switch, row in rows.items()
    } == expected
    assert {path.stem for path in PRESETS} == {name for names in COLUMNS.values() for name in names}
