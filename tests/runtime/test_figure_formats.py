"""The formats of figures are those of Matplotlib."""

from __future__ import annotations

from matplotlib.figure import Figure

from caption.runtime.figure_formats import FIGURES


def test_the_formats_are_those_that_matplotlib_writes():
    known = {f".{name}" for name in Figure().canvas.get_supported_filetypes()}
    assert known - set(FIGURES) == {".pgf"}
    assert set(FIGURES) - known <= {".gif", ".avif"}  # Matplotlib 3.9
