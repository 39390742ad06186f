"""Search for captions, ours and the textbook's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from speed_common import Setting, make_decoder, make_regions, say, table, take_turns
from textbook import Found, Textbook, textbook_of
from torch import Tensor

from caption.decoders import DeepOutput, LSTMDecoder
from caption.search import BeamSearch, Greedy, Hypotheses, Sampling, Search
from caption.text.vocabulary import END, PAD, START, UNKNOWN

IMAGES, STEPS, BEAM = 64, 20, 5
PHOTOS = 16
"""That the textbook captions; one at a time, so all of them take as many times longer as there are more."""
NEVER = (PAD, START, UNKNOWN)
Forbidden = tuple[int, ...]
One = Callable[[Tensor, int, Forbidden], Found]
"""(a photo's regions (1, L, D), its place in the batch, what is never emitted) -> its caption."""
HEAD = ["D", "search", "words", "form", "time", "times as fast", "same captions", "log-probabilities"]


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    rows: list[list[str]] = []
    for region_size in (2048, 512):
        rows += compare(region_size, setting)
    return [
        "## Search",
        "",
        f"{IMAGES} photos, L 196, V 9,500, at most {STEPS} words each. The textbook searches one photo at a time, each",
        f"hypothesis with its own copy of the photo's regions; its time is that of {PHOTOS} photos, multiplied.",
        f"Ours searches all at once. *Words*: all captions take {STEPS} steps (the end word is forbidden), or they end",
        "when they end, and finished photos leave the batch. *Same captions*: how many photos get word for word the",
        "caption that the textbook finds. *Log-probabilities*: the largest difference of those captions', in nats.",
        "",
        *table(HEAD, rows),
    ]


def compare(region_size: int, setting: Setting) -> list[list[str]]:
    """Two or three rows for each search."""
    decoder = make_decoder(region_size, setting.device).eval()
    sharpen(decoder)
    images = 8 if setting.quick else IMAGES
    regions = make_regions(images, region_size, setting.device)
    chance = torch.rand(images, 1, STEPS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = []
    for name, (search, one) in searches(textbook_of(decoder), chance).items():
        for words, forbidden in ((f"{STEPS}", (*NEVER, END)), (f"up to {STEPS}", NEVER)):
            say(f"{name}, D {region_size}, {words} words")
            contest = Contest(decoder, regions, search, one, forbidden)
            rows += [[str(region_size), name, words, *row] for row in contest.rows(setting)]
    return rows


def searches(textbook: Textbook, chance: Tensor) -> dict[str, tuple[Search, One]]:
    """Ours, and the textbook's for one photo, by name; sampling with `chance` (B, 1, T), that of seed 0."""
    return {
        f"beam {BEAM}": (
            BeamSearch(BEAM, STEPS),
            lambda photo, i, forbidden: textbook.beam_search(photo, START, END, BEAM, STEPS, forbidden),
        ),
        "greedy": (
            Greedy(STEPS),
            lambda photo, i, forbidden: textbook.beam_search(photo, START, END, 1, STEPS, forbidden),
        ),
        "sampling": (
            Sampling(max_length=STEPS, seed=0),
            lambda photo, i, forbidden: textbook.sample(photo, START, END, chance[i, 0], forbidden),
        ),
    }


def sharpen(decoder: LSTMDecoder) -> None:
    """Weights that make some words much more probable than others, and let captions end after some ten words."""
    assert isinstance(decoder.readout, DeepOutput)
    with torch.no_grad():
        decoder.readout.to_words.weight *= 30
        decoder.readout.to_words.bias[END] = 4.0


class Contest(NamedTuple):
    """Photos to caption, and both ways to do it."""

    decoder: LSTMDecoder
    regions: Tensor
    search: Search
    one: One
    forbidden: Forbidden

    def ours(self, low: bool = False) -> Hypotheses:
        """All photos at once."""
        decoder, device = self.decoder, self.regions.device
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=low):
            state = decoder.start(decoder.project(self.regions))
            return self.search(decoder.step, state, len(self.regions), START, END, self.forbidden)

    def theirs(self) -> list[Found]:
        """The first photos, one after another."""
        photos = enumerate(self.regions[:PHOTOS].split(1))
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
        agreement = {reference: ["", ""]}
        for name in others:
            agreement[name] = compare_found(forms[name](), expected)
        times = take_turns(forms, setting)
        times.seconds[reference][:] = [
            taken * len(self.regions) / len(expected) for taken in times.seconds[reference]
        ]
        return [[name, *times.row(name, reference), *agreement[name]] for name in forms]


def compare_found(found: Hypotheses, expected: list[Found]) -> list[str]:
    """How many of the first captions are the same, and the largest difference of their log-probabilities."""
    same, furthest = 0, 0.0
    for i, caption in enumerate(expected):
        words = found.words[i, 0, : int(found.lengths[i, 0])].tolist()
        if words == caption.words:
            same += 1
            furthest = max(furthest, abs(float(found.log_probs[i, 0]) - caption.log_prob))
    return [f"{same} of {len(expected)}", f"{furthest:.0e}" if same else ""]
