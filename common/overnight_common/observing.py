"""Let others look on without the power to harm: what an observer raises is said once and goes no further."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("overnight.metrics")
_Observer = TypeVar("_Observer")


def shielded(observer: _Observer) -> _Observer:
    """Return an observer with the same hooks, each of which returns None and never raises."""
    return cast("_Observer", _Shield(observer))


class _Shield:
    def __init__(self, observer: object) -> None:
        for name in dir(type(observer)):
            hook = getattr(observer, name)
            if callable(hook) and not name.startswith("_"):
                setattr(self, name, _harmless(hook))


def _harmless(hook: Callable[..., Any]) -> Callable[..., None]:
    said = False

    def call(*arguments: Any) -> None:
        nonlocal said
        try:
            hook(*arguments)
        except Exception:  # noqa: BLE001 - hooks only observe: none of their faults may cost a task
            if not said:
                said = True
                _log.warning("metrics are not true from here on: %s failed", hook, exc_info=True)

    return call
