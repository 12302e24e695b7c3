"""Ask a running consumer whether it is connected and consuming: `overnight-consumer check`."""

from __future__ import annotations

import http.client
from http import HTTPStatus

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens is not where we ask
_MOST_BYTES = 4096


def fault_of(address: str, port: int, timeout_seconds: float) -> str:
    """Return why a consumer does not do its work, or an empty text if it does.

    Args:
        address: what the consumer was given as `--metrics-address`.
        port: its `--metrics-port`.
        timeout_seconds: how long the answer may take.
    """
    host = _EVERYWHERE.get(address, address)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        words = response.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"no consumer answers at {host}, port {port}: {error or type(error).__name__}"
    finally:
        connection.close()
    return "" if response.status == HTTPStatus.OK else words or f"status {response.status}"
