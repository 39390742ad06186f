"""Builds a captioner around an imported decoder: encoder, vocabulary, and the checks that all importers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from caption.captioner import Captioner
from caption.core.errors import CheckpointError, UserError, first_few
from caption.core.runtime.trust import class_paths, make
from caption.data.photos import ImageTransform
from caption.data.text_files import read_yaml
from caption.decoders.show_attend_and_tell import ShowAttendAndTellDecoder
from caption.encoders.base import Encoder, view_sizes
from caption.search import Search
from caption.text.vocabulary import Vocabulary

Config = dict[str, Any]
"""`encoder` (class path and arguments) and `transform` (size, fit, resize), as in a configuration file."""


class Imported(NamedTuple):
    """A trained decoder of another package, converted to this package's."""

    decoder: ShowAttendAndTellDecoder
    """Has the same architecture; its weights are not created yet."""
    weights: dict[str, Tensor]
    """Its state dict; words are in the order of this package's vocabulary."""
    words: list[str]
    """The ordinary words; the first has id 4."""
    region_size: int
    """D of the regions it was trained on."""


def assemble(
    imported: Imported,
    default: Config,
    search: Search,
    encoder_file: str | None = None,
    encoder_weights: str | None = None,
) -> Captioner:
    """The captioner of an imported decoder, in evaluation mode, before the weights of its encoder are loaded.

    Args:
        imported: the decoder.
        default: encoder and transform of the published model.
        search: the default search.
        encoder_file: YAML that replaces encoder, transform or both.
        encoder_weights: replaces the argument `weights` of the encoder.

    Raises:
        UserError: the file cannot be read, or does not describe an encoder or transform; the encoder's regions do not
            have the size that the decoder was trained on.
    """
    encoder, transform = encoder_and_transform(default, encoder_file, encoder_weights)
    if view_sizes(encoder) != (imported.region_size,):
        raise UserError(
            f"the decoder was trained on regions of {imported.region_size} numbers, and the encoder gives "
            f"{' and '.join(map(str, encoder.region_sizes))}: name the encoder that it was trained with (--encoder)"
        )
    vocabulary = Vocabulary(imported.words, tokenizer_for(imported.words))
    captioner = Captioner(encoder, imported.decoder, vocabulary, transform, search)
    captioner.decoder.load_state_dict(imported.weights)
    return captioner.eval()


def encoder_and_transform(
    default: Config, file: str | None = None, weights: str | None = None
) -> tuple[Encoder, ImageTransform]:
    """An encoder, before its weights are loaded, and an image transform; for the arguments see `assemble`."""
    config = default if file is None else {**default, **_read_config(file)}
    spec = config["encoder"]
    if weights is not None and isinstance(spec, dict):
        spec = {**spec, "init_args": {**spec.get("init_args", {}), "weights": weights}}
    return make(spec, Encoder, trust=class_paths(spec)), ImageTransform.from_dict(config["transform"])


def _read_config(file: str) -> Config:
    config = read_yaml(file)
    if not isinstance(config, dict) or not config or not config.keys() <= {"encoder", "transform"}:
        raise UserError(
            f"'{file}' should have 'encoder' (class_path, init_args), 'transform' (size, fit, resize), or both"
        )
    return config


def tokenizer_for(words: Iterable[str]) -> str:
    """The Penn Treebank tokenizer for such words: it keeps case if there are capitals, and punctuation if there is ".".

    It is used only if the model is trained or evaluated further; captioning needs no tokenizer.
    """
    words = set(words)
    cased = "-cased" if any(word != word.lower() for word in words) else ""
    return f"ptb{cased}{'-punct' if '.' in words else ''}"


def check_shapes(
    shapes: Mapping[str, Sequence[int]], expected: Mapping[str, Sequence[int]], source: object
) -> None:
    """Raise a CheckpointError unless the arrays of the file `source` have the expected names and shapes."""
    hint = "is it the right file, with the right options?"
    missing = [name for name in expected if name not in shapes]
    if missing:
        raise CheckpointError(f"{source} lacks {first_few(missing)}: {hint}")
    extra = [name for name in shapes if name not in expected]
    if extra:
        raise CheckpointError(
            f"{source} has {first_few(extra)}, which the imported model does not have: {hint}"
        )
    for name, shape in expected.items():
        if tuple(shapes[name]) != tuple(shape):
            raise CheckpointError(
                f"{name} in {source} has the shape {tuple(shapes[name])}, and should have {tuple(shape)}"
            )
