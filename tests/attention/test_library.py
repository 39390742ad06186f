"""Properties that every mechanism of the library must have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.tiny_captioner import WORDS, photo
from torch import Tensor
from torch.nn import functional

from caption import attention as library
from caption.attention import (
    AdditiveScore,
    Attention,
    Multinoulli,
    Query,
    QuerySizes,
    ScoredAttention,
    Softmax,
    Stochastic,
)
from caption.attention.maps import named_maps, with_maps
from caption.captioner import Captioner
from caption.data.resize import ImageTransform
from caption.decoders import (
    AdaptiveDecoder,
    Decoder,
    DeepOutput,
    InitialState,
    LSTMDecoder,
    ShowAndTellDecoder,
    TopDownDecoder,
    TransformerDecoder,
)
from caption.encoders import Encoder, SmallCNN
from caption.errors import UserError
from caption.objectives import AttentionPenalty, CaptionBatch, CrossEntropy, LeaveOneOut, Objective, Reinforce
from caption.parts import make
from caption.regions import Regions, Views
from caption.search import BeamSearch, Greedy
from caption.tensor_tree import leaves
from caption.text.vocabulary import Vocabulary


def scored(score: Any = None, alignment: Any = None) -> ScoredAttention:
    return ScoredAttention(score or AdditiveScore(6), alignment or Softmax())


ONE_GRID: dict[str, Callable[[], Attention]] = {
    "additive": scored,
    "dot": lambda: scored(library.DotScore()),
    "scaled dot": lambda: scored(library.ScaledDotScore(6)),
    "general": lambda: scored(library.GeneralScore()),
    "biased general": lambda: scored(library.GeneralScore(bias=True)),
    "activated general": lambda: scored(library.ActivatedGeneralScore()),
    "cosine": lambda: scored(library.CosineScore(6)),
    "mlp": lambda: scored(library.MLPScore((8, 5))),
    "location-sensitive": lambda: scored(library.LocationSensitiveScore(6, 3, 3)),
    "location-sensitive, cumulative": lambda: scored(
        library.LocationSensitiveScore(6, 3, 3, cumulative=True)
    ),
    "feed-forward": lambda: scored(library.FeedForwardScore(6)),
    "predicted window": lambda: scored(alignment=library.PredictedWindow(1.5, 5)),
    "following window": lambda: scored(alignment=library.FollowingWindow(1.5)),
    "sparsemax": lambda: scored(alignment=library.Sparsemax()),
    "entmax": lambda: scored(alignment=library.Entmax15()),
    "hard": lambda: scored(alignment=Multinoulli(expectation=0.0)),
    "gumbel": lambda: scored(alignment=library.GumbelSoftmax()),
    "soft window": lambda: library.WindowAttention(3, 0.5),
    "glimpse": lambda: library.GlimpseAttention(expectation=0.0),
    "multi-head": lambda: library.MultiHeadAttention(2, 8),
    "multi-head, gated": lambda: library.MultiHeadAttention(2, 8, library.HeadGates()),
    "multi-hop": lambda: library.MultiHopAttention(AdditiveScore(6), 2),
    "feature-wise": lambda: library.FeatureWiseAttention(6),
    "structured": lambda: library.StructuredAttention(3, 6),
    "hierarchical": lambda: library.HierarchicalAttention(AdditiveScore(6), AdditiveScore(6), 2),
    "de-attention": lambda: library.CompositionalDeAttention(6),
    "co-attention, parallel": lambda: library.ParallelCoAttention(6),
    "co-attention, concat": lambda: library.ParallelCoAttention(6, "concat"),
    "co-attention, max": lambda: library.MaxCoAttention(6),
    "co-attention, alternating": lambda: library.AlternatingCoAttention(6),
    "co-attention, interactive": lambda: library.InteractiveCoAttention(6),
    "mean pooling": library.MeanPooling,
    "sum pooling": library.SumPooling,
    "max pooling": library.MaxPooling,
    "k-max pooling": lambda: library.KMaxPooling(3),
    "chunk-max pooling": lambda: library.ChunkMaxPooling(3),
    "stochastic pooling": library.StochasticPooling,
    "deep sets": lambda: library.DeepSets(6),
}
TWO_GRIDS: dict[str, Callable[[], Attention]] = {
    "attention via attention": lambda: library.AttentionViaAttention(AdditiveScore(6), AdditiveScore(6)),
    "rotatory": lambda: library.RotatoryAttention(6),
}
SENTINEL = {"sentinel": lambda: library.SentinelAttention(AdditiveScore(6), 5)}
MECHANISMS = ONE_GRID | TWO_GRIDS | SENTINEL
CARRIES = {"location-sensitive", "location-sensitive, cumulative", "following window"} | {
    name for name in ONE_GRID if name.startswith("co-attention")
}
POSITIONS = {
    "location-sensitive",
    "location-sensitive, cumulative",
    "predicted window",
    "following window",
    "soft window",
    "glimpse",
    "hierarchical",
    "chunk-max pooling",
    *TWO_GRIDS,
}
SAMPLES_WHILE_TRAINING = {"hard", "gumbel", "glimpse", "stochastic pooling", "multi-head, gated"}


class Pyramid(Encoder):
    """A grid, and the same at half the resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = SmallCNN((4, 4, 6))
        self.region_sizes = (6, 6)

    def normalise(self, images: Tensor) -> Tensor:
        return self.inner.normalise(images)

    def features(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.inner.features(images)
        return maps, functional.avg_pool2d(maps, 2)


def decoder_for(attention: Attention) -> Decoder:
    if isinstance(attention, library.SentinelAttention):
        return AdaptiveDecoder(attention, 6, 7, InitialState(dropout=0), dropout=0)
    return LSTMDecoder(attention, 6, 7, InitialState(dropout=0), readout=DeepOutput(dropout=0))


def attend(score: str = "additive") -> Attention:
    return ONE_GRID[score]()


DECODERS: dict[str, Callable[[], Decoder]] = {
    "top-down": lambda: TopDownDecoder(attend(), 6, 7, dropout=0),
    "adaptive": lambda: AdaptiveDecoder(attend(), 6, 7, InitialState(dropout=0), dropout=0),
    "Show and Tell": lambda: ShowAndTellDecoder(6, 7, dropout=0, normalise_image=True),
    "Transformer": lambda: TransformerDecoder(attend(), 2, 8, 2, 12, dropout=0),
    "Transformer, multi-head": lambda: TransformerDecoder(attend("multi-head"), 2, 8, 2, 12, dropout=0),
}
MODELS: dict[str, Callable[[], Captioner]] = {
    **{
        name: lambda make_one=made: captioner(decoder_for(make_one()))
        for name, made in (ONE_GRID | SENTINEL).items()
    },
    **{
        name: lambda make_one=made: captioner(decoder_for(make_one()), Pyramid())
        for name, made in TWO_GRIDS.items()
    },
    **{name: lambda make_one=made: captioner(make_one()) for name, made in DECODERS.items()},
}


def captioner(decoder: Decoder, encoder: Encoder | None = None) -> Captioner:
    """A model in double precision with large random weights."""
    torch.manual_seed(0)
    made = Captioner(
        encoder or SmallCNN((4, 4, 6)),
        decoder,
        Vocabulary(WORDS),
        ImageTransform(32, "crop"),
        BeamSearch(3, 8),
    ).double()
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.mul_(1.0 if "norm" in name else 2.0)
        words: Any = getattr(decoder, "readout", decoder).to_words
        words.bias[2] = -4.0  # so that the end token is not the first word
    return made.eval()


def built(attention: Attention, views: Views) -> Attention:
    torch.manual_seed(1)
    attention.build(tuple(view.vectors.shape[-1] for view in views), QuerySizes(7, 6))
    return attention.double().eval()


def views_for(name: str, grid: tuple[int, int] = (3, 4), mask: bool = False) -> Views:
    generator = torch.Generator().manual_seed(3)
    grids = [grid, (2, 2)] if name in TWO_GRIDS else [grid]
    made = []
    for rows, cols in grids:
        vectors = torch.randn(2, rows * cols, 5, generator=generator, dtype=torch.float64).abs()
        hidden = torch.ones(2, rows * cols, dtype=torch.bool)
        if mask:
            hidden[0, 1] = hidden[1, -1] = False
        made.append(Regions(vectors, (rows, cols), hidden if mask else None))
    return tuple(made)


def query(hypotheses: int = 3) -> Query:
    generator = torch.Generator().manual_seed(4)
    sizes = (7, 7, 6, 7)
    return Query(
        *(torch.randn(2, hypotheses, size, generator=generator, dtype=torch.float64) for size in sizes)
    )


def once(attention: Attention, views: Views) -> Any:
    memory = attention.project(views)
    torch.manual_seed(5)
    return attention(query(), memory, attention.start(memory, 3))


@pytest.mark.parametrize("name", MECHANISMS)
def test_weights_have_the_declared_properties(name: str) -> None:
    views = views_for(name)
    attention = built(MECHANISMS[name](), views)
    output = once(attention, views)
    assert output.weights.shape == (2, 3, 12)
    assert output.context.shape == (2, 3, attention.context_size)
    declared = attention.properties
    totals = output.weights.sum(-1)
    if declared.sentinel:
        torch.testing.assert_close(totals, 1 - output.maps.sentinel.squeeze(-1))
    elif declared.sums_to_one:
        torch.testing.assert_close(totals, torch.ones_like(totals))
    else:
        assert not torch.allclose(totals, torch.ones_like(totals))
    assert declared.signed == bool((output.weights < 0).any())


@pytest.mark.parametrize("name", MECHANISMS)
def test_masked_regions_weigh_nothing_and_change_nothing(name: str) -> None:
    views = views_for(name, mask=True)
    attention = built(MECHANISMS[name](), views)
    output = once(attention, views)
    assert (output.weights[0, :, 1] == 0).all()
    changed = tuple(
        view._replace(vectors=torch.where(view.mask[..., None], view.vectors, 7.0)) for view in views
    )
    again = once(attention, changed)
    torch.testing.assert_close(again.context, output.context)
    torch.testing.assert_close(again.weights, output.weights)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in TWO_GRIDS])
