"""The parts of a training configuration that extraction needs: images, encoder, transform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import yaml

from caption import checkpoint
from caption.data.files import read_text
from caption.data.images import ImageTransform
from caption.data.readers.captions import CaptionedImage, CaptionReader
from caption.encoders.base import Encoder
from caption.errors import DataError, UserError
from caption.features.key import weights_digest
from caption.parts import Spec, make

Config = dict[str, Any]


def read(path: str, overrides: Mapping[str, str]) -> Config:
    """A configuration file with some values replaced.

    Args:
        path: a YAML file.
        overrides: YAML values by dotted name, such as "data.transform.size"; `init_args` may be left out.

    Raises:
        DataError: the file cannot be read or is no configuration; an override has no place in it.
    """
    try:
        config = yaml.safe_load(read_text(path))
        values = {name: yaml.safe_load(value) for name, value in overrides.items()}
    except yaml.YAMLError as error:
        culprit = f"'{path}', or a value that is to replace one in it,"
        raise DataError(f"{culprit} is no YAML: {' '.join(str(error).split())}. Correct it.") from None
    if not isinstance(config, dict):
        raise DataError(f"'{path}' is no configuration: it should have the sections model and data.")
    for name, value in values.items():
        _replace(config, name, value)
    return config


def _replace(config: Config, name: str, value: Any) -> None:
    *outer, last = name.split(".")
    section = config
    for key in outer:
        section = _arguments(section, key).setdefault(key, {})
        if not isinstance(section, dict):
            raise DataError(f"--{name} has no place in the configuration: its {key} has no parts.")
    _arguments(section, last)[last] = value


def _arguments(section: Config, key: str) -> Config:
    """Where `key` belongs: to a class, its arguments."""
    if "class_path" in section and key not in ("class_path", "init_args"):
        return section.setdefault("init_args", {})
    return section


def images(config: Config) -> list[CaptionedImage]:
    """The images of all splits of `data.reader`.

    Raises:
        UserError: there is no such entry, or the reader finds fault with its files.
    """
    reader = make(_spec(config, "data", "reader"), CaptionReader)  # type: ignore[type-abstract]
    return [image for split in reader.read().values() for image in split]


def of(config: Config) -> tuple[Encoder, ImageTransform]:
    """Encoder, with its weights, and transform of a configuration.

    Raises:
        UserError: they are missing or wrong, or the encoder has random weights.
    """
    spec = _spec(config, "model", "encoder")
    encoder = make(spec, Encoder)
    initial = weights_digest(encoder)
    encoder.load_pretrained()
    # Unchanged weights are the right ones only if they are the same each time.
    if weights_digest(encoder) == initial != weights_digest(make(spec, Encoder)):
        raise UserError(
            f"the encoder {spec['class_path']} of the configuration has random weights, which training would "
            "not have: name weights in the configuration, or take a trained encoder with --model CKPT"
        )
    encoder.freeze()
    return encoder, _transform(config)


def _transform(config: Config) -> ImageTransform:
    found = config["data"].get("transform") or {}
    if isinstance(found, dict) and "class_path" in found:
        found = found.get("init_args") or {}
    try:
        return ImageTransform(**found)
    except TypeError:
        raise DataError(f"data.transform of the configuration has size and fit, not {found}") from None


def of_checkpoint(path: str) -> tuple[Encoder, ImageTransform]:
    """Encoder and transform of a trained model.

    Raises:
        CheckpointError: the file is no checkpoint.
    """
    captioner = checkpoint.load(path)
    captioner.encoder.freeze()
    return captioner.encoder, captioner.transform


def _spec(config: Config, section: str, name: str) -> Spec:
    """An entry that names a class and its arguments."""
    found = config.get(section)
    spec = found.get(name) if isinstance(found, dict) else None
    if isinstance(spec, str):  # a class that needs no arguments
        spec = {"class_path": spec}
    if not (isinstance(spec, dict) and isinstance(spec.get("class_path"), str)):
        raise DataError(f"the configuration has no {section}.{name} with a class_path: add it.")
    return {"class_path": spec["class_path"], "init_args": spec.get("init_args") or {}}


def device(name: str | None) -> torch.device:
    """The device of that name; None = a GPU if there is one.

    Raises:
        UserError: nothing can be put there.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device '{name}' cannot be used ({reason}): choose cpu, or leave it out") from None
    return torch.device(name)
