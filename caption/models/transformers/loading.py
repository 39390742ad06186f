"""Loads models of transformers, by the name of their repository or by their folder."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.core.errors import UserError, optional_package
from caption.models.transformers.captioner import ForeignCaptioner
from caption.models.transformers.families import FAMILIES
from caption.models.transformers.pieces import PieceVocabulary
from caption.models.transformers.search import configured_search
from caption.models.transformers.weight_sharing import frozen_copy

if TYPE_CHECKING:
    import torch

SCHEME = "transformers:"


def load(address: str, device: str | torch.device = "cpu") -> ForeignCaptioner:
    """Load a captioner of transformers.

    Args:
        address: "transformers:" and a folder, or owner/name of a repository of the Hugging Face Hub, which is
            downloaded unless its cache has it. Weights are read from safetensors only, and no code of a repository is
            run. "#" and a summary may follow, see `ForeignDecoder`: "transformers:FOLDER#layer 3 heads[5]".
        device: where to put it.

    Raises:
        UserError: transformers is missing; there is no such folder or repository; its architecture is not supported, or
            it has no tokenizer, no image processor with a size, or no safetensors.
    """
    name, _, summary = address.removeprefix(SCHEME).partition("#")
    folder = os.path.expanduser(name)
    is_folder = os.path.isdir(folder)
    if not is_folder and (name.count("/") != 1 or name.startswith((".", "/", "~"))):
        raise UserError(f"there is no folder {name}: name a folder of transformers, or owner/name of the hub")
    transformers = _transformers(address)
    source = folder if is_folder else name
    options = {"trust_remote_code": False, "local_files_only": is_folder}
    architecture = _architecture(_part(address, "config.json", transformers.AutoConfig, source, options))
    if is_folder and not any(Path(folder).glob("*.safetensors")):
        raise UserError(
            f"{folder} has no weights as safetensors, and pickled weights are not read: write them again with "
            "save_pretrained of transformers 5"
        )
    tokenizer = _part(address, "tokenizer", transformers.AutoTokenizer, source, options)
    loader = getattr(transformers, _family(architecture).processor_loader)
    processor = _part(address, "image processor", loader, source, options)
    cls = getattr(transformers, architecture)
    model = _part(address, "weights", cls, source, {**options, "use_safetensors": True})
    captioner = from_transformers(model, processor, tokenizer).to(device)
    captioner.decoder.summary = summary or captioner.decoder.summary
    return captioner


def from_transformers(model: Any, processor: Any, tokenizer: Any) -> ForeignCaptioner:
    """A captioner of a model in memory. It holds a copy that shares the model's weights, see `frozen_copy`.

    Args:
        model: of an architecture in `families.FAMILIES`. It stays as it is, and can be trained further.
        processor: its image processor, or a processor that holds one.
        tokenizer: its tokenizer.

    Raises:
        UserError: the architecture is not supported, its attention cannot be found, or the processor states no size.
    """
    cls = _family(_architecture(model.config, type(model).__name__))
    family = cls(frozen_copy(model), processor, tokenizer).eval()
    size = model.config.get_text_config(decoder=True).vocab_size
    search = configured_search(family.generation, len(family.prompt))
    return ForeignCaptioner(family, PieceVocabulary(tokenizer, size), family.transform, search)


def _architecture(config: Any, name: str | None = None) -> str:
    name = name or next(iter(getattr(config, "architectures", None) or []), str(config.model_type))
    if name not in FAMILIES:
        raise UserError(
            f"the architecture {name} of transformers is not supported: {', '.join(FAMILIES)} are; or implement the "
            "interface caption.models.transformers.model.ForeignModel for it (docs/any-captioner.md)"
        )
    return name


def _family(architecture: str) -> Any:
    module, name = FAMILIES[architecture].split(":")
    return getattr(import_module(module), name)


def _part(address: str, part: str, cls: Any, source: str, options: dict[str, Any]) -> Any:
    """One part of a model; errors of transformers become UserErrors of one sentence."""
    try:
        return cls.from_pretrained(source, **options)
    except (OSError, ValueError, TypeError, KeyError, ImportError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{address}: its {part} cannot be read: {reason}") from error


def _transformers(address: str) -> Any:
    with optional_package(address, "'show-attend-and-tell[transformers]'"):
        import transformers
    return transformers
