"""Shapes: generated scenes of coloured shapes with captions and the box of every object."""

from caption.data.shapes.captions import dependencies
from caption.data.shapes.dataset import Shapes, write_shapes

__all__ = ["Shapes", "dependencies", "write_shapes"]
