"""Attention moved by hand: the caption of a photo under changes, in Python, in a notebook and in a browser."""

from caption.analysis.explorer.explorer import Explorer

__all__ = ["Explorer"]
