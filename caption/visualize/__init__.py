"""Captions made visible: figures with Matplotlib and an interactive page."""

from caption.visualize.alignment import alignment_matrix
from caption.visualize.comparison import compare_captions
from caption.visualize.contact import contact_sheet
from caption.visualize.figure import draw_scale, plot_caption, save_figure
from caption.visualize.gates import gate_plot
from caption.visualize.html import save_html, to_fragment, to_html
from caption.visualize.overlay import overlay, show_photo

__all__ = [
    "alignment_matrix",
    "compare_captions",
    "contact_sheet",
    "draw_scale",
    "gate_plot",
    "overlay",
    "plot_caption",
    "save_figure",
    "save_html",
    "show_photo",
    "to_fragment",
    "to_html",
]
