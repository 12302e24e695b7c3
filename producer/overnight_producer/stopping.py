"""Tell a program that it is asked to stop."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_signals(on_stop: Callable[[], object]) -> Iterator[None]:
    """Call `on_stop`, in the running event loop, at each signal that asks the process to stop."""
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, on_stop)
    try:
        yield
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
