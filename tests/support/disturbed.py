"""Be one of our programs in a disturbed world: `DISTURBANCE PROGRAM ARGUMENTS`."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

SHORT_LEASE_SECONDS = 6.0


def without_acks() -> None:
    """Let the driver say when a reply has come and go no further, to be killed there."""
    from overnight_producer.driving import driver

    def hold(_body: object, _spec: object) -> NoReturn:
        print("a reply has come", flush=True)
        threading.Event().wait()
        raise AssertionError("nobody sets it")

    driver.usable_replies = hold


def jumping_clock() -> None:
    """Set the wall clock an hour ahead and an hour back, in turn, each second."""
    right = time.time
    time.time = lambda: right() + (3600.0 if int(time.monotonic()) % 2 else -3600.0)


def short_leases() -> None:
    """Let the embedded broker call an owner lost after 6 s of silence."""
    from overnight_common.brokers.embedded import EmbeddedBroker

    defaults = EmbeddedBroker.__init__.__kwdefaults__
    assert defaults is not None
    defaults |= {"lease_seconds": SHORT_LEASE_SECONDS, "renew_seconds": 0.5}


def on_a_share() -> None:
    """Let the whole machine lie on a network share."""
    from overnight_common import file_systems

    file_systems.MOUNTS = Path(__file__).with_name("mounts_of_a_share")


if __name__ == "__main__":
    disturbance, program = sys.argv[1:3]
    del sys.argv[1:3]
    {
        "without-acks": without_acks,
        "jumping-clock": jumping_clock,
        "short-leases": short_leases,
        "on-a-share": on_a_share,
    }[disturbance]()
    importlib.import_module(f"{program}.cli").main()
