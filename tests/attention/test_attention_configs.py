"""The configurations in configs/attention/ name every mechanism, and the tables of the laws those of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from helpers.configurations import CONFIGS, parse

from caption import attention, decoders
from caption.errors import UserError

BASE = CONFIGS / "shapes_soft.yaml"
FILES = {path.stem: path for path in sorted((CONFIGS / "attention").glob("*.yaml"))}
WRITTEN = {name: yaml.safe_load(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def class_paths(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from [tree["class_path"]] if "class_path" in tree else []
        for value in tree.values():
            yield from class_paths(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from class_paths(value)


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
