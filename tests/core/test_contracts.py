"""Small mechanisms that each test one contract between encoder, attention, decoder and search."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from helpers.tiny_captioner import WORDS, captioner, photo
from torch import Tensor, nn
from torch.nn import functional

from caption.attention import (
    AdditiveScore,
    Alignment,
    AlignmentOutput,
    Attention,
    GridMemory,
    Query,
    QuerySizes,
    ReadOutput,
    Score,
    ScoredAttention,
    Selection,
    Softmax,
    Stochastic,
    WeighOutput,
    entropy,
    override_at_test,
)
from caption.captioner import Captioner
from caption.data.resize import ImageTransform
from caption.decoders import (
    Advanced,
    DeepOutput,
    InitialState,
    LSTMDecoder,
    Memory,
    RecurrentDecoder,
    Trace,
    Unrolled,
)
from caption.encoders import Encoder, Refiner, SmallCNN
from caption.objectives import CaptionBatch, CrossEntropy, LeaveOneOut, Objective, Reinforce
from caption.objectives.exact import every_path
from caption.regions import Regions, Views, WeightProperties
from caption.search import BeamSearch
from caption.tensor_tree import State, TensorTree
from caption.text.vocabulary import Vocabulary

# -- mechanisms ---------------------------------------------------------------------------------------------------


class HeadMaps(NamedTuple):
    heads: Tensor
    """(B, K, M, L)."""


class TwoHeads(Attention):
    """Scaled dot-product attention with two heads on projected values."""

    heads = 2

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = 8
        self.keys = nn.Linear(region_sizes[0], 8)
        self.values = nn.Linear(region_sizes[0], 8)
        self.queries = nn.Linear(query_sizes.hidden, 8)

    def project(self, views: Views) -> TensorTree:
        return [
            part(views[0].vectors).unflatten(-1, (self.heads, 4)).transpose(1, 2)
            for part in (self.keys, self.values)
        ]

    def weigh(self, query: Query, memory: TensorTree, state: TensorTree) -> WeighOutput:
        queries = self.queries(query.hidden).unflatten(-1, (self.heads, 4)).transpose(1, 2)
        return WeighOutput(HeadMaps((queries @ memory[0].mT / 2).softmax(-1).transpose(1, 2)))

    def read(
        self, maps: HeadMaps, query: Query, memory: TensorTree, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        return ReadOutput((maps.heads.transpose(1, 2) @ memory[1]).transpose(1, 2).flatten(2))

    def summary(self, maps: HeadMaps) -> Tensor:
        return maps.heads.mean(2)

    def grids(self, views):
        return {"heads": views[0]}


class LevelMaps(NamedTuple):
    fine: Tensor
    coarse: Tensor


class TwoLevels(Attention):
    """One softmax over the regions of two grids."""

    view_count = 2

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        assert len(region_sizes) == 2
        self.context_size = 6
        self.keys = nn.ModuleList(nn.Linear(size, 6) for size in region_sizes)
        self.query = nn.Linear(query_sizes.hidden, 6)

    def project(self, views: Views) -> TensorTree:
        return [keys(view.vectors) for keys, view in zip(self.keys, views, strict=True)]

    def weigh(self, query: Query, memory: TensorTree, state: TensorTree) -> WeighOutput:
        scores = [self.query(query.hidden) @ keys.mT for keys in memory]
        weights = torch.cat(scores, -1).softmax(-1)
        return WeighOutput(LevelMaps(*weights.split([score.shape[-1] for score in scores], -1)))

    def read(
        self, maps: LevelMaps, query: Query, memory: TensorTree, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        return ReadOutput(maps.fine @ memory[0] + maps.coarse @ memory[1])

    def summary(self, maps: LevelMaps) -> Tensor:
        return maps.fine

    properties = WeightProperties(sums_to_one=False)

    def grids(self, views):
        return {"fine": views[0], "coarse": views[1]}


class SentinelMaps(NamedTuple):
    regions: Tensor
    """(B, K, L)."""
    sentinel: Tensor
    """(B, K, 1)."""


class Sentinel(Attention):
    """Additive attention that may read the LSTM's memory instead of the image (Lu et al. 2017)."""

    properties = WeightProperties(sentinel=True)

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = region_sizes[0]
        self.score = AdditiveScore(6)
        self.score.build(region_sizes[0], query_sizes)
        self.gate = nn.Linear(query_sizes.word + query_sizes.hidden, query_sizes.hidden)
        self.as_value = nn.Linear(query_sizes.hidden, region_sizes[0])
        self.sentinel_score = nn.Linear(2 * query_sizes.hidden, 1)

    def project(self, views: Views) -> TensorTree:
        return GridMemory(self.score.keys(views[0]), views[0].vectors, views[0].mask, views[0].grid)

    def _sentinel(self, query: Query) -> Tensor:
        assert query.previous is not None
        gate = self.gate(torch.cat((query.word, query.previous), -1)).sigmoid()
        return gate * query.cell.tanh()

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        own = self.sentinel_score(torch.cat((self._sentinel(query), query.hidden), -1))
        weights = torch.cat((self.score(query, memory), own), -1).softmax(-1)
        return WeighOutput(SentinelMaps(weights[..., :-1], weights[..., -1:]))

    def read(
        self, maps: SentinelMaps, query: Query, memory: GridMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        return ReadOutput(maps.regions @ memory.values + maps.sentinel * self.as_value(self._sentinel(query)))

    def summary(self, maps: SentinelMaps) -> Tensor:
        return maps.regions

    def grids(self, views):
        return {"regions": views[0]}


class Signed(Alignment):
    """tanh of the scores: weights of both signs."""

    properties = WeightProperties(sums_to_one=False, signed=True)

    def forward(
        self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None
    ) -> AlignmentOutput:
        return AlignmentOutput(scores.tanh())


class PredictedWindow(Alignment):
    """Softmax times a Gaussian around a predicted row (Luong et al. 2015, local-p, in one dimension)."""

    properties = WeightProperties(sums_to_one=False)

    def build(self, query_sizes: QuerySizes) -> None:
        self.centre = nn.Linear(query_sizes.hidden, 1)

    def forward(
        self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None
    ) -> AlignmentOutput:
        rows, cols = memory.grid
        row = torch.arange(rows * cols, device=scores.device) // cols
        centre = self.centre(query.hidden).sigmoid() * (rows - 1)
        return AlignmentOutput(scores.softmax(-1) * (-(row - centre).square() / 2).exp())


class Coverage(Score):
    """Additive scores minus the previous weights of each region: a score with state."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = AdditiveScore(6)

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.inner.build(region_size, query_sizes)

    def keys(self, regions: Regions) -> Tensor:
        return self.inner.keys(regions)

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        return memory.values.new_zeros(len(memory.values), hypotheses, memory.values.shape[1])

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return self.inner(query, memory) - 5 * state

    def carry(self, weights: Tensor, state: TensorTree) -> Tensor:
        return state + weights


class WordsSoFar(Score):
    """Dot product of the regions with the mean of all words so far: the state grows with the caption."""

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.words = nn.Linear(query_sizes.word, region_size)

    def keys(self, regions: Regions) -> Tensor:
        return regions.vectors

    def start(self, memory: GridMemory, hypotheses: int) -> list[Tensor]:
        return []

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return self.words(torch.stack([*state, query.word], 2).mean(2)) @ memory.keys.mT


class Glimpse(Attention, Stochastic):
    """Reads at a point drawn from a Gaussian around a predicted centre, between the cells."""

    def __init__(self) -> None:
        Stochastic.__init__(self)
        self.maps = nn.Identity()

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = region_sizes[0]
        self.centre = nn.Linear(query_sizes.hidden, 2)

    def project(self, views: Views) -> TensorTree:
        return views[0]

    def weigh(self, query: Query, memory: Regions, state: TensorTree) -> WeighOutput:
        centre = self.centre(query.hidden).sigmoid()
        return WeighOutput(self._around(centre, memory), centre)

    def _around(self, point: Tensor, memory: Regions) -> Tensor:
        rows, cols = memory.grid
        y = (torch.arange(rows, dtype=point.dtype) + 0.5).repeat_interleave(cols) / rows
        x = (torch.arange(cols, dtype=point.dtype) + 0.5).repeat(rows) / cols
        return (-20 * ((x - point[..., :1]) ** 2 + (y - point[..., 1:]) ** 2)).softmax(-1)

    def read(
        self, maps: Tensor, query: Query, memory: Regions, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        if weighed is None or not (self.training or self.at_test == "sample"):
            nowhere = maps.new_full((*maps.shape[:2], 2), torch.nan)
            return ReadOutput(maps @ memory.vectors, nowhere, maps.new_zeros(maps.shape[:2]))
        density = torch.distributions.Normal(weighed.state, 0.1)
        point = density.sample()
        context = self._around(point, memory) @ memory.vectors
        return ReadOutput(context, point, density.log_prob(point).sum(-1))

    def carry(self, maps: Tensor, weighed: WeighOutput) -> None:
        return None


class Foreign(Alignment, Stochastic):
    """A sampling alignment that has only the contract in common with Multinoulli."""

    def __init__(self) -> None:
        Stochastic.__init__(self)

    def forward(
        self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None
    ) -> AlignmentOutput:
        return AlignmentOutput(scores.softmax(-1), scores.log_softmax(-1))

    def select(self, weights: Tensor, aligned: AlignmentOutput | None = None) -> Selection:
        if aligned is None or not (self.training or self.at_test != "expectation"):
            return Selection(
                weights, torch.full_like(weights[..., 0], -1).long(), weights.new_zeros(weights.shape[:-1])
            )
        argmax = not self.training and self.at_test == "argmax"
        location = weights.argmax(-1) if argmax else self.draw(weights.log())
        log_prob = weights.log().gather(-1, location[..., None]).squeeze(-1)
        return Selection(functional.one_hot(location, weights.shape[-1]).to(weights), location, log_prob)


class Smooth(Refiner):
    """Each region becomes the mean of its 3x3 neighbourhood: it needs the grid."""

    def build(self, region_sizes: tuple[int, ...]) -> None:
        self.region_sizes = region_sizes

    def forward(self, views: Views) -> Views:
        def smooth(view: Regions) -> Regions:
            maps = view.vectors.mT.unflatten(-1, view.grid)
            return view._replace(vectors=functional.avg_pool2d(maps, 3, 1, 1).flatten(2).mT)

        return tuple(map(smooth, views))


class Pyramid(Encoder):
    """A grid, and the same at half the resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = SmallCNN((4, 4, 6))
        self.region_sizes = (6, 6)

    def normalise(self, images: Tensor) -> Tensor:
        return self.inner.normalise(images)

    def features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.inner.features(images)
        return maps, functional.avg_pool2d(maps, 2)


class TwoStates(NamedTuple):
    hidden: Tensor
    cell: Tensor
    before: TensorTree
    after: TensorTree


class BeforeAndAfter(RecurrentDecoder):
    """Attends with h[t-1], updates its LSTM, attends again with h[t], c[t] and h[t-1]."""

    def __init__(self, before: Attention, after: Attention) -> None:
        super().__init__()
        self.before, self.after = before, after
        self.query_size = 7

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        sizes = QuerySizes(7, 6)
        self.before.build(region_sizes, sizes)
        self.after.build(region_sizes, sizes)
        self.embed = nn.Embedding(vocabulary_size, 6, padding_idx=padding)
        self.from_word = nn.Linear(6, 28)
        self.from_state = nn.Linear(7 + self.before.context_size, 28, bias=False)
        self.to_words = nn.Linear(7 + self.after.context_size, vocabulary_size)

    def project(self, views: Views) -> Memory:
        return Memory(views, (self.before.project(views), self.after.project(views)))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        zeros = memory.views[0].vectors.new_zeros(len(memory.views[0].vectors), hypotheses, 7)
        attending = (
            self.before.start(memory.projected[0], hypotheses),
            self.after.start(memory.projected[1], hypotheses),
        )
        return State(memory, TwoStates(zeros, zeros, *attending), None)

    def word_vectors(self, words: Tensor) -> Tensor:
        return self.embed(words)

    def offsets(self, embedded: Tensor) -> tuple[Tensor, ...]:
        return (self.from_word(embedded),)

    def recurrent_weights(self) -> tuple[Tensor, ...]:
        return (self.from_state.weight,)

    def advance(self, state, embedded, offsets, weights) -> Advanced:
        h, c, before, after = state.carried
        first = self.before(Query(h, c, embedded), state.shared.projected[0], before)
        inputs = torch.cat((h, first.context), -1)
        i, f, o, g = (offsets[0] + functional.linear(inputs, weights[0])).chunk(4, -1)
        cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        second = self.after(Query(hidden, cell, embedded, h), state.shared.projected[1], after)
        carried = TwoStates(hidden, cell, first.state, second.state)
        return Advanced(
            State(state.shared, carried, Trace.of(second)), torch.cat((hidden, second.context), -1), (inputs,)
        )

    def read_out(self, embedded: Tensor, outputs: Tensor) -> Tensor:
        return self.to_words(outputs)

    def query_of(self, carried: TwoStates) -> Tensor:
        return carried.hidden


# -- properties of all mechanisms ---------------------------------------------------------------------------------


def scored(alignment: Alignment | None = None, score: Score | None = None) -> ScoredAttention:
    return ScoredAttention(score or AdditiveScore(6), alignment or Softmax())


def with_attention(attention: Attention, **parts) -> Captioner:
    decoder = LSTMDecoder(attention, 6, 7, InitialState(dropout=0), readout=DeepOutput(dropout=0))
    return with_decoder(decoder, **parts)


def with_decoder(decoder, encoder: Encoder | None = None, refiner: Refiner | None = None) -> Captioner:
    torch.manual_seed(0)
    made = Captioner(
        encoder or SmallCNN((4, 4, 6)),
        decoder,
        Vocabulary(WORDS),
        ImageTransform(32, "crop"),
        BeamSearch(3, 8),
        refiner,
    )
    with torch.no_grad():
        for parameter in made.decoder.parameters():
            parameter.mul_(2)
        getattr(decoder, "readout", decoder).to_words.bias[
            2
        ] = -3.0  # so that the end token is not the first word
    return made.double().eval()


MECHANISMS = {
    "heads": lambda: with_attention(TwoHeads()),
    "levels": lambda: with_attention(TwoLevels(), encoder=Pyramid()),
    "sentinel": lambda: with_decoder(BeforeAndAfter(scored(), Sentinel())),
    "signed": lambda: with_attention(scored(Signed())),
    "predicted window": lambda: with_attention(scored(PredictedWindow())),
    "coverage": lambda: with_attention(scored(score=Coverage())),
    "glimpse": lambda: with_attention(Glimpse()),
    "foreign": lambda: with_attention(scored(Foreign())),
    "smooth": lambda: with_attention(scored(), refiner=Smooth()),
    "two attentions": lambda: with_decoder(BeforeAndAfter(scored(), TwoHeads())),
}


def batch(made: Captioner) -> tuple[Views, CaptionBatch]:
    """Two images with three captions each, of different lengths."""
    pixels = torch.stack([made.transform(photo(seed=seed)) for seed in (1, 2)])
    with torch.no_grad():
        views = tuple(view._replace(vectors=view.vectors.double()) for view in made.encoder(pixels.double()))
    generator = torch.Generator().manual_seed(1)
    words, targets = torch.randint(4, 4 + len(WORDS), (2, 2, 3, 5), generator=generator)
    return views, CaptionBatch(words, targets, torch.tensor([[2, 5, 3], [4, 1, 0]]))


@pytest.mark.parametrize("name", MECHANISMS)
def test_steps_equal_the_unroll(name: str) -> None:
    made = MECHANISMS[name]()
    views, captions = batch(made)
    unrolled: Unrolled = made(views, captions.words, captions.lengths)
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))
    maps = {key: unrolled.unpack(value) for key, value in unrolled.trace.maps.items()}
    weights = unrolled.unpack(unrolled.trace.weights)
    state = made.decoder.start(made.project(views), 3)
    for t in range(5):
        stepped, state = made.decoder.step(state, captions.words[:, :, t])
        real = captions.lengths > t
        torch.testing.assert_close(stepped[real], log_probs[:, :, t][real].float())
        torch.testing.assert_close(state.trace.weights[real], weights[:, :, t][real])
        for key, value in maps.items():
            torch.testing.assert_close(state.trace.maps[key][real], value[:, :, t][real])


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_training_step_lowers_the_loss(name: str) -> None:
    made = MECHANISMS[name]()
    views, captions = batch(made)
    samples = any(isinstance(part, Stochastic) for part in made.modules())
    objective: Objective = Reinforce(LeaveOneOut(), samples=2) if samples else CrossEntropy([])
    optimizer = torch.optim.Adam(made.decoder.parameters(), 0.01)

    def nll() -> Tensor:
        torch.manual_seed(0)
        return objective(made.decoder, made.project(views), captions).logged["NLL"]

    made.decoder.train()
    before = nll()
    for _ in range(15):
        optimizer.zero_grad()
        objective(made.decoder, made.project(views), captions).value.backward()
        optimizer.step()
    assert nll() < before - 0.1


