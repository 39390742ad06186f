"""Captions with slots: a noun that the lens reads where it is said becomes "the thing that it looks at"."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from caption.analysis.lens import Lens, read_weights
from caption.analysis.lens.lens import SURE
from caption.captioner import Captioner
from caption.data.files import read_text
from caption.features.store import FeatureStore
from caption.regions import Regions
from caption.result import Caption
from caption.runtime.files import replacing
from caption.text.nouns import GENERAL
from caption.text.vocabulary import PAD, START

SLOTS = ("onething", "manythings")
"""The slots for one and for several things: two words, so that the decoder learns the number as it learns grammar."""
BATCH = 50


class Reader:
    """Reads the likeliest thing in maps of a photo, but for people, whom the classes hardly know."""

    def __init__(self, lens: Lens) -> None:
        self.lens = lens
        nouns = lens.nouns
        self.places = [
            place
            for place, noun in enumerate(nouns.names)
            if noun not in GENERAL and "person" not in nouns.chain(noun)
        ]

    def __call__(self, regions: Regions, weights: Tensor) -> list[tuple[str, float]]:
        """Everyday noun and probability for each of the maps (T, L) over the regions (1, L, D) of a photo."""
        nouns, found = self.lens.nouns, []
        for probabilities in self.lens.probabilities(regions, weights[None])[0]:
            p, place = probabilities[self.places].max(0)
            noun = self.lens.less_general(nouns.names[self.places[int(place)]], probabilities)
            found.append((nouns.everyday(noun), float(p)))
        return found


def write_slots(
    captioner: Captioner, lens: Lens, store: FeatureStore, captions: Path, photos: Path, out: Path
) -> None:
    """Write a token file with slots in the captions of the training photos, and beside it which word each thing had.

    Args:
        captioner: whose maps explain the words, fed with the captions.
        lens: calibrated for it.
        store: regions of all photos.
        captions: token file.
        photos: list of the training photos.
        out: the new token file; `out` with the suffix .json says for each noun which words were replaced, how often.
    """
    lines = [line.partition("\t") for line in read_text(captions).splitlines()]
    training = set(read_text(photos).split())
    of_photo: dict[str, list[int]] = defaultdict(list)
    for number, (key, _, _) in enumerate(lines):
        if (photo := key.rpartition("#")[0]) in training:
            of_photo[photo].append(number)
    texts = [text for _, _, text in lines]
    replaced: dict[str, Counter[str]] = defaultdict(Counter)
    for numbers, changed in _with_slots(captioner, Reader(lens), store, of_photo, texts, replaced):
        for number, text in zip(numbers, changed, strict=True):
            texts[number] = text
    with replacing(out.with_suffix(".json")) as file:
        file.write(json.dumps({noun: dict(counts) for noun, counts in sorted(replaced.items())}).encode())
    with replacing(out) as file:
        file.write(
            "".join(f"{key}\t{text}\n" for (key, _, _), text in zip(lines, texts, strict=True)).encode()
        )


@torch.no_grad()
def _with_slots(
    captioner: Captioner,
    read: Reader,
    store: FeatureStore,
    of_photo: Mapping[str, list[int]],
    texts: Sequence[str],
    replaced: dict[str, Counter[str]],
) -> Iterator[tuple[list[int], list[str]]]:
    vocabulary, names = captioner.vocabulary, list(of_photo)
    for first in range(0, len(names), BATCH):
        batch = names[first : first + BATCH]
        views = store.read_many(batch)
        views = tuple(view._replace(vectors=view.vectors.float()) for view in views)
        words = [[vocabulary.tokenizer(texts[number]) for number in of_photo[name]] for name in batch]
        most = max(map(len, words))
        flat = [
            torch.tensor([START, *(vocabulary[word] for word in own[:-1])][: len(own)])
            for captions in words
            for own in [*captions, *[[]] * (most - len(captions))]
        ]
        lengths = torch.tensor([len(ids) for ids in flat]).view(len(batch), most)
        inputs = pad_sequence(flat, batch_first=True, padding_value=PAD).long().view(len(batch), most, -1)
        unrolled = captioner.unroll(views, inputs, lengths)
        weights = unrolled.unpack(unrolled.trace.weights)
        for index, name in enumerate(batch):
            part = slice(index, index + 1)
            regions = Regions(views[0].vectors[part], views[0].grid)
            changed = [
                _replace(read, regions, own, weights[index, caption, : len(own)], replaced)
                for caption, own in enumerate(words[index])
            ]
            yield of_photo[name], changed


def _replace(
    read: Reader, regions: Regions, words: Sequence[str], weights: Tensor, replaced: dict[str, Counter[str]]
) -> str:
    """A caption whose nouns that the lens reads at their own maps (T, L) are slots."""
    nouns, result = read.lens.nouns, list(words)
    steps = [
        step
        for step, word in enumerate(words)
        if any(noun not in GENERAL and "person" not in nouns.chain(noun) for noun in nouns.of_word(word))
    ]
    if steps:
        for step, (seen, p) in zip(steps, read(regions, weights[steps]), strict=True):
            if p >= SURE and any(nouns.related(seen, noun) for noun in nouns.of_word(words[step])):
                result[step] = SLOTS[is_plural(read.lens, words[step])]
                replaced[seen][words[step]] += 1
    return " ".join(result)


def is_plural(lens: Lens, word: str) -> bool:
    """Whether a word is a plural that differs from its singular."""
    pairs = [pair for noun in lens.nouns.of_word(word) for pair in lens.nouns.forms[noun]]
    return any(word == many != one for one, many in pairs) and not any(word == one for one, _ in pairs)


def fill(lens: Lens, regions: Regions, caption: Caption, replaced: Mapping[str, Mapping[str, int]]) -> str:
    """The text of a caption with its slots filled: with the thing that the lens reads at each, in its number.

    Args:
        lens: calibrated.
        regions: (1, L, D) of the encoder.
        caption: with weights over them.
        replaced: for each noun the words that became slots, with their counts: of the noun's own words the most
            frequent one is said. A noun that never became a slot is called by its name.
    """
    steps = [step for step, word in enumerate(caption.words) if word in SLOTS]
    words = list(caption.words)
    if steps:
        maps = torch.from_numpy(read_weights(caption)).flatten(1)[steps]
        for step, (seen, _) in zip(steps, Reader(lens)(regions, maps), strict=True):
            counts, number = replaced.get(seen, {}), SLOTS.index(words[step])
            pairs = lens.nouns.forms[seen]
            words[step] = max(pairs, key=lambda pair: sum(counts.get(form, 0) for form in pair))[number]
    return " ".join(words)
