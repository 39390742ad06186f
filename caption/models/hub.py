"""Models on the Hugging Face Hub, as `hf://owner/name` or `hf://owner/name@revision`. Needs the extra `hub`.

A repository holds one model: `model.safetensors`, with its description in the header. The hub also shows a card,
`README.md`, and `config.json`, a copy of the description; no file but the first is fetched or read.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from caption.captioner import Captioner
from caption.core.errors import UserError, optional_package
from caption.core.runtime.atomic_files import creating
from caption.models import checkpoint

LIBRARY = "show-attend-and-tell"
MODEL, CARD, CONFIG = "model.safetensors", "README.md", "config.json"


def parse(address: str) -> tuple[str, str | None]:
    """The repository that an address names, `owner/name`, and a branch, tag or commit of it; None = its main branch.

    Raises:
        UserError: it is not such an address.
    """
    match = re.fullmatch(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", address)
    if match is None:
        raise UserError(
            f"{address} is not an address of the hub: write hf://owner/name, or hf://owner/name@revision"
        )
    return match[1], match[2]


def fetch(address: str) -> Path:
    """The model's file, downloaded unless the hub's cache has it.

    Raises:
        UserError: the package huggingface_hub is missing, or there is no such model, or no connection.
    """
    repository, revision = parse(address)
    check_reachable(address, repository, MODEL, revision)
    with _client(address) as hub:
        return Path(hub.hf_hub_download(repository, MODEL, revision=revision))


def check_reachable(address: str, repository: str, name: str, revision: str | None = None) -> None:
    """Check once that a file is in the hub's cache or on the hub.

    Without a connection this fails at once, where a download would try again for half a minute.

    Args:
        address: as the user gave it, for messages.
        repository: owner/name.
        name: of the file.
        revision: a branch, tag or commit; None = the main branch.

    Raises:
        UserError: see `fetch`.
    """
    with _client(address, name) as hub:
        if not isinstance(hub.try_to_load_from_cache(repository, name, revision=revision), str):
            hub.get_hf_file_metadata(hub.hf_hub_url(repository, name, revision=revision))


def push(
    captioner: Captioner,
    address: str,
    private: bool = False,
    precision: checkpoint.Precision | None = None,
    **about: Any,
) -> str:
    """Write a captioner to a repository of the hub, which is created if it does not exist. An existing card is kept.

    Args:
        captioner: the model.
        address: of the repository.
        private: whether a new repository is private.
        precision: see `checkpoint.save`.
        about: see `card`.

    Returns:
        The URL of the commit.

    Raises:
        UserError: the package huggingface_hub is missing, or the hub refuses.
    """
    repository, revision = parse(address)
    text = card(captioner, address, **about)
    config = {key: value for key, value in checkpoint.section(captioner).items() if key != "vocabulary"}
    config |= {"model_type": LIBRARY, "architectures": ["Captioner"], "vocab_size": len(captioner.vocabulary)}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(captioner, Path(folder) / MODEL, precision)
        with _client(address) as hub:
            api = hub.HfApi()
            api.create_repo(repository, private=private, exist_ok=True)
            if not api.file_exists(repository, CARD, revision=revision):
                with creating(Path(folder) / CARD) as file:
                    file.write(text.encode())
            with creating(Path(folder) / CONFIG) as file:
                file.write(json.dumps(config, indent=2).encode())
            where = {"repo_id": repository, "folder_path": folder, "revision": revision}
            commit = api.upload_folder(**where, commit_message="Captioner with visual attention")
    return str(commit.commit_url)


def card(
    captioner: Captioner,
    address: str,
    license: str | None = None,
    data: str | None = None,
    scores: Mapping[str, Any] | None = None,
) -> str:
    """The text of a model's card, with the metadata by which the hub lists it.

    Args:
        captioner: the model.
        address: of its repository.
        license: as the hub spells it, such as "mit".
        data: the name of the data set.
        scores: `Scores.to_dict` of its test, as `caption test` writes them to test_scores.json.
    """
    name = parse(address)[0].partition("/")[2]
    metadata: dict[str, Any] = {"library_name": LIBRARY, "pipeline_tag": "image-to-text"}
    metadata |= {"tags": ["image-captioning", "visual-attention"]}
    metadata |= {"license": license} if license else {}
    metadata |= {"datasets": [data]} if data else {}
    about = [f"- {title}: {text}" for title, text in (("licence", license), ("data", data)) if text]
    if scores is not None:
        values = {key: value for key, value in scores["scores"].items() if isinstance(value, float | int)}
        metrics = [{"type": key, "value": round(value, 4)} for key, value in values.items()]
        tested = {"name": data or "test split", "type": data or "test"}
        results = [{"task": {"type": "image-to-text"}, "dataset": tested, "metrics": metrics}]
        metadata |= {"model-index": [{"name": name, "results": results}]}
        about += [f"- {key}: {value:.4f}" for key, value in values.items()]
        about += [f"- protocol of these scores: `{scores['signature']}`"]
    parts = {"encoder": captioner.encoder, "refiner": captioner.refiner, "decoder": captioner.decoder}
    lines = [f"- {name}: `{part.spec['class_path']}`" for name, part in parts.items() if part is not None]
    lines += [f"- attention: `{part.spec['class_path']}`" for part in captioner.decoder.attentions.values()]
    return f"""\
---
{yaml.safe_dump(metadata, sort_keys=False)}---
# {name}

Captions photos, and shows where it looked for every word.

```python
import caption

captioner = caption.load("{address}")
result = captioner.describe("photo.jpg")
print(result)
result.plot()
```

{chr(10).join(lines)}
- vocabulary: {len(captioner.vocabulary):,} words
{chr(10).join(about)}
"""


@contextmanager
def _client(address: str, name: str = MODEL) -> Iterator[Any]:
    """The package huggingface_hub, whose errors become UserErrors of one sentence."""
    with optional_package(address, "huggingface_hub"):
        import huggingface_hub
        from huggingface_hub import errors
    try:
        yield huggingface_hub
    except errors.EntryNotFoundError as error:
        if isinstance(error, errors.LocalEntryNotFoundError):
            raise UserError(
                f"{address} cannot be reached, and is not in the cache: check the connection"
            ) from error
        raise UserError(f"{address} has no {name}: is it the right repository?") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"{address} does not exist, or is private: check the name, or log in with `hf auth login`"
        ) from error
    except Exception as error:  # without a connection, errors of the package that it uses for HTTP
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{address}: the hub refused or cannot be reached: {reason}") from error
