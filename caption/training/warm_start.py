"""The weights that training starts from: another model's, or pretrained ones of encoder and word vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor

from caption.captioner import Captioner
from caption.core.errors import CheckpointError, first_few
from caption.core.runtime.trust import class_paths, make
from caption.decoders.base import Decoder
from caption.decoders.word_embeddings import load_word_vectors
from caption.encoders.base import view_sizes
from caption.models import checkpoint, model_zoo
from caption.models.checkpoint.rebuild import without_memory
from caption.objectives import Objective
from caption.objectives.word_detectors import WordDetectors, saved_detectors
from caption.text.vocabulary import PAD, SPECIAL_TOKENS, START, UNKNOWN, Vocabulary


def load_pretrained(captioner: Captioner) -> None:
    """Load the pretrained weights that encoder and decoder name, and report the word vectors."""
    captioner.encoder.load_pretrained()
    for file, count in load_word_vectors(captioner.decoder, captioner.vocabulary).items():
        rank_zero_info(f"{file}: vectors of {count} of the {len(captioner.vocabulary)} words")


def load_model(captioner: Captioner, model: str, trust: Sequence[str] = ()) -> None:
    """Start from another model's weights. Parts that only `captioner` has stay as they are, with a warning.

    The models may have different vocabularies: what belongs to a word moves to that word's row, see `rows_by_word`.

    Args:
        captioner: gets the weights.
        model: a checkpoint, the name of an installed model, or hf://owner/name.
        trust: packages whose classes it may name; see `caption.core.runtime.trust`.

    Raises:
        CheckpointError: the other model has parts of other shapes, or parts that `captioner` has no place for.
        UserError: there is no such model.
    """
    source = model_zoo.load(model, trust=trust)
    state = source.state_dict()
    if source.vocabulary != captioner.vocabulary:
        state |= {
            name: rows_by_word(state[name], source.vocabulary, captioner.vocabulary)
            for name in word_tensors(source)
        }
        rank_zero_info(f"start from {model}: {compared(source.vocabulary, captioner.vocabulary)}")
    try:
        missing, unknown = captioner.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise CheckpointError(
            f"{model} has parts of other shapes than this configuration: {error}"
        ) from error
    if unknown:
        raise CheckpointError(
            f"{model} has parts that this configuration has no place for: {first_few(unknown)}"
        )
    if missing:
        rank_zero_warn(f"{model} has no weights of these parts, which start untrained: {first_few(missing)}")


def load_detectors(objective: Objective, model: str, vocabulary: Vocabulary) -> None:
    """Start from the word detectors of another training, if they detect the same words.

    Without them, attention is guided to hardly anything until new detectors are trained.

    Args:
        objective: prepared; it may contain `WordDetectors`, at any depth.
        model: as in `load_model`; only the checkpoint of a training has detectors.
        vocabulary: of the model.
    """
    own = [module for module in objective.modules() if isinstance(module, WordDetectors)]
    if not own:
        return
    contents = checkpoint.read(model_zoo.find(model))
    if contents["captioner"]["vocabulary"] != vocabulary.to_dict():
        return
    for saved, detectors in zip(saved_detectors(contents["state_dict"]), own, strict=False):
        same_words = torch.equal(saved["index"], detectors.index.cpu())
        if same_words and saved["layer.weight"].shape == detectors.layer.weight.shape:
            detectors.load_state_dict(saved)
            rank_zero_info(f"start from {model}: its word detectors, too")


def compared(source: Vocabulary, target: Vocabulary) -> str:
    """How many words two vocabularies share, and how many only one has."""
    new, lost = _only_in(target, source), _only_in(source, target)
    shared = len(target) - len(SPECIAL_TOKENS) - len(new)
    parts = [f"{shared:,} words keep their weights"]
    if new:
        parts.append(f"new, with those of the unknown word: {len(new):,} ({first_few(new)})")
    if lost:
        parts.append(f"dropped, because this vocabulary lacks them: {len(lost):,} ({first_few(lost)})")
    return "; ".join(parts)


def _only_in(vocabulary: Vocabulary, reference: Vocabulary) -> list[str]:
    return [word for word in vocabulary if word not in reference]


def word_tensors(captioner: Captioner) -> list[str]:
    """The names, in the captioner's state, of the tensors that have a row for each word.

    These are the tensors that are larger in a decoder built for one more word.
    """
    decoder = captioner.decoder
    state = decoder.state_dict()

    def larger_state() -> dict[str, Tensor]:
        larger = make(decoder.spec, Decoder, trust=class_paths(decoder.spec))
        sizes = view_sizes(captioner.refiner or captioner.encoder)
        larger.build(sizes, len(captioner.vocabulary) + 1, padding=PAD, start=START)
        return larger.state_dict()

    larger = without_memory(larger_state, {"decoder": decoder.spec}, state)
    return [f"decoder.{name}" for name, tensor in state.items() if tensor.shape != larger[name].shape]


def rows_by_word(rows: Tensor, source: Vocabulary, target: Vocabulary) -> Tensor:
    """The rows of one vocabulary's words, for another vocabulary: (V_source, ...) -> (V_own, ...).

    To the model, a new word has been an unknown word so far, so it starts with the row of <unk>. From its bias, in
    tensors (V,), log n is subtracted, so that n new words together are as likely as <unk> was.
    """
    new = [number for number, word in enumerate(target) if word not in source]
    moved = rows[torch.tensor([source[word] for word in target])]  # of a new word, UNKNOWN
    if rows.dim() == 1 and new:
        moved[new] = rows[UNKNOWN] - math.log(len(new))
    return moved
