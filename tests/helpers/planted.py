"""A captioner with known dependences: word j depends on region j, and each test sets its maps.

There are six regions, 2 x 3, and region i is the i-th unit vector, so the context equals the weights. The logit of word
j is STRENGTH times the weight of region j; all other words have 0. A photo's grey value is the number of regions by
which its maps are rotated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from caption.attention import Attention, Query, QuerySizes, ReadOutput, WeighOutput
from caption.captioner import Captioner
from caption.core.regions import Regions, Views
from caption.core.tensor_tree import State, TensorTree
from caption.data.photos import ImageTransform
from caption.decoders.base import Decoder, Memory, Trace, Unrolled
from caption.encoders import Encoder
from caption.results.caption import Caption
from caption.text.vocabulary import Vocabulary

ROWS, COLS = 2, 3
REGIONS = ROWS * COLS
WORDS = ("zero", "one", "two", "three", "four", "five")
VOCABULARY = 4 + len(WORDS)
STRENGTH = 8.0


class UnitRegions(Encoder):
    """Region i is the i-th unit vector, and one more number, the grey value of the photo."""

    region_sizes = (REGIONS + 1,)

    def forward(self, images: Tensor) -> Views:
        grey = images[:, 0, 0, 0].float()
        units = torch.eye(REGIONS).expand(len(images), -1, -1)
        vectors = torch.cat((units, grey[:, None, None].expand(-1, REGIONS, 1)), 2)
        return (Regions(vectors, (ROWS, COLS)),)


class GivenMaps(Attention):
    """Uses row t of a table as the weights of step t, independent of the query."""

    def __init__(self, table: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.table = torch.tensor(table, dtype=torch.float32)

    def memory(self, views: Views) -> Tensor:
        return views[0].vectors

    def weigh(self, query: Query, memory: Tensor, state: TensorTree) -> WeighOutput:
        turns = memory[:, 0, -1].long().tolist()
        steps = query.hidden[..., 0].long().clamp_max(len(self.table) - 1)
        return WeighOutput(torch.stack([self.table[steps[b]].roll(turn, -1) for b, turn in enumerate(turns)]))

    def read(
        self, maps: Tensor, query: Query, memory: Tensor, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        return ReadOutput(maps @ memory)


class Count(NamedTuple):
    step: Tensor
    attention: TensorTree


class OneRegionPerWord(Decoder):
    """The decoder described in the module's docstring."""

    query_size = 1

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        self.anchor = nn.Parameter(torch.zeros(()))  # gives the device

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        self.attention.build(region_sizes, QuerySizes(1))

    def project(self, views: Views) -> Memory:
        return Memory(views, (self.attention.project(views),))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        step = torch.zeros(len(memory.views[0].vectors), hypotheses, 1)
        return State(memory, Count(step, self.attention.start(memory.projected[0], hypotheses)), None)

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        step, attending = state.carried
        output = self.attention(Query(step), state.shared.projected[0], attending)
        read = output.context[..., :REGIONS]
        said = torch.cat((read.new_zeros(*words.shape, 4), STRENGTH * read), -1)
        return said.log_softmax(-1), State(state.shared, Count(step + 1, output.state), Trace.of(output))

    def forward(self, memory: TensorTree, words: Tensor, lengths: Tensor) -> Unrolled:
        raise NotImplementedError


def captioner(*maps: Sequence[float]) -> Captioner:
    """A captioner with these maps, one per step; the last is used for all further steps."""
    decoder = OneRegionPerWord(GivenMaps(maps))
    return Captioner(UnitRegions(), decoder, Vocabulary(WORDS), ImageTransform(8, "squash")).eval()


def photo(turn: int = 0) -> Image.Image:
    return Image.new("RGB", (8, 8), (turn, turn, turn))


def caption_of(sentence: str, weights: Any = None) -> Caption:
    """A caption of a photo; its maps are uniform by default."""
    words = sentence.split()
    maps = np.full((len(words), ROWS, COLS), 1 / REGIONS) if weights is None else weights
    return Caption(sentence, words, maps, 0.0, np.zeros(len(words)), (0, 0, 8, 8))


def log_p(word: int, read: Sequence[float]) -> float:
    """log p of word number `word`, with the given weights of the regions."""
    total = sum(math.exp(STRENGTH * amount) for amount in read) + 4
    return STRENGTH * read[word] - math.log(total)
