"""Laws that hold for every mechanism: weights, masks, gradients, edits, states, steps, unrolls and searches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import mechanisms
from helpers.exact_paths import every_path
from helpers.loops import randomise
from helpers.mechanisms import ATTENTIONS, DECODERS, OWN, OWN_DECODERS, TWO_VIEWS, descend
from helpers.tiny_captioner import WORDS, photo
from torch import Tensor

from caption import attention as library
from caption.attention import AdditiveScore, Attention, Query, QuerySizes
from caption.attention.map_hooks import edit_maps
from caption.attention.maps import named_maps, with_maps
from caption.attention.stochastic import override_at_test, stochastic_parts
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import Regions, Views
from caption.core.runtime.trust import make
from caption.core.tensor_tree import leaves, select_images
from caption.decoders import Decoder, TransformerDecoder
from caption.objectives import AttentionPenalty, CaptionBatch, CrossEntropy, LeaveOneOut, Objective, Reinforce
from caption.search import BeamSearch, Greedy

MECHANISMS = ATTENTIONS | OWN
MODELS = [*ATTENTIONS, *OWN, *DECODERS, *OWN_DECODERS]
POSITIONS = (
    "local_",
    "location_sensitive",
    "soft_window",
    "glimpse",
    "hierarchical",
    "pyramid_attention_pooled",
)
POSITIONS += ("chunk_max", "k_max", "spatial_pyramid", "fixed_map", "smoothed", "rotatory", "global_")
"""First parts of the names of mechanisms to which the place of a region in the grid matters."""
OF_EACH_FAMILY = [
    "additive",
    "hard",
    "co_attention_parallel",
    "pyramid_attention",
    "glimpse",
    "multi_head_gated",
]
OF_EACH_FAMILY += ["gru", "word_meta_embedding", "show_and_tell", "top_down", "adaptive", *OWN_DECODERS]
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
every_model = pytest.mark.parametrize("name", MODELS)


def views_for(name: str, grid: tuple[int, int] = (3, 4), mask: bool = False) -> Views:
    generator = torch.Generator().manual_seed(3)
    views = []
    for rows, cols in [grid, (2, 2)] if name in TWO_VIEWS else [grid]:
        vectors = torch.randn(2, rows * cols, 5, generator=generator, dtype=torch.float64).abs()
        real = torch.ones(2, rows * cols, dtype=torch.bool)
        if mask:
            real[0, 1] = real[1, -1] = False
        views.append(Regions(vectors, (rows, cols), real if mask else None))
    return tuple(views)


def built(name: str, views: Views) -> Attention:
    attention = MECHANISMS[name]()
    attention.build(tuple(view.vectors.shape[-1] for view in views), QuerySizes(7, 6))
    randomise(attention.double())
    return attention.eval()


def query(hypotheses: int = 3) -> Query:
    generator = torch.Generator().manual_seed(4)
    sizes = (7, 7, 6, 7)
    return Query(
        *(torch.randn(2, hypotheses, size, generator=generator, dtype=torch.float64) for size in sizes)
    )


def attend(attention: Attention, views: Views, queries: Query | None = None, steps: int = 1) -> Any:
    """The output of the last of some steps with the same queries."""
    queries = queries or query()
    memory = attention.project(views)
    state = attention.start(memory, queries.hidden.shape[1])
    for _ in range(steps):
        output = attention(queries, memory, state)
        state = output.state
    return output


# -- one mechanism -------------------------------------------------------------------------------------------------


@every_mechanism
def test_weights_and_maps_are_as_declared_and_edited_maps_are_read(name: str) -> None:
    views = views_for(name)
    attention = built(name, views)
    output, memory = attend(attention, views), attention.project(views)
    assert output.weights.shape == (2, 3, 12)
    assert output.context.shape == (2, 3, attention.context_size)
    declared, totals = attention.properties, output.weights.sum(-1)
    rest = output.maps.sentinel.squeeze(-1) if declared.sentinel else 0.0
    assert torch.allclose(totals + rest, torch.ones_like(totals)) == declared.sums_to_one
    assert declared.signed == bool((output.weights < 0).any())
    maps, grids = named_maps(output.maps), attention.grids([view.grid for view in views])
    assert list(grids) == list(attention.map_views)
    for key, (rows, cols) in grids.items():
        assert maps[key].shape[-1] == rows * cols
        assert attention.map_views[key] in range(attention.view_count)
    torch.testing.assert_close(attention.read(output.maps, query(), memory).context, output.context)

    one = torch.zeros(12, dtype=torch.float64)
    one[5] = 1.0
    first = next(iter(grids))
    assert attention.map_views[first] == 0
    like_first = [key for key, grid in grids.items() if grid == grids[first]]
    forced = with_maps(output.maps, {key: one.expand_as(maps[key]) for key in like_first})
    context, summary = attention.read(forced, query(), memory).context, attention.summary(forced)
    assert context.shape == output.context.shape
    assert not torch.allclose(context, output.context)
    torch.testing.assert_close(summary, one.expand_as(summary))
    owner = SimpleNamespace(attentions={"own": attention})
    with edit_maps(
        owner, lambda tensor, step, grid: one if tensor.shape[-1] == 12 else tensor, list(grids.values())
    ):
        hooked = attend(attention, views)
    torch.testing.assert_close(hooked.weights, summary)
    torch.testing.assert_close(hooked.context, context)


@every_mechanism
def test_images_queries_and_masked_regions_take_no_part_in_others(name: str) -> None:
    """K queries share an image; attending changes neither the memory nor the generator of random numbers."""
    views = views_for(name, mask=True)
    attention = built(name, views)
    memory, random = attention.project(views), torch.get_rng_state()
    before = [tensor.clone() for tensor in leaves(memory)]
    output = attention(query(), memory, attention.start(memory, 3))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(a, b) for a, b in zip(leaves(memory), before, strict=True))
    for image in (0, 1):
        index = torch.tensor([image])
        single = Query(*(part[index, 1:2] for part in query()))
        alone = attend(attention, select_images(views, index), single)
        torch.testing.assert_close(alone.context, output.context[index, 1:2])
        for one, several in zip(leaves(alone.maps), leaves(output.maps), strict=True):
            torch.testing.assert_close(one, several[index, 1:2])
    changed = tuple(
        view._replace(vectors=torch.where(view.mask[..., None], view.vectors, 7.0)) for view in views
    )
    output, again = attend(attention, views, steps=2), attend(attention, changed, steps=2)
    assert (output.weights[0, :, 1] == 0).all()
    torch.testing.assert_close(again.context, output.context)
    torch.testing.assert_close(again.weights, output.weights)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in TWO_VIEWS])
def test_permuted_regions_permute_the_weights_unless_positions_matter(name: str) -> None:
    views = views_for(name)
    attention = built(name, views)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(6))
    # Previous weights affect the second step.
    straight = attend(attention, views, steps=2)
    permuted = attend(attention, (views[0]._replace(vectors=views[0].vectors[:, order]),), steps=2)
    same = torch.allclose(permuted.weights, straight.weights[..., order])
    same = same and torch.allclose(permuted.context, straight.context)
    assert same != name.startswith(POSITIONS)


@every_mechanism
def test_the_gradient_is_exact(name: str) -> None:
    views = views_for(name, (2, 2))
    attention = built(name, views)

    def context(hidden: Tensor, word: Tensor, *vectors: Tensor) -> Tensor:
        changed = tuple(view._replace(vectors=one) for view, one in zip(views, vectors, strict=True))
        return attend(attention, changed, Query(hidden, hidden, word, hidden), steps=2).context

    hidden, _, word, _ = query(1)
    inputs = [tensor.clone().requires_grad_() for tensor in (hidden, word, *(view.vectors for view in views))]
    assert torch.autograd.gradcheck(context, inputs, check_undefined_grad=False, fast_mode=True)


@pytest.mark.parametrize("name", ["additive", "pyramid_attention"])
def test_views_that_do_not_fit_are_refused(name: str) -> None:
    views = views_for(name, mask=True)
    attention = built(name, views)
    first, others = views[0], views[1:]
    hidden = first.mask & torch.tensor([[True], [False]])
    for misfit, said in [
        (first._replace(grid=(5, 4)), "12 regions, which do not fill its grid of 5 rows and 4 columns"),
        (first._replace(mask=first.mask[:, 1:]), r"mask of view 0 has the shape \(2, 11\)"),
        (first._replace(mask=hidden), "mask of view 0 hides all regions of image 1"),
        (first._replace(vectors=first.vectors[..., 1:]), "region vectors of 4 numbers, but .* built for 5"),
    ]:
        with pytest.raises(UserError, match=said):
            attention.project((misfit, *others))
    wanted, remedy = {
        1: ("one grid", "one grid, or a mechanism that takes several, such as AttentionViaAttention"),
        2: ("2 grids", "as many, such as SmallCNN with `views: 2`"),
    }[len(views)]
    for count in {0, 1, 2, 3} - {len(views)}:
        said = f"attends to {wanted}, and the encoder gives {count}: take an encoder with {remedy}"
        with pytest.raises(UserError, match=said):
            attention.project((first,) * count)
        with pytest.raises(UserError, match=said):
            MECHANISMS[name]().build((5,) * count, QuerySizes(7, 6))


SCORE, WORDS_SO_FAR = AdditiveScore(6), library.WordProjection(6)


@pytest.mark.parametrize(
    ("kind", "first", "scores"),
    [
        ("MultiHopAttention", (), 1),
        ("HierarchicalAttention", (), 2),
        ("AttentionViaAttention", (), 2),
        ("ParentWeightedAttention", (), 2),
        ("SentinelAttention", (), 1),
        ("ParallelCoAttention", (WORDS_SO_FAR,), 1),
        ("AlternatingCoAttention", (WORDS_SO_FAR,), 1),
        ("InteractiveCoAttention", (WORDS_SO_FAR,), 1),
        ("RotatoryAttention", (), 2),
        ("ChannelSpatialAttention", (), 1),
        ("SpatialChannelAttention", (), 1),
        ("PyramidAttention", (), 2),
    ],
)
def test_a_score_with_a_state_is_refused_where_none_is_handed_on(kind: str, first: Any, scores: int) -> None:
    for place in range(scores):
        given: list[Any] = [SCORE] * scores
        given[place] = library.LocationSensitiveScore(6, 3, 3)
        made = getattr(library, kind)(*first, *([given] if kind == "PyramidAttention" else given))
        with pytest.raises(UserError, match="LocationSensitiveScore"):
            made.build((5,) * made.view_count, QuerySizes(7, 6))


# -- a captioner with it -------------------------------------------------------------------------------------------


def captioner(name: str) -> Captioner:
    return mechanisms.captioner(mechanisms.decoder(name))


def batch(model: Captioner) -> tuple[Views, CaptionBatch]:
    """Two images with three captions each, of different lengths."""
    pixels = torch.stack([model.transform(photo(seed=seed)) for seed in (1, 2)])
    with torch.no_grad():
        views = model.encoder(pixels.double())
    generator = torch.Generator().manual_seed(1)
    words, targets = torch.randint(4, 4 + len(WORDS), (2, 2, 3, 5), generator=generator)
    return views, CaptionBatch(words, targets, torch.tensor([[2, 5, 3], [4, 1, 0]]))


@every_model
def test_steps_equal_the_unroll_and_a_beam_carries_the_maps_of_its_own_hypotheses(name: str) -> None:
    """Replayed word by word, the best hypothesis of a beam has the maps that the search returned."""
    model = captioner(name)
    views, captions = batch(model)
    unrolled = model.unroll(views, captions.words, captions.lengths)
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))
    maps = {key: unrolled.unpack(value) for key, value in unrolled.trace.maps.items()}
    weights = unrolled.unpack(unrolled.trace.weights)
    memory = model.project(views)
    state = model.decoder.start(memory, 3)
    for t in range(5):
        stepped, state = model.decoder.step(state, captions.words[:, :, t])
        real = captions.lengths > t
        torch.testing.assert_close(stepped[real], log_probs[:, :, t][real].float())
        torch.testing.assert_close(state.trace.weights[real], weights[:, :, t][real])
        assert set(state.trace.maps) == set(maps)
        for key, value in maps.items():
            torch.testing.assert_close(state.trace.maps[key][real], value[:, :, t][real])

    hypotheses = model.generate(views, BeamSearch(3, 5))
    state, words = model.decoder.start(memory), torch.full((2, 1), 1)
    for t in range(int(hypotheses.lengths.max())):
        _, state = model.decoder.step(state, words)
        running = hypotheses.lengths[:, 0] > t
        torch.testing.assert_close(hypotheses.trace.weights[running, 0, t], state.trace.weights[running, 0])
        words = hypotheses.words[:, :, t]


@pytest.mark.parametrize("name", OF_EACH_FAMILY)
def test_training_lowers_the_loss(name: str) -> None:
    model = captioner(name)
    views, captions = batch(model)
    objective: Objective = CrossEntropy([AttentionPenalty(0.01)])
    if stochastic_parts(model):
        objective = Reinforce(LeaveOneOut(), samples=2)
    losses = descend(model, objective, views, captions, steps=10)
    assert losses[-1] < losses[0] - 0.1


@every_model
def test_it_captions_a_photo_and_comes_back_from_its_description(name: str) -> None:
    model = captioner(name).float()
    caption = model.describe(photo(), Greedy(3))
    words = len(caption.words)
    assert words
    assert caption.weights.shape == (words, 8, 8)
    assert caption.properties == model.decoder.properties
    grids = model.decoder.map_grids([(8, 8), (4, 4)])
    shown = {key: maps.shape for key, maps in caption.maps.items()}
    assert all((shape[0], shape[-2:]) == (words, grids[key]) for key, shape in shown.items())
    if name not in DECODERS and name not in OWN_DECODERS:
        assert set(shown) == set(grids) - {"weights"}
    again = make(model.decoder.spec, Decoder)  # type: ignore[type-abstract]
    assert again.spec == model.decoder.spec
    again.build(model.encoder.region_sizes, len(model.vocabulary), 0, 1)
    again.load_state_dict(model.decoder.state_dict())


@pytest.mark.parametrize("name", ["additive", "show_and_tell"])
def test_a_decoder_refuses_an_image_without_a_real_region(name: str) -> None:
    model = captioner(name)
    views, _ = batch(model)
    nothing = torch.zeros(2, views[0].vectors.shape[1], dtype=torch.bool)
    with pytest.raises(UserError, match="image 0"):
        model.project((views[0]._replace(mask=nothing),))


def test_a_sentinel_needs_a_decoder_that_attends_after_its_update() -> None:
    model = mechanisms.captioner(mechanisms.lstm(ATTENTIONS["sentinel"]()))
    views, captions = batch(model)
    with pytest.raises(UserError, match="AdaptiveDecoder"):
        model.unroll(views, captions.words, captions.lengths)


# -- mechanisms that sample ----------------------------------------------------------------------------------------


def test_a_sampled_point_lies_in_the_photos_pixels() -> None:
    model = captioner("glimpse").float()
    with override_at_test(model, "sample"):
        caption = model.describe(photo())
    assert caption.maps.points.shape == (len(caption.words), 2)
    left, top, right, bottom = caption.box
    assert ((caption.maps.points >= (left, top)) & (caption.maps.points <= (right, bottom))).all()
    assert caption.maps.locations is None
    assert model.describe(photo()).maps.points is None  # the expectation chooses no point


@pytest.mark.parametrize("layers", [1, 2])
def test_the_region_that_a_transformer_of_one_layer_reads_is_known(layers: int) -> None:
    """Several layers read different regions."""
    decoder = TransformerDecoder(ATTENTIONS["hard"](), layers, hidden_size=8, heads=2, inner_size=12)
    model = mechanisms.captioner(decoder).float().eval()
    with override_at_test(model, "argmax"):
        caption = model.describe(photo())
    if layers > 1:
        assert caption.maps.locations is None
        return
    highest = caption.maps["layer 0 weights"].reshape(len(caption.words), -1).argmax(1)
    assert (caption.maps.locations @ [caption.weights.shape[2], 1] == highest).all()
    assert model.describe(photo()).maps.locations is None  # the expectation chooses no region


def test_a_sampling_mechanism_of_another_package_does_as_told_and_is_followed_along_its_paths() -> None:
    model = captioner("own sampling").float()
    with override_at_test(model, "argmax"):
        assert model.describe(photo()).maps.locations is not None
    assert model.describe(photo()).maps.locations is None
    decoder = captioner("own sampling").decoder.train()
    views = (Regions(torch.randn(1, 3, 6, dtype=torch.float64), (1, 3)),)
    words = torch.tensor([[[1, 4]]])
    paths = every_path(decoder, views, CaptionBatch(words, words, torch.tensor([[2]])))
    assert len(paths.log_prob) == 9
    torch.testing.assert_close(paths.log_prob.exp().sum(), torch.tensor(1.0, dtype=torch.float64))
