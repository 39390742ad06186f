"""What would the model say if it looked elsewhere? Captions with the attention in the analyst's hands.

    result = intervene(captioner, "photo.jpg", Force((2, 5), at="circle"))
    print(result)      # both captions, their log-probabilities, and where they part
    result.plot()

The question is put in two ways. The model goes on from the words before the first change, with the same search, under
the changes. And it is made to say the caption it gave before, so that the change of log p can be seen at every word,
also of a caption that stays the same. The first follows all consequences; the second compares the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from caption.analysis.interventions.apply import changing, seeded
from caption.analysis.interventions.edits import Change, Erase, Force, Mask, Move, kept
from caption.analysis.interventions.selection import steps_of, tokens_of
from caption.data.images import open_image
from caption.eval_mode import eval_mode
from caption.result import Caption
from caption.text.vocabulary import START

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from caption.captioner import Captioner
    from caption.encoders.base import Regions
    from caption.result import Photo
    from caption.search import Search

__all__ = ["Erase", "Force", "Intervention", "LogProbs", "Mask", "Move", "intervene"]


@dataclass(frozen=True, eq=False)
class LogProbs:
    """The natural log-probability of each of a caption's N tokens, given those before it."""

    tokens: tuple[str, ...]
    """(N,) the words and, if the caption is finished, the end token."""
    without: np.ndarray
    """(N,) as the model is."""
    under: np.ndarray
    """(N,) under the changes."""

    @property
    def falls(self) -> np.ndarray:
        """(N,) by how much each falls under the changes, in nats; negative where it rises."""
        return self.without - self.under


@dataclass(frozen=True, eq=False, repr=False)
class Intervention:
    """What a model says of a photo by itself, and what it says under some changes."""

    changes: tuple[Change | Erase, ...]
    original: Caption
    changed: Caption
    """Its weights are those that were read with."""
    original_log_probs: LogProbs
    """Of the original's tokens."""
    changed_log_probs: LogProbs
    """Of the changed caption's tokens."""
    steps: tuple[int, ...]
    """The steps of the changed caption at which the weights were others."""

    @property
    def parting(self) -> int | None:
        """The first step at which the captions have different tokens; None for the same caption."""
        one, other = self.original_log_probs.tokens, self.changed_log_probs.tokens
        differ = (step for step, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
        return None if one == other else next(differ, min(len(one), len(other)))

    @property
    def verdict(self) -> str:
        """Where the captions part, in words."""
        if self.parting is None:
            return "the same caption"
        told = (self.original_log_probs.tokens, self.changed_log_probs.tokens)
        said = [tokens[self.parting : self.parting + 1] for tokens in told]
        before, after = (repr(token[0]) if token else "nothing" for token in said)
        return f"they part at step {self.parting}: {before} becomes {after}"

    def __str__(self) -> str:
        one, other = self.original_log_probs, self.changed_log_probs
        return "\n".join(
            [
                f"original  {self.original}",
                f"          log p {one.without.sum():.2f}, under the changes {one.under.sum():.2f}",
                f"changed   {self.changed}",
                f"          log p {other.under.sum():.2f}, without the changes {other.without.sum():.2f}",
                self.verdict,
            ]
        )

    def __repr__(self) -> str:
        return f"Intervention({str(self.original)!r} -> {str(self.changed)!r}, {self.verdict})"

    def _repr_html_(self) -> str:
        """For a notebook: every word's log-probability, with and without the changes."""
        from caption.visualize.intervention import intervention_table

        return intervention_table(self)

    def plot(self, image: Photo | None = None, **options: Any) -> Figure:
        """Both captions, one above the other (`caption.visualize.intervention.plot_intervention`).

        Args:
            image: the photo to draw over; by default the one that was given.
            options: passed on.
        """
        from caption.visualize.intervention import plot_intervention

        return plot_intervention(self, image, **options)


def intervene(
    captioner: Captioner,
    photo: Photo,
    *changes: Change | Erase,
    search: Search | None = None,
    anew: bool = False,
    seed: int = 0,
) -> Intervention:
    """Caption a photo as the model is, and under changes of its attention.

    Args:
        captioner: the model; it is the same afterwards.
        photo: path or PIL image.
        changes: what is changed, one after the other where several are for the same step. Regions that are erased stay
            so, whatever the others say. With beam search and samples, they hold for every hypothesis.
        search: None = the search the model was saved with.
        anew: search from the first word, instead of keeping the words before the first step that is changed. A beam may
            then turn to a caption whose words the changes do not meet. Where all steps are changed or a place is
            erased, there are no words before.
        seed: for attention and searches that sample: both captions are drawn with the same chance, so that what differs
            is due to the changes. Saying a caption again is another draw. The global generator stays as it is.

    Raises:
        ValueError: no changes; or one names a step, word or place that is not there, or hides all regions.
        UserError: the model's attention cannot be edited, see `ForcedAttention`; or nothing is left to be read.
        caption.errors.ImageError: the photo cannot be read.
    """
    if not changes:
        raise ValueError("there is nothing to change: give Force, Move, Mask or Erase")
    image = open_image(photo)
    box = captioner.transform.box(*image.size)
    with eval_mode(captioner):
        with torch.no_grad():
            regions = captioner.encoder(captioner.transform(image)[None].to(captioner.device))

        def describe(model: Captioner, begin: Sequence[str] = ()) -> Caption:
            with seeded(seed, model.device):
                found = model.generate(regions, search, [model.vocabulary[word] for word in begin])
            return next(model.captions(found, regions.grid, [box], [photo]))

        def say(caption: Caption) -> LogProbs:
            return LogProbs(tokens_of(caption), *(_log_probs(m, regions, caption) for m in (as_it_is, under)))

        as_it_is = changing(captioner, seed)
        original = describe(as_it_is)
        edits = [change.edit(original) for change in changes if isinstance(change, Change)]
        erased = [change.where for change in changes if isinstance(change, Erase)]
        under = changing(captioner, seed, edits, kept(erased, original) if erased else None)
        changed = describe(under, () if anew else _before(changes, original))
        steps = tuple(step for step in range(len(tokens_of(changed))) if _meant(changes, original, step))
        return Intervention(changes, original, changed, say(original), say(changed), steps)


@torch.no_grad()
def _log_probs(model: Captioner, regions: Regions, caption: Caption) -> np.ndarray:
    """(N,) of the caption's tokens, by teacher forcing."""
    said = []
    state, word = model.decoder.start(model.project(regions)), START
    for token in tokens_of(caption):
        log_probs, state = model.decoder.step(state, torch.tensor([[word]], device=model.device))
        word = model.vocabulary[token]
        said.append(float(log_probs[0, 0, word]))
    return np.array(said)


def _meant(changes: tuple[Change | Erase, ...], original: Caption, step: int) -> bool:
    """Whether the weights of a step are changed."""
    named = [steps_of(change.at, original) for change in changes if isinstance(change, Change)]
    return any(steps is None or step in steps for steps in named)


def _before(changes: tuple[Change | Erase, ...], original: Caption) -> list[str]:
    """The words before the first step that is changed."""
    if any(isinstance(change, Erase) for change in changes):
        return []
    words = original.words
    return words[: next((step for step in range(len(words)) if _meant(changes, original, step)), len(words))]
