"""A captioner whose reasons are known: word number j depends on region j, and where it looks is given by the test.

Six regions, 2 x 3, region i being the i-th unit vector, so that the context is what was read of each region. The logit
of word j is STRENGTH times what was read of region j; all other words have 0. A photo's grey value says by how many
regions its maps are turned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from caption.attention import Attention, Look, Memory
from caption.captioner import Captioner
from caption.data.images import ImageTransform
from caption.decoders import Decoder, Trace, Unrolled
from caption.encoders.base import Encoder, Regions
from caption.result import Caption
from caption.tensor_tree import State, TensorTree
from caption.text.vocabulary import Vocabulary

ROWS, COLS = 2, 3
REGIONS = ROWS * COLS
WORDS = ("zero", "one", "two", "three", "four", "five")
VOCABULARY = 4 + len(WORDS)
STRENGTH = 8.0


class UnitRegions(Encoder):
    """Region i is the i-th unit vector, and one more number, the grey value of the photo."""

    region_size = REGIONS + 1

    def forward(self, images: Tensor) -> Regions:
        grey = images[:, 0, 0, 0].float()
        units = torch.eye(REGIONS).expand(len(images), -1, -1)
        return Regions(torch.cat((units, grey[:, None, None].expand(-1, REGIONS, 1)), 2), (ROWS, COLS))


class GivenMaps(Attention):
    """Looks at step t where row t of a table says, whatever it is asked. Any further region is masked: it gets 0."""

    def __init__(self, table: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.table = torch.tensor(table)

    def build(self, region_size: int, query_size: int) -> None:
        self.context_size = region_size

    def project(self, regions: Tensor, mask: Tensor | None = None) -> Memory:
        return Memory(regions, regions, mask)

    def forward(self, query: Tensor, memory: Memory, state: TensorTree = None) -> Look:
        images, hypotheses, _ = query.shape
        turns = memory.values[:, 0, -1].long().tolist()
        steps = query[..., 0].long().clamp_max(len(self.table) - 1)
        maps = torch.stack([self.table[steps[b]].roll(turn, -1) for b, turn in enumerate(turns)])
        weights = torch.zeros(images, hypotheses, memory.values.shape[1])
        weights[..., :REGIONS] = maps
        return Look(weights @ memory.values, weights)


class Count(NamedTuple):
    step: Tensor
    attention: TensorTree


class OneRegionPerWord(Decoder):
    """See above."""

    query_size = 1

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        self.anchor = nn.Parameter(torch.zeros(()))  # says on which device the model is

    def build(self, region_size: int, vocabulary_size: int, padding: int, start: int) -> None:
        self.attention.build(region_size, 1)

    def project(self, regions: Tensor, mask: Tensor | None = None) -> Memory:
        return self.attention.project(regions, mask)

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        step = torch.zeros(len(memory.values), hypotheses, 1)
        return State(memory, Count(step, self.attention.start(memory, hypotheses)), None)

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        look = self.attention(state.carried.step, state.shared, state.carried.attention)
        said = torch.cat(
            (look.context.new_zeros(*words.shape, 4), STRENGTH * look.context[..., :REGIONS]), -1
        )
        carried = Count(state.carried.step + 1, look.state)
        return said.log_softmax(-1), State(state.shared, carried, Trace(look.weights))

    def forward(self, memory: TensorTree, words: Tensor, lengths: Tensor) -> Unrolled:
        raise NotImplementedError


def captioner(*maps: Sequence[float]) -> Captioner:
    """One that looks where the maps say, step by step; the last is for all further steps."""
    decoder = OneRegionPerWord(GivenMaps(maps))
    return Captioner(UnitRegions(), decoder, Vocabulary(WORDS), ImageTransform(8, "squash")).eval()


def photo(turn: int = 0) -> Image.Image:
    return Image.new("RGB", (8, 8), (turn, turn, turn))


def told(sentence: str, weights: Any = None) -> Caption:
    """What was said about a photo; its maps are nobody's unless given."""
    words = sentence.split()
    maps = np.full((len(words), ROWS, COLS), 1 / REGIONS) if weights is None else weights
    return Caption(sentence, words, maps, 0.0, np.zeros(len(words)), (0, 0, 8, 8))


def log_p(word: int, read: Sequence[float]) -> float:
    """log p of word number `word`, with so much read of each region."""
    total = sum(math.exp(STRENGTH * amount) for amount in read) + 4
    return STRENGTH * read[word] - math.log(total)
