"""Models on the Hugging Face Hub, with its own client against a hub of the test's, which keeps files in a folder."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import Ran
from helpers.tiny_captioner import captioner, photo

import caption
from caption import checkpoint
from caption.checkpoint.files import to_safetensors
from caption.errors import CheckpointError, UserError
from caption.models import hub

constants = pytest.importorskip("huggingface_hub.constants")
COMMIT = "0" * 40
Cli = Callable[..., Ran]


class Handler(BaseHTTPRequestHandler):
    """As much of the hub's interface as its client needs for one repository after another."""

    folder: Path

    def do_GET(self) -> None:
        owner, name, _, _, *rest = [*self.path.strip("/").split("/"), "", "", "", ""]
        file = self.folder / owner / name / "/".join(rest).strip("/")
        if not (self.folder / owner / name).is_dir():
            return self.answer(404, {"X-Error-Code": "RepoNotFound"})
        if not file.is_file():
            return self.answer(404, {"X-Error-Code": "EntryNotFound"})
        content = file.read_bytes()
        tags = {"ETag": f'"{sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return self.answer(200, tags, content)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            request = json.loads(body)
            repository = f"{request['organization']}/{request['name']}"
            (self.folder / repository).mkdir(parents=True, exist_ok=True)
            return self.answer_json({"url": f"https://huggingface.co/{repository}"})
        if self.path == "/api/validate-yaml":
            return self.answer_json({"errors": [], "warnings": []})
        _, _, owner, name, what, _ = self.path.strip("/").split("/")
        if what == "preupload":
            names = [file["path"] for file in json.loads(body)["files"]]
            return self.answer_json(
                {"files": [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]}
            )
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                file = self.folder / owner / name / line["value"]["path"]
                file.write_bytes(base64.b64decode(line["value"]["content"]))
        url = f"https://huggingface.co/{owner}/{name}/commit/{COMMIT}"
        return self.answer_json({"commitUrl": url, "commitOid": COMMIT, "success": True})

    def answer_json(self, content: Any) -> None:
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def answer(self, code: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(code)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder with the hub's repositories, owner/name."""
    folder = tmp_path / "hub"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Local", (Handler,), {"folder": folder}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield folder
    server.shutdown()
    server.server_close()


def test_a_model_comes_back_from_the_hub(served: Path):
    model = captioner()
    assert hub.push(model, "hf://me/model").endswith(f"me/model/commit/{COMMIT}")
    assert {file.name for file in (served / "me" / "model").iterdir()} == {hub.MODEL, hub.CARD}
    again = caption.load("hf://me/model")
    assert again.description() == model.description()
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_the_card_says_how_to_load_it_and_a_card_of_the_owner_stays(served: Path):
    hub.push(captioner(), "hf://me/model")
    card = served / "me" / "model" / hub.CARD
    assert 'caption.load("hf://me/model")' in card.read_text()
    assert "caption.attention.ScoredAttention" in card.read_text()
    card.write_text("My own words.")
    hub.push(captioner(), "hf://me/model")
    assert card.read_text() == "My own words."


def test_the_command_line(cli: Cli, served: Path, tmp_path: Path):
    checkpoint.save(captioner(), tmp_path / "model.ckpt")
    photo().save(tmp_path / "photo.png")
    ran = cli("push", tmp_path / "model.ckpt", "hf://me/model", "--precision", "float16", "--private")
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert f"hf://me/model: https://huggingface.co/me/model/commit/{COMMIT}" in ran.err
    ran = cli("describe", tmp_path / "photo.png", "--model", "hf://me/model")
    assert ran.code == 0, ran.err
    assert ran.out.strip()


def test_a_model_from_the_hub_is_not_trusted_more_than_others(served: Path, tmp_path: Path):
    model = captioner()
    encoder = {"class_path": "antigravity.Encoder", "init_args": {}}
    described = {**checkpoint.section(model), "encoder": encoder}
    (served / "me" / "model").mkdir(parents=True)
    (served / "me" / "model" / hub.MODEL).write_bytes(to_safetensors(model.state_dict(), described))
    with pytest.raises(CheckpointError, match="--trust antigravity"):
        caption.load("hf://me/model")


def test_what_is_not_there(served: Path):
    with pytest.raises(UserError, match="hf://me/other does not exist, or is private"):
        caption.load("hf://me/other")
    (served / "me" / "empty").mkdir(parents=True)
    with pytest.raises(UserError, match=r"hf://me/empty has no model.safetensors"):
        caption.load("hf://me/empty")


@pytest.mark.parametrize(
    "address", ["hf://me", "hf://me/model/more", "hf://", "hf://me/mo del", "http://me/model"]
)
def test_addresses_that_are_none(address: str):
    assert hub.parse("hf://me/model@v1.0") == ("me/model", "v1.0")
    with pytest.raises(UserError, match="write hf://owner/name"):
        hub.parse(address)


def test_no_connection(served: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="cannot be reached"):
        caption.load("hf://me/model")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="pip install huggingface_hub"):
        caption.load("hf://me/model")


def test_a_connection_that_fails_is_a_sentence(served: Path, monkeypatch: pytest.MonkeyPatch):
    class ConnectError(Exception):
        """Of the package that the hub's client uses for HTTP, httpx or another one."""

    def refused(*args: object, **kwargs: object) -> None:
        raise ConnectError("[Errno 111] Connection refused")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refused)
    with pytest.raises(UserError, match=r"hf://me/model: the hub refused or cannot be reached: .*refused"):
        hub.push(captioner(), "hf://me/model")
