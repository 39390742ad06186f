"""One word with the attention forced to every region in turn.

    result = force_everywhere(captioner, "photo.jpg", at="circle")
    result.plot()      # the photo, with the words that the model would say

`result.words` has the likeliest word for each region, and `result.probability` the probability of "circle".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch

from caption.analysis.interventions.selection import step_of, tokens_of
from caption.analysis.replay import Replay, sentences, words_alone
from caption.attention.stochastic import override_at_test
from caption.captioner import Captioner
from caption.core.tensor_tree import indices
from caption.data.photos import Photo, open_image
from caption.results.caption import Caption
from caption.search import Search
from caption.text.vocabulary import FORBIDDEN

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class ForcedStep:
    """The predictions of one step of a caption with all attention on one region, for each region."""

    caption: Caption
    """Of the unedited model; the words before the step are those of this caption."""
    step: int
    """Counted from 0."""
    words: list[list[str]]
    """(rows, cols) the likeliest word."""
    probability: np.ndarray
    """(rows, cols) float32, the probability of the caption's own word."""

    @property
    def word(self) -> str:
        """The caption's own word at the step."""
        return tokens_of(self.caption)[self.step]

    def __repr__(self) -> str:
        counts = Counter(word for row in self.words for word in row)
        words = ", ".join(f"{word} {count}" for word, count in counts.most_common(5))
        return f"ForcedStep({self.word!r} at step {self.step}; regions by their likeliest word: {words})"

    def plot(self, image: Photo | None = None, **options: Any) -> Figure:
        """The map of the word, beside the words that the model would say; see `forced_step_figure`.

        Args:
            image: the photo; by default the one that the caption carries.
            options: of the left panel, see `plot_caption`.

        Raises:
            ValueError: there is no photo.
            caption.core.errors.ImageError: the photo cannot be opened.
        """
        from caption.analysis.interventions.forced_step_figure import draw_forced_step
        from caption.visualize.overlay import photos_of

        (photo,) = photos_of([self.caption], None if image is None else [image])
        return draw_forced_step(self.caption, self.step, self.words, open_image(photo), **options)


@torch.no_grad()
def force_everywhere(
    captioner: Captioner, photo: Photo, at: SupportsIndex | str, search: Search | None = None
) -> ForcedStep:
    """Force the attention of one word to each region of the first grid in turn.

    Every map of every attention is forced, as by `Force`. Attention that samples reads its expectation.

    Args:
        captioner: the model; it is not modified.
        photo: see `Captioner.describe`.
        at: a step, or a word that is in the caption once.
        search: None = the search the model was saved with.

    Raises:
        ValueError: there is no such step or word.
        UserError: the decoder has no attention.
        caption.core.errors.ImageError: the photo cannot be read.
    """
    image, replay = open_image(photo), Replay(captioner.decoder)
    with override_at_test(captioner, "expectation"):
        caption = captioner.describe(image, search).stepwise
    rows, cols = caption.weights.shape[1:]
    tokens = tokens_of(caption)
    steps = step_of(at, tokens) + 1
    (batch,) = sentences(captioner, image, [words_alone(tokens[:steps])])
    *_, step = replay.steps(batch)
    log_probs = replay.rerun(step, replay.single_regions(step))
    sayable = log_probs[0].index_fill(-1, indices(FORBIDDEN, log_probs.device), -torch.inf)
    likeliest = np.array(captioner.vocabulary.words)[sayable.argmax(-1).cpu().numpy()]
    probability = step.of_word(log_probs)[0].exp().float().view(rows, cols).cpu().numpy()
    return ForcedStep(caption, step.number, likeliest.reshape(rows, cols).tolist(), probability)
