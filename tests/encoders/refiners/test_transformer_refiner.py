"""A full Transformer against torch's layers with the same weights: the encoder over regions, and the decoder."""

from __future__ import annotations

import pytest
import torch
from helpers.loops import random_views as views_of_loops
from helpers.loops import randomise
from helpers.refiner_cases import built, random_views
from torch import Tensor, nn

from caption.attention import MultiHeadAttention
from caption.decoders import TransformerDecoder
from caption.encoders import SinusoidalPositions, TransformerRefiner


def copy(to: nn.Module, **tensors: Tensor) -> None:
    with torch.no_grad():
        for name, tensor in tensors.items():
            to.get_parameter(name.replace("__", ".")).copy_(tensor)


def affine(name: str, layer: nn.Module) -> dict[str, Tensor]:
    return {f"{name}__weight": layer.weight, f"{name}__bias": layer.bias}


def torch_encoder(refiner: TransformerRefiner) -> nn.TransformerEncoder:
    ours = refiner.views[0].layers
    size, inner = ours.norms[0].weight.numel(), refiner.inner_size
    layer = nn.TransformerEncoderLayer(size, refiner.heads, inner, 0.0, norm_first=True, batch_first=True)
    encoder = nn.TransformerEncoder(layer, refiner.depth, nn.LayerNorm(size), enable_nested_tensor=False)
    encoder.double()
    for n, layer in enumerate(encoder.layers):
        attend, inner_network = ours.attend[n], ours.inner[n]
        parts = (attend.queries, attend.keys, attend.values)
        copy(
            layer,
            self_attn__in_proj_weight=torch.cat([part.weight for part in parts]),
            self_attn__in_proj_bias=torch.cat([part.bias for part in parts]),
            **affine("self_attn__out_proj", attend.join),
            **affine("norm1", ours.norms[n]),
            **affine("norm2", ours.inner_norms[n]),
            **affine("linear1", inner_network[0]),
            **affine("linear2", inner_network[3]),
        )
    copy(encoder, **affine("norm", ours.leave))
    return encoder.eval()


@pytest.mark.parametrize("masked", [False, True])
def test_the_encoder_is_torchs(masked: bool) -> None:
    """Values, and gradients of the regions."""
    refiner = built(TransformerRefiner(heads=2, layers=2, inner_size=5), (6,))
    (view,) = random_views((6,), ((3, 4),), masked=masked)
    ours, theirs = (view.vectors.clone().requires_grad_() for _ in range(2))
    (refined,) = refiner((view._replace(vectors=ours),))
    padding = None if view.mask is None else ~view.mask
    expected = torch_encoder(refiner)(theirs, src_key_padding_mask=padding)
    real = torch.ones(2, 12, dtype=torch.bool) if view.mask is None else view.mask
    torch.testing.assert_close(refined.vectors[real], expected[real])
    refined.vectors[real].square().sum().backward()
    expected[real].square().sum().backward()
    torch.testing.assert_close(ours.grad[real], theirs.grad[real])


def torch_decoder(decoder: TransformerDecoder) -> nn.TransformerDecoder:
    """torch's decoder for regions as long as its hidden vectors, with the same weights."""
    size = decoder.hidden_size
    layer = nn.TransformerDecoderLayer(
        size, decoder.heads, decoder.inner_size, 0.0, norm_first=True, batch_first=True
    )
    whole = nn.TransformerDecoder(layer, len(decoder.layers), nn.LayerNorm(size)).double()
    for ours, theirs in zip(decoder.layers, whole.layers, strict=True):
        attention = ours.attention
        parts = (attention.queries, attention.keys, attention.values)
        last = ours.from_context
        copy(
            theirs,
            self_attn__in_proj_weight=ours.projections.weight,
            self_attn__in_proj_bias=ours.projections.bias,
            **affine("self_attn__out_proj", ours.output),
            multihead_attn__in_proj_weight=torch.cat([part.weight for part in parts]),
            multihead_attn__in_proj_bias=torch.cat([part.bias for part in parts]),
            # Ours has two affine maps behind the heads, W_o and that of the layer.
            multihead_attn__out_proj__weight=last.weight @ attention.output.weight,
            multihead_attn__out_proj__bias=last.weight @ attention.output.bias + last.bias,
            **{k: v for n in range(3) for k, v in affine(f"norm{n + 1}", ours.norms[n]).items()},
            **affine("linear1", ours.inner[0]),
            **affine("linear2", ours.inner[3]),
        )
    copy(whole, **affine("norm", decoder.norm))
    return whole.eval()


def test_the_decoder_is_torchs() -> None:
    """Masked self-attention, cross-attention and feed-forward network, for regions refined by the encoder."""
    refiner = TransformerRefiner(8, 2, 1, 5, SinusoidalPositions())
    refiner.build((4,))
    decoder = TransformerDecoder(MultiHeadAttention(2, 8), 2, 8, 2, 6, dropout=0.0)
    decoder.build((8,), 7, padding=0, start=1)
    for module in (refiner, decoder):
        module.double().eval()
        randomise(module)
    views = refiner(views_of_loops([(2, 3)]))
    words = torch.tensor([[[1, 4, 5, 2]], [[1, 6, 3, 3]]])
    unrolled = decoder(decoder.project(views), words, torch.full((2, 1), 4))
    embedded = decoder.embed(words[:, 0]) * 8**0.5 + decoder.positions[:4]
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    hidden = torch_decoder(decoder)(
        embedded, views[0].vectors, tgt_mask=later, memory_key_padding_mask=~views[0].mask
    )
    torch.testing.assert_close(unrolled.unpack(unrolled.logits)[:, 0], decoder.to_words(hidden))
