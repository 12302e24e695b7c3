"""Find out which CUDA devices there are; the parent asks a short-lived process, for it never imports torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from overnight_common.errors import BadInputError
from overnight_consumer import nvml
from overnight_consumer.devices import (
    AUTO,
    CPU,
    ORDER,
    Devices,
    Found,
    FoundDevice,
    chosen,
    fault_of_text,
    order_of,
    seen_without_torch,
)

_PATIENCE_SECONDS = 120.0
# Of NVIDIA's driver: on a machine or in a container, under WSL, on a Jetson board.
_SIGNS = ("dev/nvidiactl", "dev/dxg", "dev/nvmap")


def search(wanted: str, environment: Mapping[str, str], root: Path = Path("/")) -> Devices:
    """Return the devices for `--device`.

    Args:
        wanted: the text given there. `cpu` looks for nothing; `auto` asks nobody where no driver is.
        environment: of this process.
        root: `/`, or a folder that looks like it.

    Raises:
        BadInputError: the text says nothing, there is no such device, or it cannot be used.
    """
    if fault := fault_of_text(wanted):
        raise BadInputError(fault)
    if wanted == CPU:
        return chosen(wanted, environment, Found())
    if wanted == AUTO and not any((root / sign).exists() for sign in _SIGNS):
        return chosen(wanted, environment, Found(fault="no driver of NVIDIA is here"))
    return chosen(wanted, environment, found(environment))


def found(environment: Mapping[str, str], patience_seconds: float = _PATIENCE_SECONDS) -> Found:
    """Let a process with torch look; without torch, ask the driver how many there are."""
    order = order_of(environment)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "overnight_consumer.device_probe", str(os.getpid())],
            env={**environment, **({ORDER: order} if order else {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_seconds,
            check=False,
        )
        told = msgspec.json.decode(done.stdout, type=Found)
    except subprocess.TimeoutExpired:
        return Found(fault=f"PyTorch has not answered within {patience_seconds:g} s whether it sees a device")
    except msgspec.MsgspecError:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        return Found(fault=f"PyTorch could not look, exit status {done.returncode}: {words[-1]}")
    return told if told.by_torch else _without_torch(environment, told)


def _without_torch(environment: Mapping[str, str], told: Found) -> Found:
    uuids = nvml.uuids()
    count = seen_without_torch(environment, uuids)
    if not count:
        return told
    return Found((FoundDevice("a GPU that its driver shows"),) * count, by_torch=False)
