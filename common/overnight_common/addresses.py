"""Know the usual address, and make any fit to be shown: whatever might be a password in it is replaced by `***`."""

from __future__ import annotations

import re
from urllib.parse import unquote

_HIDDEN = "***"
_SECRET_KEY = re.compile("pass|pwd|secret|token|credential", re.IGNORECASE)
_PLAIN_HOST = re.compile(r"(\[[^\]]*\]|[^:/?#]*)(:\d*)?(?=[/?#]|$)")

LOOPBACK = "127.0.0.1"


def redact(url: str) -> str:
    """Return an address without its passwords.

    Works on broken addresses too. Where it is not clear what a part is, it is hidden.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    if "@" in rest:
        login, _, place = rest.rpartition("@")  # the last one: a password may hold any character
        user, colon, _ = login.partition(":")
        rest = f"{user}:{_HIDDEN}@{place}" if colon else rest
    elif separator and not _PLAIN_HOST.match(rest):
        rest = rest.partition(":")[0] + f":{_HIDDEN}"  # no port, so perhaps a login whose host was forgotten
    return _without_query_secrets(f"{scheme}{separator}{rest}")


def _without_query_secrets(url: str) -> str:
    place, mark, query = url.partition("?")
    fields = [_without_value(field) for field in query.split("&")]
    return place + mark + "&".join(fields)


def _without_value(field: str) -> str:
    key, equals, _ = field.partition("=")
    return f"{key}={_HIDDEN}" if equals and _SECRET_KEY.search(unquote(key)) else field
