"""A captioner with edited attention, for `caption.analysis.interventions`. The original stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from caption.analysis.interventions.edits import scaled_like
from caption.attention.base import Attention, Look, Memory
from caption.attention.forced import Edit, ForcedAttention, force, with_parts
from caption.attention.hard import Multinoulli
from caption.tensor_tree import TensorTree

if TYPE_CHECKING:
    from caption.captioner import Captioner


class ChangedAttention(ForcedAttention):
    """Another attention with its weights edited, in an image of which it may see a part.

    Where `ForcedAttention` reads the expectation under edited weights, hard attention goes on choosing: it takes the
    most probable region of the edited weights, or samples one. Each step draws from a generator of its own, so that
    captioners that differ in their edits draw alike.

    Args:
        attention: see `ForcedAttention`.
        edit: see `ForcedAttention`.
        visible: (L,) bool, which regions are in the image; None = all.
        seed: of attention that samples.
    """

    def __init__(
        self, attention: Attention, edit: Edit, visible: Tensor | None = None, seed: int = 0
    ) -> None:
        super().__init__(attention, edit)
        self.visible = visible
        self.seed = seed

    def project(self, regions: Tensor, mask: Tensor | None = None) -> Memory:
        if self.visible is not None:
            visible = self.visible.to(regions.device).expand(regions.shape[:2])
            mask = visible if mask is None else mask & visible
        return super().project(regions, mask)

    def forward(self, query: Tensor, memory: Memory, state: TensorTree = None) -> Look:
        seed = self._seed(state.step)
        with seeded(seed, query.device):
            look = super().forward(query, memory, state)
        alignment = getattr(self.attention, "alignment", None)
        chooses = isinstance(alignment, Multinoulli) and bool(state.inner.any())
        if not chooses or look.location is None or bool((look.location >= 0).any()):
            return look  # expectations are read as they are; a location is there where nothing was edited
        with seeded(seed, query.device):
            aligned = alignment(look.weights.log(), state.inner)  # type: ignore[misc]
        return look._replace(
            context=aligned.read @ memory.values, location=aligned.location, log_prob=aligned.log_prob
        )

    def _seed(self, steps: Tensor) -> int:
        step = int(steps.amax()) if steps.numel() else 0
        return int(np.random.SeedSequence((self.seed, step)).generate_state(1)[0])


def changing(
    captioner: Captioner,
    seed: int,
    edits: Sequence[Callable[[Tensor, int], Tensor]] = (),
    visible: Tensor | None = None,
) -> Captioner:
    """The captioner under changes, its weights shared. Without changes it says what the one given says.

    Args:
        captioner: a model.
        seed: of attention that samples.
        edits: what is done to the weights, one after the other: (B, K, L) and the step -> (B, K, L), the very same
            tensor where nothing is done.
        visible: (L,) bool, which regions are in the image; None = all. Weights that an edit puts on others are lost,
            and the rest is scaled to the sum there was.

    Raises:
        UserError: the decoder has no attention whose weights can be edited.
    """

    def edit(weights: Tensor, step: int) -> Tensor:
        edited = weights
        for each in edits:
            edited = each(edited, step)
        if edited is weights or visible is None:
            return edited
        return scaled_like(edited * visible.to(edited.device), edited)

    decoder = force(captioner.decoder, edit)  # refuses what has no attention
    attention = ChangedAttention(decoder.attention.attention, edit, visible, seed)  # type: ignore[union-attr,arg-type]
    return with_parts(captioner, decoder=with_parts(decoder, attention=attention))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within it, chance begins with `seed`; the global generators stay as they are."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
