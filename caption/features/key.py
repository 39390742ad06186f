"""The key of a feature store: everything its regions depend on, apart from the images."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import torch

from caption.version import package_version

if TYPE_CHECKING:
    from caption.encoders.base import Encoder

# Arguments that do not change what a frozen encoder computes; its weights count by their content.
WITHOUT_EFFECT = ("weights", "finetune_from")

UNKNOWN_VERSION = "unknown"


def feature_key(encoder: Encoder, transform: dict[str, Any], mirrored: bool = False) -> dict[str, Any]:
    """Describe an encoder and a transform, in plain types that survive JSON.

    Args:
        encoder: with its weights loaded.
        transform: from `ImageTransform.to_dict`.
        mirrored: whether the pixels are mirrored.

    Returns:
        `encoder` (class path and arguments, the layer among them, without the path of the weights), `weights`
        (SHA-256 of the state dict in use), `transform`, `version` of this package, and `mirrored` if they are.
    """
    spec = encoder.spec
    arguments = {name: value for name, value in spec["init_args"].items() if name not in WITHOUT_EFFECT}
    key = {
        "encoder": {"class_path": spec["class_path"], "init_args": arguments},
        "weights": weights_digest(encoder),
        "transform": transform,
        "version": package_version(),
        **({"mirrored": True} if mirrored else {}),
    }
    return json.loads(json.dumps(key))


def weights_digest(encoder: Encoder) -> str:
    """SHA-256, in hexadecimal, of the names, types, shapes and values of an encoder's parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(encoder.state_dict().items()):
        # This counter of training steps has no effect, and some files of weights lack it.
        if name.endswith("num_batches_tracked"):
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(values.numpy().data)
    return digest.hexdigest()


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """How two keys differ, in words; empty if both give the same regions.

    Releases that differ only in the last part of their version compute the same regions.
    """
    changes = _changes("encoder", stored.get("encoder"), wanted["encoder"])
    if not changes and stored.get("weights") != wanted["weights"]:
        changes = ["other weights in the encoder"]
    changes += _changes("transform", stored.get("transform"), wanted["transform"])
    if stored.get("mirrored", False) != wanted.get("mirrored", False):
        changes.append("mirrored images" if stored.get("mirrored") else "images that are not mirrored")
    versions = {_release(stored.get("version")), _release(wanted["version"])}
    if len(versions - {UNKNOWN_VERSION}) > 1:
        changes.append(f"version {stored.get('version')} of this package instead of {wanted['version']}")
    return changes


def _changes(name: str, stored: Any, wanted: Any) -> list[str]:
    if stored == wanted:
        return []
    if isinstance(stored, dict) and isinstance(wanted, dict):
        # "encoder.init_args.layer" is reported as "encoder layer", as in a configuration file.
        inner = {key: name if key == "init_args" else f"{name} {key}" for key in (*stored, *wanted)}
        return [text for key in inner for text in _changes(inner[key], stored.get(key), wanted.get(key))]
    return [f"{name} {stored!r} instead of {wanted!r}"]


def _release(version: Any) -> str:
    return ".".join(str(version).split(".")[:2])
