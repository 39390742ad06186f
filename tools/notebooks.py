"""Run the notebooks, and store what they show.

    python -m tools.notebooks                                 # all of notebooks/
    python -m tools.notebooks notebooks/01_first_look.ipynb

Each notebook runs in a kernel and an empty folder of its own. The stored result is the same for the same code and
machine: no times, paths or versions. A notebook that fails, or writes to stderr, is not changed. Needs nbclient and
ipykernel.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from PIL import Image

from caption.core.runtime.files import replacing
from tools import make_parser

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(notebook: NotebookNode) -> NotebookNode:
    """Run a notebook in place.

    Raises:
        CellExecutionError: a cell fails.
        RuntimeError: a cell writes to stderr, such as a warning.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = {"timeout": 300, "kernel_name": "python3", "record_timing": False, "coalesce_streams": True}
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, **options).execute()
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if output.get("name") == "stderr":
            raise RuntimeError(f"a cell writes to stderr: {output.text}")
    return notebook


def clean(notebook: NotebookNode) -> NotebookNode:
    """Remove what differs from run to run or machine to machine, and make pictures small."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = nbformat.from_dict({})
        for output in cell.get("outputs", []):
            if "metadata" in output:  # the size at which a figure is shown stays
                sizes = {kind: value for kind, value in output.metadata.items() if kind.startswith("image/")}
                output.metadata = nbformat.from_dict(sizes)
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = small_png(output.data["image/png"])
    return notebook


def small_png(picture: str) -> str:
    """A PNG in base64 with 256 colours, since a repository is cloned with all its history."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as opened:
        few = opened.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
        few.save(buffer, "PNG", dpi=opened.info.get("dpi", (72, 72)), optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    parser = make_parser("notebooks", __doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="by default all of notebooks/")
    failed = False
    for path in parser.parse_args().notebooks or sorted(NOTEBOOKS.glob("*.ipynb")):
        try:
            done = clean(execute(nbformat.read(path, as_version=4)))
        except (CellExecutionError, RuntimeError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed = True
            continue
        with replacing(path) as file:
            file.write(f"{nbformat.writes(done)}\n".encode())
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
