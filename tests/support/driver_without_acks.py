"""Be `overnight` with a driver that says when a reply has come and goes no further, to be killed there."""

from __future__ import annotations

import threading
from typing import NoReturn

from overnight_producer.cli import main
from overnight_producer.driving import driver


def hold(_body: object) -> NoReturn:
    print("a reply has come", flush=True)
    threading.Event().wait()
    raise AssertionError("nobody sets it")


if __name__ == "__main__":
    driver.decode_reply = hold  # type: ignore[assignment]
    main()
