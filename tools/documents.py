"""The sections and tables of documents, see `caption.reports.documents`."""

from caption.reports.documents import read_sections, table, write_sections

__all__ = ["read_sections", "table", "write_sections"]
