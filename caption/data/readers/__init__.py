"""Readers of caption files, one format per file."""

from caption.data.readers.coco import Coco
from caption.data.readers.csv import Csv
from caption.data.readers.flickr import Flickr
from caption.data.readers.jsonl import JsonLines
from caption.data.readers.karpathy import Karpathy

__all__ = ["Coco", "Csv", "Flickr", "JsonLines", "Karpathy"]
