"""Read the GPUs of this machine by NVML, where there are any; silent otherwise."""

from __future__ import annotations

from collections.abc import Callable

from overnight_common.metrics import Family, Reading
from overnight_consumer.nvml import opened

_GPU = ("gpu",)
MEMORY_USED = Family(
    "overnight_gpu_memory_used_bytes", "gauge", "Device memory in use by all processes.", _GPU
)
MEMORY = Family("overnight_gpu_memory_bytes", "gauge", "Device memory there is.", _GPU)
BUSY = Family("overnight_gpu_busy_ratio", "gauge", "Share of the last moment with a kernel running.", _GPU)
FAMILIES = (MEMORY_USED, MEMORY, BUSY)

Reader = Callable[[], list[Reading]]


def reader() -> Reader:
    """Return what reads the GPUs, by NVML's numbers; where there is no NVML it reads none."""
    nvml, handles = opened()
    if nvml is None:
        return list

    def read() -> list[Reading]:
        figures: tuple[dict[tuple[str, ...], float], ...] = ({}, {}, {})
        for number, handle in enumerate(handles):
            try:
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                share = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            except nvml.NVMLError:
                continue  # this one is lost, or does not tell: absent is truer than old
            for figure, value in zip(figures, (memory.used, memory.total, share), strict=True):
                figure[(str(number),)] = value
        return [Reading(family, figure) for family, figure in zip(FAMILIES, figures, strict=True)]

    return read
