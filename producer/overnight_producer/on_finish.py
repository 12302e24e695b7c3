"""Run the command that somebody wants at a job's end; whatever it does, the job is not changed by it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from overnight_producer.options import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LIMIT_SECONDS = 600.0
STANDARD_ERROR = 2


async def run_on_finish(
    command: str, facts: Mapping[str, str], say: Callable[[str], None], limit_seconds: float = LIMIT_SECONDS
) -> None:
    """Run `command` in a shell with `facts` in its environment, for at most `limit_seconds`.

    What it prints goes to our standard error; if it fails, that is said.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=STANDARD_ERROR,  # standard output may be JSON for another program
            env={**environment(), **facts},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        say(f"--on-finish could not be started: {error}")
        return
    try:
        status = await asyncio.wait_for(process.wait(), limit_seconds)
    except TimeoutError:
        await _kill(process)
        say(f"--on-finish was killed: it took over {limit_seconds:g} s")
        return
    except asyncio.CancelledError:
        await _kill(process)
        say("--on-finish was killed, for this program was asked to stop")
        raise
    if status != 0:
        how = f"with status {status}" if status > 0 else f"by signal {-status}"
        say(f"--on-finish ended {how}; the job is as it was")


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End the command with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
