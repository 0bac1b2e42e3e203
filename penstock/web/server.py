"""The server of a page: a thread with an HTTP server on 127.0.0.1."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import uvicorn

from penstock.errors import ResourceError
from penstock.web.app import PageApp
from penstock.web.monitor import PageMonitor
from penstock.web.sources import PageSource

_ADDRESS = "127.0.0.1"


class _QuietServer(uvicorn.Server):
    """A server that sleeps until there is a request. That of uvicorn looks ten times a second whether it should end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._ended.wait()

    def end(self) -> None:
        self.should_exit = True
        self._ended.set()


class PageServer:
    """A page that is served until `close`. Use it as a `with` block, or keep it."""

    def __init__(
        self, source: PageSource, port: int, interval: float, save: Callable[[bytes], object] | None = None
    ) -> None:
        self._socket = _bind(port)
        self.port: int = self._socket.getsockname()[1]
        self.token = secrets.token_urlsafe(18)
        self._source = source
        self.monitor = PageMonitor(source, interval, save)
        try:
            self.monitor.start()
        except BaseException:
            self._socket.close()
            raise
        self._app: PageApp | None = None
        self._server: _QuietServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-page-server", daemon=True)
        self._thread.start()
        self._ready.wait(10)

    @property
    def url(self) -> str:
        """The address with the token, for the browser of the person who may change queries."""
        return f"{self.address}#token={self.token}"

    @property
    def address(self) -> str:
        """The address without the token: a page that only shows."""
        return f"http://{_ADDRESS}:{self.port}/"

    def __repr__(self) -> str:
        return f"<penstock page at {self.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._app = PageApp(self.monitor, self.token)
        config = uvicorn.Config(
            self._app.build(), log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=2,
            date_header=False,
        )  # fmt: skip
        self._server = _QuietServer(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._loop.call_later(0.05, self._ready.set)
        await self._server.serve(sockets=[self._socket])

    def wait(self) -> None:
        """Serve until the process is interrupted."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        """End the page: the port is free, and nothing reads the source any more."""
        self.monitor.close()
        close_source: Any = getattr(self._source, "close", None)
        if close_source is not None:
            close_source()
        if self._loop is not None and self._server is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join(5)
        self._socket.close()

    def _stop(self) -> None:
        if self._app is not None and self._server is not None:
            self._app.close()
            self._server.end()


def _bind(port: int) -> socket.socket:
    """A socket on 127.0.0.1; uvicorn would end the process if the port is in use."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        raise ResourceError("BAD_PORT", f"a port is a number from 0 to 65535, not {port!r}; 0 takes a free one")
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((_ADDRESS, port))
        found.listen(128)
    except OSError as error:
        found.close()
        message = f"port {port} of {_ADDRESS} cannot be used: {error.strerror}; name another one, or 0 for a free one"
        raise ResourceError("PORT_IN_USE", message, port=port) from error
    return found
