"""Single parts of a training configuration, without building the rest."""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Sequence

from jsonargparse import ArgumentParser, Namespace

from caption.cli.configuration.config_files import read_layers
from caption.cli.configuration.errors import jsonargparse_message
from caption.core.errors import DataError, UserError
from caption.core.runtime.trust import class_paths, make
from caption.data.features.key import weights_digest
from caption.data.photos import ImageTransform
from caption.data.readers.base import CaptionReader
from caption.data.splits import Splits
from caption.decoders.base import Decoder
from caption.encoders import Refiner
from caption.encoders.base import Encoder

PARTS = {
    "data.reader": CaptionReader,
    "data.transform": ImageTransform,
    "model.encoder": Encoder,
    "model.decoder": Decoder,
    "model.refiner": Refiner,
}
OF_DATA = ("data.reader", "data.transform", "model.encoder")
"""The parts that regions depend on."""


def read_parts(
    paths: Sequence[str], overrides: Sequence[str] = (), names: Sequence[str] = OF_DATA
) -> Namespace:
    """Some of `PARTS` of configuration files, read as `caption fit` does: class paths and arguments.

    Args:
        paths: of YAML files, or names; a later one overrides single entries of an earlier one.
        overrides: command-line arguments that override single entries, such as `--data.transform.size 96`.
        names: of the parts; other entries of the files are ignored.

    Raises:
        UserError: a file cannot be read, or one of these parts is invalid or missing; only data.transform and
            model.refiner may be missing.
    """
    parser = ArgumentParser(exit_on_error=False, default_env=False)
    for name in names:
        parser.add_argument(f"--{name}", type=PARTS[name])
    parts = parser.get_defaults()
    try:
        for config in read_layers(paths, overrides):
            keys = ((name, *name.split(".")) for name in names)
            entries = {name: (config.get(section) or {}).get(key) for name, section, key in keys}
            entries = {name: entry for name, entry in entries.items() if entry is not None}
            parts = parser.parse_object(entries, parts)
        parts = parser.parse_args(list(overrides), parts)
    except ArgumentError as error:
        message = jsonargparse_message(str(error), parser)
        raise UserError(
            f"{', '.join(paths)}, or an option that overrides an entry: {message}. "
            f"Of a configuration, {', '.join(names)} can be used here."
        ) from error
    for name in names:
        if parts[name] is None and name not in ("data.transform", "model.refiner"):
            raise DataError(f"{', '.join(paths)}: there is no {name} with a class_path. Add it.")
    return parts


def make_reader(parts: Namespace) -> CaptionReader:
    """The reader of the data set."""
    spec = parts["data.reader"].as_dict()
    return make(spec, CaptionReader, trust=class_paths(spec))  # type: ignore[type-abstract]


def read_splits(paths: Sequence[str], overrides: Sequence[str] = (), needed: Sequence[str] = ()) -> Splits:
    """The images of each split of configurations; see `read_parts`.

    Raises:
        UserError: one of the needed splits has no images.
    """
    splits = make_reader(read_parts(paths, overrides, ("data.reader",))).read()
    for split in needed:
        if not splits.get(split):
            raise UserError(f"data.reader has no images in the split {split}, which is needed here")
    return splits


def make_transform(parts: Namespace) -> ImageTransform:
    """The image transform; the default one if the configuration has none."""
    return ImageTransform(**(parts["data.transform"] or {}))


def frozen_encoder(parts: Namespace) -> Encoder:
    """The encoder with its weights, frozen. Raises a UserError if it cannot be built, or its weights are random."""
    spec = parts["model.encoder"].as_dict()
    trust = [*class_paths(spec)]
    encoder = make(spec, Encoder, trust)
    initial = weights_digest(encoder)
    encoder.load_pretrained()
    # Weights that loading did not change are usable only if every construction gives the same.
    if weights_digest(encoder) == initial != weights_digest(make(spec, Encoder, trust)):
        raise UserError(
            f"the encoder {spec['class_path']} of the configuration has random weights, which training would not "
            "have: name weights in the configuration, or take a trained encoder with --model CKPT"
        )
    encoder.freeze()
    return encoder
