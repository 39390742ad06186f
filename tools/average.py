"""Average the weights of models that were trained from one another: `python -m tools.average OUT MODEL=SHARE ...`.

Source: Wortsman et al. 2022, "Robust fine-tuning of zero-shot models", for weights between those before and after a
training; Wortsman et al. 2022, "Model soups", for those of several trainings.
"""

import sys
from collections.abc import Mapping

import torch
from torch import Tensor

from caption import Captioner, load
from caption.models import checkpoint
from caption.training.warm_start import word_tensors


def average(models: Mapping[str, float]) -> Captioner:
    """The first model with the mean of all models' weights; its vocabulary has the words of all.

    Args:
        models: by file or name, its share. For a word that a model lacks, the first model's weights are used.
    """
    mean, *further = (load(model) for model in models)
    of_words = word_tensors(mean)
    start = {name: tensor.clone() for name, tensor in mean.state_dict().items()}
    states = [start, *(_for_words_of(mean, model, start, of_words) for model in further)]
    shares = [share / sum(models.values()) for share in models.values()]
    weights = {
        name: sum(share * state[name].float() for share, state in zip(shares, states, strict=True)).to(tensor)
        for name, tensor in start.items()
        if tensor.is_floating_point()
    }
    mean.load_state_dict(start | weights)
    return mean


def _for_words_of(
    first: Captioner, second: Captioner, start: Mapping[str, Tensor], of_words: list[str]
) -> dict[str, Tensor]:
    """The second model's weights with a row for each of the first one's words."""
    state = dict(second.state_dict())
    shared = [word for word in first.vocabulary if word in second.vocabulary]
    rows, source_rows = (
        torch.tensor([model.vocabulary[word] for word in shared]) for model in (first, second)
    )
    for name in of_words:
        state[name] = start[name].index_copy(0, rows, state[name][source_rows].to(start[name]))
    return state


if __name__ == "__main__":
    out, *given = sys.argv[1:]
    pairs = (argument.rsplit("=", 1) for argument in given)
    checkpoint.save(average({model: float(share) for model, share in pairs}), out)
