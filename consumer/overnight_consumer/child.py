"""Be the process in a slot: die with the parent, then take tasks from the socket and answer them.

Started fresh as `python -P -m overnight_consumer.child FD PARENT`; its environment was set before it began.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections import deque

from overnight_consumer.frames import (
    FrameReader,
    FromChild,
    Ready,
    Recalled,
    Work,
    decode_order,
    decode_setup,
    pack,
)

_PR_SET_PDEATHSIG = 1
_WATCH_SECONDS = 0.5
_CHUNK_BYTES = 64 * 1024
# After a task that took so long, the parent may have recalled those behind it.
_LOOK_SECONDS = 0.1
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


class Inbox:
    """Take orders from the socket, in their order; a recall takes out what lies here unbegun."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._reader = FrameReader()
        self._bodies: deque[bytes] = deque()
        self._works: deque[Work] = deque()
        self._looked_at = 0.0

    def first(self) -> bytes | None:
        """Wait for the first frame; None if the parent has closed the socket."""
        while not self._bodies:
            if not self._receive():
                return None
        return self._bodies.popleft()

    def next_work(self) -> Work | None:
        """Wait for the next task; None if the parent has closed the socket."""
        if self._works and time.monotonic() - self._looked_at > _LOOK_SECONDS:
            with contextlib.suppress(BlockingIOError):
                while self._receive(socket.MSG_DONTWAIT):
                    pass
            self._sort()
        while not self._works:
            if not self._bodies and not self._receive():
                return None
            self._sort()
        return self._works.popleft()

    def _receive(self, flags: int = 0) -> bool:
        self._looked_at = time.monotonic()
        data = self._link.recv(_CHUNK_BYTES, flags)
        self._bodies.extend(self._reader.feed(data))
        return bool(data)

    def _sort(self) -> None:
        while self._bodies:
            order = decode_order(self._bodies.popleft())
            if isinstance(order, Work):
                self._works.append(order)
            else:
                self._link.sendall(pack(Recalled(len(self._works))))
                self._works.clear()


def main() -> int:
    """Serve until the parent closes the socket; returns the exit status."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    be_killed_first()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _do_nothing)
    link = socket.socket(fileno=descriptor)
    link.set_inheritable(False)
    try:
        return _serve(link)
    except ConnectionError:
        return 0  # of the parent's socket only, as what the method raises is answered: it wants no more of us


def _serve(link: socket.socket) -> int:
    inbox = Inbox(link)

    def say(message: FromChild) -> None:
        link.sendall(pack(message))

    first = inbox.first()
    if first is None:
        return 0
    from overnight_consumer.failures import TaskFailedError
    from overnight_consumer.worker import Worker  # NumPy comes with it: as late as can be

    worker = Worker(decode_setup(first), say)
    try:
        faults = worker.preload()
    except TaskFailedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - our last words, for who reads why no child could be started
        return 1
    say(Ready(faults))
    while (work := inbox.next_work()) is not None:
        say(worker.answer(work))
    return 0


if __name__ == "__main__":
    exit_status = main()
    for standard in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            standard.flush()
    os._exit(exit_status)  # threads of the method, or a library's slow farewell, must not hold us
