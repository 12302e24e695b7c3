"""Tell in a child whether its device works, has fallen over, or is full.

torch is used where somebody has loaded it, and never imported here.
"""

from __future__ import annotations

import sys
from typing import Any

from overnight_consumer.failures import chain_of, text_of

# Of torch, CuPy and Numba; all else is known by its text.
_DEVICE_ERRORS = frozenset({"AcceleratorError", "CUDARuntimeError", "CUDADriverError", "CudaAPIError"})
_DEVICE_WORDS = ("CUDA error:", "cuDNN error:", "CUDA_ERROR_", "cudaError", "CUDNN_STATUS_")
_MIB = 2**20


def loaded_torch() -> Any | None:
    """Return torch if the method, or what it imports, has loaded it."""
    return sys.modules.get("torch")


def trial(torch: Any, device: str) -> str:
    """Compute something on a device; returns why that does not work, or nothing."""
    try:
        sum_ = (torch.ones(2, device=device) + 1).sum().item()
    except Exception as error:  # noqa: BLE001 - whatever it raises, the device is no use
        return f"{type(error).__name__}: {_first_line(error)}"
    return "" if sum_ == 4 else f"2 + 2 gave {sum_}"


def has_fallen_over(error: BaseException) -> bool:
    """Tell whether no more work on the device can be done in this process, as after an assertion in a kernel.

    Every error of CUDA counts, for few leave the process usable, and a fresh child costs seconds. torch knows
    for certain: all its further calls fail, also where the method had caught the first error.
    """
    for each in chain_of(error):
        if _DEVICE_ERRORS & {class_.__name__ for class_ in type(each).__mro__}:
            return True
        if isinstance(each, RuntimeError) and any(words in text_of(each) for words in _DEVICE_WORDS):
            return True
    torch = loaded_torch()
    try:
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except Exception as second:  # noqa: BLE001 - a stand-in for torch that has no such call tells nothing
        return not isinstance(second, AttributeError)
    return False


def memory_words(device: str) -> str:
    """Return `cuda:1: 70,000 MiB held by this child at its peak, 12 of 81,559 MiB free`, as far as torch tells."""
    torch = loaded_torch()
    try:
        peak = torch.cuda.max_memory_reserved()  # type: ignore[union-attr]
        free, total = torch.cuda.mem_get_info()  # type: ignore[union-attr]
    except Exception:  # noqa: BLE001 - no torch, or it cannot say
        return f"on {device}"
    return (
        f"{device}: {peak / _MIB:,.0f} MiB held by this child at its peak, "
        f"{free / _MIB:,.0f} of {total / _MIB:,.0f} MiB free"
    )


def _first_line(error: BaseException) -> str:
    return (text_of(error).splitlines() or [""])[0]
