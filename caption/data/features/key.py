"""The key of a feature store: everything that its regions depend on, except the images."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import torch

from caption.core.version import package_version

if TYPE_CHECKING:
    from caption.encoders.base import Encoder

# Arguments that do not change what a frozen encoder computes; its weights count by their content.
WITHOUT_EFFECT = ("weights", "finetune_from")

UNKNOWN = "unknown"
"""The release in a checkout that is not installed."""


def feature_key(encoder: Encoder, transform: dict[str, Any], mirrored: bool = False) -> dict[str, Any]:
    """A description of an encoder and a transform, in plain types that survive JSON.

    Args:
        encoder: with its weights loaded.
        transform: from `ImageTransform.to_dict`.
        mirrored: whether the pixels are mirrored.

    Returns:
        by names for messages: the encoder's class path and arguments (including the layer, without the path of the
        weights), the digest of the weights in use, the transform, whether images are mirrored, and the release of this
        package. Releases that differ only in the last part of their version compute the same regions.
    """
    arguments = encoder.spec["init_args"].items()
    key = {
        "encoder": encoder.spec["class_path"],
        **{f"encoder {name}": value for name, value in arguments if name not in WITHOUT_EFFECT},
        **{f"transform {name}": value for name, value in transform.items()},
        "weights": weights_digest(encoder),
        "mirrored images": mirrored,
        "release": ".".join(package_version().split(".")[:2]),
    }
    return json.loads(json.dumps(key))


def weights_digest(encoder: Encoder) -> str:
    """BLAKE2b, 128 bits in hexadecimal, of names, types, shapes and values of an encoder's parameters and buffers."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(encoder.state_dict().items()):
        # This counter of training steps has no effect, and some files of weights lack it.
        if name.endswith("num_batches_tracked"):
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(values.numpy().data)
    return digest.hexdigest()


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """How two keys differ, in words; empty if both give the same regions. An unknown release matches every release."""
    names = set(wanted) | set(stored)
    if UNKNOWN in (stored.get("release"), wanted["release"]):
        names.discard("release")
    return [
        f"{name} {stored.get(name)!r} instead of {wanted.get(name)!r}"
        for name in sorted(names)
        if stored.get(name) != wanted.get(name)
    ]
