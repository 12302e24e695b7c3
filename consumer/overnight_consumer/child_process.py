"""Start a child process, talk to it over a socket, hear its output, and know when and how it died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

import msgspec

from overnight_consumer.answers import with_last_words
from overnight_consumer.deaths import Death, ExitReason
from overnight_consumer.frames import (
    Answer,
    FrameReader,
    FromChild,
    GarbledError,
    Loading,
    Ready,
    Recall,
    Recalled,
    Setup,
    Started,
    Work,
    decode_from_child,
    pack,
)
from overnight_consumer.output import Output
from overnight_consumer.sessions import CHILD_VARIABLE, kill_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_POLL_SECONDS = 0.05
_LAST_WORDS_SECONDS = 0.5


class ChildListener(Protocol):
    """Hear from a child; every call comes from the event loop."""

    def on_ready(self) -> None:
        """Take note that the child is warm."""

    def on_started(self) -> None:
        """Take note that loading is over and the method of the task runs."""

    def on_answer(self, answer: Answer) -> None:
        """Take the answer to the task that was sent."""

    def on_recalled(self, count: int) -> None:
        """Take note that the child will not begin the next `count` of the tasks that it was sent."""

    def on_death(self, death: Death) -> None:
        """Take note that the child is gone, with all that it started; nothing comes after this."""


class ChildProcess(asyncio.Protocol):
    """Be one child from its start to its death.

    Args:
        setup: what it serves.
        environment: its environment, complete.
        listener: who hears of it.
        write: where its output goes, in whole lines that begin with the slot's number.
        warn: hears, as it gets ready, which methods it could not import and why.
        load_limit_seconds: the longest that it may take to be ready, and later to load a method.
    """

    def __init__(
        self,
        setup: Setup,
        environment: Mapping[str, str],
        listener: ChildListener,
        write: Callable[[bytes], None],
        warn: Callable[[Mapping[str, str]], None],
        load_limit_seconds: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._warn = warn
        self._load_limit_seconds = load_limit_seconds
        self._why: ExitReason | None = None
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()
        self._garbled = False
        self._scratch = setup.scratch
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._output = Output(f"slot {setup.slot}: ".encode(), write)
                self._start(theirs, environment)
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket = ours
        self._loading = self._loop.call_later(load_limit_seconds, self._load_too_long)
        self._tasks = [
            self._loop.create_task(self._connect(setup)),
            self._loop.create_task(self._await_death()),
        ]

    def _start(self, theirs: socket.socket, environment: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "overnight_consumer.child",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._output.stdout,
                stderr=self._output.stderr,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**environment, CHILD_VARIABLE: self._scratch},
            )
        finally:
            self._output.started()

    @property
    def pid(self) -> int:
        """Return the process id, which is also the id of its session."""
        return self._process.pid

    async def _connect(self, setup: Setup) -> None:
        self._transport, _ = await self._loop.create_unix_connection(lambda: self, sock=self._socket)
        self._transport.write(pack(setup))

    def send(self, *works: Work) -> None:
        """Give it tasks, to be run one after the other; it must be ready."""
        assert self._transport is not None
        self._output.forget()
        self._transport.write(b"".join(map(pack, works)))

    def recall(self) -> None:
        """Ask it not to begin what it has not begun."""
        assert self._transport is not None
        self._transport.write(pack(Recall()))

    @property
    def is_quiet(self) -> bool:
        """Tell whether it has written no error output since it was sent something."""
        return self._output.is_empty

    def kill(self) -> None:
        """Kill it and everything in its session now; `on_death` follows."""
        self._loading.cancel()  # what kills it first is the reason
        if self._process.returncode is None:  # else its number may be somebody else's already
            kill_session(self.pid, self._scratch)

    def _load_too_long(self) -> None:
        self._why = ExitReason.LOAD_LIMIT
        self.kill()

    async def stop(self, patience_seconds: float) -> None:
        """Let an idle child end by itself, and kill it when it does not; returns when it is gone."""
        if self._transport is not None:
            self._transport.close()
        death = self._tasks[1]
        done, _ = await asyncio.wait([death], timeout=patience_seconds)
        if not done:
            self.kill()
            await asyncio.wait([death])

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket (asyncio calls this)."""
        if self._garbled:
            return
        try:
            for body in self._reader.feed(data):
                self._hear(decode_from_child(body))
        except (GarbledError, msgspec.MsgspecError):
            # The method wrote into our socket: nothing that comes after that can be believed.
            self._garbled = True
            self.kill()

    def _hear(self, message: FromChild) -> None:
        if isinstance(message, Answer):
            self._loading.cancel()
            self._listener.on_answer(self._with_last_words(message))
        elif isinstance(message, Recalled):
            self._listener.on_recalled(message.count)
        elif isinstance(message, Loading):
            self._loading.cancel()
            self._loading = self._loop.call_later(self._load_limit_seconds, self._load_too_long)
        elif isinstance(message, Started):
            self._loading.cancel()
            self._listener.on_started()
        elif isinstance(message, Ready):
            self._loading.cancel()
            self._warn(message.faults)
            self._listener.on_ready()

    def _with_last_words(self, answer: Answer) -> Answer:
        if answer.kind != "failed":
            return answer
        return msgspec.structs.replace(answer, reply=with_last_words(answer.reply, self._output.tail()))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Take note that the socket is closed (asyncio calls this)."""
        self._closed.set()

    async def _await_death(self) -> None:
        await _exited(self._process.pid, self._loop)
        self._loading.cancel()
        # Before it is reaped its number cannot be given to anybody else.
        kill_session(self._process.pid, self._scratch)
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        # An answer may still lie in the socket.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._closed.wait(), _LAST_WORDS_SECONDS)
        await self._tasks[0]
        if self._transport is not None:
            self._transport.abort()
        tail = self._output.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        unit = 1 if sys.platform == "darwin" else 1024
        self._listener.on_death(
            Death(
                self._process.returncode,
                usage.ru_maxrss * unit,
                tail,
                why=self._why,
                load_limit_seconds=self._load_limit_seconds,
                garbled=self._garbled,
            )
        )


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _exited(pid: int, loop: asyncio.AbstractEventLoop) -> None:
    """Return when a child process has ended, without reaping it."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(pid)
            ended: asyncio.Future[None] = loop.create_future()
            loop.add_reader(descriptor, _resolve, ended)
            try:
                await ended
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
            return
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        await asyncio.sleep(_POLL_SECONDS)
