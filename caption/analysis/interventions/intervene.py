"""Captions under edited attention: what would the model say if it looked elsewhere?

    result = intervene(captioner, "photo.jpg", Force((2, 5), at="circle"))
    print(result)      # both captions, their log-probabilities, and the first difference
    result.plot()

There are two answers. The model continues from the words before the first changed step, with the same search, under
the changes: this includes all consequences. And it is fed the original caption under the changes: this compares log p
of the same words, even if the caption stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from caption.analysis.interventions.encoded_photo import (
    NO_EDITS,
    EditedCaption,
    EncodedPhoto,
    log_probs_of,
)
from caption.analysis.interventions.forced_attention import Change, Erase
from caption.analysis.interventions.log_probs import LogProbs, log_p_text, log_probs_table
from caption.analysis.interventions.selection import tokens_of
from caption.captioner import Captioner
from caption.data.photos import Photo
from caption.results.caption import Caption
from caption.search import Search

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHANGED = "tab:orange"  # frame of the steps whose weights were changed


@dataclass(frozen=True, eq=False, repr=False)
class Intervention:
    """The captions of a photo by a model, without and under some changes."""

    changes: tuple[Change | Erase, ...]
    original: Caption
    changed: Caption
    """Its weights are the edited ones, which were read."""
    original_log_probs: LogProbs
    """Of the original's tokens."""
    changed_log_probs: LogProbs
    """Of the changed caption's tokens."""
    steps: tuple[int, ...]
    """The steps of the changed caption at which the weights were edited."""

    @property
    def first_difference(self) -> int | None:
        """The first step at which the captions have different tokens; None for the same caption."""
        before, after = self.original_log_probs.tokens, self.changed_log_probs.tokens
        pairs = enumerate(zip(before, after, strict=False))
        step = next((step for step, (a, b) in pairs if a != b), min(len(before), len(after)))
        return None if before == after else step

    @property
    def verdict(self) -> str:
        """The first difference, in words."""
        step = self.first_difference
        if step is None:
            return "the same caption"
        captions = self.original_log_probs.tokens, self.changed_log_probs.tokens
        before, after = (repr(tokens[step]) if step < len(tokens) else "nothing" for tokens in captions)
        return f"they part at step {step}: {before} becomes {after}"

    def __str__(self) -> str:
        before, after = self.original_log_probs, self.changed_log_probs
        return "\n".join(
            [
                f"original  {self.original}",
                f"          log p {before.without.sum():.2f}, under the changes {before.under.sum():.2f}",
                f"changed   {self.changed}",
                f"          log p {after.under.sum():.2f}, without the changes {after.without.sum():.2f}",
                self.verdict,
            ]
        )

    def __repr__(self) -> str:
        return f"Intervention({str(self.original)!r} -> {str(self.changed)!r}, {self.verdict})"

    def plot(self, image: Photo | None = None, **options: Any) -> Figure:
        """Draw both captions, one above the other, with log p on every word's panel.

        For a word of the original caption that is log p without the changes → log p under the changes. A coloured frame
        marks the steps whose weights were changed.

        Args:
            image: the photo; by default the one that the captions carry.
            options: of `compare_captions`, such as `words=["man"]` or `style="paper"`.

        Raises:
            ValueError: there is no photo, or options that `compare_captions` refuses.
            caption.core.errors.ImageError: the photo cannot be opened.
        """
        from caption.visualize.figure import compare_captions
        from caption.visualize.overlay import photos_of
        from caption.visualize.words import steps_of

        (photo,) = photos_of([self.original], None if image is None else [image])
        fig = compare_captions({"as it is": self.original, "changed": self.changed}, photo, **options)
        words, before, after = options.get("words"), self.original_log_probs, self.changed_log_probs
        # The first axes hold the photo, the last the scale.
        above, below = (part.axes[1:-1] for part in fig.subfigs)
        for ax, step in zip(above, steps_of(self.original, words, strict=False), strict=True):
            _note(ax, f"log p {log_p_text(before.without[step], 1)} → {log_p_text(before.under[step], 1)}")
        for ax, step in zip(below, steps_of(self.changed, words, strict=False), strict=True):
            _note(ax, f"log p {log_p_text(after.under[step], 1)}")
            if step in self.steps:
                ax.spines[:].set(visible=True, edgecolor=CHANGED, linewidth=2.5)
        return fig

    def _repr_html_(self) -> str:
        """For a notebook: every word's log-probability, with and without the changes."""
        return log_probs_table(self.original_log_probs, self.changed_log_probs, self.steps, self.verdict)


def intervene(
    captioner: Captioner,
    photo: Photo,
    *changes: Change | Erase,
    search: Search | None = None,
    seed: int = 0,
) -> Intervention:
    """Caption a photo without and with changes of the attention.

    Args:
        captioner: the model; it is not modified.
        photo: path or PIL image.
        changes: applied one after the other if several are for the same step. Erased regions stay erased, even if
            another change is to look there. With beam search and samples, they hold for every hypothesis. The words
            before the first step that is changed are kept; none if all steps are changed or a place is erased.
        search: None = the search the model was saved with.
        seed: for attention and searches that sample: both captions use the same random numbers, so that they differ
            only by the changes. A call of `Captioner.describe` is another draw. The global generator is not used.

    Raises:
        ValueError: no changes; or one has a step, word or place that the caption does not have, or hides all regions.
        UserError: the decoder has no attention, or no region is left to read.
        caption.core.errors.ImageError: the photo cannot be read.
    """
    if not changes:
        raise ValueError("there is nothing to change: give Force, Move, Mask or Erase")
    encoded = EncodedPhoto(captioner, photo, seed)
    original = encoded.caption(search=search)
    edits = NO_EDITS.plus(changes, original.caption)
    return compare(encoded, original, encoded.caption(edits, search, original), changes)


def compare(
    encoded: EncodedPhoto, original: EditedCaption, changed: EditedCaption, changes: Sequence[Change | Erase]
) -> Intervention:
    """Two captions of a photo, each word with its probability without and under the changes.

    Args:
        encoded: the photo.
        original: without edits.
        changed: under the edits of the changes.
        changes: of the result.
    """
    under = encoded.follow(original.caption, changed.edits, changed.steps)
    without = encoded.follow(changed.caption, NO_EDITS, original.steps)
    return Intervention(
        tuple(changes),
        original.caption,
        changed.caption,
        LogProbs(tokens_of(original.caption), original.log_probs, log_probs_of(under)),
        LogProbs(tokens_of(changed.caption), log_probs_of(without), changed.log_probs),
        tuple(changed.edits.edited_steps(changed.caption)),
    )


def _note(ax: Axes, text: str) -> None:
    ax.text(
        0.03, 0.03, text, transform=ax.transAxes, fontsize=8, va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )  # fmt: skip
