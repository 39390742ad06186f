"""Top-down, adaptive, Show and Tell and Transformer decoders, unrolled in NumPy from their weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loops import (
    Vector,
    additive,
    close,
    dot,
    linear,
    lstm,
    parameters,
    random_views,
    randomise,
    sigmoid,
    softmax,
    weighted,
)
from helpers.tiny_views import WithoutEncoder
from torch import Tensor

from caption import attention as library
from caption import decoders
from caption.attention import AdditiveScore, DotScore, LocationSensitiveScore, ScoredAttention, Softmax
from caption.core.errors import UserError
from caption.decoders import AdaptiveDecoder, InitialState, ShowAndTellDecoder, TransformerDecoder
from caption.decoders.base import Decoder, Unrolled
from caption.objectives import CaptionBatch, CrossEntropy, Reinforce

Weights = dict[str, np.ndarray]
WORDS, E, H = 7, 3, 4
FED = [1, 4]
"""The words fed in: a caption of two words. The first is the start token."""
VIEWS = random_views([(2, 3)])


def attention() -> ScoredAttention:
    return ScoredAttention(AdditiveScore(6), Softmax())


def unroll(decoder: Decoder, fed: list[int] = FED) -> tuple[Weights, Unrolled]:
    """The same caption for each of the two images, whose first has a masked region."""
    decoder.build((4,), WORDS, padding=0, start=1)
    decoder.double().eval()
    randomise(decoder)
    words = torch.tensor(fed).expand(2, 1, -1)
    return parameters(decoder), decoder(decoder.project(VIEWS), words, torch.full((2, 1), len(fed)))


def per_image(unrolled: Unrolled) -> list[tuple[np.ndarray, np.ndarray, Tensor, Tensor]]:
    """Regions, mask, logits (T, V) and weights (T, L) of each image."""
    logits, weights = unrolled.unpack(unrolled.logits), unrolled.unpack(unrolled.trace.weights)
    assert VIEWS[0].mask is not None
    return [
        (VIEWS[0].vectors[b].numpy(), VIEWS[0].mask[b].numpy(), logits[b, 0], weights[b, 0]) for b in (0, 1)
    ]


def mean(regions: np.ndarray, real: np.ndarray) -> Vector:
    return weighted(real / sum(real), regions)


def scores(p: Weights, name: str, regions: np.ndarray, hidden: Vector) -> list[float]:
    return [additive(p, name, a, hidden) for a in regions]


def test_top_down() -> None:
    """Anderson et al. 2018, eqs. 2 to 7: h¹ = LSTM([h²; v̄; E y], h¹), α from h¹, h² = LSTM([v̂; h¹], h²), p from h²."""
    p, unrolled = unroll(decoders.TopDownDecoder(attention(), E, H))
    for regions, real, logits, maps in per_image(unrolled):
        h1 = c1 = h2 = c2 = np.zeros(H)
        for t, word in enumerate(FED):
            inputs = np.concatenate([h1, h2, mean(regions, real)])
            gates = linear(p, "attention_gates_from_word", p["embed.weight"][word])
            h1, c1 = lstm(gates + linear(p, "attention_gates", inputs), c1)
            weights = softmax(scores(p, "attention.score", regions, h1), real)
            inputs = np.concatenate([h2, h1, weighted(weights, regions)])
            h2, c2 = lstm(linear(p, "language_gates", inputs), c2)
            close(maps[t], weights)
            close(logits[t], linear(p, "to_words", h2))


def test_adaptive_with_a_sentinel() -> None:
    """Lu et al. 2017, section 2: h[t] = LSTM([E y; v_g]), attention with h[t], the sentinel among the regions."""
    decoder = AdaptiveDecoder(library.SentinelAttention(AdditiveScore(6)), E, H, InitialState(dropout=0))
    p, unrolled = unroll(decoder)
    for regions, real, logits, maps in per_image(unrolled):
        average = mean(regions, real)
        image = np.maximum(linear(p, "image.0", average), 0)
        hidden = np.tanh(linear(p, "initial.hidden.0", average))
        cell = np.tanh(linear(p, "initial.cell.0", average))
        for t, word in enumerate(FED):
            vector, before = p["embed.weight"][word], hidden
            gates = linear(p, "cell.from_word", vector)
            gates = gates + linear(p, "cell.from_state", np.concatenate([before, image]))
            hidden, cell = lstm(gates, cell)
            gate = linear(p, "attention.gate_from_word", vector)
            sentinel = sigmoid(gate + linear(p, "attention.gate_from_hidden", before)) * np.tanh(cell)
            keys = [*regions, linear(p, "attention.key", sentinel)]
            every = scores(p, "attention.score", keys, hidden)
            weights = softmax(every, [*real, True])
            context = weighted(weights[:-1], regions) + weights[-1] * linear(p, "attention.value", sentinel)
            joined = np.tanh(linear(p, "from_hidden", hidden) + linear(p, "from_context", context))
            close(maps[t], weights[:-1])
            close(logits[t], linear(p, "to_words", joined))


@pytest.mark.parametrize("normalised", [False, True])
def test_show_and_tell(normalised: bool) -> None:
    """Vinyals et al. 2015, eqs. 10 to 12: the image is the LSTM's input before the first word, from a state of 0."""
    decoder = ShowAndTellDecoder(E, H, normalise_image=normalised)
    p, unrolled = unroll(decoder)
    for regions, real, logits, maps in per_image(unrolled):
        image = linear(p, "image", mean(regions, real))
        if normalised:  # by the moving averages, which are 0 and 1 before training
            image = image / np.sqrt(1 + 1e-5) * p["image_norm.weight"] + p["image_norm.bias"]
        hidden, cell = lstm(linear(p, "cell.from_word", image), np.zeros(H))
        for t, word in enumerate(FED):
            gates = linear(p, "cell.from_word", p["embed.weight"][word])
            hidden, cell = lstm(gates + linear(p, "cell.from_state", hidden), cell)
            close(logits[t], linear(p, "to_words", hidden))
            close(maps[t], real / real.sum())  # even over the real regions


