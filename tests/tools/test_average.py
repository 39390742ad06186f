"""Weights of several models averaged."""

from pathlib import Path

import torch
from helpers.tiny_captioner import captioner

from caption.captioner import Captioner
from caption.models import checkpoint
from caption.text.vocabulary import Vocabulary
from tools.average import average


def saved(folder: Path, name: str, words: tuple[str, ...], value: float) -> str:
    """A model that has one number everywhere, and its own vocabulary of five words."""
    model: Captioner = captioner()
    model.vocabulary = Vocabulary(words)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    checkpoint.save(model, folder / name)
    return str(folder / name)


def test_weights_are_averaged_by_share_and_those_of_words_by_word(tmp_path: Path) -> None:
    first = saved(tmp_path, "first.ckpt", ("a", "cat", "dog", "sits", "runs"), 1.0)
    second = saved(tmp_path, "second.ckpt", ("cat", "a", "bus", "sits", "runs"), 5.0)
    mean = average({first: 3.0, second: 1.0})
    assert mean.vocabulary.words == captioner().vocabulary.words
    state = mean.state_dict()
    assert set(state["decoder.gate.project.weight"].flatten().tolist()) == {2.0}
    rows = dict(zip(mean.vocabulary.words, state["decoder.embed.weight"][:, 0].tolist(), strict=True))
    assert rows == {**dict.fromkeys(rows, 2.0), "dog": 1.0}  # "dog" stands in the first one alone
    counts = [tensor for name, tensor in state.items() if name.endswith("num_batches_tracked")]
    assert counts
    assert all(tensor.dtype == torch.int64 for tensor in counts)
