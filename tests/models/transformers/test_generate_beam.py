"""`GenerateBeam` beside the search of transformers, where the three modes of its stop give different captions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from caption.core.tensor_tree import State
from caption.models.transformers.search import GenerateBeam

transformers = pytest.importorskip("transformers")
WORDS, LENGTH, START, END = 5, 8, 0, 1
MODES = (False, True, "never")
pytestmark = pytest.mark.slow


class Bigrams(transformers.PreTrainedModel, transformers.GenerationMixin):
    """A language model whose next word depends on the last one alone."""

    config_class = transformers.PretrainedConfig

    def __init__(self, table: Tensor) -> None:
        super().__init__(transformers.PretrainedConfig(vocab_size=WORDS, is_encoder_decoder=False))
        self.table = torch.nn.Parameter(table)

    def forward(self, input_ids: Tensor, **others: object) -> SimpleNamespace:
        return transformers.modeling_outputs.CausalLMOutput(logits=self.table[input_ids])


@torch.no_grad()
def found(table: Tensor, beams: int, penalty: float, mode: bool | str) -> tuple[list[int], float]:
    """The words and the score of our search, which are those of transformers."""

    def step(state: State, words: Tensor) -> tuple[Tensor, State]:
        return table[words].log_softmax(-1), state

    search = GenerateBeam(beams, LENGTH, penalty, early_stopping=mode)
    best = search(step, State(torch.zeros(1), torch.zeros(1, 1), torch.zeros(1, 1)), 1, START, END)
    ours = best.words[0, 0, : best.lengths[0, 0]].tolist() + [END] * bool(best.finished[0, 0])
    theirs = Bigrams(table).generate(
        torch.tensor([[START]]), num_beams=beams, max_new_tokens=LENGTH, length_penalty=penalty, do_sample=False,
        early_stopping=mode, eos_token_id=END, pad_token_id=END, use_cache=False, return_dict_in_generate=True,
        output_scores=True,
    )  # fmt: skip
    assert ours == theirs.sequences[0, 1 : 1 + len(ours)].tolist()
    assert float(best.scores[0, 0]) == pytest.approx(float(theirs.sequences_scores[0]), abs=1e-5)
    return ours, float(best.scores[0, 0])


def test_every_mode_stops_where_transformers_does_and_each_elsewhere():
    generator = torch.Generator().manual_seed(0)
    each = [
        [found(table, 3, penalty, mode)[0] for mode in MODES]
        for table in 2 * torch.randn(12, WORDS, WORDS, generator=generator)
        for penalty in (0.5, 2.0)
    ]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert any(captions[a] != captions[b] for captions in each), (MODES[a], MODES[b])