@pytest.mark.parametrize("name", MECHANISMS)
def test_captions_have_the_maps_and_the_properties(name: str) -> None:
    made = MECHANISMS[name]().float()
    caption = made.describe(photo())
    words = len(caption.words)
    assert words
    assert caption.properties == made.decoder.properties
    totals = caption.weights.sum((1, 2))
    if caption.properties.sentinel:
        assert ((totals > 0) & (totals < 1)).all()
    elif caption.properties.sums_to_one:
        torch.testing.assert_close(torch.from_numpy(totals), torch.ones(words))
    expected = {
        "heads": {"heads": (words, 2, 8, 8)},
        "two attentions": {"heads": (words, 2, 8, 8)},
        "levels": {"fine": (words, 8, 8), "coarse": (words, 4, 4)},
        "sentinel": {"regions": (words, 8, 8)},
    }
    assert {key: value.shape for key, value in caption.maps.items()} == expected.get(name, {})


def test_the_summary_of_heads_is_their_mean():
    caption = MECHANISMS["heads"]().float().describe(photo())
    torch.testing.assert_close(
        torch.from_numpy(caption.maps["heads"].mean(1)), torch.from_numpy(caption.weights)
    )


def test_entropy_of_signed_weights_is_not_negative():
    caption = MECHANISMS["signed"]().float().describe(photo())
    assert (caption.weights < 0).any()
    found = entropy(torch.from_numpy(caption.weights).flatten(1), caption.properties)
    assert ((found >= 0) & (found <= torch.tensor(64.0).log() + 1e-5)).all()


