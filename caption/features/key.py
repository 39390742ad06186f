"""What a feature store was made with: the key that tells one store from another."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from typing import Any

import torch

from caption.data.images import ImageTransform
from caption.encoders.base import Encoder

# Arguments of encoders that do not change what a frozen one computes: its weights count by their content.
WITHOUT_EFFECT = ("weights", "finetune_from")

UNKNOWN_VERSION = "unknown"


def feature_key(encoder: Encoder, transform: ImageTransform) -> dict[str, Any]:
    """All that regions depend on, apart from the image; plain types, as they come back from JSON.

    Returns:
        `encoder` (class path and arguments, the layer among them, without the path of the weights), `weights`
        (SHA-256 of the state dict in use), `transform`, and `version` of this package.
    """
    spec = encoder.spec
    arguments = {name: value for name, value in spec["init_args"].items() if name not in WITHOUT_EFFECT}
    key = {
        "encoder": {"class_path": spec["class_path"], "init_args": arguments},
        "weights": weights_digest(encoder),
        "transform": transform.to_dict(),
        "version": _version(),
    }
    return json.loads(json.dumps(key))


def weights_digest(encoder: Encoder) -> str:
    """SHA-256 of an encoder's parameters and buffers: names, types, shapes and values; hexadecimal."""
    found = hashlib.sha256()
    for name, tensor in sorted(encoder.state_dict().items()):
        if name.endswith(
            "num_batches_tracked"
        ):  # counts training steps; some files of weights have it, some not
            continue
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found.update(values.numpy().data)
    return found.hexdigest()


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """How two keys differ, in words; empty if regions made with the one serve for the other.

    Releases that differ in the last part of the version only compute the same regions.
    """
    found = _changed("encoder", stored.get("encoder"), wanted["encoder"])
    if not found and stored.get("weights") != wanted["weights"]:
        found = ["other weights in the encoder"]
    found += _changed("transform", stored.get("transform"), wanted["transform"])
    versions = {_release(stored.get("version")), _release(wanted["version"])}
    if len(versions - {UNKNOWN_VERSION}) > 1:
        found.append(f"version {stored.get('version')} of this package instead of {wanted['version']}")
    return found


def _changed(name: str, stored: Any, wanted: Any) -> list[str]:
    if stored == wanted:
        return []
    if isinstance(stored, dict) and isinstance(wanted, dict):
        # "encoder.init_args.layer" is called "encoder layer": that is what it is in a configuration file.
        inner = {key: name if key == "init_args" else f"{name} {key}" for key in (*stored, *wanted)}
        return [text for key in inner for text in _changed(inner[key], stored.get(key), wanted.get(key))]
    return [f"{name} {stored!r} instead of {wanted!r}"]


def _release(version: Any) -> str:
    return ".".join(str(version).split(".")[:2])


def _version() -> str:
    try:
        return metadata.version("show-attend-and-tell")
    except metadata.PackageNotFoundError:  # used from a checkout that is not installed
        return UNKNOWN_VERSION
