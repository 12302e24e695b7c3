"""Read the properties of a delivery, which a stranger may have filled with anything that AMQP has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# They travel on into the dead letters, and there all of them have to fit into one frame.
MOST_HEADERS = 50
LONGEST_TEXT = 1000


def text_of(value: object) -> str:
    """Return a property as text, an absent one as none."""
    if value is None:
        return ""
    if isinstance(value, bytes):  # not UTF-8, else it would be text already
        return value.decode("utf-8", "replace")[:LONGEST_TEXT]
    return str(value)[:LONGEST_TEXT]


def own_headers(headers: Mapping[Any, Any]) -> dict[str, str | int]:
    """Return what the publisher wrote, as small texts and integers; of the broker's own, only why it buried it."""
    own = {
        text_of(name)[:100]: int(value) if isinstance(value, int) else text_of(value)
        for name, value in list(headers.items())[:MOST_HEADERS]
        if not text_of(name).startswith("x-")
    }
    if "x-first-death-reason" in headers and "reason" not in own:
        own["reason"] = f"the broker: {text_of(headers['x-first-death-reason'])}"
        own["from_queue"] = text_of(headers.get("x-first-death-queue"))
    return own


def delivery_count(headers: Mapping[Any, Any]) -> int:
    """Return how often a quorum queue handed the message out before."""
    count = headers.get("x-delivery-count")
    return int(count) if isinstance(count, int) else 0  # pika hands out its own kind of int
