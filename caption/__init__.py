"""Image captioning with visual attention, after Xu et al. 2015, "Show, Attend and Tell".

    import caption

    captioner = caption.load("photos")         # or the path of a checkpoint
    result = captioner("photo.jpg")            # a list of photos gives a list of captions
    print(result)                              # the sentence
    result.plot()                              # where it looked for every word
    caption.maps(captioner, "photo.jpg", method="gradcam").plot()    # another map than the attention
    caption.explore(captioner, "photo.jpg")    # in a notebook: move its attention by hand
    caption.analysis.intervene(captioner, "photo.jpg", ...)

Names are imported when they are first used: `import caption` alone does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from caption.core.runtime import torchvision_compat

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import torch

    from caption import analysis as analysis
    from caption import visualize as visualize
    from caption.analysis.explorer.widget import explore as explore
    from caption.analysis.maps import maps as maps
    from caption.captioner import Captioner as Captioner
    from caption.models.model_zoo import installed_models as installed_models
    from caption.results.caption import Caption as Caption
    from caption.results.captions import Captions as Captions

__version__: str
_HOMES = {
    "installed_models": "caption.models.model_zoo",
    "Captioner": "caption.captioner",
    "Caption": "caption.results.caption",
    "Captions": "caption.results.captions",
    "explore": "caption.analysis.explorer.widget",
    "maps": "caption.analysis.maps",
}
_PACKAGES = ("analysis", "visualize")
__all__ = ["__version__", "load", *_HOMES, *_PACKAGES]

torchvision_compat.install()


def load(
    model: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    trust: Iterable[str] = (),
    lens: bool = False,
    accelerate: bool = True,
    **of_transformers: Any,
) -> Captioner:
    """Load a captioner in evaluation mode: from a file, an installed model by its name, or from the hub.

    Args:
        model, device, trust, accelerate, of_transformers: see `caption.models.model_zoo.load`.
        lens: also read what the encoder sees behind each word: `Caption.lens`. The lens comes from the file beside the
            model with the suffix .lens (`caption lens` writes it); without one, from the encoder's pretrained weights.

    Raises:
        UserError: there is no such model, the device is not available, or the hub cannot be reached; the encoder has
            no classifier for a lens.
        CheckpointError: the file is not a checkpoint, is not safe to load, or cannot be rebuilt.
    """
    from caption.models import model_zoo

    captioner = model_zoo.load(model, device, trust, accelerate, **of_transformers)
    if lens:
        from caption.analysis.lens.file import attach_lens, lens_path

        attach_lens(captioner, lens_path(model))
    return captioner


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
