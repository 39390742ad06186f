"""Shapes: generated scenes of coloured shapes with captions and the box of every object."""

from caption.data.shapes.reader import Shapes

__all__ = ["Shapes"]