def test_a_state_that_grows_with_the_caption_is_reordered_with_the_hypotheses():
    class Growing(ScoredAttention):
        def start(self, memory, hypotheses):
            return ()

        def weigh(self, query, memory, state):
            scores = self.score(query, memory, state)
            return WeighOutput(scores.softmax(-1), (*state, query.word))

        def read(self, maps, query, memory, weighed=None):
            return ReadOutput(maps @ memory.values)

        def carry(self, maps, weighed):
            return weighed.state

    made = with_attention(Growing(WordsSoFar(), Softmax()))
    views, captions = batch(made)
    unrolled = made(views, captions.words, captions.lengths)
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))
    state = made.decoder.start(made.project(views), 3)
    for t in range(5):
        stepped, state = made.decoder.step(state, captions.words[:, :, t])
        real = captions.lengths > t
        torch.testing.assert_close(stepped[real], log_probs[:, :, t][real].float())
    assert made.float().describe(photo()).words


def test_a_point_comes_back_in_the_photos_pixels():
    made = MECHANISMS["glimpse"]().float()
    with override_at_test(made, "sample"):
        caption = made.describe(photo())
    assert caption.points is not None
    assert caption.points.shape == (len(caption.words), 2)
    left, _, right, _ = caption.box
    assert ((caption.points[:, 0] > left - 20) & (caption.points[:, 0] < right + 20)).all()
    assert caption.locations is None
    assert made.describe(photo()).points is None  # the expectation chooses no point


