"""Open NVIDIA's management library, where the package nvidia-ml-py and a driver are there."""

from __future__ import annotations

import importlib
from typing import Any


def opened() -> tuple[Any, list[Any]]:
    """Return the library and its handle of each GPU, in its order; None and no handle where it cannot be had."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None, []
    try:
        nvml.nvmlInit()
        return nvml, [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return None, []


def uuids() -> list[str]:
    """Return the identifier of each GPU, for example `GPU-8932f937-...`."""
    nvml, handles = opened()
    return [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
