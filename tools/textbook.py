"""The decoder as it is usually written: the reference that `tools/benchmark.py` measures against.

The habits are those of the widely used re-implementations of "Show, Attend and Tell": each caption brings its own copy
of its image, the attention projects all regions at every step, an `LSTMCell` takes word and context concatenated, the
output layer runs inside the loop, and beam search captions one photo at a time. The better of those habits are kept:
captions are sorted by length so that finished ones drop out of the batch, and the loss sees real words only.

The mathematics is that of `caption.decoders.LSTMDecoder` with additive soft attention, gate and deep output, so the
same weights give the same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention import AdditiveScore, ScoredAttention
from caption.decoders import DeepOutput, InitialState, LSTMDecoder


class Found(NamedTuple):
    """A caption that was searched for."""

    words: list[int]
    """Without start and end."""
    log_prob: float
    """Of all of it, the end word's included if there is one."""


class Textbook(nn.Module):
    """Embedding E, LSTM H, attention A, regions D, words V."""

    def __init__(
        self,
        region_size: int,
        vocabulary_size: int,
        embedding: int = 512,
        hidden: int = 512,
        attention: int = 512,
    ) -> None:
        super().__init__()
        self.region = nn.Linear(region_size, attention)
        self.query = nn.Linear(hidden, attention, bias=False)
        self.energy = nn.Linear(attention, 1, bias=False)
        self.initial_hidden = nn.Linear(region_size, hidden)
        self.initial_cell = nn.Linear(region_size, hidden)
        self.gate = nn.Linear(hidden, 1)
        self.embed = nn.Embedding(vocabulary_size, embedding)
        self.cell = nn.LSTMCell(embedding + region_size, hidden)
        self.from_hidden = nn.Linear(hidden, embedding)
        self.from_context = nn.Linear(region_size, embedding, bias=False)
        self.to_words = nn.Linear(embedding, vocabulary_size)

    def start(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Regions (N, L, D) -> h[0], c[0] (N, H)."""
        mean = regions.mean(1)
        return self.initial_hidden(mean).tanh(), self.initial_cell(mean).tanh()

    def step(
        self, regions: Tensor, words: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Regions (N, L, D), words (N,), h and c (N, H) -> logits (N, V), α (N, L), h, c."""
        joined = torch.tanh(self.region(regions) + self.query(hidden).unsqueeze(1))
        weights = self.energy(joined).squeeze(2).softmax(1)
        context = (regions * weights.unsqueeze(2)).sum(1)
        context = torch.sigmoid(self.gate(hidden)) * context
        embedded = self.embed(words)
        hidden, cell = self.cell(torch.cat([embedded, context], 1), (hidden, cell))
        logits = self.to_words(embedded + self.from_hidden(hidden) + self.from_context(context))
        return logits, weights, hidden, cell

    def forward(self, regions: Tensor, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Teacher forcing.

        Args:
            regions: (N, L, D), one image for each caption.
            words: (N, T) fed in.
            lengths: (N,) real steps of each caption.

        Returns:
            logits (N, T, V) and α (N, T, L), zero behind the lengths, of captions in the order of the third, (N,).
        """
        lengths, order = lengths.sort(descending=True)
        regions, words = regions[order], words[order]
        hidden, cell = self.start(regions)
        steps = int(lengths[0])
        logits = regions.new_zeros(len(words), steps, self.to_words.out_features)
        alphas = regions.new_zeros(len(words), steps, regions.shape[1])
        for t in range(steps):
            n = int((lengths > t).sum())
            logits[:n, t], alphas[:n, t], hidden, cell = self.step(
                regions[:n], words[:n, t], hidden[:n], cell[:n]
            )
        return logits, alphas, order

    def loss(self, regions: Tensor, words: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        """−log p and the doubly stochastic term, summed over a caption and averaged over captions (eq. 14)."""
        logits, alphas, order = self(regions, words, lengths)
        real = torch.arange(logits.shape[1], device=words.device) < lengths[order, None]
        nll = functional.cross_entropy(logits[real], targets[order, : logits.shape[1]][real], reduction="sum")
        penalty = (1 - alphas.sum(1)).square().sum()
        return (nll + penalty) / len(words)

    @torch.no_grad()
    def beam_search(
        self,
        regions: Tensor,
        start: int,
        end: int,
        beam: int,
        max_length: int,
        forbidden: tuple[int, ...] = (),
    ) -> Found:
        """The best caption of one photo, regions (1, L, D); a finished hypothesis gives up its place in the beam.

        Hypotheses are ranked by the sum of their log-probabilities; it stops when none that is running can win.
        """
        vocabulary = self.to_words.out_features
        regions = regions.expand(beam, -1, -1)  # each hypothesis attends to its own copy
        hidden, cell = self.start(regions)
        words = torch.full((beam, 1), start, device=regions.device)
        totals = torch.zeros(beam, device=regions.device)
        done: list[Found] = []
        for length in range(max_length):
            live = len(words)
            logits, _, hidden, cell = self.step(regions[:live], words[:, -1], hidden, cell)
            scores = logits.log_softmax(1)
            scores[:, list(forbidden)] = -torch.inf
            scores = totals[:, None] + scores
            if length == 0:
                scores = scores[:1]  # all hypotheses are the same
            totals, chosen = scores.flatten().topk(beam)
            parents, following = chosen // vocabulary, chosen % vocabulary
            words = torch.cat([words[parents], following[:, None]], 1)
            ended = following == end
            done += [
                Found(words[i, 1:-1].tolist(), float(totals[i])) for i in ended.nonzero().flatten().tolist()
            ]
            running = ~ended
            if not running.any():
                break
            words, totals, parents = words[running], totals[running], parents[running]
            hidden, cell = hidden[parents], cell[parents]
            if done and max(found.log_prob for found in done) >= float(totals.max()):
                break
        if not done:
            best = int(totals.argmax())
            return Found(words[best, 1:].tolist(), float(totals[best]))
        return max(done, key=lambda found: found.log_prob)

    @torch.no_grad()
    def sample(
        self, regions: Tensor, start: int, end: int, chance: Tensor, forbidden: tuple[int, ...] = ()
    ) -> Found:
        """A caption of one photo, regions (1, L, D), drawn word by word with the numbers `chance` (T,) of [0, 1)."""
        hidden, cell = self.start(regions)
        word = torch.full((1,), start, device=regions.device)
        words: list[int] = []
        total = 0.0
        for number in chance.tolist():
            logits, _, hidden, cell = self.step(regions, word, hidden, cell)
            scores = logits[0].log_softmax(0)
            probs = scores.double().exp()
            probs[list(forbidden)] = 0
            reached = probs.cumsum(0)
            word = (reached > number * reached[-1]).nonzero()[0]
            total += float(scores[word])
            if word == end:
                break
            words.append(int(word))
        return Found(words, total)


def textbook_of(decoder: LSTMDecoder) -> Textbook:
    """The textbook form of a decoder, with copies of its weights.

    Args:
        decoder: with additive soft attention, scalar gate, `InitialState` of one layer and linear `DeepOutput`; its
            dropout is not copied.
    """
    attention, initial, readout = decoder.attention, decoder.initial, decoder.readout
    assert isinstance(attention, ScoredAttention)
    assert isinstance(attention.score, AdditiveScore)
    assert isinstance(initial, InitialState)
    assert isinstance(readout, DeepOutput)
    assert decoder.gate is not None
    vocabulary_size, embedding = decoder.embed.weight.shape
    made = Textbook(
        attention.context_size, vocabulary_size, embedding, decoder.hidden_size, attention.score.size
    ).to(decoder.embed.weight)
    pairs: list[tuple[nn.Module, nn.Module]] = [
        (made.region, attention.score.region),
        (made.query, attention.score.query),
        (made.energy, attention.score.energy),
        (made.initial_hidden, initial.hidden[0]),
        (made.initial_cell, initial.cell[0]),
        (made.gate, decoder.gate.project),
        (made.embed, decoder.embed),
        (made.from_hidden, readout.from_hidden),
        (made.from_context, readout.from_context),
        (made.to_words, readout.to_words),
    ]
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        from_state = in_cell_order(decoder.gates_from_state.weight)
        made.cell.weight_ih.copy_(
            torch.cat(
                (in_cell_order(decoder.gates_from_word.weight), from_state[:, decoder.hidden_size :]), 1
            )
        )
        made.cell.weight_hh.copy_(from_state[:, : decoder.hidden_size])
        made.cell.bias_ih.copy_(in_cell_order(decoder.gates_from_word.bias))
        made.cell.bias_hh.zero_()
    return made


def in_cell_order(rows: Tensor) -> Tensor:
    """Gates i, f, o, g (4H, ...) in the order of `LSTMCell`: i, f, g, o."""
    i, f, o, g = rows.chunk(4)
    return torch.cat((i, f, g, o))


def gradients(decoder: LSTMDecoder, textbook: Textbook) -> list[tuple[str, Tensor, Tensor]]:
    """Each gradient of the decoder beside the textbook's, laid out alike, after both went backward."""
    attention, initial, readout = decoder.attention, decoder.initial, decoder.readout
    from_state, hidden = decoder.gates_from_state.weight.grad, decoder.hidden_size
    return [
        ("U", attention.score.region.weight.grad, textbook.region.weight.grad),
        ("b", attention.score.region.bias.grad, textbook.region.bias.grad),
        ("W", attention.score.query.weight.grad, textbook.query.weight.grad),
        ("v", attention.score.energy.weight.grad, textbook.energy.weight.grad),
        ("initial h", initial.hidden[0].weight.grad, textbook.initial_hidden.weight.grad),
        ("initial c", initial.cell[0].weight.grad, textbook.initial_cell.weight.grad),
        ("gate", decoder.gate.project.weight.grad, textbook.gate.weight.grad),
        ("E", decoder.embed.weight.grad, textbook.embed.weight.grad),
        (
            "LSTM, word and context",
            in_cell_order(torch.cat((decoder.gates_from_word.weight.grad, from_state[:, hidden:]), 1)),
            textbook.cell.weight_ih.grad,
        ),
        ("LSTM, hidden", in_cell_order(from_state[:, :hidden]), textbook.cell.weight_hh.grad),
        ("LSTM, bias", in_cell_order(decoder.gates_from_word.bias.grad), textbook.cell.bias_ih.grad),
        ("L_h", readout.from_hidden.weight.grad, textbook.from_hidden.weight.grad),
        ("L_z", readout.from_context.weight.grad, textbook.from_context.weight.grad),
        ("L_o", readout.to_words.weight.grad, textbook.to_words.weight.grad),
    ]
