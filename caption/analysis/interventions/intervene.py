"""Captions under edited attention: what would the model say if it looked elsewhere?

    result = intervene(captioner, "photo.jpg", Force((2, 5), at="circle"))
    print(result)      # both captions, their log-probabilities, and the first difference
    result.plot()

There are two answers. The model continues from the words before the first changed step, with the same search, under
the changes: this includes all consequences. And it is fed the original caption under the changes: this compares log p
of the same words, even if the caption stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from caption.analysis.interventions.edits import Change, Erase, scaled_like, visible_on
from caption.analysis.interventions.log_probs import LogProbs, log_probs_table
from caption.analysis.interventions.selection import steps_of, tokens_of
from caption.analysis.module_copy import with_parts
from caption.attention.map_hooks import Edit, attentions, edit_maps
from caption.captioner import Captioner
from caption.data.decoding import Photo, open_image
from caption.decoders.base import Decoder
from caption.regions import Grid, Regions, Views
from caption.result import Caption
from caption.runtime.eval_mode import eval_mode
from caption.search import Search
from caption.text.vocabulary import START

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Intervention:
    """The caption that a model gives a photo, and the one that it gives under some changes."""

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
        one, other = self.original_log_probs.tokens, self.changed_log_probs.tokens
        different = (step for step, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
        return None if one == other else next(different, min(len(one), len(other)))

    @property
    def verdict(self) -> str:
        """The first difference, in words."""
        if self.first_difference is None:
            return "the same caption"
        step, captions = (
            self.first_difference,
            (self.original_log_probs.tokens, self.changed_log_probs.tokens),
        )
        before, after = (repr(tokens[step]) if step < len(tokens) else "nothing" for tokens in captions)
        return f"they part at step {step}: {before} becomes {after}"

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

    def plot(self, image: Photo | None = None, **options: Any) -> Figure:
        """Both captions, one above the other (`caption.visualize.plot_intervention`, to which options go).

        Args:
            image: the photo; by default the one that the captions carry.
            options: such as `words=["man"]` or `style="paper"`.

        Raises:
            ValueError: there is no photo.
            caption.errors.ImageError: the photo cannot be opened.
        """
        from caption.visualize.intervention import plot_intervention

        return plot_intervention(self, image, **options)

    def _repr_html_(self) -> str:
        """For a notebook: every word's log-probability, with and without the changes."""
        return log_probs_table(self.original_log_probs, self.changed_log_probs, self.steps, self.verdict)


def intervene(
    captioner: Captioner,
    photo: Photo,
    *changes: Change | Erase,
    search: Search | None = None,
    anew: bool = False,
    seed: int = 0,
) -> Intervention:
    """Caption a photo without and with changes of the attention.

    Args:
        captioner: the model; it is the same afterwards.
        photo: path or PIL image.
        changes: applied one after the other where several are for the same step. Erased regions stay erased,
            whatever the other changes say. With beam search and samples, they hold for every hypothesis.
        search: None = the search the model was saved with.
        anew: search from the first word, instead of keeping the words before the first step that is changed. A beam may
            then turn to a caption whose words the changes do not meet. Where all steps are changed or a place is
            erased, no words are kept.
        seed: for attention and searches that sample: both captions are drawn with the same random numbers, so that only
            the changes make a difference. Saying a caption again is another draw. The global generator is not used.

    Raises:
        ValueError: no changes; or one names a step, word or place that is not there, or hides all regions.
        UserError: the decoder has no attention, or nothing is left to be read.
        caption.errors.ImageError: the photo cannot be read.
    """
    if not changes:
        raise ValueError("there is nothing to change: give Force, Move, Mask or Erase")
    image = open_image(photo)
    part = captioner.transform.box(*image.size)
    with eval_mode(captioner), torch.no_grad():
        views = captioner.refine(captioner.encode([image]))
        grids = [view.grid for view in views]
        model = with_parts(captioner, {"refiner": None})  # these regions are refined

        def describe(views: Views, edit: Edit, begin: Sequence[str] = ()) -> Caption:
            with fixed_seed(seed, model.device), edited_attention(model.decoder, edit, grids, seed):
                hypotheses = model.generate(views, search, [model.vocabulary[word] for word in begin])
            return next(model.captions(hypotheses, grids, [part], [photo]))

        def log_probs_of(caption: Caption) -> LogProbs:
            without = _log_probs(model, views, combine_edits([]), caption, seed)
            return LogProbs(tokens_of(caption), without, _log_probs(model, left, edit, caption, seed))

        original = describe(views, combine_edits([]))
        edits = [change.edit(original) for change in changes if isinstance(change, Change)]
        places = [change.where for change in changes if isinstance(change, Erase)]
        seen = {grid: visible_on(places, original, grid) for grid in grids} if places else {}
        left, edit = mask_views(views, seen), combine_edits(edits, seen)
        named = [steps_of(change.at, original) for change in changes if isinstance(change, Change)]

        def edited_steps(caption: Caption) -> list[int]:
            steps = range(len(tokens_of(caption)))
            return [step for step in steps if any(some is None or step in some for some in named)]

        kept_words = 0 if anew or places else min(edited_steps(original), default=len(original.words))
        changed = describe(left, edit, original.words[:kept_words])
        steps = tuple(edited_steps(changed))
        return Intervention(changes, original, changed, log_probs_of(original), log_probs_of(changed), steps)


