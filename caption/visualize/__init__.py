"""Captions drawn: figures and plots with Matplotlib, and an interactive page."""

from caption.visualize.animation import animation_frames, save_animation
from caption.visualize.contact_sheet import contact_sheet
from caption.visualize.figure import compare_captions, plot_caption, plot_maps, plot_word
from caption.visualize.figure_file import save_figure
from caption.visualize.matrix import plot_matrix
from caption.visualize.overlay import draw_scale, overlay, show_photo
from caption.visualize.page import save_html, to_fragment, to_html

__all__ = [
    "animation_frames",
    "compare_captions",
    "contact_sheet",
    "draw_scale",
    "overlay",
    "plot_caption",
    "plot_maps",
    "plot_matrix",
    "plot_word",
    "save_animation",
    "save_figure",
    "save_html",
    "show_photo",
    "to_fragment",
    "to_html",
]
