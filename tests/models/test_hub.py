"""Models on the Hugging Face Hub: calls of its client, whose hub is a folder here."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from helpers.command_line import Ran, check_refused
from helpers.tiny_captioner import captioner, photo

import caption
from caption.core.errors import CheckpointError, UserError
from caption.core.runtime.atomic_files import file_digest
from caption.models import checkpoint, hub
from caption.models.checkpoint.format import to_safetensors

errors = pytest.importorskip("huggingface_hub.errors")
COMMIT = "https://huggingface.co/me/model/commit/0"
Cli = Callable[..., Ran]


def failure(kind: type[Exception]) -> Exception:
    """An error of the client, without the answer of a server."""
    methods = {"__init__": lambda self: None, "__str__": lambda self: "no\nroute"}
    return type(kind.__name__, (kind,), methods)()


class Client:
    """As much of `huggingface_hub.HfApi` as is used, over a folder with the repositories, owner/name."""

    folder: Path

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        (self.folder / repo_id).mkdir(parents=True, exist_ok=exist_ok)

    def file_exists(self, repo_id: str, name: str, *, revision: str | None) -> bool:
        return (self.folder / repo_id / name).exists()

    def upload_folder(self, *, repo_id: str, folder_path: str, **commit: Any) -> Any:
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)
        return SimpleNamespace(commit_url=COMMIT)

    def try_to_load_from_cache(self, repo_id: str, name: str, *, revision: str | None) -> None:
        return None

    def hf_hub_url(self, repo_id: str, name: str, *, revision: str | None) -> str:
        return f"{repo_id}/{name}"

    def get_hf_file_metadata(self, url: str) -> None:
        if not (self.folder / url).parent.is_dir():
            raise failure(errors.RepositoryNotFoundError)
        if not (self.folder / url).exists():
            raise failure(errors.EntryNotFoundError)

    def hf_hub_download(self, repo_id: str, name: str, *, revision: str | None) -> str:
        return str(self.folder / repo_id / name)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the hub's repositories."""
    client = type("Local", (Client,), {"folder": tmp_path / "hub"})
    monkeypatch.setattr("huggingface_hub.HfApi", client)
    for name in ("hf_hub_download", "try_to_load_from_cache", "hf_hub_url", "get_hf_file_metadata"):
        monkeypatch.setattr(f"huggingface_hub.{name}", getattr(client(), name))
    return tmp_path / "hub"


def test_a_model_comes_back_from_the_hub_and_a_card_of_the_owner_stays(served: Path):
    model, folder = captioner(), served / "me" / "model"
    assert hub.push(model, "hf://me/model") == COMMIT
    assert {file.name for file in folder.iterdir()} == {hub.MODEL, hub.CARD, hub.CONFIG}
    again = caption.load("hf://me/model")
    assert again.description() == model.description()
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert 'caption.load("hf://me/model")' in (folder / hub.CARD).read_text()
    (folder / hub.CARD).write_text("My own words.")
    hub.push(model, "hf://me/model")
    assert (folder / hub.CARD).read_text() == "My own words."


def test_the_command_line(cli: Cli, served: Path, tmp_path: Path):
    checkpoint.save(captioner(), tmp_path / "model.ckpt")
    photo().save(tmp_path / "photo.png")
    ran = cli("push", tmp_path / "model.ckpt", "hf://me/model", "--precision", "float16", "--private")
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert f"hf://me/model: {COMMIT}" in ran.err
    ran = cli("describe", tmp_path / "photo.png", "--model", "hf://me/model")
    assert ran.code == 0, ran.err
    assert ran.out.strip()


