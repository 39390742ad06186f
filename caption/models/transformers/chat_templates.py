"""A limit of time for chat templates, which are programs in the files of a model."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from caption.core.errors import UserError

SECONDS = 5.0
"""Limit for one question; usual templates take milliseconds."""
FILE = "<template>"
"""The file name of Jinja's compiled templates."""


@contextmanager
def limited_templates() -> Iterator[None]:
    """Context in which templates of Jinja that run in this thread stop after `SECONDS`, with a UserError.

    Jinja's sandbox bounds a single `range`, and not loops in loops. A trace function is called for each line of a
    template, and for no line of other code.
    """
    end = time.monotonic() + SECONDS

    def of_line(frame: FrameType, event: str, value: Any) -> Any:
        if time.monotonic() > end:
            raise UserError(
                f"the chat template of the model runs for more than {SECONDS:g} seconds, so it does not end or is "
                "damaged: use the template of another copy of the model"
            )
        return of_line

    def of_call(frame: FrameType, event: str, value: Any) -> Any:
        return of_line if frame.f_code.co_filename == FILE else None

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        yield
    finally:
        sys.settrace(before)