def test_a_sampling_mechanism_of_another_package_is_followed_along_all_its_paths():
    made = with_attention(scored(Foreign())).decoder.train()
    regions = torch.randn(1, 3, 6, dtype=torch.float64)
    memory = made.project((Regions(regions, (1, 3)),))
    words = torch.tensor([[[1, 4]]])
    paths = every_path(made, memory, CaptionBatch(words, words, torch.tensor([[2]])))
    assert len(paths.log_prob) == 9
    torch.testing.assert_close(paths.log_prob.exp().sum(), torch.tensor(1.0, dtype=torch.float64))


def test_how_it_looks_at_test_is_chosen_for_a_mechanism_of_another_package():
    made = with_attention(scored(Foreign())).float()
    with override_at_test(made, "argmax"):
        assert made.describe(photo()).locations is not None
    assert made.describe(photo()).locations is None


def test_a_decoder_lists_its_attentions_by_name():
    made = MECHANISMS["two attentions"]()
    assert list(made.decoder.attentions) == ["before", "after"]


def test_projected_values_do_not_change_the_first_state():
    made = captioner()
    views, _ = batch(made.double())
    memory = made.project(views)
    torch.testing.assert_close(memory.views[0].vectors, views[0].vectors)
    heads = MECHANISMS["heads"]()
    assert heads.project(views).projected[0][1].shape[-1] == 4
