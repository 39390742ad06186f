"""The explorer's server in a thread, and requests to it."""

from __future__ import annotations

import http.client
import json
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from caption.analysis.explorer.server import application
from caption.analysis.explorer.service import Service


@contextmanager
def serving(service: Service, **options: Any) -> Iterator[int]:
    """The port of a server that runs within the context."""
    app = application(service, ["127.0.0.1"], **options)
    config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(20)


def send(
    port: int, path: str, body: bytes | dict[str, Any] | None = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    """The status and the JSON of an answer: to POST with a body, else to GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    connection.request("GET" if body is None else "POST", path, content, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    is_json = answer.headers.get("content-type") == "application/json"
    return answer.status, json.loads(text) if is_json else {"text": text.decode("latin-1")}


def png_header(width: int, height: int) -> bytes:
    """A PNG that says how large it is, and ends."""
    content = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    end = b"IDAT"
    chunks = [
        struct.pack(">I", len(each) - 4) + each + struct.pack(">I", zlib.crc32(each))
        for each in (content, end)
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
