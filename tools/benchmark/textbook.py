"""The decoder as it is usually written: the reference of the benchmark.

It follows the widely used re-implementations of "Show, Attend and Tell": each caption has its own copy of its image,
the attention projects all regions at every step, an `LSTMCell` takes word and context concatenated, the output layer
runs inside the loop, and beam search captions one photo at a time. It also follows them in two good habits: captions
are sorted by length so that finished ones leave the batch, and the loss reads real words only.

It computes the same as `caption.decoders.LSTMDecoder` with additive soft attention, gate and deep output, so the same
weights give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.decoders import LSTMDecoder


class Found(NamedTuple):
    """A caption found by search."""

    words: list[int]
    """Without start and end."""
    log_prob: float
    """Of the whole caption, with the end word if there is one."""


class Step(NamedTuple):
    """One step of N captions: Ey[t-1] (N, E), z[t] (N, D), h[t] and c[t] (N, H), α[t] (N, L)."""

    embedded: Tensor
    context: Tensor
    hidden: Tensor
    cell: Tensor
    weights: Tensor


class Textbook(nn.Module):
    """Sizes: embedding E, LSTM H, attention A, regions D, words V."""

    def __init__(
        self, region_size: int, vocabulary: int, embedding: int = 512, hidden: int = 512, attention: int = 512
    ) -> None:
        super().__init__()
        self.region = nn.Linear(region_size, attention)
        self.query = nn.Linear(hidden, attention, bias=False)
        self.energy = nn.Linear(attention, 1, bias=False)
        self.initial_hidden = nn.Linear(region_size, hidden)
        self.initial_cell = nn.Linear(region_size, hidden)
        self.gate = nn.Linear(hidden, 1)
        self.embed = nn.Embedding(vocabulary, embedding)
        self.cell = nn.LSTMCell(embedding + region_size, hidden)
        self.from_hidden = nn.Linear(hidden, embedding)
        self.from_context = nn.Linear(region_size, embedding, bias=False)
        self.to_words = nn.Linear(embedding, vocabulary)

    def start(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Regions (N, L, D) -> h[0], c[0] (N, H)."""
        mean = regions.mean(1)
        return self.initial_hidden(mean).tanh(), self.initial_cell(mean).tanh()

    def step(
        self, regions: Tensor, words: Tensor, hidden: Tensor, cell: Tensor, keys: Tensor | None = None
    ) -> Step:
        """Regions (N, L, D), words (N,), h and c (N, H), and the projected regions (N, L, A) if they are at hand."""
        keys = self.region(regions) if keys is None else keys
        joined = torch.tanh(keys + self.query(hidden).unsqueeze(1))
        weights = self.energy(joined).squeeze(2).softmax(1)
        context = torch.sigmoid(self.gate(hidden)) * self.read(regions, weights)
        embedded = self.embed(words)
        hidden, cell = self.cell(torch.cat([embedded, context], 1), (hidden, cell))
        return Step(embedded, context, hidden, cell, weights)

    def read(self, regions: Tensor, weights: Tensor) -> Tensor:
        """Regions (N, L, D), α (N, L) -> their average (N, D)."""
        return (regions * weights.unsqueeze(2)).sum(1)

    def logits(self, embedded: Tensor, context: Tensor, hidden: Tensor) -> Tensor:
        """(N, V)."""
        return self.to_words(embedded + self.from_hidden(hidden) + self.from_context(context))

    def steps(
        self, regions: Tensor, words: Tensor, lengths: Tensor, keys: Tensor | None = None
    ) -> Iterator[Step]:
        """The steps of captions sorted by length, the longest first; each of the captions that are not finished."""
        hidden, cell = self.start(regions)
        for t in range(int(lengths[0])):
            n = int((lengths > t).sum())
            projected = None if keys is None else keys[:n]
            taken = self.step(regions[:n], words[:n, t], hidden[:n], cell[:n], projected)
            hidden, cell = taken.hidden, taken.cell
            yield taken

    def forward(self, regions: Tensor, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Teacher forcing: regions (N, L, D), words (N, T), lengths (N,) -> logits (N, T, V) and α (N, T, L).

        Both are zero behind the lengths, and of captions in the order (N,) that is returned third.
        """
        lengths, order = lengths.sort(descending=True)
        logits = regions.new_zeros(len(words), int(lengths[0]), self.to_words.out_features)
        alphas = regions.new_zeros(len(words), int(lengths[0]), regions.shape[1])
        for t, taken in enumerate(self.steps(regions[order], words[order], lengths)):
            n = len(taken.hidden)
            logits[:n, t], alphas[:n, t] = self.logits(*taken[:3]), taken.weights
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
        self, regions: Tensor, start: int, end: int, beam: int, max_length: int, forbidden: tuple[int, ...]
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
            taken = self.step(regions[:live], words[:, -1], hidden, cell)
            scores = self.logits(*taken[:3]).log_softmax(1)
            scores[:, list(forbidden)] = -torch.inf
            scores = totals[:, None] + scores
            if length == 0:
                scores = scores[:1]  # all hypotheses are the same
            totals, chosen = scores.flatten().topk(beam)
            parents, following = chosen // vocabulary, chosen % vocabulary
            words = torch.cat([words[parents], following[:, None]], 1)
            ended = following == end
            done += [Found(words[i, 1:-1].tolist(), float(totals[i])) for i in ended.nonzero()[:, 0].tolist()]
            if ended.all():
                break
            words, totals, parents = words[~ended], totals[~ended], parents[~ended]
            hidden, cell = taken.hidden[parents], taken.cell[parents]
            if done and max(found.log_prob for found in done) >= float(totals.max()):
                break
        if not done:
            best = int(totals.argmax())
            return Found(words[best, 1:].tolist(), float(totals[best]))
        return max(done, key=lambda found: found.log_prob)

    @torch.no_grad()
    def sample(
        self, regions: Tensor, chance: Tensor, start: int, end: int, forbidden: tuple[int, ...] = ()
    ) -> Found:
        """A caption of one photo, regions (1, L, D), drawn word by word with the numbers `chance` (T,) of [0, 1)."""
        hidden, cell = self.start(regions)
        word = torch.full((1,), start, device=regions.device)
        words: list[int] = []
        total = 0.0
        for number in chance.tolist():
            taken = self.step(regions, word, hidden, cell)
            hidden, cell = taken.hidden, taken.cell
            scores = self.logits(*taken[:3])[0].log_softmax(0)
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
    """The textbook form of a decoder, with copies of its weights and without its dropout.

    The decoder has additive soft attention, a scalar gate, `InitialState` of one layer and a linear `DeepOutput`.
    """
    weights = in_textbook_form(decoder)
    attention, region_size = weights["region.weight"].shape
    vocabulary, embedding = weights["embed.weight"].shape
    made = Textbook(region_size, vocabulary, embedding, decoder.hidden_size, attention)
    made.to(decoder.embed.weight).load_state_dict(weights)
    return made


def in_textbook_form(
    decoder: LSTMDecoder, of: Callable[[nn.Parameter], Tensor] = lambda parameter: parameter.detach()
) -> dict[str, Tensor]:
    """A decoder's weights, or something else of each such as its gradient, by the textbook's names.

    `LSTMCell` has two biases where the decoder has one: the second is zero.
    """
    score, initial, readout = decoder.attention.score, decoder.initial, decoder.readout
    modules = {
        "region": score.region,
        "query": score.query,
        "energy": score.energy,
        "initial_hidden": initial.hidden[0],
        "initial_cell": initial.cell[0],
        "gate": decoder.gate.project,
        "embed": decoder.embed,
        "from_hidden": readout.from_hidden,
        "from_context": readout.from_context,
        "to_words": readout.to_words,
    }
    found = {
        f"{name}.{key}": of(p) for name, module in modules.items() for key, p in module.named_parameters()
    }
    from_word, bias = of(decoder.gates_from_word.weight), of(decoder.gates_from_word.bias)
    from_hidden, from_context = of(decoder.gates_from_state.weight).tensor_split([decoder.hidden_size], 1)
    found["cell.weight_ih"] = _in_cell_order(torch.cat((from_word, from_context), 1))
    found["cell.weight_hh"] = _in_cell_order(from_hidden)
    found["cell.bias_ih"], found["cell.bias_hh"] = _in_cell_order(bias), torch.zeros_like(bias)
    return found


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the gradients of a decoder or a textbook, by the textbook's names."""
    if isinstance(model, LSTMDecoder):
        found = in_textbook_form(model, lambda parameter: parameter.grad)
    else:
        found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: grad.clone() for name, grad in found.items() if name != "cell.bias_hh"}


def _in_cell_order(rows: Tensor) -> Tensor:
    """Gates i, f, o, g (4H, ...) in the order of `LSTMCell`: i, f, g, o."""
    i, f, o, g = rows.chunk(4)
    return torch.cat((i, f, g, o))
