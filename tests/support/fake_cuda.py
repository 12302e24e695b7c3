"""Give processes a PyTorch with CUDA that is a stand-in, and as many devices as a test wants."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).with_name("fake_torch")


def with_fake_cuda(devices: int) -> dict[str, str]:
    """Return the environment of this process with so many devices."""
    path = os.pathsep.join([str(_FOLDER), os.environ.get("PYTHONPATH", "")])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    return {**clean, "PYTHONPATH": path, "FAKE_CUDA_DEVICES": str(devices)}


def with_cpu_as_gpu() -> dict[str, str]:
    """Return the variables that let the CPU play a GPU in the real PyTorch."""
    path = os.pathsep.join([str(Path(__file__).with_name("cpu_as_gpu")), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path}
