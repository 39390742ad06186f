"""The version of this package."""

from __future__ import annotations


def package_version() -> str:
    """The installed version; "unknown" in a checkout that is not installed."""
    from importlib import metadata

    try:
        return metadata.version("show-attend-and-tell")
    except metadata.PackageNotFoundError:
        return "unknown"
