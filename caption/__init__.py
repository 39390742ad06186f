"""Image captioning with visual attention, after Xu et al. 2015, "Show, Attend and Tell".

    import caption

    captioner = caption.load("photos")         # or the path of a checkpoint
    result = captioner("photo.jpg")            # a list of photos gives a list of captions
    print(result)                              # the sentence
    result.plot()                              # where it looked for every word
    caption.explore(captioner, "photo.jpg")    # in a notebook: move its attention by hand
    caption.analysis.intervene(captioner, "photo.jpg", ...)

Names are imported when they are first used: `import caption` alone does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from caption.core.runtime import torchvision_compat

if TYPE_CHECKING:
    from caption import analysis as analysis
    from caption import visualize as visualize
    from caption.analysis.explorer.widget import explore as explore
    from caption.captioner import Captioner as Captioner
    from caption.models.model_zoo import installed_models as installed_models
    from caption.models.model_zoo import load as load
    from caption.results.caption import Caption as Caption
    from caption.results.captions import Captions as Captions

__version__: str
_HOMES = {
    "load": "caption.models.model_zoo",
    "installed_models": "caption.models.model_zoo",
    "Captioner": "caption.captioner",
    "Caption": "caption.results.caption",
    "Captions": "caption.results.captions",
    "explore": "caption.analysis.explorer.widget",
}
_PACKAGES = ("analysis", "visualize")
__all__ = ["__version__", *_HOMES, *_PACKAGES]

torchvision_compat.install()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from caption.core.version import package_version

        return package_version()
    if name in _PACKAGES:
        return import_module(f"caption.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'caption' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