def test_permuted_regions_permute_the_weights_unless_positions_matter(name: str) -> None:
    views = views_for(name)
    attention = built(MECHANISMS[name](), views)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(6))
    output = None
    memory_states = []
    for given in (views, (views[0]._replace(vectors=views[0].vectors[:, order]),)):
        memory = attention.project(given)
        state = attention.start(memory, 3)
        for _ in range(2):  # positions affect the next step only from the second on
            output = attention(query(), memory, state)
            state = output.state
        memory_states.append(output)
    straight, permuted = memory_states
    same = torch.allclose(permuted.weights, straight.weights[..., order])
    assert same == (name not in POSITIONS)
    if same:
        torch.testing.assert_close(permuted.context, straight.context)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_gradient_is_exact(name: str) -> None:
    if name in SAMPLES_WHILE_TRAINING and name != "multi-head, gated":
        pytest.skip("what it samples has tests of its own")
    views = views_for(name, (2, 2))
    attention = built(MECHANISMS[name](), views)

    def context(hidden: Tensor, word: Tensor, *vectors: Tensor) -> Tensor:
        given = tuple(view._replace(vectors=one) for view, one in zip(views, vectors, strict=True))
        memory = attention.project(given)
        state = attention.start(memory, 1)
        for _ in range(2):
            output = attention(Query(hidden, hidden, word, hidden), memory, state)
            state = output.state
        return output.context

    hidden = query(1).hidden.clone().requires_grad_()
    word = query(1).word.clone().requires_grad_()
    vectors = [view.vectors.clone().requires_grad_() for view in views]
    assert torch.autograd.gradcheck(context, (hidden, word, *vectors), check_undefined_grad=False)


