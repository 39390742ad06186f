"""Tools for developers and researchers. Run them from a clone: `python -m tools.NAME`."""
