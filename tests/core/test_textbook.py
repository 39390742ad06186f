"""The paper on one screen computes what the package computes: log-probabilities, weights, losses and every gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.tiny_views import WithoutEncoder
from torch import Tensor

from caption import textbook
from caption.attention import AdditiveScore, Multinoulli, ScoredAttention, Softmax
from caption.attention.stochastic import override_draws
from caption.core.errors import UserError
from caption.core.regions import Regions
from caption.core.runtime.atomic_files import is_own
from caption.decoders import DeepOutput, Gate, InitialState, ShowAttendAndTellDecoder
from caption.objectives import CaptionBatch, CrossEntropy, Entropy, MovingAverage, Reinforce
from caption.text.vocabulary import END, PAD, START
from tools.benchmark.textbook import gradients, textbook_of

IMAGES, REGIONS, REGION_SIZE, WORDS, LENGTHS = 5, 6, 7, 11, torch.tensor([3, 5, 1, 4, 5])


def package_decoder(alignment: torch.nn.Module) -> ShowAttendAndTellDecoder:
    """The paper's decoder in double precision, without dropout."""
    torch.manual_seed(0)
    decoder = ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(4), alignment),
        embedding_size=3,
        hidden_size=8,
        initial=InitialState(dropout=0.0),
        gate=Gate(),
        readout=DeepOutput(dropout=0.0),
    )
    decoder.build((REGION_SIZE,), WORDS, PAD, START)
    return decoder.double()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Regions, input words and targets of one caption per image, with unsorted lengths."""
    torch.manual_seed(1)
    real = torch.arange(5) < LENGTHS[:, None]
    words = torch.randint(END + 1, WORDS, (IMAGES, 6))
    words[:, 0] = START
    regions = torch.randn(IMAGES, REGIONS, REGION_SIZE, dtype=torch.float64)
    return regions, words[:, :-1] * real, words[:, 1:] * real


def package_loss(
    decoder: ShowAttendAndTellDecoder, objective: torch.nn.Module, batch: tuple[Tensor, Tensor, Tensor]
):
    regions, inputs, targets = batch
    views = (Regions(regions, (2, 3), None),)
    captions = CaptionBatch(inputs[:, None], targets[:, None], LENGTHS[:, None])
    return objective(WithoutEncoder(decoder), views, captions)


def assert_same_gradients(decoder: ShowAttendAndTellDecoder, copy: textbook.Decoder) -> None:
    expected, found = gradients(decoder), gradients(copy)
    assert found.keys() == expected.keys()
    found["E.weight"][PAD] = 0  # the package never learns the vector of padding
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-5, atol=1e-7, msg=name)


def test_soft_attention_has_the_package_s_numbers_and_gradients(batch: tuple[Tensor, Tensor, Tensor]):
    decoder = package_decoder(Softmax())
    copy = textbook_of(decoder)
    regions, inputs, targets = batch
    ours = package_loss(decoder, CrossEntropy(), batch)
    log_p, alpha, s = copy(regions, inputs)
    real = targets != PAD
    assert s is alpha or torch.equal(s, alpha)
    unrolled = ours.unrolled
    torch.testing.assert_close(unrolled.unpack(unrolled.trace.weights)[:, 0][real], alpha[real])
    theirs = unrolled.unpack(unrolled.logits.log_softmax(-1))[:, 0][real]
    torch.testing.assert_close(theirs, log_p[real], rtol=1e-6, atol=1e-6)
    loss = textbook.soft_loss(log_p, alpha, targets)
    torch.testing.assert_close(ours.value, loss, rtol=1e-6, atol=0)
    ours.value.backward()
    loss.backward()
    assert_same_gradients(decoder, copy)


@pytest.mark.parametrize("expectation", [0.0, 1.0])
def test_hard_attention_has_the_package_s_estimate(batch: tuple[Tensor, Tensor, Tensor], expectation: float):
    """The same samples in both, or the expectation in both."""
    decoder = package_decoder(Multinoulli(expectation=expectation))
    copy = textbook_of(decoder)
    regions, inputs, targets = batch
    baseline = MovingAverage()
    baseline.value.fill_(-3.0)
    objective = Reinforce(baseline, reward_weight=0.7, reward="sum", terms=[Entropy(-0.03)]).double()
    if expectation:
        ours = package_loss(decoder, objective, batch)
        log_p, alpha, s = copy(regions, inputs, textbook.soft)
    else:
        with override_draws(decoder, lambda weights: weights.argmin(-1)):
            ours = package_loss(decoder, objective, batch)
        log_p, alpha, s = copy(regions, inputs, lambda a: torch.eye(REGIONS).to(a.dtype)[a.argmin(1)])
    loss = textbook.hard_loss(log_p, alpha, s, targets, -3.0, 0.7, 0.03)
    ours.value.backward()
    loss.backward()
    assert_same_gradients(decoder, copy)


def test_hard_attention_reads_one_region_with_the_probability_of_its_weight_and_each_caption_has_a_coin():
    alpha = torch.tensor([[0.1, 0.2, 0.7]]).expand(20_000, 3)
    s = textbook.hard(alpha)
    assert torch.equal(s.sum(1), torch.ones(20_000))
    torch.testing.assert_close(s.mean(0), alpha[0], rtol=0, atol=0.02)
    s = textbook.half_soft(torch.tensor([[True], [False], [True], [False]]), textbook.hard)(alpha[:4])
    assert torch.equal(s[::2], alpha[:2])
    assert torch.equal(s[1::2].amax(1), torch.ones(2))


def test_greedy_search_ends_with_the_end_and_says_where_it_looked(batch: tuple[Tensor, Tensor, Tensor]):
    copy = textbook_of(package_decoder(Softmax()))
    regions = batch[0][:1]
    words, maps = copy.greedy(regions, longest=4)
    log_p, alpha, _ = copy(regions, torch.tensor([[START, *words]]))
    assert log_p.argmax(2)[0, : len(words)].tolist() == words
    torch.testing.assert_close(maps, alpha[0, : len(words)])
    with torch.no_grad():
        copy.L_o.bias[END] = 100.0
    words, maps = copy.greedy(regions)
    assert words == []
    assert maps.shape == (0, REGIONS)


def test_it_trains_and_draws(tmp_path, capsys: pytest.CaptureFixture[str]):
    picture = tmp_path / "picture.png"
    textbook.main(["--scenes", "50", "--epochs", "2", "--hard", "--out", str(picture)])
    nats = [float(line.split()[3]) for line in capsys.readouterr().out.splitlines() if "nats a word" in line]
    assert len(nats) == 3
    assert nats[1] < nats[0]
    assert picture.stat().st_size > 1000
    assert is_own(picture)


@pytest.mark.parametrize("wrong", [["--scenes", "0"], ["--epochs", "-1"]])
def test_it_refuses_no_scenes_and_a_negative_number_of_epochs(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Without epochs it draws where an untrained model looks."""
    out = ["--out", str(tmp_path / "picture.png")]
    textbook.main(["--scenes", "1", "--epochs", "0", *out])
    with pytest.raises(SystemExit, match="2"):
        textbook.main([*wrong, *out])
    assert "--scenes must be at least 1" in capsys.readouterr().err


def test_its_picture_is_checked_before_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine.png").write_bytes(b"mine")
    for name in ("mine.png", "picture.docx"):
        with pytest.raises(UserError, match=name):
            textbook.main(["--out", str(tmp_path / name)])
    assert capsys.readouterr().out == ""
    assert (tmp_path / "mine.png").read_bytes() == b"mine"
