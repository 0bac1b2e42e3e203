"""The web application of the page: static files, server-sent events, details, controls and metrics.

Law: it answers only requests that name 127.0.0.1 or localhost as their host, and no other origin. A control needs the
token of this start. Nothing from outside is loaded: the content security policy allows only this server.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request as WebRequest
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as ASGIMessage

from penstock.errors import PenstockError
from penstock.spark.requests import decode_request
from penstock.web.monitor import Message, PageMonitor
from penstock.web.prometheus import format_metrics

STATIC = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_LARGEST_BODY = 1 << 20
_LONGEST_QUEUE = 20
_KEEP_ALIVE_SECONDS = 15.0
_PLACE = re.compile(r" ?\(line (\d+), column (\d+)\)\n[^\n]*\n\s*(\^*)")


def describe_error(error: PenstockError) -> dict[str, Any]:
    """An error for the page: its condition, its message, and the place in the text if it has one."""
    place = _PLACE.search(error.message)
    said = {"condition": error.condition, "message": error.message, "line": None, "column": None, "width": 1}
    if place is not None:
        said["message"] = error.message[: place.start()] + error.message[place.end() :]
        said |= {"line": int(place[1]), "column": int(place[2]), "width": max(1, len(place[3]))}
    return said


def _refuse(status: int, condition: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"condition": condition, "message": message, "line": None}}, status)


_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LocalOnly:
    """Refuses foreign hosts and origins, and sets the headers of every answer. It adds nothing to events."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = _refuse_foreign(Headers(scope=scope)) if scope["type"] == "http" else None
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        async def send_with_headers(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _refuse_foreign(headers: Headers) -> Response | None:
    """The answer to a request for another host, or from a page of another origin; None for one that is allowed."""
    host = headers.get("host", "").rsplit(":", 1)[0]
    origin = headers.get("origin")
    if host not in _HOSTS:
        return _refuse(403, "FOREIGN_HOST", f"this page answers to 127.0.0.1 and localhost, not to {host!r}")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return _refuse(403, "FOREIGN_ORIGIN", f"a page of {origin} may not read or control this one")
    return None


class PageApp:
    """The routes of one page."""

    def __init__(self, monitor: PageMonitor, token: str) -> None:
        self._monitor = monitor
        self._token = token
        self._queues: set[asyncio.Queue[Message | None]] = set()

    def build(self) -> Starlette:
        routes = [
            Route("/", self._send_page),
            Route("/api/events", self._stream_events),
            Route("/api/graph", self._send_graph),
            Route("/api/query", self._send_query),
            Route("/api/control", self._control, methods=["POST"]),
            Route("/metrics", self._send_metrics),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        return Starlette(routes=routes, middleware=[Middleware(LocalOnly)])

    def close(self) -> None:
        """End the streams of events; called in the loop of the server."""
        for queue in self._queues:
            _put(queue, None)

    async def _send_page(self, _request: WebRequest) -> Response:
        return FileResponse(STATIC / "index.html")

    async def _send_metrics(self, _request: WebRequest) -> Response:
        text = format_metrics(self._monitor.status)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _send_graph(self, request: WebRequest) -> Response:
        return await self._answer(self._monitor.encode_query_graph, request.query_params.get("query", ""))

    async def _send_query(self, request: WebRequest) -> Response:
        return await self._answer(self._monitor.source.describe_query, request.query_params.get("name", ""))

    async def _control(self, request: WebRequest) -> Response:
        given = request.headers.get("x-penstock-token", "")
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            message = "changes need the token of this start: open the address that the program printed"
            return _refuse(403, "WRONG_TOKEN", message)
        body = await request.body()
        if len(body) > _LARGEST_BODY:
            return _refuse(413, "BAD_REQUEST", "a request has at most a megabyte")
        try:
            entry = await request.json()
        except ValueError as error:
            return _refuse(400, "BAD_REQUEST", f"a request is JSON: {error}")
        return await self._answer(self._execute, entry)

    def _execute(self, entry: Any) -> dict[str, Any]:
        result = dict(self._monitor.source.execute(decode_request(entry)))
        with suppress(PenstockError):
            self._monitor.read_now()
        return result

    async def _answer(self, function: Callable[[Any], dict[str, Any]], argument: Any) -> Response:
        """Call a function in a thread, because it may wait for the engine."""
        try:
            return JSONResponse(await run_in_threadpool(function, argument))
        except PenstockError as error:
            return JSONResponse({"error": describe_error(error)}, 400)

    async def _stream_events(self, _request: WebRequest) -> Response:
        return StreamingResponse(self._iter_events(), media_type="text/event-stream")

    async def _iter_events(self) -> AsyncIterator[str]:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Message | None](_LONGEST_QUEUE)

        def listen(message: Message) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(_put, queue, message)

        self._queues.add(queue)
        try:
            for name, data in self._monitor.subscribe(listen):
                yield f"event: {name}\ndata: {data}\n\n"
            while True:
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                        message = await queue.get()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if message is None:
                    return
                begun = time.thread_time()
                yield f"event: {message[0]}\ndata: {message[1]}\n\n"  # continues when it is sent
                self._monitor.add_sending(time.thread_time() - begun)
        finally:
            self._queues.discard(queue)
            self._monitor.unsubscribe(listen)


def _put(queue: asyncio.Queue[Message | None], message: Message | None) -> None:
    """A slow page loses samples, not the newest one."""
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(message)
