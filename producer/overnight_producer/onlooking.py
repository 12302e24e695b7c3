"""Let somebody look on while jobs are driven, if that is wanted."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from overnight_producer.driving.observer import NOBODY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from overnight_common.brokers.base import Broker
    from overnight_producer.driving.observer import DriveObserver
    from overnight_producer.options import Driving


@asynccontextmanager
async def onlooking(
    driving: Driving, broker: Broker, say: Callable[[str], None]
) -> AsyncIterator[DriveObserver]:
    """Yield the observer for each driver of this process; `broker` is not open yet.

    Raises:
        BadInputError: figures are wanted and cannot be served.
    """
    if driving.metrics_port is None:
        yield NOBODY
        return
    from overnight_producer.metrics import watched  # who is not watched pays nothing

    async with watched(broker, driving.metrics_address, driving.metrics_port, say) as onlooker:
        yield onlooker
