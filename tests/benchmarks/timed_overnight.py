"""Be the command line `overnight`, and write down when the first task was published and the last reply acked.

    python timed_overnight.py TIMES.json run METHOD --data ...

The driver acks a reply right after the commit that holds its result, so that the last ack ends "first publish to
last commit". The clock is the one that all processes share. Also written: the largest resident memory.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from overnight_common.brokers.embedded import EmbeddedBroker
from overnight_common.brokers.rabbitmq import RabbitMQBroker
from overnight_producer.cli import main

_seen: dict[str, float] = {}


def _watch(broker: Any) -> None:
    publish, ack = broker.publish, broker.ack

    def first_publish(self: Any, *arguments: Any) -> None:
        _seen["first_publish"] = time.monotonic()
        broker.publish = publish
        publish(self, *arguments)

    def latest_ack(self: Any, delivery: Any) -> None:
        _seen["last_commit"] = time.monotonic()
        ack(self, delivery)

    broker.publish, broker.ack = first_publish, latest_ack


if __name__ == "__main__":
    times = Path(sys.argv[1])
    sys.argv = ["overnight", *sys.argv[2:]]
    for kind in (EmbeddedBroker, RabbitMQBroker):
        _watch(kind)
    try:
        main()
    finally:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        times.write_text(json.dumps(_seen | {"peak_rss_bytes": peak}))
