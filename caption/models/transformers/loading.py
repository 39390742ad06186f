"""Loads models of transformers, by the name of their repository or by their folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.core.errors import UserError, kind_and_reason, optional_package, printable
from caption.models.hub import check_reachable
from caption.models.transformers.captioner import ForeignCaptioner
from caption.models.transformers.families import FAMILIES, family_of
from caption.models.transformers.pieces import PieceVocabulary
from caption.models.transformers.search import configured_search
from caption.models.transformers.weight_checks import check_files, check_finite, check_names
from caption.models.transformers.weight_sharing import frozen_copy

if TYPE_CHECKING:
    import torch

SCHEME = "transformers:"


def load(
    address: str, device: str | torch.device = "cpu", question: str | None = None, **arguments: Any
) -> ForeignCaptioner:
    """Load a captioner of transformers.

    Args:
        address: "transformers:" and a folder, or owner/name of a repository of the Hugging Face Hub, which is
            downloaded unless its cache has it. Weights are read from safetensors only, and no code of a repository is
            run.
        device: where to put it; unused with `device_map`.
        question: what the model is asked, see `TransformersModel.question`; None = its first question.
        arguments: of `from_pretrained` of transformers, such as dtype, device_map or quantization_config.

    Raises:
        UserError: transformers is missing, or a package that the arguments need; there is no such folder or repository;
            its architecture is not supported, or it has no tokenizer, no image processor with a size, or no
            safetensors; its weights are not those of its architecture; its files are damaged.
    """
    name = address.removeprefix(SCHEME)
    folder = os.path.expanduser(name)
    is_folder = os.path.isdir(folder)
    if not is_folder and (name.count("/") != 1 or name.startswith((".", "/", "~"))):
        raise UserError(f"there is no folder {name}: name a folder of transformers, or owner/name of the hub")
    for old in sorted({"load_in_4bit", "load_in_8bit"} & set(arguments)):
        raise UserError(
            f"{old} is not an argument of transformers 5: give "
            f'quantization_config={{"quant_method": "bitsandbytes", "{old}": True}}'
        )
    transformers = _transformers(address)
    source = folder if is_folder else name
    if not is_folder:
        check_reachable(address, name, "config.json")
    options = {"trust_remote_code": False, "local_files_only": is_folder}
    with _reading(address, "config.json"):
        config = transformers.AutoConfig.from_pretrained(source, **options)
        architecture = _architecture(config)
        check_files(config, source, is_folder)
    if is_folder and not any(Path(folder).glob("*.safetensors")):
        raise UserError(
            f"{folder} has no weights as safetensors, and pickled weights are not read: write them again with "
            "save_pretrained of transformers 5"
        )
    with _reading(address, "tokenizer"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
    with _reading(address, "image processor"):
        loader = getattr(transformers, _family(architecture).processor_loader)
        processor = loader.from_pretrained(source, **options)
    with _reading(address, "weights"):
        # A file may name an attention of the hub, whose code would be downloaded and run; None = transformers' choice.
        model, info = getattr(transformers, architecture).from_pretrained(
            source,
            **{
                **arguments, **options, "use_safetensors": True, "attn_implementation": None,
                "output_loading_info": True,
            },
        )  # fmt: skip
    check_names(address, info["missing_keys"], info["unexpected_keys"])
    with _reading(address, "model"):
        captioner = from_transformers(model, processor, tokenizer)
        if "device_map" not in arguments:
            captioner = captioner.to(device)
        if question is not None:
            foreign: Any = captioner.decoder.model
            foreign.question = question
    return captioner


def from_transformers(model: Any, processor: Any, tokenizer: Any) -> ForeignCaptioner:
    """A captioner of a model in memory. It holds a copy that shares the model's weights, see `frozen_copy`.

    Args:
        model: of an architecture in `families.FAMILIES`. It stays as it is, and can be trained further.
        processor: its image processor, or a processor that holds one.
        tokenizer: its tokenizer.

    Raises:
        UserError: the architecture is not supported, weights are not finite, its attention cannot be found, or its
            processor is not supported or makes pixels of another size; its image tokens do not lie where its maps would
            be drawn, see `probe.check`.
    """
    cls = _family(_architecture(model.config, type(model).__name__))
    check_finite(model)
    family = cls(frozen_copy(model), processor, tokenizer).eval()
    size = model.config.get_text_config(decoder=True).vocab_size
    search = configured_search(family.generation, len(family.prompt), family.ends, size)
    vocabulary = PieceVocabulary(tokenizer, size)
    try:
        captioner = ForeignCaptioner(family, vocabulary, family.transform, search)
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"{type(model).__name__} cannot read the pixels of its {type(processor).__name__}, which probably belongs "
            f"to another model ({kind_and_reason(error)[:200]}): set the model's size in preprocessor_config.json"
        ) from error
    if family.is_probed:
        from caption.models.transformers.probe import check

        check(captioner)
    return captioner


def _architecture(config: Any, name: str | None = None) -> str:
    name = name or next(iter(getattr(config, "architectures", None) or []), str(config.model_type))
    if family_of(name) is None:
        raise UserError(
            f"the architecture {printable(name)} of transformers is not supported: {', '.join(FAMILIES)} are, and "
            "those that transformers lists as models for images and text; or implement the interface "
            "caption.models.transformers.model.ForeignModel for it (docs/torch-model.md)"
        )
    return name


def _family(architecture: str) -> Any:
    module, name = str(family_of(architecture)).split(":")
    return getattr(import_module(module), name)


@contextmanager
def _reading(address: str, part: str) -> Iterator[None]:
    """Context that turns errors of transformers in reading a part of a model into UserErrors of one sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # files of strangers and the packages that read them: any type
        reason = kind_and_reason(error)[:300]
        raise UserError(f"{address}: its {part} cannot be used: {reason}") from error


def _transformers(address: str) -> Any:
    with optional_package(address, "'show-attend-and-tell[transformers]'"):
        import transformers
    return transformers
