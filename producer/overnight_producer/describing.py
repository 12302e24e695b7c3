"""Look at a method in a process of its own, so that the user's code never runs in the driver."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overnight_common.errors import BadInputError
from overnight_common.fingerprints import command_fingerprint
from overnight_producer.options import environment

if TYPE_CHECKING:
    from overnight_producer.jobs.jobspec import JobSpec

TIMEOUT_SECONDS = 300.0
PATIENCE_SECONDS = 5.0


def describe(method: str, source: Path) -> dict[str, Any]:
    """Return what `overnight_common.describe` says of a method: `ok` and its facts, or the error."""
    command = [sys.executable, "-P", "-m", "overnight_common.describe", method, "--source", str(source)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment()),
    ) as process:
        try:
            said, complained = _hear(process, method)
        except BaseException as error:
            process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return {"ok": False, "error": f"importing it took over {TIMEOUT_SECONDS:.0f} s"}
    try:
        described: dict[str, Any] = json.loads(said)
    except ValueError:
        last_words = complained.decode("utf-8", "replace")[-2000:]
        return {
            "ok": False,
            "error": f"importing it ended the process (status {process.returncode})\n{last_words}",
        }
    return described


def _hear(process: subprocess.Popen[bytes], method: str) -> tuple[bytes, bytes]:
    """Return what the process wrote; tells the user what is waited for when that takes long."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=PATIENCE_SECONDS)
    sys.stderr.write(f"still importing {method}, for at most {TIMEOUT_SECONDS:.0f} s ...\n")
    return process.communicate(timeout=TIMEOUT_SECONDS - PATIENCE_SECONDS)


def present_fingerprint(spec: JobSpec) -> str:
    """Return the fingerprint of a job's method as its code is now.

    Raises:
        BadInputError: the method cannot be used any more.
    """
    if spec.command is not None:
        return command_fingerprint(spec.command, Path(spec.source))
    facts = describe(spec.method, Path(spec.source))
    if not facts.get("fingerprint"):
        raise BadInputError(f"method {spec.method} cannot be used: {facts.get('error')}")
    return str(facts["fingerprint"])
