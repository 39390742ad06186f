"""The text model of a foreign captioner as a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import AttentionOutput
from caption.core.errors import UserError
from caption.core.parts import Spec
from caption.core.regions import Grid, Views
from caption.core.tensor_tree import State, TensorTree, combine, map_tensors
from caption.decoders.base import Decoder, Trace, Unrolled
from caption.decoders.base import Memory as DecoderMemory
from caption.models.transformers.attention import HeadQuery, LayerMemory, PatchAttention, PatchMaps
from caption.models.transformers.encoder import cannot_be_saved, tokens_of
from caption.models.transformers.model import ForeignModel
from caption.text.vocabulary import SPECIAL_TOKENS, START

TINY = 1e-12
"""Least weight of a map, in nats, in the concentrated mean: uniform maps must have a mean, too."""


class ForeignMemory(NamedTuple):
    """Everything that the model needs of B images; `views` and `projected` as in `decoders.base.Memory`."""

    views: Views
    projected: tuple[LayerMemory, ...]
    past: TensorTree
    """Tensors (B, ...), see `model.Memory.past`."""
    prompt: Tensor
    """(B, P) int64, the pieces before the one that is fed first."""


class Carried(NamedTuple):
    """What K captions of B images carry from step to step, all that the search of `generate` needs included."""

    past: TensorTree
    """Tensors (B, K, ...), the model's cache."""
    pieces: Tensor
    """(B, K, P) int64, all pieces that were read, the prompt first."""
    normalizer: Tensor
    """(B, K) log Σ exp of the logits."""
    ends: Tensor
    """(B, K, E) int64, the end pieces."""
    end_log_probs: Tensor
    """(B, K, E), their log-probabilities."""


