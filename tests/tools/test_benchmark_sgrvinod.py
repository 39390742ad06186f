"""The benchmark beside sgrvinod's tutorial, with a short stand-in for its files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tools.benchmark import __main__ as benchmark
from tools.benchmark import core, sgrvinod
from tools.benchmark.harness import Setting
from tools.benchmark.roofline import Rates, least_seconds

pytestmark = pytest.mark.nightly
CPU = torch.device("cpu")
MODELS = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, D, H, A):
        super().__init__()
        self.encoder_att, self.decoder_att, self.full_att = nn.Linear(D, A), nn.Linear(H, A), nn.Linear(A, 1)
        self.relu = nn.ReLU()

    def forward(self, a, h):
        alpha = self.full_att(self.relu(self.encoder_att(a) + self.decoder_att(h)[:, None]))[..., 0].softmax(1)
        return (alpha[:, None] @ a)[:, 0], alpha

class DecoderWithAttention(nn.Module):
    def __init__(self, A, E, H, V, encoder_dim, dropout):
        super().__init__()
        D = self.encoder_dim = encoder_dim
        self.attention, self.embedding, self.fc = Attention(D, H, A), nn.Embedding(V, E), nn.Linear(H, V)
        self.decode_step, self.f_beta = nn.LSTMCell(E + D, H), nn.Linear(H, D)
        self.init_h, self.init_c = nn.Linear(D, H), nn.Linear(D, H)
        nn.init.uniform_(self.fc.weight, -0.1, 0.1)

    def init_hidden_state(self, a):
        return self.init_h(a.mean(1)), self.init_c(a.mean(1))

    def advance(self, a, h, c, words):
        z, alpha = self.attention(a, h)
        gated = torch.cat((self.embedding(words), self.f_beta(h).sigmoid() * z), 1)
        return *self.decode_step(gated, (h, c)), alpha

    def forward(self, a, words, lengths):
        lengths, order = lengths[:, 0].sort(descending=True)
        a, words, steps = a[order], words[order], (lengths - 1).tolist()
        h, c = self.init_hidden_state(a)
        scores, alphas = [], []
        for t in range(max(steps)):
            h, c, alpha = self.advance(a, h, c, words[:, t])
            scores.append(self.fc(h))
            alphas.append(alpha * (lengths - 1 > t)[:, None])
        return torch.stack(scores, 1), words, steps, torch.stack(alphas, 1), order
"""
CAPTION = """
import a_package_that_no_longer_exists

def caption_image_beam_search(encoder, decoder, image_path, word_map, beam_size=3):
    vocab_size = len(word_map)
    imresize(imread(image_path), (256, 256))
    a = encoder(None).flatten(1, 2)
    alive, done = [([word_map["<start>"]], 0.0, *decoder.init_hidden_state(a))], []
    while alive and len(alive[0][0]) < 50:
        after = []
        for words, score, h, c in alive:
            h, c, _ = decoder.advance(a, h, c, torch.tensor(words[-1:]))
            after.append((words, h, c, score + F.log_softmax(decoder.fc(h)[0], 0)))
        scores, top_k_words = torch.cat([one[3] for one in after]).topk(beam_size - len(done))
        alive, parents = [], top_k_words / vocab_size
        for score, parent, word in zip(scores.tolist(), parents.tolist(), (top_k_words % vocab_size).tolist()):
            words, h, c, _ = after[parent]
            (done if word == word_map["<end>"] else alive).append(([*words, word], score, h, c))
    return max(done, key=lambda one: one[1])[0], None
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as of the tutorial; sizes are small."""
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "caption.py").write_text(CAPTION)
    monkeypatch.setattr(core, "VOCABULARY", 60)
    monkeypatch.setattr(core, "REGIONS", 4)
    monkeypatch.setattr(sgrvinod, "SIZES", {"attention": 8, "embedding": 6, "hidden": 10})
    return tmp_path


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_losses_and_captions_are_its_own(folder: Path, activation: str):
    setting = Setting(CPU, quick=True, rounds=1, sgrvinod=folder)
    theirs = sgrvinod.their_decoder(folder, 12, activation, CPU).double()
    ours = sgrvinod.our_decoder(theirs, activation)
    vectors, captions = core.make_vectors(8, 12, CPU).double(), core.make_captions(8, CPU)
    expected, found = (
        sgrvinod.their_loss(theirs, vectors, captions),
        sgrvinod.our_loss(ours, vectors, captions),
    )
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=0)
    sgrvinod.end_captions(theirs)
    ours = sgrvinod.our_decoder(theirs, activation)

    search = sgrvinod.their_search(folder, CPU)
    rows = sgrvinod.compare_searches(theirs.float(), ours.float(), search, setting)
    assert [row[:1] + row[3:4] for row in rows] == [["sgrvinod", ""], ["ours", "8 of 8"]]
    captions = sgrvinod.find_their_captions(theirs.eval(), search, vectors.float())
    assert len({*map(tuple, captions)}) > 1
    assert all(5 <= len(caption) <= 25 for caption in captions)


def test_the_section_has_a_step_and_a_search_of_each_activation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sgrvinod, "measure_rates", lambda setting: Rates(1e9, 1e9, 1e9))
    text = sgrvinod.sgrvinod(Setting(CPU, quick=True, rounds=1, sgrvinod=folder))
    for form in ("sgrvinod", "ours"):
        for activation in ("relu", "tanh"):
            for region_size in (2048, 512):
                assert text.count(f"| {region_size} | {activation} | {form} |") == 2


def test_the_roofline_counts_every_weight_that_a_word_passes(folder: Path):
    theirs = sgrvinod.their_decoder(folder, 12, "relu", CPU)
    captions = core.make_captions(8, CPU)
    words = int(captions.lengths.sum())
    passed = (6 + 12 + 10) * 40 + 10 * 12 + 10 * 8 + 10 * 60  # LSTM, gate, query, read-out
    least = least_seconds(sgrvinod.our_decoder(theirs, "relu"), captions, 4, Rates(1.0, 1e30, 1.0))
    assert least == pytest.approx(6 * words * passed + 4 * 8 * 4 * 12 * 8)
    ours = sgrvinod.our_decoder(theirs, "tanh")
    assert least_seconds(ours, captions, 4, Rates(1e30, 1.0, 1e30)) == pytest.approx(
        2 * words * 4 * 4 * (12 + 8)
    )
    assert least_seconds(ours, captions, 4, Rates(1e30, 1e30, 1.0)) == pytest.approx(2 * words * 4 * 8)


def test_its_code_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    said = sgrvinod.sgrvinod(Setting(CPU, quick=True, rounds=1))
    assert said.startswith("not measured: this needs its code: git clone https://github.com/sgrvinod/")
    (tmp_path / "models.py").touch()
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--only", "sgrvinod", "--sgrvinod", str(tmp_path)])
    assert f"{tmp_path} has no caption.py: git clone https://github.com/sgrvinod/" in capsys.readouterr().err
