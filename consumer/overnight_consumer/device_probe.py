"""Be the process that looks for CUDA devices with torch, prints what it has found, and ends.

`python -P -m overnight_consumer.device_probe PARENT` prints one `Found` as JSON.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Any

import msgspec

from overnight_consumer.child import die_with
from overnight_consumer.device_faults import trial
from overnight_consumer.devices import Found, FoundDevice


def look() -> Found:
    """Import torch, and try every device that it sees."""
    try:
        torch: Any = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return Found(
                fault="PyTorch is not installed here, nor does the driver show a device", by_torch=False
            )
        return Found(fault=f"PyTorch cannot be imported: {error}")
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return Found(fault=f"PyTorch cannot be imported: {error}")
    if not torch.backends.cuda.is_built():
        return Found(fault=f"PyTorch {torch.__version__} is a build without CUDA")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        why = f": {str(said[-1].message).splitlines()[0]}" if said else ""
        return Found(fault=f"PyTorch {torch.__version__} sees no device{why}")
    return Found(tuple(_tried(torch, number) for number in range(count)))


def _tried(torch: Any, number: int) -> FoundDevice:
    fault = trial(torch, f"cuda:{number}")
    try:
        name = str(torch.cuda.get_device_name(number))
    except Exception:  # noqa: BLE001 - it is lost, and the fault says so
        name = "unknown"
    return FoundDevice(name, fault)


def main() -> None:
    """Print what is found; what libraries print goes to standard error."""
    die_with(int(sys.argv[1]))  # a driver that hangs would keep us for ever
    answer = os.dup(1)
    os.dup2(2, 1)
    line = msgspec.json.encode(look())
    with open(answer, "wb") as file:
        file.write(line)
    sys.stderr.flush()
    os._exit(0)  # the driver's farewell is slow, and nobody waits for it


if __name__ == "__main__":
    main()
