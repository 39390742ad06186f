"""Search for captions: ours, for all photos at once, and the textbook's greedy search, photo by photo."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from caption import textbook
from caption.decoders import ShowAttendAndTellDecoder
from caption.search import BeamSearch, Greedy, Search
from caption.text.vocabulary import END, PAD, START, UNKNOWN
from tools.benchmark import core
from tools.benchmark.harness import Setting, say, take_turns
from tools.benchmark.textbook import textbook_of
from tools.documents import table

PHOTOS = 16
"""Photos that the textbook captions. It takes the photos one at a time, so its time is scaled to all of them."""
GREEDY, TEXTBOOK = "greedy", "textbook, float32"
SEARCHES: dict[str, Search] = {
    GREEDY: Greedy(core.STEPS),
    f"beam {core.BEAM}": BeamSearch(core.BEAM, core.STEPS),
}
NEVER = -1e4
"""The bias of a logit with which its word is never the best."""


def search(setting: Setting) -> str:
    """Greedy search in both forms, and our beam search."""
    rows = []
    images = core.SEARCHED // 8 if setting.quick else core.SEARCHED
    for region_size in (2048, 512):
        decoder = core.make_captioner(region_size, setting.device).decoder.eval()
        never_end(decoder)
        vectors = core.make_vectors(images, region_size, setting.device)
        for name, of in SEARCHES.items():
            say(f"{name}, D {region_size}")
            forms = {
                f"ours, {precision}": partial(find, decoder, vectors, of, low)
                for precision, low in (("float32", False), ("bf16", True))
            }
            if name == GREEDY:
                forms = {TEXTBOOK: partial(find_one_by_one, textbook_of(decoder), vectors[:PHOTOS])} | forms
            rows += [[str(region_size), name, *row] for row in compare(forms, len(vectors), setting)]
    return table(["D", "search", "form", "time", "times as fast", "same captions"], rows)


@torch.no_grad()
def never_end(decoder: ShowAttendAndTellDecoder) -> None:
    """Make some words much more probable than others, and captions as long as the search allows."""
    decoder.readout.to_words.weight *= 30
    decoder.readout.to_words.bias[[PAD, START, END, UNKNOWN]] = NEVER


def find(decoder: ShowAttendAndTellDecoder, vectors: Tensor, search: Search, low: bool) -> list[list[int]]:
    """The captions of all photos, found at once."""
    with torch.autocast(vectors.device.type, torch.bfloat16, enabled=low):
        hypotheses = core.find_captions(decoder, vectors, search)
    lengths = hypotheses.lengths[:, 0].tolist()
    return [words[:length] for words, length in zip(hypotheses.words[:, 0].tolist(), lengths, strict=True)]


def find_one_by_one(decoder: textbook.Decoder, vectors: Tensor) -> list[list[int]]:
    """The captions of the textbook's greedy search."""
    return [decoder.greedy(regions, core.STEPS)[0] for regions in vectors.split(1)]


def compare(forms: dict[str, Callable[[], Any]], images: int, setting: Setting) -> list[list[str]]:
    """A row for each form. The first is the reference: the captions of the others should equal its captions."""
    reference = next(iter(forms))
    expected = forms[reference]()
    times = take_turns(forms, setting)
    times.seconds[reference][:] = [seconds * images / len(expected) for seconds in times.seconds[reference]]
    rows = []
    for name, run in forms.items():
        same = sum(caption == actual for caption, actual in zip(expected, run(), strict=False))
        rows.append(
            [name, *times.row(name, reference), "" if name == reference else f"{same} of {len(expected)}"]
        )
    return rows
