"""The gate β along the sentence (Xu et al. 2015, section 4.2.1): how much each word took from the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

if TYPE_CHECKING:
    from caption.result import Caption


def gate_plot(ax: Axes, caption: Caption) -> Axes:
    """Draw a bar per word, from 0, the image is ignored, to 1, its context enters in full.

    Args:
        ax: drawn on and returned.
        caption: with gates.

    Raises:
        ValueError: the model that wrote the caption has no gate.
    """
    if caption.gates is None:
        raise ValueError("this caption was written without a gate")
    steps = range(len(caption.words))
    ax.bar(steps, caption.gates, width=0.7, color="0.45")
    ax.set_xticks(steps)
    ax.set_xticklabels(caption.words, rotation=40, ha="right", rotation_mode="anchor", parse_math=False)
    ax.set(ylim=(0, 1), ylabel="gate β", xlim=(-0.6, max(len(steps), 1) - 0.4))
    ax.spines[["top", "right"]].set_visible(False)
    return ax
