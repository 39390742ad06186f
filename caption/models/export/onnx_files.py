"""Writes a captioner as ONNX files, with a script that captions photos with numpy and onnxruntime only."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from caption.captioner import Captioner
from caption.core.errors import UserError, optional_package
from caption.core.runtime.atomic_files import OwnFolder
from caption.core.runtime.inputs import STREAM, open_input
from caption.core.version import package_version
from caption.models.export.programs import programs
from caption.search import BeamSearch, Greedy
from caption.text.vocabulary import END, FORBIDDEN, START

ENCODER, STEP, MODEL, SCRIPT = "encoder.onnx", "step.onnx", "model.json", "captioner.py"
LARGEST = 2**30
"""Weights of more bytes go into a second file beside the graph, since an ONNX file cannot exceed 2 GB."""


def write(captioner: Captioner, folder: Path) -> None:
    """Write `encoder.onnx`, `step.onnx`, `model.json`, and `captioner.py`, which runs them.

    Args:
        captioner: in evaluation mode afterwards.
        folder: must exist; files of an earlier export are replaced.

    Raises:
        UserError: the packages are missing, a part of the captioner cannot be exported, or the folder has files under
            these names that this package did not write. Nothing is written then.
    """
    require_packages()
    check_free(folder)
    settings = search_settings(captioner)
    traced = programs(captioner)
    state = [*traced.shared, *traced.carried]
    next_state = [f"next_{name}" for name in traced.carried]
    graphs = {
        ENCODER: _graph(traced.encoder, ["images"], state),
        STEP: _graph(traced.step, ["words", *state], [*traced.outputs, *next_state]),
    }
    size = sum(tensor.nbytes for tensor in captioner.state_dict().values())
    exports = OwnFolder(folder, "--out")
    with TemporaryDirectory(prefix=".caption-", dir=folder) as temporary:  # torch would follow symbolic links
        for name, graph in graphs.items():
            graph.save(Path(temporary, name), external_data=size > LARGEST)
        for path in sorted(Path(temporary).iterdir()):
            with open_input(path, STREAM) as content, exports.write(path.name) as file:
                while block := content.read(1 << 20):
                    file.write(block)
    description = {
        "version": package_version(),
        "words": captioner.vocabulary.words,
        "brackets": captioner.vocabulary.tokenizer.brackets,
        "unwritten": captioner.vocabulary.tokenizer.unwritten,
        "start": START,
        "end": END,
        "forbidden": FORBIDDEN,
        "transform": captioner.transform.to_dict(),
        "content": captioner.vocabulary.content if captioner.search.repeat_penalty else (),
        "search": settings,
        "grid": traced.grid,
        "covers": captioner.boxes((0.0, 0.0, 1.0, 1.0))[0],
        "carried": traced.carried,
    }
    exports.write_json(MODEL, description)
    with exports.write(SCRIPT) as file:
        file.write(Path(__file__).with_name("standalone.py").read_bytes())


def require_packages() -> None:
    """Raise a `UserError` if a package that writes ONNX is missing."""
    with optional_package("an export to ONNX", "'show-attend-and-tell[onnx]'"):
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401


def check_free(folder: Path) -> None:
    """Raise a `UserError` if `folder` holds files of these names that no export wrote."""
    large = [f"{name}.data" for name in (ENCODER, STEP)]
    OwnFolder(folder, "--out").check([ENCODER, STEP, *large, MODEL, SCRIPT])


def search_settings(captioner: Captioner) -> dict[str, float]:
    """The search of a captioner as settings of `standalone.py`.

    Raises:
        UserError: the search samples.
    """
    search = captioner.search
    settings = {"max_length": search.max_length, "repeat_penalty": search.repeat_penalty}
    if isinstance(search, Greedy):
        return {"beam_size": 1, "length_normalization": 0.0, **settings}
    if not isinstance(search, BeamSearch):
        raise UserError(
            f"the model's search {type(search).__name__} cannot be exported: choose a beam with --beam-size"
        )
    return {name: getattr(search, name) for name in ("beam_size", "length_normalization")} | settings


def _graph(
    program: torch.export.ExportedProgram, inputs: list[str], outputs: list[str]
) -> torch.onnx.ONNXProgram:
    with _quiet():
        try:
            graph = torch.onnx.export(
                # Decomposed, since attention in ONNX has four dimensions, and hypotheses are a fifth.
                program.run_decompositions(),
                input_names=inputs,
                output_names=outputs,
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = str(error.__cause__ or error).strip().partition("\n")[0].partition(" : [")[0]
            raise UserError(f"ONNX cannot express a part of this model: {reason}") from error
    assert graph is not None
    return graph


@contextmanager
def _quiet() -> Iterator[None]:
    """A context without the exporter's messages about its progress."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
