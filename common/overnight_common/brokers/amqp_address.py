"""Read a broker's URL and show it without its password."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from overnight_common.addresses import redact
from overnight_common.errors import BadInputError

_FORM = "it must look like amqp://user:password@host:5672/vhost (amqps:// for TLS)"
_DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


class Address:
    """Hold where a broker is and how to log in.

    Attributes:
        url: as given, with the password.
        text: what may be shown.
        vhost: virtual host, `/` by default.
        heartbeat_seconds: how long the link may be silent, unless the URL says it itself.
        sets_heartbeat: True if the URL says it itself.

    Raises:
        BadInputError: it is no AMQP URL; the password is not in the message.
    """

    def __init__(self, url: str, heartbeat_seconds: int) -> None:
        self.url = url
        self.heartbeat_seconds = heartbeat_seconds
        try:
            parts = urlsplit(url)
            if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
                raise ValueError(url)
            port = parts.port or _DEFAULT_PORTS[parts.scheme]
            self.sets_heartbeat = "heartbeat" in parse_qs(parts.query, strict_parsing=bool(parts.query))
        except ValueError:
            raise BadInputError(f"broker URL {redact(url)}: {_FORM}") from None
        self.vhost = unquote(parts.path[1:]) or "/"
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        tail = "" if self.vhost == "/" else "/" + self.vhost
        self.text = f"{parts.scheme}://{unquote(parts.username or 'guest')}@{host}:{port}{tail}"
