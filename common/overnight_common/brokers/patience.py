"""Ask a broker again when the link breaks under the question: it comes back by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from overnight_common.errors import BrokerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

AGAIN_SECONDS = 0.2


async def patiently(ask: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Return the answer to `ask()`, asked again for so many seconds while nobody can be reached.

    Raises:
        BrokerUnreachableError: still nobody. What the broker itself refuses is raised at once.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    while True:
        try:
            return await ask()
        except BrokerUnreachableError:
            if loop.time() >= give_up:
                raise
            await asyncio.sleep(AGAIN_SECONDS)
