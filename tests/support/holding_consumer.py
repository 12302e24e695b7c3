"""Be a consumer that takes messages, says so, and settles none: `URL QUEUE PREFETCH HOME`, to be killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from overnight_common.brokers.opening import open_broker


async def hold(url: str, queue: str, prefetch: int, home: Path) -> None:
    broker = open_broker(url, home, max_message_bytes=1 << 23)
    await broker.open(15)
    held = []

    def take(delivery: object) -> None:
        held.append(delivery)
        print(f"holding {len(held)}", flush=True)

    await broker.subscribe(queue, prefetch, take, lambda: None)
    print("subscribed", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
