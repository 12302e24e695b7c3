"""Be the process in a slot: die with the parent, then take tasks from the socket and answer them.

Started fresh as `python -P -m overnight_consumer.child FD PARENT`; its environment was set before it began.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import socket
import sys
import threading
import time

from overnight_consumer.frames import HEADER_BYTES, FromChild, Ready, decode_setup, decode_work, pack

_PR_SET_PDEATHSIG = 1
_WATCH_SECONDS = 0.5
_KILL_US_FIRST = "500"  # between -1000 and 1000


def die_with(parent: int) -> None:
    """Make sure that this process does not outlive its parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it died before we could say so
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os.killpg(0, signal.SIGKILL)


def be_killed_first() -> None:
    """Let the kernel, when memory runs out, take a child and not its parent or the user's other programs."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_KILL_US_FIRST)


def _do_nothing(_number: int, _frame: object) -> None:
    """Handle a stop signal that is meant for the parent; ignoring it would be inherited by commands."""


def _receive(stream: io.BufferedIOBase) -> bytes | None:
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    length = int.from_bytes(header, "big")
    body = stream.read(length)
    return body if len(body) == length else None


def main() -> int:
    """Serve until the parent closes the socket; returns the exit status."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    be_killed_first()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _do_nothing)
    link = socket.socket(fileno=descriptor)
    link.set_inheritable(False)
    stream = io.BufferedReader(socket.SocketIO(link, "r"), 65536)

    def say(message: FromChild) -> None:
        link.sendall(pack(message))

    first = _receive(stream)
    if first is None:
        return 0
    from overnight_consumer.failures import TaskFailedError
    from overnight_consumer.worker import Worker  # NumPy comes with it: as late as can be

    worker = Worker(decode_setup(first), say)
    try:
        worker.preload()
    except TaskFailedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - our last words, for who reads why no child could be started
        return 1
    say(Ready())
    while (body := _receive(stream)) is not None:
        say(worker.answer(decode_work(body)))
    return 0


if __name__ == "__main__":
    exit_status = main()
    for standard in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            standard.flush()
    os._exit(exit_status)  # threads of the method, or a library's slow farewell, must not hold us
