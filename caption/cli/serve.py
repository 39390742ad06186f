"""`caption serve`: a local page on which you move a model's attention and read how the sentence changes."""

from __future__ import annotations

import argparse
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import (
    add_device,
    add_transformers,
    add_trust,
    of_transformers,
    whole_number,
)
from caption.cli.exit_codes import DONE
from caption.core.errors import UserError, optional_package
from caption.core.runtime.signals import stopping_in_order

if TYPE_CHECKING:
    from caption.captioner import Captioner

HELP = """\
Serve a page on which you move a model's attention: drop a photo, choose a word, click or paint where it should look,
and read how the rest of the sentence changes.

  caption serve                               the installed photo model, at http://127.0.0.1:8000/
  caption serve --model shapes                on generated scenes
  caption serve --model shapes --model shapes-hard     two models side by side

Photos stay in memory, the last 16 of them or 40 megapixels; nothing is written to disk. Programs can use the endpoints
of the page: /api/openapi.json describes them. Needs pip install 'show-attend-and-tell[serve]'.
"""

LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]
MOST_MODELS = 4


def main(options: argparse.Namespace) -> int:
    """Run `caption serve`."""
    with optional_package("caption serve", "'show-attend-and-tell[serve]'"):
        import uvicorn

        from caption.analysis.explorer.server import application
    from caption.analysis.explorer.service import Service
    from caption.models.model_zoo import PHOTO_MODEL

    sock = _bound(options.host, options.port)
    try:
        models = _models(options.model or [PHOTO_MODEL], options)
        app = application(Service(models), _hosts(sock))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=3, limit_concurrency=200
        )
        sock.listen()  # a program that reads the address may connect at once
        host = f"[{options.host}]" if ":" in options.host else options.host
        print(f"http://{host}:{sock.getsockname()[1]}/", flush=True)
        server = uvicorn.Server(config)

        def stop() -> None:
            server.should_exit = True

        with stopping_in_order(stop):
            server.run(sockets=[sock])
    finally:
        sock.close()
    return DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption serve`."""
    add = parser.add_argument
    help_ = (
        "a model's file, or an installed model; if repeated, models are shown side by side (default: photos)"
    )
    add("--model", metavar="CKPT|NAME", action="append", default=[], help=help_)
    help_ = "address to listen on (default 127.0.0.1, only this computer); there is no password"
    add("--host", metavar="ADDRESS", default="127.0.0.1", help=help_)
    help_ = "port (default 8000); 0 = any free one"
    add("--port", metavar="N", type=whole_number(0, 65535), default=8000, help=help_)
    add_device(parser)
    add_transformers(parser)
    add_trust(parser)


def _models(names: list[str], options: argparse.Namespace) -> dict[str, Captioner]:
    from caption.analysis.lens.file import attach_lens, lens_path
    from caption.attention.map_hooks import attentions
    from caption.models.model_zoo import load

    if len(names) > MOST_MODELS:
        raise UserError(
            f"--model is given {len(names)} times: at most {MOST_MODELS} models are shown side by side"
        )
    models: dict[str, Captioner] = {}
    for name in names:
        short = Path(name).stem
        captioner = load(name, options.device, options.trust, **of_transformers(options))
        if (path := lens_path(name)).is_file():
            attach_lens(captioner, path)
        attentions(captioner.decoder)  # raises for a model without attention
        models[name if short in models else short] = captioner
    return models


def _hosts(sock: socket.socket) -> list[str]:
    """The host names that requests may use; ["*"] = any, if the server is not only for this computer."""
    address = sock.getsockname()[0]
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        # A browser writes ::ffff:127.0.0.1 in hexadecimal.
        mapped = [f"[{address}]", f"[::ffff:{int(ip) >> 16 & 0xFFFF:x}:{int(ip) & 0xFFFF:x}]"]
        return [*LOOPBACK, *mapped] if ip.ipv4_mapped.is_loopback else ["*"]
    return [*LOOPBACK, address] if ip.is_loopback else ["*"]


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        reason = error.strerror or error
        raise UserError(f"{host} port {port} cannot be used: {reason}. --port 0 takes a free one.") from error
    return sock
