"""Serve `/metrics`, `/livez` and `/readyz` from a thread of their own, so that a stuck loop can be seen."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from overnight_common.errors import BadInputError

if TYPE_CHECKING:
    from types import TracebackType

    from overnight_common.metrics import Exposition

_log = logging.getLogger("overnight.metrics")
_REQUEST_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"

# Returns what is wrong, or an empty text.
Check = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Health:
    """Hold the two questions about a service; both are asked from the server's thread.

    Attributes:
        live: must it be restarted?
        ready: does it do its work now?
    """

    live: Check
    ready: Check


class MetricsServer:
    """Listen from the moment it is made until `close`.

    Args:
        address: where to listen, for example `127.0.0.1`, `0.0.0.0` or `::`.
        port: 0 takes any free one.
        exposition: what `/metrics` shows.
        health: what the other two ask.

    Attributes:
        url: where the figures are.

    Raises:
        BadInputError: the port is in use, or the address is none of this machine's.
    """

    def __init__(self, address: str, port: int, exposition: Exposition, health: Health) -> None:
        try:
            self._server = _Server(address, port, exposition, health)
        except (OSError, OverflowError) as error:
            raise BadInputError(
                f"--metrics-port {port}: nothing can be served at {_netloc(address, port)} ({error}); "
                "give another --metrics-port (0 takes any free one) or --metrics-address."
            ) from error
        self.url = f"http://{_netloc(address, self._server.server_address[1])}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a scraper that hangs must not hold up our end

    def __init__(self, address: str, port: int, exposition: Exposition, health: Health) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.exposition = exposition
        self.health = health
        super().__init__((address, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as the base has it
        _log.debug("a request from %s broke off", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._show_metrics()
            case "/livez":
                self._say_health(self.server.health.live())
            case "/readyz":
                self._say_health(self.server.health.live() or self.server.health.ready())
            case _:
                self._send(HTTPStatus.NOT_FOUND, b"there are /metrics, /livez and /readyz\n", _TEXT)

    def _show_metrics(self) -> None:
        try:
            body, content_type = self.server.exposition.page(self.headers.get("Accept", ""))
        except Exception:
            _log.warning("the figures cannot be shown", exc_info=True)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, b"the figures cannot be shown; see the log\n", _TEXT)
            raise
        self._send(HTTPStatus.OK, body, content_type)

    def _say_health(self, fault: str) -> None:
        status = HTTPStatus.SERVICE_UNAVAILABLE if fault else HTTPStatus.OK
        self._send(status, f"{fault or 'ok'}\n".encode(), _TEXT)

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - as the base has it
        _log.debug(format, *arguments)


def _netloc(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