class ForeignDecoder(Decoder):
    """Runs the text model one word piece at a time; every layer's attention to the image is a `PatchAttention`.

    The words of its vocabulary are the special tokens of this package, then the model's pieces: piece n is word
    n + 4. The model's end pieces are never generated, since END replaces them.

    The weights for heatmaps are the mean of all heads, each weighted by the square of Σ α log α / mean α, in nats, over
    all patches but the most attended one: by the share of the image, and by how far the rest of the map is from an even
    one. A head that looks at one patch whatever the word is, a sink, has little weight. `caption.maps` gives other
    summaries.

    Args:
        model: the whole model.
    """

    def __init__(self, model: ForeignModel) -> None:
        super().__init__()
        self.model = model
        self.layers = nn.ModuleList(PatchAttention(model.views) for _ in model.heads)
        self.query_size = max(model.heads)

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        """Nothing to build: the model has its weights."""

    def trace_name(self, number: int, name: str) -> str:
        return f"layer {number} {name}"

    def project(self, views: Views) -> DecoderMemory:
        tokens = tokens_of(views, self.model.region_size)
        mask = None
        if any(view.mask is not None for view in views):
            unmasked = [torch.ones_like(view.vectors[..., 0], dtype=torch.bool) for view in views]
            pairs = zip(views, unmasked, strict=True)
            mask = torch.cat([full if view.mask is None else view.mask for view, full in pairs], 1)
        memory = self.model.memory(tokens, mask)
        prompt = memory.prompt
        if prompt is None:
            prompt = torch.zeros(len(views[0].vectors), 0, dtype=torch.long, device=views[0].vectors.device)
        return ForeignMemory(views, memory.layers, memory.past, prompt)  # type: ignore[return-value]

    def start(self, memory: DecoderMemory, hypotheses: int = 1) -> State:
        of_images: ForeignMemory = memory  # type: ignore[assignment]
        prompt = of_images.prompt
        ends = torch.tensor(self.model.ends, device=prompt.device).expand(len(prompt), -1)
        zeros = torch.zeros_like(ends, dtype=torch.float32)
        carried = Carried(of_images.past, prompt, zeros[:, 0], ends, zeros)
        expanded = map_tensors(
            lambda tensor: tensor[:, None].expand(-1, hypotheses, *tensor.shape[1:]), carried
        )
        return State(memory, expanded, None)

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        memory: ForeignMemory = state.shared
        outputs: dict[int, AttentionOutput] = {}
        rows = words.shape[0], words.shape[1]

        def attend(
            layer: int,
            query: Tensor,
            keys: Tensor | None = None,
            values: Tensor | None = None,
            window: int | None = None,
        ) -> Tensor:
            """See `model.Attend`."""
            layer_memory = memory.projected[layer]
            if window is not None and keys is not None and values is not None:
                before_words = layer_memory.keys.shape[2] + layer_memory.other_keys.shape[2]
                layer_memory = layer_memory.since(before_words + keys.shape[2] - window)
                keys, values = keys[:, :, -window:], values[:, :, -window:]
            elsewhere = [layer_memory.other_keys[:, None], layer_memory.other_values[:, None]]
            if keys is not None and values is not None:
                of_words = [tensor.unflatten(0, rows) for tensor in (keys, values)]
                elsewhere = [
                    torch.cat((before.expand(-1, rows[1], -1, -1, -1), words), 3)
                    for before, words in zip(elsewhere, of_words, strict=True)
                ]
            heads = HeadQuery.of(query.unflatten(0, rows), *elsewhere)
            outputs[layer] = output = self.layers[layer](heads, layer_memory)
            return output.context.flatten(0, 1).view_as(query)

        pieces = (words - len(SPECIAL_TOKENS)).where(words >= len(SPECIAL_TOKENS), self.model.ends[0])
        pieces = pieces.where(words != START, self.model.start)
        before: Carried = state.carried
        past = map_tensors(partial(torch.flatten, start_dim=0, end_dim=1), before.past)
        logits, past = self.model.step(pieces.flatten(), past, attend)
        logits = logits.float().unflatten(0, rows)
        log_probs = logits.log_softmax(-1)
        carried = Carried(
            map_tensors(lambda tensor: tensor.unflatten(0, rows), past),
            torch.cat((before.pieces, pieces[..., None]), 2),
            logits.logsumexp(-1),
            before.ends,
            log_probs[..., self.model.ends],
        )
        trace = self._trace(
            [outputs[n].maps for n in range(len(self.layers))], [view.grid for view in memory.views]
        )
        return self._of_words(log_probs), State(memory, carried, trace)

    @torch.no_grad()
    def question(self, views: Views) -> tuple[Tensor, Tensor, Trace]:
        """How the N pieces of the question of a model of transformers read one image.

        Returns:
            (N,) int64 words; (N,) log p of each, given those before it; and the attention while it is read, tensors
            (1, N, ...).
        """
        model: Any = self.model
        maps = model.question_maps(tokens_of(views, model.region_size))
        if maps is not None:
            trace = self._trace(maps.layers, [view.grid for view in views])
            return maps.pieces + len(SPECIAL_TOKENS), maps.log_probs, trace
        with model.unasked() as prompt:
            state, scores, traces = self.start(self.project(views)), [], []
            words = torch.tensor(prompt, device=views[0].vectors.device) + len(SPECIAL_TOKENS)
            for word in words:
                log_probs, state = self.step(state, word.view(1, 1))
                scores.append(log_probs[0, 0])
                traces.append(state.trace)
        log_probs = torch.stack(scores[:-1]).gather(1, words[1:, None])[:, 0]
        return words[1:], log_probs, combine(partial(torch.cat, dim=1), traces[1:])

    def _of_words(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities of pieces (B, K, V) -> of words (B, K, 4 + V)."""
        ends = torch.tensor(self.model.ends, device=log_probs.device)
        end = log_probs[..., ends].amax(-1, keepdim=True)
        never = torch.full_like(end, -torch.inf)
        return torch.cat((never, never, end, never, log_probs.index_fill(-1, ends, -torch.inf)), -1)

    def _trace(self, layers: Sequence[PatchMaps], grids: Sequence[Grid]) -> Trace:
        maps = {
            f"layer {number} {name}": of_view
            for number, of_layer in enumerate(layers)
            for name, of_view in (("heads", of_layer.heads), ("second", of_layer.second))
            if of_view is not None
        }
        summed = [on_first_grid(of_layer.heads, of_layer.second, grids) for of_layer in layers]
        return Trace(self._summarised(summed), maps)

    def _summarised(self, heads: Sequence[Tensor]) -> Tensor:
        """(B, K, M, L) of each layer -> (B, K, L)."""
        all_heads = torch.cat(list(heads), 2)
        peak = all_heads.argmax(-1, keepdim=True)
        rest = all_heads.scatter(-1, peak, 0)
        uniform = (rest.sum(-1, keepdim=True) / max(rest.shape[-1] - 1, 1)).clamp_min(TINY)
        nats = torch.xlogy(rest, rest / uniform).sum(-1, keepdim=True).clamp_min(TINY)
        return (all_heads * nats**2).sum(2) / (nats**2).sum(2)

    def forward(self, memory: DecoderMemory, words: Tensor, lengths: Tensor) -> Unrolled:
        """Foreign models are trained by their own code: raises a UserError."""
        raise UserError(
            "objectives of this package cannot train a model of other people's code: train it with its own, such as "
            "the Trainer of transformers, and load the result"
        )

    @property
    def spec(self) -> Spec:
        """Foreign models have no description: raises a UserError."""
        raise cannot_be_saved()


def on_first_grid(heads: Tensor, second: Tensor | None, grids: Sequence[Grid]) -> Tensor:
    """(..., L) the sum of maps (..., L) and those of a second view (..., L') on the grid of the first; the views cover
    the same part of the photo."""
    if second is None:
        return heads
    of_first, of_second = grids
    down, across = (_shares(*cells).to(second) for cells in zip(of_first, of_second, strict=True))
    return heads + (down @ second.unflatten(-1, of_second) @ across.T).flatten(-2)


def _shares(cells: int, others: int) -> Tensor:
    """(cells, others) the share of each of `others` intervals of a line in each of `cells` intervals of it."""
    ends, other_ends = ((torch.arange(count) + 1) / count for count in (cells, others))
    common = torch.minimum(ends[:, None], other_ends) - torch.maximum(
        ends[:, None] - 1 / cells, other_ends - 1 / others
    )
    return common.clamp_min(0) * others
