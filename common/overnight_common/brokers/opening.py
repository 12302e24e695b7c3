"""Choose the broker that an address means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from overnight_common.addresses import redact
from overnight_common.errors import BadInputError

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker

FILE_NAME = "broker.sqlite"
_KNOWN = (
    "known are amqp://USER:PASSWORD@HOST:PORT/VHOST and amqps://... for RabbitMQ, "
    "and embedded: or a folder such as ./farm for the broker without a server"
)


def open_broker(url: str | None, home: Path, *, max_message_bytes: int) -> Broker:
    """Return the broker that `url` names, not connected yet.

    None and `embedded:` mean the file in `home`, `embedded:FOLDER` and a path the one in that folder.

    Raises:
        BadInputError: the address is broken or of an unknown kind; passwords are not shown.
    """
    url = (url or "embedded:").strip()
    if url.startswith("embedded:"):
        folder = url.removeprefix("embedded:")
        return _embedded(Path(folder) if folder else home, max_message_bytes)
    if url.startswith(("amqp://", "amqps://")):
        _check(url)
        from overnight_common.brokers.rabbitmq import RabbitMQBroker  # a laptop without RabbitMQ pays nothing

        return RabbitMQBroker(url, max_message_bytes=max_message_bytes)
    if "://" not in url and url.startswith(("/", ".", "~")):
        return _embedded(Path(url), max_message_bytes)
    raise BadInputError(f"broker address {redact(url)!r} is of no known kind; {_KNOWN}")


def given_address(url: str, file: Path | None) -> str | None:
    """Return the address that was given as such or in a file; None for neither.

    A file keeps the password out of the process list and the environment.

    Raises:
        BadInputError: both were given, or the file holds no address.
    """
    if file is None:
        return url or None
    if url:
        raise BadInputError(
            "both --broker and --broker-file are given (or OVERNIGHT_BROKER and OVERNIGHT_BROKER_FILE are set): "
            "keep one"
        )
    try:
        lines = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadInputError(f"--broker-file {file} cannot be read: {reason}") from None
    if len(lines) != 1:
        raise BadInputError(f"--broker-file {file} must hold one address and nothing else; {_KNOWN}")
    return lines[0]


def _embedded(folder: Path, max_message_bytes: int) -> Broker:
    from overnight_common.brokers.embedded import (
        EmbeddedBroker,
    )  # nor does who only names a broker pay for one

    return EmbeddedBroker(folder.expanduser() / FILE_NAME, max_message_bytes=max_message_bytes)


def _check(url: str) -> None:
    """Find what is wrong with an AMQP address, without quoting a password as Python's messages do."""
    fault = ""
    try:
        parts = urlsplit(url)
        host, path = parts.hostname, parts.path
    except ValueError:
        host, path, fault = None, "", "it cannot be read as a URL"
    else:
        try:
            if parts.port == 0:
                fault = "its port is 0"
        except ValueError:
            fault = "its port is no number from 1 to 65535"
        if not host:
            fault = "it names no host"
        elif parts.username and parts.password is None:
            fault = "it names a user and no password"
        elif "/" in path[1:]:
            fault = "a / within the virtual host is written %2F"
        elif any(character.isspace() for character in unquote(host)):
            fault = "its host holds a space"
    if fault:
        raise BadInputError(f"broker address {redact(url)!r} is broken: {fault}; {_KNOWN}") from None
