"""Maps of self-attention, and attention rollout."""

from caption.analysis.self_attention.maps import RegionMaps, has_word_maps, region_maps, word_maps

__all__ = ["RegionMaps", "has_word_maps", "region_maps", "word_maps"]
