"""What an importer gives, and the captioner that becomes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from caption.captioner import Captioner
from caption.decoders.lstm import LSTMDecoder
from caption.errors import CheckpointError, UserError
from caption.importers.encoder import Eyes
from caption.search import Search
from caption.text.vocabulary import Vocabulary

NAMED = 3  # culprits an error message names before it counts the rest


class Imported(NamedTuple):
    """A trained decoder of another package, as one of this package's."""

    decoder: LSTMDecoder
    """Of the same architecture, its weights yet to be created."""
    weights: dict[str, Tensor]
    """Its state dict; words are in the order of this package's vocabulary."""
    words: list[str]
    """The ordinary words; the first has id 4."""
    region_size: int
    """D of the regions it was trained on."""


def assemble(imported: Imported, see: Eyes, search: Search) -> Captioner:
    """The captioner of an imported decoder, in evaluation mode.

    Raises:
        UserError: the encoder's regions are not as long as those the decoder was trained on.
    """
    found, wanted = see.encoder.region_sizes, imported.region_size
    if found != (wanted,):
        raise UserError(
            f"the decoder was trained on regions of {wanted} numbers, and the encoder gives "
            f"{' and '.join(map(str, found))}: name the encoder that it was trained with (--encoder)"
        )
    vocabulary = Vocabulary(imported.words, tokenizer_for(imported.words))
    captioner = Captioner(see.encoder, imported.decoder, vocabulary, see.transform, search)
    captioner.decoder.load_state_dict(imported.weights)
    return captioner.eval()


def tokenizer_for(words: Iterable[str]) -> str:
    """The Penn Treebank tokenizer that makes such words: a vocabulary with capitals keeps case, one with a full stop
    keeps punctuation. It cuts the captions that the model may be trained or evaluated on later; describing needs none.
    """
    words = set(words)
    cased = "-cased" if any(word != word.lower() for word in words) else ""
    return f"ptb{cased}{'-punct' if '.' in words else ''}"


def check_shapes(
    found: Mapping[str, Sequence[int]], wanted: Mapping[str, Sequence[int]], source: object
) -> None:
    """Raise a CheckpointError unless both have the same names and shapes.

    Args:
        found: names and shapes of what `source` holds.
        wanted: of what it should hold.
        source: the file, for the message.
    """
    missing = [name for name in wanted if name not in found]
    if missing:
        raise CheckpointError(
            f"{source} lacks {listed(missing)}: is it the right file, with the right options?"
        )
    extra = [name for name in found if name not in wanted]
    if extra:
        raise CheckpointError(
            f"{source} has {listed(extra)}, which the model that is imported here does not have: is it the right file, "
            "with the right options?"
        )
    for name, shape in wanted.items():
        if tuple(found[name]) != tuple(shape):
            raise CheckpointError(
                f"{name} in {source} has the shape {tuple(found[name])}, and should have {tuple(shape)}"
            )


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
