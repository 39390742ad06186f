"""Self-attention seen: its maps, attention rollout, and the roles of its heads."""

from caption.analysis.self_attention.maps import (
    RegionMaps,
    WordMaps,
    has_rollout,
    region_maps,
    rollout,
    word_maps,
)

__all__ = ["RegionMaps", "WordMaps", "has_rollout", "region_maps", "rollout", "word_maps"]
