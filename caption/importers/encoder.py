"""The encoder that an imported decoder sees through: another package's decoder comes without it."""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

from caption.data.images import ImageTransform
from caption.data.readers.captions import located, read_text
from caption.encoders.base import Encoder
from caption.errors import UserError
from caption.parts import make

Config = dict[str, Any]


class Eyes(NamedTuple):
    """What comes before the decoder."""

    encoder: Encoder
    transform: ImageTransform


def eyes(default: Config, file: str | None = None, weights: str | None = None) -> Eyes:
    """An encoder and an image transform, without the encoder's weights.

    Args:
        default: `encoder` (class path and arguments) and `transform` (size and fit) of the published model.
        file: YAML that replaces one of them or both.
        weights: replaces the argument `weights` of the encoder.

    Raises:
        UserError: the file cannot be read, or describes no encoder or transform.
    """
    config = default if file is None else {**default, **_read(file)}
    spec = config["encoder"]
    if weights is not None and isinstance(spec, dict):
        spec = {**spec, "init_args": {**spec.get("init_args", {}), "weights": weights}}
    return Eyes(make(spec, Encoder), ImageTransform.from_dict(config["transform"]))


def _read(file: str) -> Config:
    try:
        config = yaml.safe_load(read_text(located(file)))
    except yaml.YAMLError as error:
        raise UserError(f"'{file}' is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(config, dict) or not config or not config.keys() <= {"encoder", "transform"}:
        raise UserError(
            f"'{file}' should have 'encoder' (class_path, init_args), 'transform' (size, fit), or both"
        )
    return config
