"""Analyses of attention maps: do they lie on the objects that the words name, and do the words depend on them?

Each question has its own module. Names are imported when they are first used, so that one module does not load the
others:

    import caption

    caption.analysis.ground(...)         # do maps lie on the objects?
    caption.analysis.intervene(...)      # what would it say if it looked elsewhere?
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caption.analysis import baseline_maps as baseline_maps
    from caption.analysis import study as study
    from caption.analysis.agreement import agree as agree
    from caption.analysis.faithfulness import faithfulness_curves as faithfulness_curves
    from caption.analysis.faithfulness import mean_regions as mean_regions
    from caption.analysis.faithfulness.adversary import adversarial_maps as adversarial_maps
    from caption.analysis.faithfulness.interchange import interchange as interchange
    from caption.analysis.faithfulness.permutation import permute as permute
    from caption.analysis.interventions import Erase as Erase
    from caption.analysis.interventions import Force as Force
    from caption.analysis.interventions import Mask as Mask
    from caption.analysis.interventions import Move as Move
    from caption.analysis.interventions import force_everywhere as force_everywhere
    from caption.analysis.interventions.intervene import intervene as intervene
    from caption.analysis.map_statistics import entropies as entropies
    from caption.analysis.map_statistics import measure_maps as measure_maps
    from caption.analysis.pointing_game import ground as ground
    from caption.analysis.posterior_attention import posterior as posterior
    from caption.analysis.pruned_heads import head_pruning as head_pruning
    from caption.analysis.reference_attention import attend_references as attend_references
    from caption.analysis.roles_of_heads import head_roles as head_roles
    from caption.analysis.roles_of_heads import region_roles as region_roles
    from caption.analysis.roles_of_heads import word_roles as word_roles
    from caption.analysis.self_attention import region_maps as region_maps
    from caption.analysis.self_attention import word_maps as word_maps
    from caption.analysis.self_attention.rollout import rollout as rollout

_NAMES = {
    "agreement": ("agree",),
    "faithfulness": ("faithfulness_curves", "mean_regions"),
    "faithfulness.adversary": ("adversarial_maps",),
    "faithfulness.interchange": ("interchange",),
    "faithfulness.permutation": ("permute",),
    "interventions": ("Erase", "Force", "Mask", "Move", "force_everywhere", "intervene"),
    "map_statistics": ("entropies", "measure_maps"),
    "pointing_game": ("ground",),
    "posterior_attention": ("posterior",),
    "pruned_heads": ("head_pruning",),
    "reference_attention": ("attend_references",),
    "roles_of_heads": ("head_roles", "region_roles", "word_roles"),
    "self_attention": ("region_maps", "word_maps"),
    "self_attention.rollout": ("rollout",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = ("baseline_maps", "study")
__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