@pytest.mark.parametrize("name", MECHANISMS)
def test_reading_its_own_maps_gives_its_context_again(name: str) -> None:
    views = views_for(name)
    attention = built(MECHANISMS[name](), views)
    memory = attention.project(views)
    weighed = attention.weigh(query(), memory, attention.start(memory, 3))
    read = attention.read(weighed.maps, query(), memory).context
    torch.testing.assert_close(read, once(attention, views).context)


@pytest.mark.parametrize("name", MECHANISMS)
def test_each_map_lies_on_its_grid_and_an_edit_of_it_is_read(name: str) -> None:
    views = views_for(name)
    attention = built(MECHANISMS[name](), views)
    output = once(attention, views)
    named, grids = named_maps(output.maps), attention.grids([view.grid for view in views])
    for key, (rows, cols) in grids.items():
        assert named[key].shape[-1] == rows * cols
    one = torch.zeros(12, dtype=torch.float64)
    one[5] = 1.0
    first = next(iter(grids))
    forced = with_maps(output.maps, {first: one.expand_as(named[first])})
    read = attention.read(forced, query(), attention.project(views)).context
    assert read.shape == output.context.shape
    assert not torch.allclose(read, output.context)
    expected = attention.summary(forced)
    if name != "attention via attention":
        torch.testing.assert_close(expected, one.expand_as(expected))


