"""Single parts of a training configuration, without building the rest."""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Sequence
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from caption.cli.complaints import readable
from caption.data.images import ImageTransform
from caption.data.readers.captions import CaptionReader, located, read_text
from caption.encoders.base import Encoder
from caption.errors import DataError, UserError
from caption.features.key import weights_digest
from caption.parts import Spec, make

PARTS = {"data.reader": CaptionReader, "data.transform": ImageTransform, "model.encoder": Encoder}


def read_configuration(path: str) -> dict[str, Any]:
    """The content of a configuration file.

    Raises:
        DataError: it cannot be read, is not YAML (with the line), or has no sections.
    """
    try:
        config = yaml.safe_load(read_text(located(path)))
    except yaml.YAMLError as error:
        raise DataError(f"'{path}' is not YAML: {' '.join(str(error).split())}. Correct it.") from None
    if not isinstance(config, dict):
        raise DataError(f"'{path}' is not a configuration: it needs the sections model and data.")
    return config


class Configuration:
    """The entries data.reader, data.transform and model.encoder of configuration files, read as `caption fit` does.

    Args:
        paths: YAML files; a later one overrides an earlier one.
        overrides: command-line arguments that override single entries, such as `--data.transform.size 96`.

    Raises:
        UserError: a file cannot be read, or an entry is not what it should be.
    """

    def __init__(self, paths: Sequence[str], overrides: Sequence[str] = ()) -> None:
        parser = ArgumentParser(exit_on_error=False, default_env=False)
        for name, kind in PARTS.items():
            parser.add_argument(f"--{name}", type=kind)
        self._paths = ", ".join(f"'{path}'" for path in paths)
        self._values = parser.get_defaults()
        try:
            for path in paths:
                sections = {name: _section(read_configuration(path), name) for name in PARTS}
                given = {name: value for name, value in sections.items() if value is not None}
                self._values = parser.parse_object(given, self._values)
            self._values = parser.parse_args(list(overrides), self._values)
        except ArgumentError as error:
            raise UserError(
                f"{self._paths}, or an option that overrides an entry: {readable(str(error))}. `caption features` uses "
                f"{', '.join(PARTS)} of a configuration."
            ) from error

    def reader(self) -> CaptionReader:
        """The reader of the data set.

        Raises:
            UserError: there is none, or it does not take its arguments.
        """
        return make(self._spec("data.reader"), CaptionReader)  # type: ignore[type-abstract]

    def transform(self) -> ImageTransform:
        """The image transform; the default one where the configuration has none."""
        return ImageTransform(**(self._values["data.transform"] or {}))

    def encoder(self) -> Encoder:
        """The encoder with its weights, frozen.

        Raises:
            UserError: there is none, it cannot be made, or its weights are random.
        """
        spec = self._spec("model.encoder")
        encoder = make(spec, Encoder)
        initial = weights_digest(encoder)
        encoder.load_pretrained()
        # Weights that loading did not change are usable only if every construction gives the same.
        if weights_digest(encoder) == initial != weights_digest(make(spec, Encoder)):
            raise UserError(
                f"the encoder {spec['class_path']} of the configuration has random weights, which training would not "
                "have: name weights in the configuration, or take a trained encoder with --model CKPT"
            )
        encoder.freeze()
        return encoder

    def _spec(self, name: str) -> Spec:
        if self._values[name] is None:
            raise DataError(f"{self._paths}: there is no {name} with a class_path. Add it.")
        return self._values[name].as_dict()


def _section(config: dict[str, Any], name: str) -> Any:
    outer, inner = name.split(".")
    return (config.get(outer) or {}).get(inner)
