"""Make the settings of a consumer for tests that start none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from overnight_consumer.settings import Settings


def settings_of(home: Path = Path(), **changes: Any) -> Settings:
    """Return valid settings of one slot that serves `toys:double` from `default`."""
    plain: dict[str, Any] = {
        "broker": None,
        "home": home,
        "queues": ("default",),
        "methods": ("toys:double",),
        "commands": (),
        "per_point": False,
        "source": Path(__file__).with_name("toys"),
        "slots": 1,
        "cores": 2,
        "idle_exit_seconds": None,
        "grace_seconds": 5.0,
        "name": "tested",
    }
    return Settings(**(plain | changes))
