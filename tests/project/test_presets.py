"""The presets of published models: they set every option of a configuration, and match the table in docs/presets.md."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from helpers.configurations import parse
from helpers.pictures import noise
from helpers.tiny_views import one_row

REPOSITORY = Path(__file__).parents[2]
PRESETS = sorted((REPOSITORY / "configs" / "presets").glob("*.yaml"))
ENCODERS = {"coco_soft": "vgg19", "flickr8k_vgg": "vgg19", "flickr8k_soft": "efficientnet_lite2"}
"""Of configurations under the presets."""
SOFT = {"paper": "paper_soft", "arctic": "arctic_soft", "sgrvinod": "sgrvinod"}
HARD = {"paper": "paper_hard", "arctic": "arctic_hard"}
FLICKR = {"COCO": "arctic_hard", "Flickr8k": "arctic_flickr8k", "Flickr30k": "arctic_flickr30k"}
ABSENT = object()


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "configs" / "presets" / f"{name}.yaml").read_text(encoding="utf-8"))


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves by dotted name without `init_args`; the name of a part maps to its class, and a list of parts to
    theirs, by which the entries of each are named."""
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        name = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        if key == "class_path":
            leaves[prefix] = value.rpartition(".")[2]
        elif isinstance(value, dict):
            leaves |= flat(value, name)
        elif key == "terms":
            parts = {part["class_path"].rpartition(".")[2]: part.get("init_args", {}) for part in value}
            leaves |= {name: list(parts), **flat(parts, name)}
        else:
            leaves[name] = list(value) if isinstance(value, tuple) else value
    return leaves


# -- combined with a configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ENCODERS)
@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_over_a_configuration_all_switches_are_the_presets(path: Path, base: str):
    """The preset sets every option, so neither the underlying configuration nor a default remains."""
    written = load(path.stem)
    merged = parse(REPOSITORY / "configs" / f"{base}.yaml", path)
    for part in ("decoder", "objective"):
        assert flat(merged["model"][part]) == flat(written["model"][part])
    assert flat(merged).items() >= flat(written).items()
    assert merged["model"]["encoder"]["init_args"]["name"] == ENCODERS[base]


def small(model: dict[str, Any]) -> dict[str, Any]:
    """The same options with small sizes."""
    model = copy.deepcopy(model)
    arguments = model["decoder"]["init_args"]
    arguments["embedding_size"], arguments["hidden_size"] = 6, 8
    arguments["attention"]["init_args"]["score"]["init_args"]["size"] = 5
    return model


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_its_decoder_learns_by_its_objective(path: Path):
    from caption.decoders import Decoder
    from caption.objectives import CaptionBatch, Objective
    from caption.parts import make

    torch.manual_seed(0)
    model = small(load(path.stem)["model"])
    decoder, objective = make(model["decoder"], Decoder), make(model["objective"], Objective)
    decoder.build((7,), vocabulary_size=9, padding=0, start=1)
    objective.build(decoder.query_size, (7,), 9)
    words = torch.tensor([[[1, 4, 5]], [[1, 6, 0]]])
    captions = CaptionBatch(words, torch.tensor([[[4, 5, 2]], [[6, 2, 0]]]), torch.tensor([[3], [2]]))
    loss = objective(decoder, decoder.project(one_row(torch.randn(2, 4, 7))), captions)
    loss.value.backward()
    assert loss.value.isfinite()
    assert [name for name, p in decoder.named_parameters() if p.grad is None] == []


@pytest.fixture(scope="module")
def vgg19():
    """The paper's encoder, with random weights."""
    from caption.encoders import TorchvisionEncoder

    torch.manual_seed(0)
    return TorchvisionEncoder("vgg19", "features.35").eval()


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper_soft", "paper_hard", "arctic_flickr8k"])
def test_vgg19s_regions_go_through_it(preset: str, vgg19):
    """From a photo through the transform of the configurations to 14x14 regions of 512 numbers, a loss, a caption."""
    from caption.captioner import Captioner
    from caption.data.resize import ImageTransform
    from caption.decoders import Decoder
    from caption.objectives import CaptionBatch, Objective
    from caption.parts import make
    from caption.search import BeamSearch
    from caption.text.vocabulary import Vocabulary

    config = parse(
        REPOSITORY / "configs" / "flickr8k_vgg.yaml", REPOSITORY / f"configs/presets/{preset}.yaml"
    )
    transform = ImageTransform(**config["data"]["transform"])
    assert config["model"]["encoder"]["init_args"]["layer"] == "features.35"
    model = small(load(preset)["model"])
    model["decoder"]["init_args"]["attention"]["init_args"]["score"]["init_args"]["size"] = 512
    captioner = Captioner(
        vgg19,
        make(model["decoder"], Decoder),
        Vocabulary(["a", "dog", "runs"]),
        transform,
        BeamSearch(2, 4),
    )
    objective = make(model["objective"], Objective)
    objective.build(captioner.decoder.query_size, (512,), len(captioner.vocabulary))
    photo = noise(375, 500)
    with torch.no_grad():
        (regions,) = captioner.encode([photo])
    assert regions.vectors.shape == (1, 196, 512)
    assert regions.grid == (14, 14)
    assert regions.vectors.min() == 0  # behind the ReLU
    words = torch.tensor([[[1, 4, 5], [1, 6, 0]]])
    captions = CaptionBatch(words, torch.tensor([[[4, 5, 2], [6, 2, 0]]]), torch.tensor([[3, 2]]))
    decoder = captioner.decoder.train()
    objective(decoder, decoder.project((regions,)), captions).value.backward()
    assert all(parameter.grad is not None for parameter in decoder.parameters())
    (caption,) = captioner.describe([photo])
    assert caption.weights.shape[1:] == (14, 14)
    side = 375 * 224 / 256
    assert caption.seen == pytest.approx(
        ((500 - side) / 2, (375 - side) / 2, (500 + side) / 2, (375 + side) / 2)
    )


