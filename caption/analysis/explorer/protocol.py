"""uvicorn's HTTP protocol with a limit of time for a request's headers."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose headers are not complete within `timeout_keep_alive`; uvicorn waits for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_until(self.loop.time() + self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        waiting = self.timeout_keep_alive_task
        super().data_received(data)
        if waiting is not None and (self.cycle is None or self.cycle.response_complete):
            self._wait_until(waiting.when())

    def _wait_until(self, time: float) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(time, self.timeout_keep_alive_handler)
