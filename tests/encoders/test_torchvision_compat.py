"""torchvision can be imported with a torch for which its extension was not built, and without torch's compiler."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from caption.runtime.torchvision_compat import import_torchvision

# torchvision without its extension registers functions for undeclared operators.
TORCHVISION = """
import torchvision._part
import torch
if not hasattr(torch.ops.torchvision, "nms"):
    raise RuntimeError("operator torchvision::nms does not exist")
"""


def run(script: str, folder: Path, body: str) -> str:
    package = folder / "torchvision"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(body)
    (package / "_part.py").write_text("")
    setup = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(Path(__file__).resolve().parents[2])!r}]\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + textwrap.dedent(script)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_here_it_is_torchvision():
    assert import_torchvision() is sys.modules["torchvision"]
    assert import_torchvision().models.list_models()


def test_missing_operators_are_declared_and_other_errors_passed_on(tmp_path: Path):
    script = """
        import caption.runtime.torchvision_compat as compat
        import torch, torchvision
        schema = torch.ops.torchvision.nms.default._schema
        print([argument.name for argument in schema.arguments], hasattr(torch.ops.torchvision, "qnms"))
        assert compat.import_torchvision() is torchvision, "a second call finds it imported"
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        with open(torchvision.__file__, "w") as file:
            file.write("raise RuntimeError('something else')")
        sys.path_importer_cache.clear()
        try:
            compat.import_torchvision()
        except RuntimeError as error:
            print(error)
    """
    lines = run(script, tmp_path, TORCHVISION).splitlines()
    assert lines == ["['dets', 'scores', 'iou_threshold'] True", "something else"]


# -- the compiler ----------------------------------------------------------------------------------------------------

LOADED = "import sys; print('torch._dynamo' in sys.modules)"


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "code", ["import caption.runtime.torchvision_compat", "import caption; caption.load('photos')"]
)
def test_the_compiler_is_not_imported(code: str):
    assert printed(f"{code}\n{LOADED}") == "False"


def test_the_function_that_torchvision_wanted_is_the_compilers():
    code = """
import importlib
import caption.runtime.torchvision_compat
theirs = importlib.import_module("torchvision.ops.roi_align").is_compile_supported
answer = theirs("cpu")
import torch._dynamo.utils as compiler
print(compiler.__file__ is not None, answer == compiler.is_compile_supported("cpu"))
"""
    assert printed(code) == "True True"


def test_a_torchvision_that_takes_more_of_the_compiler_gets_it(tmp_path: Path):
    body = "from torch._dynamo.utils import counters, is_compile_supported\n"
    assert run(f"import caption.runtime.torchvision_compat\n{LOADED}", tmp_path, body) == "True\n"
