"""Several captions of one photo, one above the other: soft above hard (Xu et al. 2015, figure 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from caption.data.images import open_image
from caption.visualize.figure import NotebookFigure, draw_caption, layout_of
from caption.visualize.photo import Photo

if TYPE_CHECKING:
    from caption.result import Caption


def compare_captions(captions: Mapping[str, Caption], image: Photo, **options: Any) -> Figure:
    """Draw `plot_caption` for each caption, in the order given, with equal panels in equal columns.

    Each caption keeps a scale of its own, stated by its own bar: mechanisms differ in how sharply they look,
    and on a common scale the more diffuse one would be dark throughout.

    Args:
        captions: at least one, by the name that stands over its photo.
        image: the photo they all describe, or its path.
        options: passed on to `plot_caption`, other than `fig`.

    Raises:
        ValueError: no captions, or options that `plot_caption` refuses.
        caption.errors.ImageError: the photo cannot be opened.
    """
    if not captions:
        raise ValueError("there is nothing to compare: no captions")
    photo = open_image(image)
    longest = max(captions.values(), key=lambda caption: len(caption.words))
    columns = layout_of(longest, photo.size, options.pop("columns", None)).columns
    # A short caption leaves places empty rather than spreading over the width.
    layouts = [
        layout_of(caption, photo.size, columns)._replace(columns=columns) for caption in captions.values()
    ]
    heights = [layout.size[1] for layout in layouts]
    width = max(layout.size[0] for layout in layouts)
    fig = NotebookFigure(figsize=(width, sum(heights)), facecolor="white")
    parts = fig.subfigures(len(layouts), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, layout, (name, caption) in zip(parts, layouts, captions.items(), strict=True):
        draw_caption(part, caption, photo, layout, **options)
        part.axes[0].set_title(name, fontsize=11, fontweight="bold", pad=3, parse_math=False)
    return fig