def test_the_usual_names_of_the_hub_and_what_it_shows(served: Path):
    model = captioner()
    scores = {"scores": {"BLEU-4": 0.25, "SPICE": None}, "signature": "tok:ptb-1|beam:3"}
    assert model.push_to_hub("me/model", license="mit", data="flickr8k", scores=scores) == COMMIT
    again = caption.Captioner.from_pretrained("me/model", accelerate=False)
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)
    config = json.loads((served / "me" / "model" / hub.CONFIG).read_text())
    assert config["model_type"] == "show-attend-and-tell"
    assert config["vocab_size"] == len(model.vocabulary)
    assert config["decoder"] == model.description()["decoder"]
    _, metadata, text = (served / "me" / "model" / hub.CARD).read_text().split("---\n")
    shown = yaml.safe_load(metadata)
    assert (shown["license"], shown["datasets"]) == ("mit", ["flickr8k"])
    assert shown["model-index"][0]["results"][0]["metrics"] == [{"type": "BLEU-4", "value": 0.25}]
    assert (
        "- licence: mit\n- data: flickr8k\n- BLEU-4: 0.2500\n- protocol of these scores: `tok:ptb-1|beam:3`"
        in text
    )
    plain = yaml.safe_load(hub.card(model, "hf://me/model").split("---\n")[1])
    assert set(plain) == {"library_name", "pipeline_tag", "tags"}


def test_the_scores_of_a_card_are_those_of_the_model(cli: Cli, served: Path, tmp_path: Path):
    path, scores = tmp_path / "model.ckpt", tmp_path / "test_scores.json"
    checkpoint.save(captioner(), path)
    record = {"scores": {"CIDEr": 1.5}, "signature": "tok:ptb-1", "model": {"digest": file_digest(path)}}
    push = ("push", path, "hf://me/model", "--license", "mit", "--scores", scores)
    for damage, message in (
        ({"model": {"digest": "0"}}, "scores of another model"),
        ({"scores": 1}, "no valid 'scores'"),
    ):
        scores.write_text(json.dumps(record | damage))
        check_refused(cli(*push), message)
    scores.write_text(json.dumps(record))
    assert cli(*push).code == 0
    assert "- CIDEr: 1.5000" in (served / "me" / "model" / hub.CARD).read_text()


def test_without_a_connection_nothing_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def wait(seconds: float) -> None:
        raise AssertionError(f"waits {seconds} s")

    url = "http://127.0.0.1:9/me/model"  # a port on which nothing listens
    monkeypatch.setattr("huggingface_hub.hf_hub_url", lambda *_, **__: url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("time.sleep", wait)
    for address in ("hf://me/nothing", "transformers:me/nothing"):
        with pytest.raises(UserError, match=f"^{address}: the hub refused or cannot be reached"):
            caption.load(address)


def test_what_is_not_there_or_not_trusted_or_needs_the_package(served: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match="hf://me/other"):
        caption.load("hf://me/other")
    (served / "me" / "model").mkdir(parents=True)
    with pytest.raises(UserError, match=r"hf://me/model has no model.safetensors"):
        caption.load("hf://me/model")
    model, encoder = captioner(), {"class_path": "antigravity.Encoder", "init_args": {}}
    described = {**checkpoint.section(model), "encoder": encoder}
    (served / "me" / "model" / hub.MODEL).write_bytes(to_safetensors(model.state_dict(), described))
    with pytest.raises(CheckpointError, match="--trust antigravity"):
        caption.load("hf://me/model")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="pip install huggingface_hub"):
        caption.load("hf://me/model")


@pytest.mark.parametrize("address", ["hf://me", "hf://me/model/more", "hf://me/mo del", "http://me/model"])
def test_addresses_that_are_none(address: str):
    assert hub.parse("hf://me/model@v1.0") == ("me/model", "v1.0")
    with pytest.raises(UserError, match="hf://owner/name"):
        hub.parse(address)


@pytest.mark.parametrize("kind", [errors.LocalEntryNotFoundError, ConnectionError, errors.HfHubHTTPError])
def test_no_connection(kind: type[Exception], served: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*args: object, **kwargs: object) -> None:
        raise failure(kind)

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refused)
    monkeypatch.setattr(Client, "create_repo", refused)
    for use in (lambda: caption.load("hf://me/model"), lambda: hub.push(captioner(), "hf://me/model")):
        with pytest.raises(UserError, match=r"^hf://me/model.* cannot be reached"):
            use()
