"""Training data in WebDataset shards: tar files that are read from front to back, from a disk or through any URL."""

from caption.data.shards.index import ShardIndex, TrainingShards
from caption.data.shards.loader import ShardBatches, ShardLoader

__all__ = ["ShardBatches", "ShardIndex", "ShardLoader", "TrainingShards"]
