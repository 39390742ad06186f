"""Search for captions: ours, for all photos at once, and the textbook's, photo by photo."""

from __future__ import annotations

from collections.abc import Callable
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
Forbidden = tuple[int, ...]
One = Callable[[Tensor, int, Forbidden], Found]
"""(a photo's regions (1, L, D), its place in the batch, what is never emitted) -> its caption."""


def search(setting: Setting) -> str:
    """Beam search, greedy search and sampling, each in three forms."""
    rows = []
    for region_size in (2048, 512):
        decoder = core.make_decoder(region_size, setting.device).eval()
        sharpen(decoder)
        images = core.SEARCHED // 8 if setting.quick else core.SEARCHED
        vectors = core.make_vectors(images, region_size, setting.device)
        generator = torch.Generator().manual_seed(0)
        chance = torch.rand(images, 1, core.STEPS, dtype=torch.float64, generator=generator)
        for name, (found, one) in searches(textbook_of(decoder), chance).items():
            for words, forbidden in ((f"{core.STEPS}", (*NEVER, core.END)), (f"up to {core.STEPS}", NEVER)):
                say(f"{name}, D {region_size}, {words} words")
                contest = Contest(decoder, vectors, found, one, forbidden)
                rows += [[str(region_size), name, words, *row] for row in contest.rows(setting)]
    head = ["D", "search", "words", "form", "time", "times as fast", "same captions", "log-probabilities"]
    return table(head, rows)


def searches(textbook: Textbook, chance: Tensor) -> dict[str, tuple[Search, One]]:
    """Our search and the textbook's for one photo, by name; `chance` (B, 1, T) is what sampling draws with seed 0."""

    def beam(size: int) -> One:
        return lambda photo, i, forbidden: textbook.beam_search(
            photo, core.START, core.END, size, core.STEPS, forbidden
        )

    def sample(photo: Tensor, i: int, forbidden: Forbidden) -> Found:
        return textbook.sample(photo, core.START, core.END, chance[i, 0], forbidden)

    return {
        f"beam {core.BEAM}": (BeamSearch(core.BEAM, core.STEPS), beam(core.BEAM)),
        "greedy": (Greedy(core.STEPS), beam(1)),
        "sampling": (Sampling(max_length=core.STEPS, seed=0), sample),
    }


@torch.no_grad()
def sharpen(decoder: LSTMDecoder) -> None:
    """Make some words much more probable than others, and let captions end after about ten words."""
    decoder.readout.to_words.weight *= 30
    decoder.readout.to_words.bias[core.END] = 4.0


class Contest(NamedTuple):
    """Photos to caption, and both ways to do it."""

    decoder: LSTMDecoder
    vectors: Tensor
    search: Search
    one: One
    forbidden: Forbidden

    def ours(self, low: bool = False) -> Hypotheses:
        """All photos at once."""
        with torch.autocast(self.vectors.device.type, torch.bfloat16, enabled=low):
            return core.find_captions(self.decoder, self.vectors, self.search, self.forbidden)

    def theirs(self) -> list[Found]:
        """The first photos, one after another."""
        photos = enumerate(self.vectors[:PHOTOS].split(1))
        return [self.one(photo, i, self.forbidden) for i, photo in photos]

    def rows(self, setting: Setting) -> list[list[str]]:
        """A row for each form."""
        expected = self.theirs()
        forms: dict[str, Callable[[], Any]] = {
            "textbook, float32": self.theirs,
            "ours, float32": self.ours,
            "ours, bf16": lambda: self.ours(low=True),
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
