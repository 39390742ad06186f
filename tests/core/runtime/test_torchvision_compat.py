"""torchvision can be imported with a torch for which its extension was not built, and without torch's compiler."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly  # fresh processes that import torch


def printed(code: str, *arguments: object) -> list[str]:
    """The lines that another process prints."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_torchvision_loads_without_the_compiler_and_the_model_for_photos_without_both():
    code = """
        import importlib, sys
        import caption
        print("torch" in sys.modules, "torchvision" in sys.modules)
        caption.load("photos")
        print("torchvision" in sys.modules, "torch._dynamo" in sys.modules)
        import torchvision
        print("torch._dynamo" in sys.modules)
        theirs = importlib.import_module("torchvision.ops.roi_align").is_compile_supported
        answer = theirs("cpu")
        import torch._dynamo.utils as compiler
        print(compiler.__file__ is not None, answer == compiler.is_compile_supported("cpu"))
    """
    assert printed(code) == ["False False", "False False", "False", "True True"]


def test_missing_operators_are_declared_and_other_errors_passed_on(tmp_path: Path):
    """A torchvision without its extension registers functions for undeclared operators. Another one imports more of the
    compiler than the stand-in has."""
    code = """
        import sys
        from pathlib import Path
        import caption
        package = Path(sys.argv[1], "torchvision")
        package.mkdir()
        (package / "_part.py").write_text("")
        sys.path.insert(0, sys.argv[1])
        sys.dont_write_bytecode = True

        def imported(body):
            (package / "__init__.py").write_text(body)
            for name in [name for name in sys.modules if name.startswith("torchvision")]:
                del sys.modules[name]
            import torchvision

        imported('''
        import torchvision._part
        import torch
        if not hasattr(torch.ops.torchvision, "nms"):
            raise RuntimeError("operator torchvision::nms does not exist")
        ''')
        import torch
        schema = torch.ops.torchvision.nms.default._schema
        print([argument.name for argument in schema.arguments], hasattr(torch.ops.torchvision, "qnms"))
        try:
            imported("raise RuntimeError('something else')")
        except RuntimeError as error:
            print(error)
        print("torch._dynamo" in sys.modules)
        imported("from torch._dynamo.utils import counters, is_compile_supported")
        print("torch._dynamo" in sys.modules)
    """
    lines = printed(code, tmp_path)
    assert lines == ["['dets', 'scores', 'iou_threshold'] True", "something else", "False", "True"]
