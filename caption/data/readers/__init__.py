"""Readers of caption files."""

from caption.data.readers.base import CaptionReader
from caption.data.readers.coco import Coco
from caption.data.readers.combined import Combined
from caption.data.readers.flickr import Flickr
from caption.data.readers.karpathy import Karpathy
from caption.data.readers.tables import Csv, JsonLines

__all__ = ["CaptionReader", "Coco", "Combined", "Csv", "Flickr", "JsonLines", "Karpathy"]
