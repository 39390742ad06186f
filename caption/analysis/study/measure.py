"""`measure` turns a function that fills a table into a measure of a study."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

from caption.analysis.study.subject import Subject
from caption.analysis.table import AnalysisTable

Subjects = Sequence[Subject]
Measure = Callable[[Subjects], AnalysisTable | None]
"""None = it applies to none of the models."""


def measure(*columns: str) -> Callable[[Callable[[AnalysisTable, Subjects], None]], Measure]:
    """Turn a function that fills a table into a measure. Its docstring has the question, then the method.

    Args:
        columns: of the table.
    """

    def decorate(fill: Callable[[AnalysisTable, Subjects], None]) -> Measure:
        title, _, meaning = (inspect.getdoc(fill) or "").partition("\n\n")

        @functools.wraps(fill)
        def of_subjects(subjects: Subjects) -> AnalysisTable | None:
            table = AnalysisTable(columns, title=title, meaning=" ".join(meaning.split()))
            fill(table, subjects)
            return table if table.rows or table.missing else None

        return of_subjects

    return decorate