# -- soft and hard -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", HARD)
def test_hard_differs_from_soft_in_alignment_and_objective_alone(source: str):
    soft, hard = flat(load(SOFT[source])), flat(load(HARD[source]))
    differing = {
        name for name in soft.keys() | hard.keys() if soft.get(name, ABSENT) != hard.get(name, ABSENT)
    }
    differing = {name for name in differing if not name.startswith("model.decoder.attention.alignment")}
    assert {name for name in differing if not name.startswith("model.objective")} == {
        "trainer.default_root_dir"
    }


# -- headers and the table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_the_header_tells_source_likeness_difference_and_command(path: Path):
    header = path.read_text(encoding="utf-8").partition("\ntrainer:")[0]
    for word in ("Source", "Same", "Differs"):
        assert re.search(rf"^# {word}: \S", header, re.MULTILINE)
    base = re.search(
        rf"caption fit -c (configs/\w+\.yaml) -c configs/presets/{path.name}$", header, re.MULTILINE
    )
    assert base
    assert (REPOSITORY / base[1]).exists()
    assert load(path.stem)["trainer"]["default_root_dir"] == f"runs/{path.stem}"


def table(heading: str) -> list[dict[str, str]]:
    text = (REPOSITORY / "docs" / "presets.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    names, _, *cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return [dict(zip(names, row, strict=True)) for row in cells]


def value(cell: str) -> Any:
    return ABSENT if cell == "—" else yaml.safe_load(cell.strip("*`"))


@pytest.mark.parametrize(("heading", "presets"), [("Soft attention", SOFT), ("Hard attention", HARD)])
def test_the_table_is_that_of_the_files(heading: str, presets: dict[str, str]):
    rows = table(heading)
    assert len(rows) > 10
    for source, preset in presets.items():
        written = flat(load(preset))
        for row in rows:
            name = row["Switch"].strip("`")
            assert value(row[source]) == written.get(name, ABSENT), (preset, name)


def test_no_switch_is_missing_in_the_tables():
    soft, hard = (
        [row["Switch"].strip("`") for row in table(f"{kind} attention")] for kind in ("Soft", "Hard")
    )
    assert len(set(soft)) == len(soft)
    rows = (row for kind in ("Soft", "Hard") for row in table(f"{kind} attention"))
    assert [row["Switch"] for row in rows if not row["Source"]] == []
    assert set(soft) | {"trainer.default_root_dir"} == set().union(
        *(flat(load(preset)) for preset in SOFT.values())
    )
    part = ("model.decoder.attention.alignment", "model.objective")
    of_hard = {name for preset in HARD.values() for name in flat(load(preset)) if name.startswith(part)}
    assert sorted(hard) == sorted(of_hard)


def test_the_authors_flickr_presets_differ_from_that_of_coco_as_the_table_says():
    """The table has all switches in which they differ, and no others."""
    written = {name: flat(load(preset)) for name, preset in FLICKR.items()}
    switches = set().union(*written.values()) - {"trainer.default_root_dir"}
    differing = {
        switch: values
        for switch in switches
        if len(set(map(str, values := [one.get(switch, ABSENT) for one in written.values()]))) > 1
    }
    rows = table("Flickr8k and Flickr30k")
    assert {row["Switch"].strip("`"): [value(row[name]) for name in FLICKR] for row in rows} == differing


def test_the_authors_rmsprop_can_train_the_papers_model():
    """As docs/presets.md says, for Flickr8k."""
    text = (REPOSITORY / "docs" / "presets.md").read_text(encoding="utf-8")
    options = re.search(r"presets/paper_soft\.yaml \\\n +(--model\.optimizer .*)", text)
    assert options
    files = REPOSITORY / "configs" / "flickr8k_vgg.yaml", REPOSITORY / "configs/presets/paper_soft.yaml"
    optimizer = parse(*files, options=tuple(options[1].split()))["model"]["optimizer"]
    theirs = load("arctic_flickr8k")["model"]["optimizer"]
    assert optimizer["class_path"] == theirs["class_path"]
    assert optimizer["init_args"] == theirs["init_args"]


def test_the_presets_of_the_table_are_all_there_are():
    assert {path.stem for path in PRESETS} == {*SOFT.values(), *HARD.values(), *FLICKR.values()}
