"""The explorer as a local page: Starlette routes around a `Service`.

Nothing is written to disk, and only the last photos are kept in memory. The sizes of requests, photos and changes are
limited, and requests of other websites are refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import jsonschema as jsonschema  # checks requests
from anyio import CancelScope
from anyio.from_thread import check_cancelled
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from caption.analysis.explorer.service import GoneError, Service
from caption.core.errors import CheckpointError, UserError
from caption.core.runtime.safe_loading import check_plain
from caption.core.version import package_version
from caption.visualize.page import live_html
from caption.visualize.page_script import page_description

LARGEST_PHOTO = 20_000_000
LARGEST_REQUEST = 1_000_000
WAITING = 8
NOWHERE = "There is nothing at this address: the page is at /, its description at /api/openapi.json."
TITLE = "Make it look elsewhere"


class BusyError(Exception):
    """The queue of waiting requests is full."""


class CancelledError(Exception):
    """The client has disconnected, or the server stops."""


ANSWERS: Mapping[type[Exception], tuple[int, str]] = {
    BusyError: (503, "Many requests are waiting for the model: try again in a few seconds."),
    GoneError: (404, ""),
    UserError: (400, ""),
    CancelledError: (499, "The request was cancelled."),
    ClientDisconnect: (499, "The request was cancelled."),
    MemoryError: (413, "The photo is too large for the memory. Scale it down."),
}
"""Status code and message for each exception; "" = the exception's own message."""


def application(
    service: Service,
    hosts: list[str],
    *,
    largest_photo: int = LARGEST_PHOTO,
    waiting: int = WAITING,
) -> Starlette:
    """The page and its JSON endpoints.

    Args:
        service: the models.
        hosts: names under which the server may be addressed; ["*"] = any. Other names are refused: a website could let
            its own name point here.
        largest_photo: bytes of a photo's file.
        waiting: requests that may wait while one is answered; further ones are refused with status 503.
    """
    places, model = asyncio.Semaphore(1 + waiting), asyncio.Lock()
    settings = {"models": list(service.models), "largest_bytes": largest_photo}
    page = live_html(TITLE, {**settings, "examples": service.examples})
    about = f"Captions with attention that is moved by hand. Models: {', '.join(service.models)}."
    info = {"title": TITLE, "version": package_version(), "description": about}
    description = {**page_description(), "info": info}

    async def answered(request: Request, largest: int, job: Callable[[bytes], dict[str, Any]]) -> Response:
        """Run `job` in a thread on a request's body of at most `largest` bytes, one job at a time.

        When the client disconnects, `check_cancelled` stops the job.
        """
        _check_origin(request)
        try:
            body = await _receive(request, largest)
            if places.locked():
                raise BusyError
            async with places, _cancelled_on_disconnect(request), model:  # held until the thread ends
                return JSONResponse(await run_sync(job, body))
        except asyncio.CancelledError:  # the server is stopping
            pass
        raise CancelledError  # also after a disconnect, which ends the work without an exception

    async def photos(request: Request) -> Response:
        name = request.query_params.get("name", "photo")
        return await answered(request, largest_photo, lambda body: service.add(body, name, check_cancelled))

    async def captions(request: Request) -> Response:
        return await answered(
            request, LARGEST_REQUEST, lambda body: service.change(_json(body), check_cancelled)
        )

    async def example(request: Request) -> Response:
        number = request.query_params.get("number", "0")
        return Response(service.example(int(number[-6:]) if number.isdecimal() else 0))

    async def home(request: Request) -> Response:
        return HTMLResponse(page, headers={"Cache-Control": "no-store", "X-Frame-Options": "DENY"})

    async def openapi(request: Request) -> Response:
        return JSONResponse(description)

    return Starlette(
        routes=[
            Route("/", home),
            Route("/api/openapi.json", openapi),
            Route("/api/photos", photos, methods=["POST"]),
            Route("/api/captions", captions, methods=["POST"]),
            Route("/api/example", example),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
        exception_handlers=dict.fromkeys((HTTPException, *ANSWERS), _refused),
    )


def _check_origin(request: Request) -> None:
    """Refuse requests of another website's page."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise HTTPException(403, "Only this server's own page may send requests.")


async def _receive(request: Request, largest: int) -> bytes:
    """The body of a request, of at most `largest` bytes."""
    too_large = HTTPException(413, f"More than {largest / 1e6:g} MB were sent: scale the photo down.")
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > largest:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > largest:
            raise too_large
    return bytes(body)


def _json(body: bytes) -> Any:
    try:
        value = json.loads(body)
        check_plain(value)
    except CheckpointError as error:
        raise UserError(f"the request cannot be used: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError("the request is not JSON") from error
    return value


@asynccontextmanager
async def _cancelled_on_disconnect(request: Request) -> AsyncIterator[None]:
    """Cancel the work inside when the client disconnects."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    with CancelScope() as scope:
        watcher = asyncio.ensure_future(disconnected())
        watcher.add_done_callback(lambda _: scope.cancel())
        try:
            yield
        finally:
            watcher.cancel()


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        status, message = error.status_code, NOWHERE if error.status_code == 404 else error.detail
    else:
        status, message = next(ANSWERS[cls] for cls in type(error).__mro__ if cls in ANSWERS)
    headers = {"Retry-After": "2"} if status == 503 else None
    return JSONResponse({"error": message or str(error)}, status, headers)
