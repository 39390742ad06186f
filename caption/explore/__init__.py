"""Explore: move a model's attention by hand, and read how the sentence changes."""

from caption.explore.explorer import Explorer

__all__ = ["Explorer"]
