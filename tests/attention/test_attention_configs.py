"""The configurations in configs/attention/: each changes what it names, replaces it whole, and trains."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from caption import attention, decoders
from caption.captioner import Captioner
from caption.data.resize import ImageTransform
from caption.decoders import Decoder
from caption.encoders import Encoder, Refiner
from caption.errors import UserError
from caption.objectives import CaptionBatch, Objective
from caption.parts import make
from caption.text.vocabulary import Vocabulary

CONFIGS = Path(__file__).parents[2] / "configs"
BASE = CONFIGS / "shapes_soft.yaml"
FILES = sorted((CONFIGS / "attention").glob("*.yaml"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
Parse = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def parse() -> Parse:
    """Parses configurations laid over each other, and options, with the parser of `caption fit`; reads no data."""
    from caption.cli.train import CaptionCLI, Parser
    from caption.data.module import CaptionData
    from caption.training.module import CaptionTraining

    class ParseOnly(CaptionCLI):
        def instantiate_classes(self) -> None:
            pass

        def _run_subcommand(self, subcommand: str) -> None:
            pass

    def parse(*files: Path, options: tuple[str, ...] = ()) -> dict[str, Any]:
        command = ParseOnly(
            CaptionTraining,
            CaptionData,
            args=["fit", *(f"--config={file}" for file in files), *options],
            parser_class=Parser,
            seed_everything_default=0,
            save_config_callback=None,
        )
        return command.config["fit"].as_dict()["model"]

    return parse


def written(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def class_paths(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from [tree["class_path"]] if "class_path" in tree else []
        for value in tree.values():
            yield from class_paths(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from class_paths(value)


def check_replaced(given: Any, before: Any, after: Any, where: str) -> None:
    """All that an overlay writes is there; where it names another class, nothing of the old arguments is left."""
    if not isinstance(given, dict):
        assert after == given, where
        return
    for key, value in given.items():
        old = before.get(key) if isinstance(before, dict) else None
        check_replaced(value, old, after[key], f"{where}.{key}")
    old_class = before.get("class_path") if isinstance(before, dict) else None
    if given.get("class_path", old_class) != old_class:
        module, _, name = given["class_path"].rpartition(".")
        taken = inspect.signature(getattr(importlib.import_module(module), name)).parameters
        for argument, value in after.get("init_args", {}).items():
            if argument not in given.get("init_args", {}):
                assert value == taken[argument].default, f"{where}: {argument} is left from {old_class}"


@pytest.mark.filterwarnings("ignore")
@each_file
def test_it_replaces_what_it_names_and_does_a_step_of_training(parse: Parse, path: Path) -> None:
    before, model = parse(BASE), parse(BASE, path)
    given = written(path)
    assert set(given) == {"model"}
    for part, value in given["model"].items():
        check_replaced(value, before.get(part), model[part], part)
    assert {name for name in model if model[name] != before[name]} <= set(given["model"])
    torch.manual_seed(0)
    captioner = Captioner(
        make(model["encoder"], Encoder),
        make(model["decoder"], Decoder),
        Vocabulary(["a", "red", "square"]),
        ImageTransform(**written(BASE)["data"]["transform"]),
        refiner=make(model["refiner"], Refiner) if model.get("refiner") else None,
    )
    objective = make(model["objective"], Objective)
    objective.build(captioner.decoder.query_size, captioner.encoder.region_sizes, len(captioner.vocabulary))
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    words = torch.tensor([[[1, 4, 5], [1, 6, 4]]]).expand(2, -1, -1)
    captions = CaptionBatch(words, words.roll(-1, -1), torch.tensor([[3, 2], [1, 3]]))
    optimizer = torch.optim.Adam(captioner.parameters(), 1e-3)
    weights = {name: tensor.detach().clone() for name, tensor in captioner.decoder.named_parameters()}
    loss = objective(captioner.decoder, captioner.project(captioner.encoder(pixels)), captions)
    loss.value.backward()
    optimizer.step()
    assert torch.isfinite(loss.value)
    moved = {n for n, tensor in captioner.decoder.named_parameters() if not torch.equal(tensor, weights[n])}
    assert any(name.startswith("embed.") for name in moved)
    assert any(not name.startswith("embed.") for name in moved)
    assert all(torch.isfinite(tensor).all() for tensor in captioner.decoder.parameters())


@each_file
def test_the_header_says_what_it_is_and_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(r"^# Source: ([^#]|\n# )*\b(19|20)\d\d\b", text, re.MULTILINE)
    command = f"caption fit -c configs/shapes_soft.yaml -c configs/attention/{path.name}"
    assert f"{command} \\\n#     --trainer.default_root_dir runs/attention/{path.stem}\n" in text


def test_every_mechanism_and_decoder_has_a_configuration() -> None:
    """All public classes that a YAML file can name, but the bases, which have nothing of their own to build."""
    named = {name for path in FILES for name in class_paths(written(path))}
    for package, bases in (
        (attention, (attention.Attention, attention.Score, attention.Alignment)),
        (decoders, (decoders.Decoder, decoders.Gate)),
    ):
        for name in package.__all__:
            kind = getattr(package, name)
            concrete = isinstance(kind, type) and issubclass(kind, bases) and kind not in bases
            if concrete and name not in (
                "ScoredAttention",
                "LSTMDecoder",
                "RecurrentDecoder",
                "EnsembleDecoder",
            ):
                assert f"{package.__name__}.{name}" in named, name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("decoder.init_args.attention=caption.attention.Nothing", "Nothing"),
        ("decoder.init_args.attention=caption.decoders.Gate", "caption.decoders.Gate"),
        ("decoder.init_args.attention.score=caption.attention.MultiHeadAttention", "MultiHeadAttention"),
        ("decoder.init_args.attention.alignment.at_test=argmax", "at_test"),
        ("decoder.init_args.attention.score.size=wide", "wide"),
        ("decoder.init_args.attention.score.activation=gelu", "'tanh', 'relu'"),
        ("decoder.init_args.gate.size=matrix", "'scalar', 'vector'"),
    ],
)
def test_an_unknown_component_or_option_is_named(parse: Parse, option: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(BASE, options=(f"--model.{option}",))
    message = str(caught.value)
    assert said in message
    assert "decoder" in message
    assert "\n" not in message
    assert "path but" not in message
