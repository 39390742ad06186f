"""The sections and tables of documents, see `caption.reports.documents`.

The module is read from this checkout's file: a benchmark's process has the package of another checkout, which may be
older and lack it.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_FILE = Path(__file__).resolve().parents[1] / "caption" / "reports" / "documents.py"
_spec = spec_from_file_location("tools._documents", _FILE)
assert _spec is not None
assert _spec.loader is not None
_module = module_from_spec(_spec)
_spec.loader.exec_module(_module)

read_sections, table, write_sections = _module.read_sections, _module.table, _module.write_sections
