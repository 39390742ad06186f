"""Files are read in one place: regular ones only, within bounds, and never waited for."""

from __future__ import annotations

import io
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Ran
from helpers.tiny_captioner import photo

from caption.core.errors import DataError, UserError
from caption.core.runtime import inputs
from caption.core.runtime.inputs import (
    CONFIGURATION,
    MEMBER,
    MODEL,
    PHOTO,
    STREAM,
    TEXT,
    Kind,
    open_input,
    read_input,
    read_stream,
)
from caption.data.boxes import read_boxes
from caption.data.features.store import FeatureStore
from caption.data.photos import open_image
from caption.data.text_files import read_json, read_text
from caption.models.importers import sgrvinod

pytestmark = pytest.mark.timeout(60)
Cli = Callable[..., Ran]


def make(node: str, path: Path) -> Path:
    """Something at a path that is not a regular file; a device is one of the machine's, by a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if node == "a pipe":
        os.mkfifo(path)
    elif node == "a socket":
        bound = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(path.parent)  # names of sockets are short
        bound.bind(path.name)
        os.chdir(here)
    elif node == "a device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path


@pytest.mark.parametrize("node", ["a pipe", "a socket", "a device", "a folder"])
def test_only_regular_files_are_opened(node: str, tmp_path: Path):
    path = make(node, tmp_path / "x")
    for read in (lambda: open_input(path, STREAM), lambda: read_input(path, TEXT), lambda: read_text(path)):
        with pytest.raises(DataError, match=rf"x' is {node}"):
            read()


def test_what_a_download_leaves_in_place_of_a_file_is_named(tmp_path: Path):
    path = tmp_path / "x"
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"
    page = b"\n <!DOCTYPE html><html>Sign in</html>"
    for kind in (CONFIGURATION, TEXT, PHOTO, MEMBER, MODEL):
        said = f"a web page, and not {kind.name}. Download"
        for content, complaint in ((pointer, "Run git lfs pull"), (page, said)):
            path.write_bytes(content)
            with pytest.raises(kind.error, match=complaint):
                open_input(path, kind)
            assert read_input(path, STREAM) == content  # our own pages are compared


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path: Path, monkeypatch):
    """It comes between the first look at the file and its opening."""
    path = tmp_path / "x"
    path.write_text("a")
    looked = os.stat(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(inputs.os, "stat", lambda _: looked)
    with pytest.raises(DataError, match="x' is a pipe"):
        open_input(path, STREAM)


def test_no_more_is_read_than_a_file_may_have(tmp_path: Path):
    kind = Kind("a note", 10, DataError)
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    assert read_input(path, kind) == b"0123456789"
    path.write_bytes(b"0123456789!")
    with pytest.raises(DataError, match=r"x'.*10 bytes"):
        read_input(path, kind)

    class Endless(io.RawIOBase):
        taken = 0

        def read(self, size: int = -1) -> bytes:
            self.taken += size
            return b"x" * size

    stream: Any = Endless()
    with pytest.raises(DataError, match="standard input has more than 10 bytes"):
        read_stream(stream, "standard input", kind)
    assert stream.taken == 11


def test_what_does_not_fit_into_the_memory_is_a_sentence(cli: Cli, tmp_path: Path, monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise MemoryError

    stream: Any = type("Large", (io.RawIOBase,), {"read": fail})()
    with pytest.raises(DataError, match="standard input does not fit into the memory"):
        read_stream(stream, "standard input", TEXT)
    path = tmp_path / "x.json"
    path.write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr("json.loads", fail)
        with pytest.raises(DataError, match=r"x.json' is not JSON: its values do not fit into the memory"):
            read_json(path)
    monkeypatch.setattr("caption.cli.describe.command.input_photos", fail)
    ran = cli("describe", tmp_path)
    assert ran.code == 1
    assert ran.err == "caption: the memory is too small for this: give smaller or fewer files\n"


# -- every verb ------------------------------------------------------------------------------------------------


def test_a_pipe_in_a_folder_of_photos_is_named_and_the_others_are_captioned(
    cli: Cli, model: Path, tmp_path: Path
):
    folder = tmp_path / "photos"
    for name, kind in (("a.jpg", "a pipe"), ("b", "a pipe"), ("c.png", "a device"), ("d.jpg", "a socket")):
        make(kind, folder / name)
    photo().save(folder / "e.png")
    ran = cli("describe", folder, "--model", model)
    assert ran.code == 1
    assert ran.out.startswith(f"{folder}/e.png\t")
    named = re.findall(r"/(\w\.\w+)' is (a \w+), and only regular files", ran.err)
    assert named == [("a.jpg", "a pipe"), ("c.png", "a device"), ("d.jpg", "a socket")]
    assert f"'{folder}': left out b (subfolders, or not images)" in ran.err


@pytest.mark.parametrize(
    "command",
    [
        "describe {0}/node --model {model}",
        "describe {0} --model {0}/node",
        "score --references {0}/text.json --candidates {0}/node",
        "check {0}/node.yaml",
        "test --ckpt_path {0}/node",
    ],
)
def test_commands_name_a_pipe(command: str, cli: Cli, model: Path, tmp_path: Path):
    """Nothing else reads, see tests/project/test_file_access.py."""
    for name in ("node", "node.yaml"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "text.json").write_text('{"a.jpg": ["a cat"]}')
    photo().save(tmp_path / "photo.png")
    ran = cli(*command.format(tmp_path, model=model).split())
    assert ran.code in (1, 2), ran.err
    named = rf"'?{tmp_path}/node(\.\w+)?'? is a pipe, and only regular files are read"
    assert re.search(named, ran.err), ran.err


def test_readers_name_a_device(tmp_path: Path):
    readers: dict[str, Callable[[Path], Any]] = {
        "features-00000.safetensors": lambda path: FeatureStore(path.parent),
        "train.json": read_boxes,
        "photo.jpg": open_image,
        "state.pth": lambda path: sgrvinod.read(str(path), "map.json"),
    }
    for name, read in readers.items():
        with pytest.raises(UserError, match=rf"{name}' is a device"):
            read(make("a device", tmp_path / name))
