"""Search for captions: ours, for all photos at once, and the textbook's, photo by photo."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from caption.decoders import LSTMDecoder
from caption.search import BeamSearch, Greedy, Hypotheses, Sampling, Search
from tools.benchmark import core
from tools.benchmark.harness import Setting, say, take_turns
from tools.benchmark.textbook import Found, Textbook, textbook_of
from tools.documents import table

PHOTOS = 16
"""Photos that the textbook captions. Its time is multiplied, since it takes the photos one at a time."""
NEVER = (core.PAD, core.START, core.UNKNOWN)
SEARCHES: dict[str, Search] = {
    f"beam {core.BEAM}": BeamSearch(core.BEAM, core.STEPS),
    "greedy": Greedy(core.STEPS),
    "sampling": Sampling(max_length=core.STEPS, seed=0),
}


def search(setting: Setting) -> str:
    """Beam search, greedy search and sampling, each in three forms."""
    rows = []
    images = core.SEARCHED // 8 if setting.quick else core.SEARCHED
    ends = {f"{core.STEPS}": (*NEVER, core.END), f"up to {core.STEPS}": NEVER}
    for region_size in (2048, 512):
        decoder = core.make_decoder(region_size, setting.device).eval()
        with torch.no_grad():  # some words much more probable than others; captions end after about ten words
            decoder.readout.to_words.weight *= 30
            decoder.readout.to_words.bias[core.END] = 4.0
        vectors = core.make_vectors(images, region_size, setting.device)
        for name, (words, forbidden) in product(SEARCHES, ends.items()):
            say(f"{name}, D {region_size}, {words} words")
            contest = Contest(decoder, textbook_of(decoder), vectors, name, forbidden)
            rows += [[str(region_size), name, words, *row] for row in contest.rows(setting)]
    head = ["D", "search", "words", "form", "time", "times as fast", "same captions", "log-probabilities"]
    return table(head, rows)


class Contest(NamedTuple):
    """Photos to caption, and both ways to do it."""

    decoder: LSTMDecoder
    textbook: Textbook
    vectors: Tensor
    name: str
    """Of the search."""
    forbidden: tuple[int, ...]
    """Words that are never emitted."""

    def ours(self, low: bool = False) -> Hypotheses:
        """All photos at once."""
        with torch.autocast(self.vectors.device.type, torch.bfloat16, enabled=low):
            return core.find_captions(self.decoder, self.vectors, SEARCHES[self.name], self.forbidden)

    def theirs(self) -> list[Found]:
        """The first photos, one after another. Sampling uses the numbers that ours draws with seed 0."""
        photos = self.vectors[:PHOTOS].split(1)
        given = (core.START, core.END)
        if self.name == "sampling":
            generator = torch.Generator().manual_seed(0)
            shape = (len(self.vectors), core.STEPS)
            chance = torch.rand(shape, dtype=torch.float64, generator=generator)
            return [
                self.textbook.sample(*each, *given, self.forbidden)
                for each in zip(photos, chance, strict=False)
            ]
        beam = 1 if self.name == "greedy" else core.BEAM
        return [
            self.textbook.beam_search(photo, *given, beam, core.STEPS, self.forbidden) for photo in photos
        ]

    def rows(self, setting: Setting) -> list[list[str]]:
        """A row for each form."""
        expected = self.theirs()
        forms: dict[str, Callable[[], Any]] = {
            "textbook, float32": self.theirs,
            "ours, float32": self.ours,
            "ours, bf16": partial(self.ours, low=True),
        }
        reference, *others = forms
        agreement = {reference: ["", ""], **{name: compare_found(forms[name](), expected) for name in others}}
        times = take_turns(forms, setting)
        more = len(self.vectors) / len(expected)
        times.seconds[reference][:] = [taken * more for taken in times.seconds[reference]]
        return [[name, *times.row(name, reference), *agreement[name]] for name in forms]


def compare_found(found: Hypotheses, expected: list[Found]) -> list[str]:
    """How many of the first captions are the same, and the largest difference of their log-probabilities."""
    differences = [
        abs(float(found.log_probs[i, 0]) - caption.log_prob)
        for i, caption in enumerate(expected)
        if found.words[i, 0, : int(found.lengths[i, 0])].tolist() == caption.words
    ]
    largest = f"{max(differences):.0e}" if differences else ""
    return [f"{len(differences)} of {len(expected)}", largest]
