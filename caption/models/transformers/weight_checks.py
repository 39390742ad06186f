"""Checks of the weights of a model of transformers, which loads what does not fit with a warning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from caption.core.errors import UserError, first_few
from caption.data.text_files import read_json

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
NOT_RAISED = ("_raise_exceptions_for_missing_entries", "_raise_exceptions_for_connection_errors")
"""Options of `cached_file`: without them, it returns None if there is no index."""
NOT_READ = re.compile(
    r"pooler|position_ids$|rotary_emb\.inv_freq$|\.(cross)?(attn|attention)\.(masked_)?bias$"
)
"""Names of tensors that do not change captions: image tokens are read before a pooler, and the others are constants in
old files."""


def check_files(config: Any, source: str, is_folder: bool) -> None:
    """Refuse files of weights outside of the folder or repository, and other formats."""
    from transformers.utils.hub import cached_file

    named = [getattr(config, "transformers_weights", None) or SINGLE]
    options = {"local_files_only": is_folder, **dict.fromkeys(NOT_RAISED, False)}
    if (index := cached_file(source, INDEX, **options)) is not None:
        named += read_json(Path(index))["weight_map"].values()
    for name in named:
        if not re.fullmatch(r"[\w.-]+\.safetensors", str(name)):
            raise UserError(
                f"{source} names weights {name!r}, which is not the bare name of a safetensors file"
            )


def check_names(address: str, missing: Iterable[str], unexpected: Iterable[str]) -> None:
    """Refuse weights that do not belong to the model: transformers sets missing ones at random, with a warning.

    Args:
        address: for the message.
        missing: names of tensors that the model has and its files lack.
        unexpected: names of tensors in the files that the model does not have.
    """
    for names, problem in (
        (missing, "of the model are missing in its files, and would be random"),
        (unexpected, "of its files have no place in the model"),
    ):
        if culprits := sorted(name for name in names if not NOT_READ.search(name)):
            raise UserError(
                f"{address}: {len(culprits)} tensors {problem} ({first_few(culprits)}): its weights and its "
                "config.json do not belong together, or its files are incomplete"
            )


def check_finite(model: Any) -> None:
    """Refuse weights that are NaN or infinite."""
    not_finite = [
        name
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point() and tensor.element_size() > 1 and not tensor.isfinite().all()
    ]
    if not_finite:
        raise UserError(
            f"{type(model).__name__} has weights that are not finite, in {first_few(not_finite)}: its captions would "
            "mean nothing"
        )
