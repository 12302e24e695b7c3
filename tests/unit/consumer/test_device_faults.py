"""What a child makes of errors of its device."""

import sys
import types

import pytest

from overnight_consumer import device_faults
from overnight_consumer.failures import is_memory_of_device

torch = pytest.importorskip("torch")


class AcceleratorError(RuntimeError):
    """Stands for torch's, which is known by its name alone."""


class CUDARuntimeError(RuntimeError):
    """Stands for CuPy's."""


class OutOfMemoryError(RuntimeError):
    """Stands for torch's."""


def raised_from(cause):
    error = ValueError("the batch cannot be done")
    error.__cause__ = cause
    return error


@pytest.fixture(autouse=True)
def _torch_is_not_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.mark.parametrize(
    ("error", "fallen"),
    [
        (AcceleratorError("CUDA error: device-side assert triggered"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered"), True),
        (raised_from(AcceleratorError("CUDA error: unknown error")), True),
        (RuntimeError("shapes do not fit"), False),
        (ValueError("CUDA error: it is a word of the data"), False),
        (KeyError("x"), False),
    ],
)
def test_an_error_of_cuda_means_that_the_device_has_fallen_over(error, fallen):
    assert device_faults.has_fallen_over(error) is fallen


@pytest.mark.parametrize(("raises", "fallen"), [(AcceleratorError("CUDA error"), True), (None, False)])
def test_torch_is_asked_when_the_error_tells_nothing(monkeypatch, raises, fallen):
    def synchronize():
        if raises:
            raise raises

    cuda = types.SimpleNamespace(is_initialized=lambda: True, synchronize=synchronize)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert device_faults.has_fallen_over(ValueError("no good index")) is fallen


def test_a_module_that_is_called_torch_and_is_none_tells_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    assert not device_faults.has_fallen_over(ValueError("x"))
    assert device_faults.memory_words("cuda:1") == "on cuda:1"


@pytest.mark.parametrize(
    ("error", "of_device"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (raised_from(OutOfMemoryError("CUDA out of memory")), True),
        (MemoryError("no room"), False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), False),
    ],
)
def test_memory_of_a_device_is_told_from_memory_of_the_machine(error, of_device):
    assert is_memory_of_device(error) is of_device


def test_the_real_torchs_errors_go_by_the_names_that_are_known(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert is_memory_of_device(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."))
    error = getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: device-side assert triggered")
    assert device_faults.has_fallen_over(error)
    assert not device_faults.has_fallen_over(ValueError("x"))
    assert "cuda:0" in device_faults.memory_words("cuda:0")


def test_a_trial_on_a_cpu_finds_no_fault_and_one_on_a_missing_device_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert device_faults.trial(torch, "cpu") == ""
    assert device_faults.trial(torch, "cuda:99")
