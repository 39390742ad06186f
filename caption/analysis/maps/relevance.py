"""Attention times its gradient, and the relevance that follows from it (Chefer et al. 2021, "Generic Attention-model
Explainability", ICCV).

In each layer, Ā = mean over heads of (∇A ⊙ A)⁺ (eq. 5), with ∇A = ∂ log p(word) / ∂A. Gradients also go through what
later layers make of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from caption.analysis.maps.method import placed
from caption.analysis.maps.trial import Trial
from caption.analysis.replay import Sentences, gradients, sentences
from caption.analysis.self_attention.rollout import reads_all_patches
from caption.attention.base import Attention
from caption.attention.map_hooks import attentions
from caption.attention.maps import named_maps
from caption.attention.scaled_dot_product import ScaledDotProduct
from caption.attention.stochastic import override_at_test
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.core.tensor_tree import TensorTree, map_tensors
from caption.data.photos import Photo
from caption.models.transformers.captioner import ForeignCaptioner
from caption.results.caption import Caption
from caption.text.vocabulary import SPECIAL_TOKENS


def attention_times_gradient(trial: Trial) -> Tensor:
    """Σ over layers of Ā (B', 1, L) at the word's own step; what the words before have read stays."""
    parts = trial.replay.decoder.attentions
    with torch.enable_grad(), watched({name: part.maps for name, part in parts.items()}) as calls:
        log_prob = trial.step.of_word(trial.replay.run(trial.step)).sum()
        maps = [
            map_
            for name, part in parts.items()
            for call in calls[name]
            for label, map_ in named_maps(call).items()
            if label in _own_grid_maps(part, trial.step.views)
        ]
        slopes = gradients(log_prob, maps)
    products = [(map_ * slope).relu() for map_, slope in zip(maps, slopes, strict=True)]
    return sum(product.flatten(1, -2).mean(1, keepdim=True) for product in products).detach()  # type: ignore[union-attr]


def _own_grid_maps(attention: Attention, views: Views) -> list[str]:
    """The names of the maps over the regions of the first view, without those of a coarser grid made from them."""
    grids = attention.grids([view.grid for view in views])
    return [name for name, grid in grids.items() if attention.map_views[name] == 0 and grid == views[0].grid]


def relevance(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """R^{ti}, the relevance of each region for each word, carried through all layers of self-attention and attention.

    With an LSTM, whose words have no self-attention, it is Ā R̄^{ii}: attention times gradient, carried back through the
    refiner. It is for captioners of this package, and for encoder-decoder models of transformers.

    Raises:
        UserError: regions or words are mixed in a way that the rules do not cover.
    """
    drawn = []
    for batch in sentences(captioner, photos, captions, batch_size=1):
        steps, grid = len(batch.captions[0].words), batch.views[0].grid
        weights = np.zeros((steps, *grid))
        if steps:
            with torch.enable_grad(), override_at_test(captioner, "expectation"):
                fed = (
                    _foreign(captioner, batch)
                    if isinstance(captioner, ForeignCaptioner)
                    else _own(captioner, batch)
                )
            for step in range(steps):  # class tokens and registers come first
                weights[step] = _of_word(fed, step)[-grid[0] * grid[1] :].view(grid)
        drawn.append(placed(captioner, batch.captions[0], batch.photos[0], weights))
    return drawn


def propagate(regions: Sequence[Tensor], words: Sequence[tuple[Tensor | None, Tensor]]) -> Tensor:
    """R^{ti} (T, L), eqs. 6 to 10.

    Args:
        regions: Ā (L, L) of each layer of self-attention among the regions.
        words: of each layer of the decoder, Ā (T, T) of its self-attention, or None, and Ā (T, L) of its attention to
            the regions.
    """
    steps, count = words[0][1].shape
    to_regions, to_words, among_regions = torch.zeros(steps, count), torch.eye(steps), torch.eye(count)
    for mixed in regions:
        among_regions = among_regions + mixed @ among_regions  # eq. 6
    for spoken, read in words:
        if spoken is not None:
            to_words, to_regions = to_words + spoken @ to_words, to_regions + spoken @ to_regions  # eqs. 6, 7
        to_regions = to_regions + _normalised(to_words).T @ read @ _normalised(among_regions)  # eq. 10
    return to_regions


def _normalised(relevance: Tensor) -> Tensor:
    """R̄, eqs. 8 and 9: all but the identity, in rows of the sum 1, and the identity."""
    identity = torch.eye(len(relevance))
    rest = relevance - identity
    sums = rest.sum(1, keepdim=True)
    return rest / torch.where(sums > 0, sums, 1.0) + identity


class Layer(NamedTuple):
    """The weights of a layer of attention, in a graph that reaches log p."""

    calls: Sequence[Tensor]
    """The weights of each call, with t of the T rows in dimension `rows`, columns last, and heads elsewhere."""
    rows: int = -2

    def mean(self, log_prob: Tensor) -> Tensor:
        """Ā (T, columns) for one word."""
        slopes = gradients(log_prob, self.calls)
        read = [(weights * slope).relu().detach() for weights, slope in zip(self.calls, slopes, strict=True)]
        return torch.cat([call.movedim(self.rows, -2).flatten(0, -3).mean(0) for call in read]).float().cpu()


class Fed(NamedTuple):
    """A model that was fed a caption of T words."""

    log_probs: Tensor
    """(T,) of the words."""
    regions: list[Layer]
    """Among the regions."""
    words: list[tuple[Layer | None, Layer]]
    """Of each layer of the decoder: among the words, if there is such attention, and to the regions."""


def _of_word(fed: Fed, step: int) -> Tensor:
    """(L,) the relevance of the regions for one word."""
    log_prob = fed.log_probs[step]
    words = [(spoken and spoken.mean(log_prob), read.mean(log_prob)) for spoken, read in fed.words]
    return propagate([layer.mean(log_prob) for layer in fed.regions], words)[step]


def _own(captioner: Captioner, batch: Sentences) -> Fed:
    """A captioner of this package, fed the caption of a batch of one."""
    refiner, decoder = captioner.refiner, captioner.decoder
    chains: Any = [[]] if refiner is None else refiner.self_attentions()
    if chains is None:
        raise UserError(
            f"{type(refiner).__name__} mixes regions in a way that relevance does not cover: take attention-x-gradient"
        )
    among_regions = {f"regions {n}": layer.product for n, layer in enumerate(chains[0])}
    among_words = {
        f"words {name}": part for name, part in decoder.named_modules() if isinstance(part, ScaledDotProduct)
    }
    to_regions = {f"image {name}": part for name, part in attentions(decoder).items()}
    if among_words and len(among_words) != len(to_regions):
        raise UserError(
            f"{type(decoder).__name__} has {len(among_words)} layers of self-attention and {len(to_regions)} that read "
            "the image, which relevance does not cover: take attention-x-gradient"
        )
    watching = {name: part.maps for name, part in (among_regions | among_words | to_regions).items()}
    with watched(watching) as calls:
        unrolled = captioner.unroll(batch.encoded, batch.inputs[:, None], batch.lengths[:, None])
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))[0, 0].gather(1, batch.words[0, :, None])[
        :, 0
    ]
    words: list[tuple[Layer | None, Layer]] = []
    of_words: list[str | None] = [*among_words] if among_words else [None] * len(to_regions)
    for spoken, (name, part) in zip(of_words, to_regions.items(), strict=True):
        labels = _own_grid_maps(part, batch.views)
        layers = [Layer([named_maps(call)[label] for call in calls[name]], 1) for label in labels]
        if spoken is not None:
            words.append((Layer(calls[spoken]), layers.pop(0)))
        words += [(None, layer) for layer in layers]
    return Fed(log_probs, [Layer(calls[name]) for name in among_regions], words)


def _foreign(captioner: ForeignCaptioner, batch: Sentences) -> Fed:
    """An encoder-decoder model of transformers, fed the caption of a batch of one by its own code."""
    model: Any = captioner.decoder.model
    whole: Any = getattr(model, "whole", None)
    refusal = UserError(
        f"relevance needs the weights of every layer, which {type(model).__name__} does not give: take "
        "attention-x-gradient"
    )
    has_parts = hasattr(whole, "encoder") and hasattr(whole, "decoder")
    if not has_parts or whole.main_input_name != "pixel_values":  # Pix2Struct's are patches
        raise refusal
    pieces = torch.cat((batch.words.new_tensor([model.prompt]), batch.words - len(SPECIAL_TOKENS)), 1)
    pixels = batch.photos[0].pixels[None].to(captioner.device, next(whole.parameters()).dtype)
    before = {part: part.config._attn_implementation for part in (whole.encoder, whole.decoder)}
    frozen = [weights for weights in whole.parameters() if not weights.requires_grad]
    try:
        for weights in frozen:  # else no gradient reaches the attention
            weights.requires_grad_()
        for part in before:
            part.set_attn_implementation("eager")
        output = whole(pixel_values=pixels, decoder_input_ids=pieces[:, :-1], output_attentions=True)
    finally:
        for part, implementation in before.items():
            part.set_attn_implementation(implementation)
        for weights in frozen:
            weights.requires_grad_(False)
    if not reads_all_patches(output.encoder_attentions):
        raise refusal
    first = len(model.prompt) - 1
    logits = output.logits[0, first:].float().log_softmax(-1)
    of_words = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return Fed(
        logits.gather(1, pieces[0, first + 1 :, None])[:, 0],
        [Layer([weights]) for weights in output.encoder_attentions],
        [(Layer([spoken]), Layer([read])) for spoken, read in of_words],
    )


@contextmanager
def watched(parts: Mapping[str, nn.Module]) -> Iterator[dict[str, list[TensorTree]]]:
    """Context in which what modules return is recorded, call by call and in a graph, by the modules' names."""
    calls: dict[str, list[TensorTree]] = {name: [] for name in parts}

    def hook(name: str) -> Callable[..., TensorTree]:
        def record(module: nn.Module, args: tuple[Any, ...], maps: TensorTree) -> TensorTree:
            # The maps of a model without gradients are differentiated, too.
            calls[name].append(
                map_tensors(lambda map_: map_ + torch.zeros_like(map_, requires_grad=True), maps)
            )
            return calls[name][-1]

        return record

    with ExitStack() as stack:
        for name, part in parts.items():
            stack.enter_context(part.register_forward_hook(hook(name)))
        yield calls
