"""The captioner that is measured: all that the benchmark uses of the package's core."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.core.batch import CaptionBatch
from caption.core.regions import Regions, Views
from caption.data.photos import ImageTransform
from caption.decoders import Decoder, DeepOutput, Gate, InitialState, ShowAttendAndTellDecoder
from caption.encoders import Encoder
from caption.kernels import accelerate
from caption.objectives import CrossEntropy
from caption.search import Hypotheses, Search
from caption.text.vocabulary import END, START, Vocabulary

VOCABULARY, REGIONS = 9500, 196
IMAGES, SHORTEST, LONGEST = 32, 15, 25
"""Images of a training step, each with one caption, and the words of captions, fewest and most."""
SEARCHED, STEPS, BEAM = 64, 20, 5
"""Images of a search, words of its captions, and the size of the beam."""


# -- the captioner and its data


class GivenRegions(Encoder):
    """Takes the place of an encoder: the benchmark begins with region vectors.

    Args:
        region_size: their length D.
    """

    def __init__(self, region_size: int) -> None:
        super().__init__()
        self.region_sizes = (region_size,)


def make_captioner(region_size: int, device: torch.device) -> Captioner:
    """A captioner with the paper's decoder; embedding, LSTM and attention are 512 wide. Without dropout, so that
    results can be compared."""
    torch.manual_seed(0)
    decoder = ShowAttendAndTellDecoder(
        ScoredAttention(AdditiveScore(512), Softmax()),
        initial=InitialState(dropout=0.0),
        gate=Gate(),
        readout=DeepOutput(dropout=0.0),
    )
    captioner = captioner_of(decoder, region_size).to(device)
    accelerate(captioner)
    return captioner


def captioner_of(decoder: Decoder, region_size: int) -> Captioner:
    """A captioner with a vocabulary of `VOCABULARY` words; it creates the decoder's weights."""
    vocabulary = Vocabulary([*map(str, range(4, VOCABULARY))])  # besides four special ones
    return Captioner(GivenRegions(region_size), decoder, vocabulary, ImageTransform())


def views_of(vectors: Tensor) -> Views:
    """Region vectors (B, L, D) as the only view, in one row."""
    return (Regions(vectors, (1, vectors.shape[1])),)


def make_vectors(images: int, region_size: int, device: torch.device) -> Tensor:
    """(B, L, D) region vectors: positive and sparse, as after a ReLU."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(images, REGIONS, region_size, generator=generator).relu().to(device)


def make_captions(images: int, device: torch.device) -> CaptionBatch:
    """A caption of each image; their lengths are evenly spread, and one caption is the longest. The lengths stay on the
    host, as the loader leaves them."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (images, 1), generator=generator)
    lengths[0, 0] = LONGEST
    words = torch.randint(4, VOCABULARY, (images, 1, LONGEST + 1), generator=generator)
    words[..., 0] = START
    real = torch.arange(LONGEST) < lengths[..., None]
    inputs, targets = (part * real for part in (words[..., :-1], words[..., 1:]))
    return CaptionBatch(inputs.to(device), targets.to(device), lengths)


# -- what is measured


def caption_loss(captioner: Captioner, vectors: Tensor, captions: CaptionBatch) -> Tensor:
    """Cross-entropy and doubly stochastic term of a batch."""
    return CrossEntropy()(captioner, views_of(vectors), captions).value


def step(model: nn.Module, loss: Callable[[], Tensor]) -> Tensor:
    """Forward and backward, from zero gradients; returns the loss."""
    model.zero_grad()
    value = loss()
    value.backward()
    return value.detach()


@torch.no_grad()
def find_captions(decoder: Decoder, vectors: Tensor, search: Search) -> Hypotheses:
    """The captions of all images at once."""
    state = decoder.start(decoder.project(views_of(vectors)))
    return search(decoder.step, state, len(vectors), START, END)
