"""A lens in a file beside its model: `photos.lens` for `photos.safetensors`.

The file is in the format of safetensors: the classifier's layer in half precision, the mean regions of the photos of
the fit, and in the header, as JSON, the calibration and the encoder that it belongs to, with checksums of all. Nothing
in it is executed.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from caption.analysis.lens.lens import Calibration, Lens, first_encoder, make_lens
from caption.captioner import Captioner
from caption.core.errors import CheckpointError, UserError
from caption.core.runtime.atomic_files import creating
from caption.core.runtime.inputs import MODEL, open_input
from caption.core.runtime.safe_loading import check_plain
from caption.encoders.base import Encoder
from caption.encoders.classifier import Classifier
from caption.models.checkpoint.format import read_safetensors, to_safetensors
from caption.models.model_zoo import model_file

SUFFIX = ".lens"
FORMAT = 5
TENSORS = {
    "weight": "linear.weight",
    "bias": "linear.bias",
    "norm_weight": "norm.weight",
    "norm_bias": "norm.bias",
}
"""Names of the classifier's tensors in the file -> in its state dict."""
IN_HEADER = [field.name for field in fields(Calibration) if field.name != "known"]


def lens_path(model: str | os.PathLike[str]) -> Path:
    """The path of a model's lens: beside the model's file, with the suffix .lens.

    Args:
        model: see `caption.load`.
    """
    return Path(os.path.expanduser(model_file(os.fspath(model)))).with_suffix(SUFFIX)


def attach_lens(captioner: Captioner, path: str | Path) -> Lens:
    """Give a captioner a lens, which adds `Caption.lens` to its captions.

    Args:
        captioner: the model.
        path: the lens's file, see `lens_path`. Without such a file, the lens is not calibrated, and its classifier has
            the encoder's pretrained weights.

    Raises:
        UserError: the encoder has no classifier, or the file belongs to another encoder.
        CheckpointError: the file is damaged, or not a lens.
    """
    lens = read_lens(path, captioner) if Path(path).exists() else make_lens(captioner)
    lens.captioner = captioner
    captioner.lens = lens
    return lens


def save_lens(lens: Lens, captioner: Captioner, path: str | Path) -> None:
    """Write a calibrated lens.

    Raises:
        OutputError: the file cannot be written.
    """
    calibration = lens.calibration
    assert calibration is not None
    norm, state = lens.classifier.norm, lens.classifier.state_dict()
    tensors = {name: state[inside].float() for name, inside in TENSORS.items() if inside in state}
    tensors["weight"] = tensors["weight"].half()
    if calibration.known is not None:
        tensors["known"] = calibration.known
    header = {
        "format": FORMAT,
        "encoder": _identity(first_encoder(captioner)),
        "fingerprint": _fingerprint(first_encoder(captioner)),
        "norm_eps": None if norm is None else norm.eps,
        "calibration": {name: getattr(calibration, name) for name in IN_HEADER},
    }
    with creating(path) as file:
        file.write(to_safetensors(tensors, header, "lens"))


def read_lens(path: str | Path, captioner: Captioner) -> Lens:
    """Read the lens of a captioner.

    Raises:
        CheckpointError: the file is missing, damaged, or not a lens.
        UserError: it belongs to another encoder.
    """
    open_input(path, MODEL).close()
    encoder = first_encoder(captioner)
    try:
        header, tensors = read_safetensors(Path(path), "lens")
        check_plain(header)
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']}, not {FORMAT}")
        classifier = _classifier(tensors, header["norm_eps"])
        calibration = _calibration(header["calibration"], tensors.get("known"), classifier.linear.in_features)
        identity, fingerprint = header["encoder"], [_finite(number) for number in header["fingerprint"]]
    except Exception as error:  # safetensors and damaged headers raise many types
        raise CheckpointError(
            f"{path} is damaged, or not a lens of this package: {error}; make it with caption lens"
        ) from error
    if identity != _identity(encoder):
        raise UserError(f"{path} is a lens for another encoder than the model's: make one with caption lens")
    if classifier.linear.in_features != encoder.region_sizes[0]:
        raise CheckpointError(f"{path} is a lens for regions of another size: make one with caption lens")
    actual = _fingerprint(encoder)
    if len(actual) != len(fingerprint) or any(
        abs(a - b) > 1e-2 * (abs(b) + 1e-3) for a, b in zip(actual, fingerprint, strict=True)
    ):
        raise UserError(
            f"{path} is a lens for other weights than those of the model's encoder: was it fine-tuned?"
        )
    return Lens(classifier, None, calibration)


def _classifier(tensors: dict[str, Tensor], eps: float | None) -> Classifier:
    classes, size = tensors["weight"].shape
    if eps is not None and _finite(eps) <= 0:
        raise ValueError(f"the epsilon of its norm is {eps}")
    norm = None if eps is None else nn.LayerNorm(size, eps=float(eps))
    classifier = Classifier(nn.Linear(size, classes), norm)
    classifier.load_state_dict({TENSORS[name]: tensors[name].float() for name in tensors if name in TENSORS})
    if not all(tensor.isfinite().all() for tensor in classifier.state_dict().values()):
        raise ValueError("weights of the classifier are not finite")
    return classifier


def _calibration(header: dict[str, Any], directions: Tensor | None, size: int) -> Calibration:
    doubtful = {str(word): _finite(least) for word, least in header["doubtful"].items()}
    companions = {str(word): [str(noun) for noun in nouns] for word, nouns in header["companions"].items()}
    neighbours = int(header["neighbours"])
    if directions is not None and (
        directions.ndim != 2 or directions.shape[1] != size or neighbours < 1 or not len(directions)
    ):
        raise ValueError("the mean regions do not fit the classifier, or there are none")
    of_words, of_regions = (tuple(map(_finite, header[name])) for name in ("of_words", "of_regions"))
    if (len(of_words), len(of_regions)) != (5, 3):
        raise ValueError("the calibration has a wrong number of weights")
    return Calibration(
        of_words, of_regions, _finite(header["sharpest"]), doubtful, companions, directions, neighbours,
        _finite(header["farthest"]), int(header["photos"]), int(header["detail"]),
    )  # fmt: skip


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number


def _identity(encoder: Encoder) -> dict[str, Any]:
    """Class path and arguments, without those that do not change the regions."""
    spec = encoder.spec
    arguments = {k: v for k, v in spec["init_args"].items() if k not in ("weights", "finetune_from")}
    return json.loads(json.dumps({"class_path": spec["class_path"], "init_args": arguments}))


def _fingerprint(encoder: Encoder) -> list[float]:
    """The mean magnitudes of the weights of the first and last layers."""
    kernels = [p for p in encoder.state_dict().values() if p.is_floating_point() and p.ndim > 1]
    return [float(tensor.float().abs().mean()) for tensor in (*kernels[:2], *kernels[-2:])]