def batch(made: Captioner) -> tuple[Views, CaptionBatch]:
    """Two images with three captions each, of different lengths."""
    pixels = torch.stack([made.transform(photo(seed=seed)) for seed in (1, 2)])
    with torch.no_grad():
        views = made.encoder(pixels.double())
    generator = torch.Generator().manual_seed(1)
    words, targets = torch.randint(4, 4 + len(WORDS), (2, 2, 3, 5), generator=generator)
    return views, CaptionBatch(words, targets, torch.tensor([[2, 5, 3], [4, 1, 0]]))


@pytest.mark.parametrize("name", MODELS)
def test_steps_equal_the_unroll(name: str) -> None:
    made = MODELS[name]()
    views, captions = batch(made)
    unrolled = made(views, captions.words, captions.lengths)
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


@pytest.mark.parametrize("name", MODELS)
def test_training_lowers_the_loss(name: str) -> None:
    made = MODELS[name]()
    views, captions = batch(made)
    samples = any(
        isinstance(part, Stochastic) and not isinstance(part, library.GumbelSoftmax)
        for part in made.modules()
    )
    objective: Objective = (
        Reinforce(LeaveOneOut(), samples=2) if samples else CrossEntropy([AttentionPenalty(0.01)])
    )
    optimizer = torch.optim.Adam(made.decoder.parameters(), 0.01)
    made.decoder.train()
    losses = []
    for _ in range(25):
        torch.manual_seed(0)
        optimizer.zero_grad()
        loss = objective(made.decoder, made.project(views), captions)
        loss.value.backward()
        optimizer.step()
        losses.append(float(loss.logged["NLL"]))
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("name", MODELS)
def test_it_captions_a_photo_and_comes_back_from_its_description(name: str) -> None:
    made = MODELS[name]().float()
    caption = made.describe(photo(), Greedy(6))
    assert caption.words
    assert caption.weights.shape == (len(caption.words), 8, 8)
    again = make(made.decoder.spec, Decoder)  # type: ignore[type-abstract]
    assert again.spec == made.decoder.spec
    again.build(made.encoder.region_sizes, len(made.vocabulary), 0, 1)
    again.load_state_dict(made.decoder.state_dict())


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_carries_the_maps_of_its_own_hypotheses(name: str) -> None:
    """Replayed word by word, the best hypothesis of a beam has the maps that the search returned."""
    made = MODELS[name]()
    views, _ = batch(made)
    found = made.generate(views, BeamSearch(4, 6))
    state = made.decoder.start(made.project(views))
    words = torch.full((2, 1), 1)
    for t in range(int(found.lengths.max())):
        _, state = made.decoder.step(state, words)
        there = found.lengths[:, 0] > t
        torch.testing.assert_close(found.trace.weights[there, 0, t], state.trace.weights[there, 0])
        words = found.words[:, :, t]


@pytest.mark.parametrize("name", list(ONE_GRID))
def test_a_mechanism_for_one_grid_refuses_two(name: str) -> None:
    with pytest.raises(UserError, match="one grid"):
        MECHANISMS[name]().build((5, 5), QuerySizes(7, 6))


@pytest.mark.parametrize("name", TWO_GRIDS)
def test_a_mechanism_for_two_grids_refuses_one(name: str) -> None:
    with pytest.raises(UserError, match="attends to 2 grids"):
        MECHANISMS[name]().build((5,), QuerySizes(7, 6))


def test_only_these_carry_a_state():
    carrying = set()
    for name in ONE_GRID:
        views = views_for(name)
        attention = built(MECHANISMS[name](), views)
        output = once(attention, views)
        if any(tensor.is_floating_point() for tensor in leaves(output.state)):
            carrying.add(name)
    assert carrying == CARRIES


