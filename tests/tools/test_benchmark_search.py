"""The searches find the same captions as the textbook's searches."""

from __future__ import annotations

import pytest
import torch

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.decoders import DeepOutput, Gate, InitialState, LSTMDecoder
from tools.benchmark import core, search
from tools.benchmark.core import END, PAD, START, UNKNOWN, build
from tools.benchmark.harness import Times
from tools.benchmark.textbook import Found, textbook_of

IMAGES, REGIONS, REGION_SIZE, WORDS, STEPS = 12, 6, 7, 700, core.STEPS
FORBIDDEN = (PAD, START, UNKNOWN)


@pytest.fixture
def decoder() -> LSTMDecoder:
    """In double precision; a vocabulary of several blocks; captions that end at different lengths."""
    torch.manual_seed(0)
    made = LSTMDecoder(
        ScoredAttention(AdditiveScore(4), Softmax()),
        embedding_size=5,
        hidden_size=8,
        initial=InitialState(dropout=0.0),
        gate=Gate(),
        readout=DeepOutput(dropout=0.0),
    )
    build(made, REGION_SIZE, WORDS)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter *= 6
        made.readout.to_words.bias[END] = 4.0
    return made.double().eval()


@pytest.mark.parametrize("forbidden", [FORBIDDEN, (*FORBIDDEN, END)], ids=["may end", "may not end"])
@pytest.mark.parametrize("name", ["beam 5", "greedy", "sampling"])
def test_the_same_captions(decoder: LSTMDecoder, name: str, forbidden: tuple[int, ...]):
    regions = torch.randn(IMAGES, REGIONS, REGION_SIZE, dtype=torch.float64)
    contest = search.Contest(decoder, textbook_of(decoder), regions, name, forbidden)
    found, expected = contest.ours(), contest.theirs()
    for image, one in enumerate(expected):
        assert found.words[image, 0, : found.lengths[image, 0]].tolist() == one.words
        assert float(found.log_probs[image, 0]) == pytest.approx(one.log_prob, abs=1e-4)  # single precision
    lengths = {len(one.words) for one in expected}
    assert lengths == {STEPS} if END in forbidden else len(lengths) > 2
    assert search.compare_found(found, expected)[0] == f"{IMAGES} of {IMAGES}"


def test_a_wrong_caption_counts_as_one(decoder: LSTMDecoder):
    regions = torch.randn(IMAGES, REGIONS, REGION_SIZE, dtype=torch.float64)
    contest = search.Contest(decoder, textbook_of(decoder), regions, "greedy", FORBIDDEN)
    found = contest.ours()
    expected = [
        Found(found.words[i, 0, :n].tolist(), float(found.log_probs[i, 0]) + 0.25 * (i == 1))
        for i, n in enumerate(found.lengths[:, 0].tolist())
    ]
    expected[0] = expected[0]._replace(words=[*expected[0].words, 5])
    assert search.compare_found(found, expected) == [f"{IMAGES - 1} of {IMAGES}", "2e-01"]


def test_the_textbooks_time_is_for_as_many_photos(decoder: LSTMDecoder, monkeypatch: pytest.MonkeyPatch):
    regions = torch.randn(IMAGES, REGIONS, REGION_SIZE)
    decoder.float()
    contest = search.Contest(decoder, textbook_of(decoder), regions, "greedy", FORBIDDEN)
    monkeypatch.setattr(search, "PHOTOS", 4)
    monkeypatch.setattr(
        search, "take_turns", lambda forms, setting: Times({name: [2.0, 2.0] for name in forms})
    )
    theirs, ours, _ = contest.rows(None)
    assert theirs[:2] == ["textbook, float32", "6.00 s"]
    assert ours[1:4] == ["2.00 s", "**3.0** (3.0 to 3.0)", "4 of 4"]
