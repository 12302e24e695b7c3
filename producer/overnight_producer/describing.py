"""Look at a method in a process of its own, so that the user's code never runs in the driver."""

from __future__ import annotations

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


def describe(method: str, source: Path) -> dict[str, Any]:
    """Return what `overnight_common.describe` says of a method: `ok` and its facts, or the error."""
    command = [sys.executable, "-P", "-m", "overnight_common.describe", method, "--source", str(source)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            env=dict(environment()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "error": f"importing it took over {TIMEOUT_SECONDS:.0f} s"}
    try:
        described: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last_words = done.stderr.decode("utf-8", "replace")[-2000:]
        return {
            "ok": False,
            "error": f"importing it ended the process (status {done.returncode})\n{last_words}",
        }
    return described


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
