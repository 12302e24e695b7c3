"""Stand in for PyTorch with CUDA on a machine without a GPU; what matters to Overnight behaves like the real one.

FAKE_CUDA_DEVICES says how many devices the machine has, FAKE_CUDA_LOST names a file that lists those that are
lost, by the machine's count. CUDA_VISIBLE_DEVICES is obeyed. There is no `synchronize` error without a fall.
"""

import os
import types
from pathlib import Path

__version__ = "9.9"
MIB = 2**20


class OutOfMemoryError(RuntimeError):
    pass


class AcceleratorError(RuntimeError):
    pass


_fallen = False


def _visible():
    count = int(os.environ.get("FAKE_CUDA_DEVICES", "0"))
    words = os.environ.get("CUDA_VISIBLE_DEVICES")
    if words is None:
        return list(range(count))
    seen = []
    for word in words.split(","):
        number = word.strip().removeprefix("GPU-")
        if not number.isdigit() or int(number) >= count:
            break
        seen.append(int(number))
    return seen


def _machine_number(device):
    kind, _, number = str(device).partition(":")
    assert kind == "cuda", device
    visible = _visible()
    if not visible:
        raise RuntimeError("No CUDA GPUs are available")
    return visible[int(number or 0)]


class _Ones:
    def __init__(self, values):
        self.values = values

    def __add__(self, other):
        return _Ones([value + other for value in self.values])

    def sum(self):
        return _Ones([sum(self.values)])

    def item(self):
        return float(self.values[0])


def ones(count, device):
    lost = os.environ.get("FAKE_CUDA_LOST")
    number = _machine_number(device)
    if lost and Path(lost).exists() and str(number) in Path(lost).read_text().split():
        raise AcceleratorError("CUDA error: unknown error\nCUDA kernel errors might be reported later.")
    return _Ones([1.0] * count)


def fall_over():
    """Do what an index out of range does in a kernel."""
    global _fallen
    _fallen = True
    raise AcceleratorError("CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA.")


def _synchronize():
    if _fallen:
        raise AcceleratorError("CUDA error: device-side assert triggered")


def set_num_threads(threads):
    pass


cuda = types.SimpleNamespace(
    OutOfMemoryError=OutOfMemoryError,
    device_count=lambda: len(_visible()),
    is_available=lambda: bool(_visible()),
    is_initialized=lambda: True,
    synchronize=_synchronize,
    get_device_name=lambda number: f"Fake GPU {_visible()[number]}",
    max_memory_reserved=lambda: 700 * MIB,
    mem_get_info=lambda: (12 * MIB, 800 * MIB),
)
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(is_built=lambda: True))
