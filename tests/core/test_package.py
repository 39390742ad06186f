"""`import caption`: what is there, and how little it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import caption

MODULES = 80
"""Beyond those that Python loads at its start; 63 when this was written."""


def test_everything_named_is_there():
    assert {"load", "Captioner", "Caption", "Captions", "analysis", "visualize", "installed_models"} <= set(
        dir(caption)
    )
    for name in dir(caption):
        assert getattr(caption, name) is not None
    for package in (caption.analysis, caption.visualize):
        for name in package.__all__:
            # A function must not share its name with a module beside it, which would take its place.
            assert callable(getattr(package, name)) or name in ("baseline_maps", "study"), name
    with pytest.raises(AttributeError, match="'caption' has no attribute 'lod'"):
        caption.lod  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'intervne'"):
        caption.analysis.intervne  # noqa: B018


def test_import_loads_few_modules_and_none_that_is_large():
    script = """
import sys
before = set(sys.modules)
import caption
print(*sorted(set(sys.modules) - before))
import caption.analysis
dir(caption.analysis), caption.__version__
print(*sorted({"torch", "numpy", "PIL", "matplotlib", "pytorch_lightning"} & set(sys.modules)))
import caption.results.caption
print(*sorted({"torch", "matplotlib"} & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded, large, of_result = ran.stdout.split("\n")[:3]
    own = [name for name in loaded.split() if name.partition(".")[0] == "caption"]
    assert own == [
        "caption",
        "caption.core",
        "caption.core.runtime",
        "caption.core.runtime.torchvision_compat",
    ]
    assert len(loaded.split()) < MODULES, loaded
    assert large == of_result == ""
