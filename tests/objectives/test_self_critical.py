"""Self-critical training: its reward, and its gradient against that of the expected reward by enumeration."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from helpers.tiny_decoder import with_large_weights
from helpers.tiny_views import WithoutEncoder, one_row
from helpers.toy import gradient
from torch import Tensor

from caption.attention import AdditiveScore, Multinoulli, ScoredAttention, Softmax
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.decoders import ShowAttendAndTellDecoder
from caption.metrics.bleu import sentence_bleu
from caption.metrics.cider import CiderD
from caption.objectives import CaptionBatch, SelfCriticalSequence
from caption.objectives.self_critical import _faults
from caption.text.vocabulary import END, START, Vocabulary

A, B = 4, 5  # the two words, after the special ones
REFERENCES = [[[A, B, END], [A, END]], [[B, B, END], [B, END]], [[A, A, B, END], [END]]]


def decoder(alignment=None, dropout: float = 0.0) -> ShowAttendAndTellDecoder:
    attention = ScoredAttention(AdditiveScore(4), alignment or Softmax())
    return with_large_weights(attention, (2, 3, 4, 6), seed=5, dropout=dropout).train()


COPIES = 2400
"""Of an image in one batch: with 5 samples of each, the noise of the gradient is some percent."""


def views(copies: int = 1) -> Views:
    """The same image several times."""
    regions = torch.randn(1, 3, 2, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    return one_row(regions.repeat(copies, 1, 1))


def captions(*groups: list[list[int]]) -> CaptionBatch:
    """Padded, in the form for teacher forcing."""
    longest = max(len(ids) for group in groups for ids in group)
    targets = torch.tensor([[ids + [0] * (longest - len(ids)) for ids in group] for group in groups])
    inputs = torch.cat((torch.full_like(targets[..., :1], START), targets[..., :-1]), -1)
    return CaptionBatch(inputs, targets, torch.tensor([[len(ids) for ids in group] for group in groups]))


def objective(samples: int, max_length: int = 3, bleu: float = 0.0) -> SelfCriticalSequence:
    made = SelfCriticalSequence(samples, max_length, bleu)
    made.prepare(REFERENCES)
    return made


def expected_reward(decoder: ShowAttendAndTellDecoder, of: list[list[int]], bleu: float = 0.0) -> Tensor:
    """Σ_y p(y) r(y) over all captions of at most two words and an end, or three words without one."""
    finished = [[*words, END] for length in range(3) for words in product((A, B), repeat=length)]
    every = finished + [list(words) for words in product((A, B), repeat=3)]
    batch = captions(every)
    unrolled = WithoutEncoder(decoder).unroll(views(), batch.words, batch.lengths)
    logits = unrolled.logits.index_fill(1, torch.tensor([0, 1, 3]), -torch.inf)  # never emitted
    words = logits.log_softmax(-1).gather(1, unrolled.pack(batch.targets)[:, None]).squeeze(1)
    probabilities = unrolled.unpack(words).sum(-1)[0].exp()
    assert probabilities.sum().item() == pytest.approx(1)
    cider = CiderD([[list(map(str, ids)) for ids in group] for group in REFERENCES])
    words_of = [list(map(str, ids)) for ids in every]
    texts = [list(map(str, ids)) for ids in of]
    rewards = torch.tensor(cider(words_of, texts))
    rewards += bleu * torch.tensor(sentence_bleu(words_of, texts))
    return (probabilities * rewards).sum()


@pytest.mark.parametrize(("references", "bleu"), [(0, 0.0), (2, 0.0), (0, 8.0)])
def test_the_gradient_is_that_of_the_expected_reward(references: int, bleu: float):
    made = decoder()
    exact = -gradient(expected_reward(made, REFERENCES[references], bleu), made)
    torch.manual_seed(0)
    batch = captions(*[REFERENCES[references]] * COPIES)
    loss = objective(samples=5, bleu=bleu)(WithoutEncoder(made), views(COPIES), batch)
    estimated = gradient(loss.value, made)
    assert exact.norm() > 0.1
    assert (estimated - exact).norm() < 0.1 * exact.norm()
    expected = expected_reward(made, REFERENCES[references], bleu).item()
    assert loss.logged["reward"].item() == pytest.approx(expected, rel=0.05)


def test_each_image_is_rewarded_by_its_own_captions():
    made = decoder()
    rewards = []
    for first, second in ((0, 1), (0, 0), (1, 1)):
        torch.manual_seed(0)
        loss = objective(1000)(
            WithoutEncoder(made), views(2), captions(REFERENCES[first], REFERENCES[second])
        )
        rewards.append(loss.logged["reward"].item())
    assert rewards[0] == pytest.approx((rewards[1] + rewards[2]) / 2, rel=0.05)
    assert rewards[1] != pytest.approx(rewards[2], rel=0.2)


def test_absent_captions_are_not_references():
    made, values = decoder(), []
    for texts, lengths in (([[A, END], [END, END]], [2, 0]), ([[A, END]], [2])):
        batch = captions(texts)._replace(lengths=torch.tensor([lengths]))
        torch.manual_seed(0)
        values.append(objective(4)(WithoutEncoder(made), views(), batch).value.item())
    assert values[0] == values[1]


def test_an_image_without_captions_has_no_reward_and_trains_nothing():
    made, batch = decoder(), captions(REFERENCES[0], REFERENCES[1])
    absent = batch._replace(lengths=batch.lengths * torch.tensor([[1], [0]]))
    samples = [*REFERENCES[0], *REFERENCES[1]]
    values = []
    for given, count in ((absent, 2), (captions(REFERENCES[0]), 1)):
        trained = objective(4, bleu=1.0)
        trained._sample = lambda *_, count=count: captions(*[samples] * count)
        values.append(count * trained(WithoutEncoder(made), views(count), given).value)
    assert values[1] != 0
    torch.testing.assert_close(values[0], values[1])  # the sum over the samples is that of the first image


def test_dropout_is_off_and_on_again():
    made, values = decoder(dropout=0.5), []
    for training in (False, True):
        made.train(training)
        torch.manual_seed(0)
        values.append(objective(8)(WithoutEncoder(made), views(), captions(REFERENCES[0])).value.item())
    assert values[0] == values[1]
    assert made.training


def test_sampled_attention_is_refused():
    made = decoder(Multinoulli())
    with pytest.raises(UserError, match="sampled attention"):
        objective(2)(WithoutEncoder(made), views(), captions(REFERENCES[0]))


def test_persons_where_nobody_is_and_nonsense_cost_reward():
    """Each costs `sense`; a person whom people name costs nothing."""
    words = ("a", "man", "kitchen", "with", "sits")
    ids = {word: number for number, word in enumerate(words, 4)}
    model = WithoutEncoder(
        with_large_weights(ScoredAttention(AdditiveScore(4), Softmax()), (2, 3, 4, 9), seed=5, dropout=0.0)
    )
    model.vocabulary = Vocabulary(words)

    def written(*texts: str) -> list[list[int]]:
        return [[*(ids[word] for word in text.split()), END] for text in texts]

    samples = written("a man sits", "a kitchen with a kitchen", "a man with a kitchen sits sits", "a kitchen")
    people = written("a kitchen", "a kitchen with a"), written("a man sits", "a kitchen")
    faults = _faults(captions(samples, samples), captions(*people), model.vocabulary)
    assert faults.tolist() == [[1, 1, 2, 0], [0, 1, 1, 0]]
    absent = captions(*people)._replace(
        lengths=torch.tensor([[0, 0], [3, 2]])
    )  # nobody says whether somebody is there
    assert _faults(captions(samples, samples), absent, model.vocabulary).tolist() == [[0, 1, 1, 0]] * 2

    made = SelfCriticalSequence(4, sense=0.25)
    made.prepare(people)
    made._sample = lambda *_: captions(samples, samples)
    with_faults = made(model, views(2), captions(*people))
    made.sense = 0.0
    without = made(model, views(2), captions(*people))
    assert (without.logged["reward"] - with_faults.logged["reward"]).item() == pytest.approx(0.25 * 6 / 8)
    assert with_faults.value != without.value