def mask_views(views: Views, seen: Mapping[Grid, Tensor]) -> Views:
    """Views in which only some regions are left: (L,) bool by grid; {} = all."""

    def left(view: Regions) -> Regions:
        mask = seen[view.grid].to(view.vectors.device).expand(view.vectors.shape[:2])
        return view._replace(mask=mask if view.mask is None else view.mask & mask)

    return tuple(map(left, views)) if seen else views


def combine_edits(edits: Sequence[Edit], seen: Mapping[Grid, Tensor] | None = None) -> Edit:
    """Edits one after the other, which keep out of erased regions.

    `seen` are (L,) bool by grid, the regions that are left. Weights that an edit puts on others are lost, and the rest
    is scaled to the sum that there was.
    """

    def edit(weights: Tensor, step: int, grid: Grid) -> Tensor:
        after = weights
        for apply in edits:
            after = apply(after, step, grid)
        if after is weights or not seen:
            return after
        return scaled_like(after * seen[grid].to(after), after)

    return edit


@contextmanager
def edited_attention(decoder: Decoder, edit: Edit, grids: Sequence[Grid], seed: int) -> Iterator[None]:
    """Within it, attention is edited, and samples from a generator of its own at each step.

    Captioners that differ in their edits therefore draw alike. For one search or one caption, since it counts steps.
    """
    drawing = ExitStack()

    def seeding(number: int) -> Callable[..., None]:
        step = -1

        def seed_step(*of_hook: Any) -> None:
            nonlocal step
            step += 1
            of_step = np.random.SeedSequence((seed, step, number)).generate_state(1)[0]
            drawing.enter_context(fixed_seed(int(of_step), next(decoder.parameters()).device))

        return seed_step

    with ExitStack() as stack:
        stack.enter_context(edit_maps(decoder, edit, grids))
        stack.callback(drawing.close)
        for number, attention in enumerate(attentions(decoder).values()):
            stack.enter_context(attention.register_forward_pre_hook(seeding(number)))
            stack.enter_context(attention.register_forward_hook(lambda *of_hook: drawing.close()))
        yield


@contextmanager
def fixed_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Within it, random numbers begin with `seed`; the global generators stay as they are."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@torch.no_grad()
def _log_probs(model: Captioner, views: Views, edit: Edit, caption: Caption, seed: int) -> np.ndarray:
    """(N,) of the caption's tokens, by teacher forcing."""
    log_p = []
    with edited_attention(model.decoder, edit, [view.grid for view in views], seed):
        state, word = model.decoder.start(model.project(views)), START
        for token in tokens_of(caption):
            log_probs, state = model.decoder.step(state, torch.tensor([[word]], device=model.device))
            word = model.vocabulary[token]
            log_p.append(float(log_probs[0, 0, word]))
    return np.array(log_p)
