"""The configurations in configs/attention/: each changes what it names, replaces it whole, and trains."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import yaml
from helpers.configurations import CONFIGS, parse
from helpers.mechanisms import ATTENTIONS, DECODERS

from caption import attention, decoders
from caption.captioner import Captioner
from caption.data.resize import ImageTransform
from caption.decoders import Decoder
from caption.encoders import Encoder, Refiner
from caption.errors import UserError
from caption.objectives import CaptionBatch, Objective
from caption.parts import make
from caption.text.vocabulary import Vocabulary

BASE = CONFIGS / "shapes_soft.yaml"
FILES = {path.stem: path for path in sorted((CONFIGS / "attention").glob("*.yaml"))}
WRITTEN = {name: yaml.safe_load(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
FAMILIES = {
    name: re.search("^# Family: (.*)$", path.read_text(), re.MULTILINE)[1] for name, path in FILES.items()
}
FIRST_OF_FAMILY = {family: name for name, family in reversed(FAMILIES.items())}.values()
"""The others run at night."""
every_file = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FIRST_OF_FAMILY else pytest.mark.nightly) for name in FILES],
)


def class_paths(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from [tree["class_path"]] if "class_path" in tree else []
        for value in tree.values():
            yield from class_paths(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from class_paths(value)


def check_replaced(written: Any, before: Any, after: Any, where: str) -> None:
    """All that an overlay writes is there; where it names another class, nothing of the old arguments is left."""
    if isinstance(written, list) and isinstance(after, list):
        for number, (value, entry) in enumerate(zip(written, after, strict=True)):
            check_replaced(value, None, entry, f"{where}[{number}]")
        return
    if not isinstance(written, dict):
        assert after == written, where
        return
    for key, value in written.items():
        old = before.get(key) if isinstance(before, dict) else None
        check_replaced(value, old, after[key], f"{where}.{key}")
    old_class = before.get("class_path") if isinstance(before, dict) else None
    if written.get("class_path", old_class) != old_class:
        module, _, name = written["class_path"].rpartition(".")
        parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
        for argument, value in after.get("init_args", {}).items():
            if argument not in written.get("init_args", {}):
                default = parameters[argument].default
                default = list(default) if isinstance(default, tuple) else default
                assert value == default, f"{where}: {argument} is left from {old_class}"


@pytest.mark.slow
@every_file
def test_it_replaces_what_it_names_and_does_a_step_of_training(name: str) -> None:
    before, model, written = parse(BASE)["model"], parse(BASE, FILES[name])["model"], WRITTEN[name]
    assert {"model"} <= set(written) <= {"model", "trainer", "attention_temperature"}
    for part, value in written["model"].items():
        check_replaced(value, before.get(part), model[part], part)
    assert {part for part in model if model[part] != before[part]} <= set(written["model"])
    torch.manual_seed(0)
    captioner = Captioner(
        make(model["encoder"], Encoder),
        make(model["decoder"], Decoder),
        Vocabulary(["a", "red", "square"]),
        ImageTransform(**parse(BASE)["data"]["transform"]),
        refiner=make(model["refiner"], Refiner) if model.get("refiner") else None,
    )
    objective = make(model["objective"], Objective)
    objective.build(captioner.decoder.query_size, captioner.encoder.region_sizes, len(captioner.vocabulary))
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    words = torch.tensor([[[1, 4, 5], [1, 6, 4]]]).expand(2, -1, -1)
    captions = CaptionBatch(words, words.roll(-1, -1), torch.tensor([[3, 2], [1, 3]]))
    optimizer = torch.optim.Adam(captioner.parameters(), 1e-3)
    weights = {part: tensor.detach().clone() for part, tensor in captioner.decoder.named_parameters()}
    loss = objective(captioner.decoder, captioner.project(captioner.encoder(pixels)), captions)
    loss.value.backward()
    optimizer.step()
    assert torch.isfinite(loss.value)
    moved = {n for n, tensor in captioner.decoder.named_parameters() if not torch.equal(tensor, weights[n])}
    assert any(part.startswith("embed.") for part in moved)
    assert any(not part.startswith("embed.") for part in moved)
    assert all(torch.isfinite(tensor).all() for tensor in captioner.decoder.parameters())


@pytest.mark.nightly
def test_the_table_of_the_laws_has_the_mechanisms_of_all_configurations() -> None:
    """Refiners have laws of their own; the other configurations change the decoder."""
    refiners = {name for name in FILES if "refiner" in WRITTEN[name]["model"]}
    assert set(FILES) == {*ATTENTIONS, *DECODERS} | refiners
    for name in ATTENTIONS.keys() | DECODERS.keys():
        configured = parse(BASE, FILES[name])["model"]["decoder"]
        if name in ATTENTIONS:
            paths = list(class_paths(configured["init_args"]["attention"]))
            assert paths == list(class_paths(ATTENTIONS[name]().spec)), name
        else:
            assert configured["class_path"] == DECODERS[name]().spec["class_path"], name


def test_every_mechanism_and_decoder_has_a_configuration() -> None:
    """All public classes that a YAML file can name, but the bases, which have nothing of their own to build."""
    configured = {name for overlay in WRITTEN.values() for name in class_paths(overlay)}
    for package, bases in (
        (attention, (attention.Attention, attention.Score, attention.Alignment)),
        (decoders, (decoders.Decoder, decoders.Gate, decoders.RecurrentCell)),
    ):
        for name in package.__all__:
            kind = getattr(package, name)
            concrete = isinstance(kind, type) and issubclass(kind, bases) and kind not in bases
            if concrete and name not in (
                "ScoredAttention",
                "LSTMCell",
                "ShowAttendAndTellDecoder",
                "RecurrentDecoder",
                "EnsembleDecoder",
            ):
                assert f"{package.__name__}.{name}" in configured, name


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
def test_an_unknown_component_or_option_is_named(option: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(BASE, options=(f"--model.{option}",))
    message = str(caught.value)
    assert said in message
    assert "decoder" in message
    assert "\n" not in message
    assert "path but" not in message
