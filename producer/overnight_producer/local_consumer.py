"""Keep one consumer process running beside a driver on this machine, and say why if that cannot be done."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from overnight_common.errors import OvernightError

MAX_FRUITLESS_DEATHS = 5
# A task that kills its consumer must have been answered before the run is ended for such deaths.
LOCAL_MAX_DELIVERIES = 3
BACKOFF_FIRST_SECONDS = 0.2
BACKOFF_MAX_SECONDS = 10.0
TAIL_LINES = 40


class ConsumerGoneError(OvernightError):
    """Say that the consumer of this run cannot be kept alive; carries its last words."""


class LocalConsumer:
    """Start `overnight-consumer` with given arguments and start it again when it dies."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        answers_so_far: Callable[[], int],
        on_line: Callable[[str], None],
    ) -> None:
        """Prepare; `answers_so_far` tells whether a death was fruitless, `on_line` gets its log lines."""
        self._command = [sys.executable, "-P", "-m", "overnight_consumer", *arguments]
        self._environment = dict(environment)
        self._answers_so_far = answers_so_far
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._stopping = False

    async def keep_running(self) -> None:
        """Run the consumer until `stop` is called.

        Raises:
            ConsumerGoneError: it refused its settings, the system does not start it, or it died five times without a
            result in between.
        """
        deaths, answers = 0, self._answers_so_far()
        while not self._stopping:
            try:
                status = await self._run_once()
            except OSError as error:  # too many processes or open files
                raise ConsumerGoneError(f"no consumer can be started here: {error}") from error
            if self._stopping:
                return
            if self._answers_so_far() > answers:
                deaths, answers = 0, self._answers_so_far()
            deaths += 1
            last_words = "\n".join(self._tail).strip()
            if status == 2:
                raise ConsumerGoneError(last_words or "the consumer refused its settings")
            if deaths >= MAX_FRUITLESS_DEATHS:
                raise ConsumerGoneError(
                    f"the consumer on this machine ended {deaths} times without a result, the last time "
                    f"{_how(status)}. Its last words:\n{last_words or '(none)'}"
                )
            self._on_line(f"the consumer ended {_how(status)}; it is started again")
            await asyncio.sleep(min(BACKOFF_FIRST_SECONDS * 2**deaths, BACKOFF_MAX_SECONDS))

    async def stop(self, grace_seconds: float) -> None:
        """Ask the consumer to stop, and kill it when `grace_seconds` are over."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), grace_seconds)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _run_once(self) -> int:
        # A session of its own: Ctrl-C on the terminal reaches the driver alone, which decides.
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
            limit=1 << 20,
        )
        assert self._process.stdout is not None
        while line := await _read_line(self._process.stdout):
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._tail.append(text)
            self._on_line(text)
        return await self._process.wait()


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, the part read so far for an over-long one, or nothing at the end."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as long:
        return await stream.read(max(long.consumed, 1))


def _how(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-status).name}"
        return f"by signal {-status}"
    return f"with status {status}"
