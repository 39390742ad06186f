"""What goes wrong on the user's side, said in a sentence that names the culprit and the remedy."""

from __future__ import annotations


class UserError(Exception):
    """A fault in what the user gave. `str(error)` is the whole message; the command line prints no traceback."""


class ImageError(UserError):
    """One image cannot be used: missing, empty, truncated, not an image, a folder."""


class DataError(UserError):
    """A caption file, split list or data folder is not what it should be."""


class CheckpointError(UserError):
    """A file is no checkpoint of this package, or one that cannot be trusted or rebuilt."""