# -- Transformer ---------------------------------------------------------------------------------------------------


def transformer(inner: ScoredAttention | None = None, **options: int) -> TransformerDecoder:
    return TransformerDecoder(inner or attention(), layers=2, hidden_size=H, heads=2, inner_size=5, **options)


def layer_norm(p: Weights, name: str, x: Vector) -> Vector:
    variance = sum((x - x.mean()) ** 2) / len(x)
    return (x - x.mean()) / np.sqrt(variance + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def test_transformer() -> None:
    """Vaswani et al. 2017, section 3, with the layer normalisation before each part."""
    p, unrolled = unroll(transformer())
    for regions, real, logits, maps in per_image(unrolled):
        # Positions 0 and 1 by hand: wavelengths 2π and 100 · 2π for H = 4.
        positions = [[0.0, 1.0, 0.0, 1.0], [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)]]
        hidden = [
            2 * p["embed.weight"][word] + np.array(positions[t]) for t, word in enumerate(FED)
        ]  # √H = 2
        seen = np.zeros((2, len(FED), len(regions)))
        for layer in (0, 1):
            name = f"layers.{layer}"
            parts = [linear(p, f"{name}.projections", layer_norm(p, f"{name}.norms.0", x)) for x in hidden]
            queries, keys, values = ([part[n * H : (n + 1) * H] for part in parts] for n in range(3))
            for t in range(len(FED)):
                heads = []
                for part in (slice(0, H // 2), slice(H // 2, H)):
                    alike = [dot(queries[t][part], keys[s][part]) / np.sqrt(H / 2) for s in range(t + 1)]
                    heads.append(weighted(softmax(alike), [values[s][part] for s in range(t + 1)]))
                x = hidden[t] + linear(p, f"{name}.output", np.concatenate(heads))
                energies = scores(p, f"{name}.attention.score", regions, layer_norm(p, f"{name}.norms.1", x))
                seen[layer, t] = softmax(energies, real)
                x = x + linear(p, f"{name}.from_context", weighted(seen[layer, t], regions))
                inner = linear(p, f"{name}.inner.0", layer_norm(p, f"{name}.norms.2", x))
                hidden[t] = x + linear(p, f"{name}.inner.3", np.maximum(inner, 0))
        for t, x in enumerate(hidden):
            expected = linear(p, "to_words", layer_norm(p, "norm", x))
            # The positions are in single precision.
            np.testing.assert_allclose(logits[t].detach().numpy(), expected, atol=1e-5)
            np.testing.assert_allclose(maps[t].detach().numpy(), seen[:, t].mean(0), atol=1e-5)
    assert unrolled.queries.shape == (2 * len(FED), H)
    assert unrolled.logits.requires_grad
    assert not unrolled.queries.requires_grad


def test_the_scaled_word_vectors_of_a_transformer_begin_with_unit_variance() -> None:
    """√H E y, as large as the positions that are added."""
    torch.manual_seed(0)
    decoder = TransformerDecoder(attention(), layers=1, hidden_size=64, heads=2)
    decoder.build((4,), 500, padding=0, start=1)
    assert (decoder.embed.weight[1:] * 64**0.5).std().item() == pytest.approx(1.0, rel=0.05)


def test_a_transformer_whose_attention_samples_adds_the_log_densities_of_its_layers() -> None:
    """Two layers sample for each word; the objectives see that there is something to estimate."""
    torch.manual_seed(0)
    inner = ScoredAttention(AdditiveScore(6), library.Multinoulli(expectation=0.0, at_test="sample"))
    decoder = transformer(inner)
    _, unrolled = unroll(decoder)
    maps, log_prob = unrolled.trace.maps, unrolled.trace.log_prob
    assert log_prob is not None
    for step, value in enumerate(log_prob.exp().tolist()):  # one region of each layer
        first, second = (maps[f"layer {n} weights"][step].detach().numpy() for n in (0, 1))
        assert np.isclose(np.outer(first, second), value).any()
    words = torch.tensor(FED).expand(2, 1, -1)
    captions = CaptionBatch(words, words, torch.full((2, 1), 2))
    with pytest.raises(UserError, match="Reinforce"):
        CrossEntropy()(WithoutEncoder(decoder), VIEWS, captions)
    loss = Reinforce()(WithoutEncoder(decoder.train()), VIEWS, captions)
    loss.value.backward()
    for layer in (0, 1):
        assert decoder.layers[layer].attention.score.query.weight.grad.abs().sum() > 1e-6


@pytest.mark.parametrize("share", ["caption", "batch"])
def test_a_caption_of_a_transformer_reads_the_expectation_at_all_its_words_or_at_none(share: str) -> None:
    """In each layer, as in the other decoders."""
    torch.manual_seed(0)
    decoder = transformer(ScoredAttention(AdditiveScore(6), library.Multinoulli(share=share)))
    decoder.build((4,), WORDS, padding=0, start=1)
    decoder.double().train()
    words, sampled = torch.tensor(FED).repeat(3).expand(2, 20, -1), []
    for layer in decoder.layers:
        layer.attention.register_forward_hook(lambda *call: sampled.append(call[-1].log_prob != 0))
    decoder(decoder.project(VIEWS), words, torch.full((2, 20), 6))
    for of_layer in sampled:
        by_caption = of_layer.unflatten(1, (20, 6))
        assert (by_caption.all(-1) | ~by_caption.any(-1)).all()
        assert of_layer.unique().numel() == (2 if share == "caption" else 1)


def test_a_transformer_refuses_attention_with_a_state_longer_captions_and_sizes_that_do_not_fit() -> None:
    unroll(transformer(longest=4), [1, 4, 5, 6, 4])  # the start token is no word
    with pytest.raises(
        UserError, match=r"4 words.*`longest`.*data\.max_words and the max_length of SelfCrit"
    ):
        unroll(transformer(longest=4), [1, 4, 5, 6, 4, 2])
    for inner in (
        ScoredAttention(LocationSensitiveScore(6, 2, 3), Softmax()),
        library.ParallelCoAttention(library.WordProjection(6), DotScore()),
    ):
        with pytest.raises(UserError, match="cannot keep a state from word to word"):
            unroll(transformer(inner))
    for options, said in [
        ({"layers": 0}, "layers 0 of TransformerDecoder must be at least 1"),
        ({"heads": 0}, "heads 0 of TransformerDecoder must be at least 1"),
        ({"hidden_size": 12}, "hidden_size 12 .* not divisible by heads 8"),
    ]:
        with pytest.raises(UserError, match=said):
            TransformerDecoder(attention(), **options)