@pytest.mark.parametrize("name", MECHANISMS)
def test_an_image_without_a_real_region_is_refused(name: str) -> None:
    views = views_for(name, mask=True)
    attention = built(MECHANISMS[name](), views)
    for number, view in enumerate(views):
        mask = view.mask.clone()
        mask[1] = False
        hidden = (*views[:number], view._replace(mask=mask), *views[number + 1 :])
        with pytest.raises(UserError, match=f"mask of view {number} hides all regions of image 1"):
            attention.project(hidden)


@pytest.mark.parametrize("name", MODELS)
def test_a_decoder_refuses_an_image_without_a_real_region(name: str) -> None:
    made = MODELS[name]()
    views, _ = batch(made)
    nothing = torch.zeros(2, views[0].vectors.shape[1], dtype=torch.bool)
    with pytest.raises(UserError, match="hides all regions of image 0"):
        made.project((views[0]._replace(mask=nothing), *views[1:]))


@pytest.mark.parametrize("name", MECHANISMS)
def test_views_that_do_not_fit_are_refused(name: str) -> None:
    views = views_for(name, mask=True)
    attention = built(MECHANISMS[name](), views)
    first, others = views[0], views[1:]
    with pytest.raises(UserError, match="12 regions, which do not fill its grid of 5 rows and 4 columns"):
        attention.project((first._replace(grid=(5, 4)), *others))
    with pytest.raises(UserError, match=r"mask of view 0 has the shape \(2, 11\)"):
        attention.project((first._replace(mask=first.mask[:, 1:]), *others))
    with pytest.raises(UserError, match=r"attends to (one grid|2 grids), and the encoder gives 3"):
        attention.project((first,) * 3)


@pytest.mark.parametrize(
    "make_one",
    [
        lambda score: library.MultiHopAttention(score),
        lambda score: library.HierarchicalAttention(score, AdditiveScore(6)),
        lambda score: library.HierarchicalAttention(AdditiveScore(6), score),
        lambda score: library.AttentionViaAttention(score, AdditiveScore(6)),
        lambda score: library.AttentionViaAttention(AdditiveScore(6), score),
        lambda score: library.SentinelAttention(score),
    ],
)
def test_a_score_with_a_state_is_refused_where_none_is_handed_on(
    make_one: Callable[[Any], Attention],
) -> None:
    attention = make_one(library.LocationSensitiveScore(6, 3, 3))
    views = (5,) * (2 if attention.view_count == 2 else 1)
    with pytest.raises(UserError, match=r"LocationSensitiveScore keeps a state .* take another score"):
        attention.build(views, QuerySizes(7, 6))


@pytest.mark.parametrize(
    ("make_one", "said"),
    [
        (lambda: library.MultiHeadAttention(3, 8), "size 8 .* not divisible by heads 3"),
        (lambda: library.MultiHeadAttention(0, 8), "heads 0 .* at least 1"),
        (lambda: library.MultiHopAttention(AdditiveScore(6), 0), "hops 0"),
        (lambda: library.LocationSensitiveScore(kernel=4), "kernel 4 .* odd"),
        (lambda: library.MLPScore(()), "sizes .* one or more widths"),
        (lambda: library.PredictedWindow(0.5), "reach 0.5"),
        (lambda: library.FollowingWindow(0.0), "reach 0.0"),
        (lambda: library.WindowAttention(0), "points 0"),
        (lambda: library.GlimpseAttention(deviation=0.0), "deviation 0.0 must be above 0"),
        (lambda: library.HierarchicalAttention(AdditiveScore(6), AdditiveScore(6), 0), "block 0"),
        (lambda: library.KMaxPooling(0), "k 0"),
        (lambda: library.ChunkMaxPooling(0), "chunks 0"),
    ],
)
def test_options_that_do_not_fit_are_named(make_one: Callable[[], object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_one()


def test_a_sentinel_needs_a_decoder_that_attends_after_its_update() -> None:
    made = captioner(
        LSTMDecoder(library.SentinelAttention(AdditiveScore(6), 5), 6, 7, InitialState(dropout=0))
    )
    views, captions = batch(made)
    with pytest.raises(UserError, match="AdaptiveDecoder"):
        made(views, captions.words, captions.lengths)
