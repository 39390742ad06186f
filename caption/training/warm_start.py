"""The weights that training starts from: another model's, or pretrained ones of encoder and word vectors."""

from __future__ import annotations

from collections.abc import Sequence

from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn

from caption import checkpoint
from caption.captioner import Captioner
from caption.decoders.word_embeddings import load_word_vectors
from caption.errors import CheckpointError, first_few


def load_pretrained(captioner: Captioner) -> None:
    """Load the pretrained weights that encoder and decoder name, and report the word vectors."""
    captioner.encoder.load_pretrained()
    for file, count in load_word_vectors(captioner.decoder, captioner.vocabulary).items():
        rank_zero_info(f"{file}: vectors of {count} of the {len(captioner.vocabulary)} words")


def load_model(captioner: Captioner, path: str, trust: Sequence[str] = ()) -> None:
    """Start from another model's weights. Parts that only `captioner` has stay as they are, with a warning.

    Args:
        captioner: gets the weights.
        path: the other model's checkpoint.
        trust: packages whose classes it may name; see `caption.runtime.trust`.

    Raises:
        CheckpointError: the models have different vocabularies, the other one has parts of other shapes, or parts that
            `captioner` has no place for.
    """
    source = checkpoint.load(path, trust=trust)
    if source.vocabulary != captioner.vocabulary:
        raise CheckpointError(
            f"{path} was trained with another vocabulary ({len(source.vocabulary)} words, the data here gives "
            f"{len(captioner.vocabulary)}): warm-start from a model trained on the same data"
        )
    try:
        missing, unknown = captioner.load_state_dict(source.state_dict(), strict=False)
    except RuntimeError as error:
        raise CheckpointError(f"{path} has parts of other shapes than this configuration: {error}") from error
    if unknown:
        raise CheckpointError(
            f"{path} has parts that this configuration has no place for: {first_few(unknown)}"
        )
    if missing:
        rank_zero_warn(f"{path} has no weights of these parts, which start untrained: {first_few(missing)}")
