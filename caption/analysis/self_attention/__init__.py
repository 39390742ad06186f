"""Self-attention seen: its maps, attention rollout, and the roles of its heads."""

from caption.analysis.self_attention.maps import (
    RegionMaps,
    has_rollout,
    has_word_maps,
    region_maps,
    rollout,
    word_maps,
)

__all__ = ["RegionMaps", "has_rollout", "has_word_maps", "region_maps", "rollout", "word_maps"]
