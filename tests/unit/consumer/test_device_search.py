"""The parent learns of devices from a process that has torch; here it is a stand-in, but for the last test."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from overnight_common.errors import BadInputError
from overnight_consumer import device_search, nvml
from overnight_consumer.devices import FoundDevice
from support.command_line import wait_until
from support.fake_cuda import with_fake_cuda
from support.farm import alive


def test_devices_are_found_and_tried_by_torch():
    devices = device_search.search("cuda", with_fake_cuda(2))
    assert devices.names == ("cuda:0", "cuda:1")
    assert "cuda:1 (Fake GPU 1)" in devices.why


def test_who_asks_for_devices_loads_neither_torch_nor_numpy():
    code = (
        "import os, sys; from overnight_consumer.device_search import search;"
        "assert search('cuda', dict(os.environ)).names == ('cuda:0',);"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-P", "-c", code], env=with_fake_cuda(1), check=True)


def test_torch_sees_only_what_the_container_may_see():
    environment = with_fake_cuda(4) | {"CUDA_VISIBLE_DEVICES": "GPU-3,1"}
    devices = device_search.search("cuda", environment)
    assert devices.visible == ("GPU-3", "1")
    with pytest.raises(BadInputError, match="there are 2 CUDA devices"):
        device_search.search("cuda:2", environment)


def test_a_lost_device_is_found_out_before_any_slot_is_on_it(tmp_path):
    lost = tmp_path / "lost"
    lost.write_text("0")
    found = device_search.found(with_fake_cuda(2) | {"FAKE_CUDA_LOST": str(lost)})
    assert found.devices == (
        FoundDevice("Fake GPU 0", "AcceleratorError: CUDA error: unknown error"),
        FoundDevice("Fake GPU 1"),
    )


def test_auto_asks_only_where_a_driver_is(tmp_path):
    environment = with_fake_cuda(1)
    without = device_search.search("auto", environment, tmp_path)
    assert (without.kind, without.why) == ("cpu", "device cpu: no driver of NVIDIA is here")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert device_search.search("auto", environment, tmp_path).names == ("cuda:0",)
    none = device_search.search("auto", with_fake_cuda(0), tmp_path)
    assert (none.kind, none.why) == ("cpu", "device cpu: PyTorch 9.9 sees no device")


def test_cpu_asks_nobody(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert device_search.search("cpu", {}).names == ("cpu",)


def write_torch(folder: Path, text: str) -> dict[str, str]:
    (folder / "torch.py").write_text(text)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("raise OSError('libcudart.so: no such file')", "PyTorch cannot be imported: libcudart.so"),
        ("import no_such_part_of_it", "PyTorch cannot be imported: No module named 'no_such_part_of_it'"),
        ("import os; os._exit(7)", "exit status 7: it said nothing"),
        ("import os; os.write(2, b'Driver/library mismatch\\n'); os._exit(1)", "1: Driver/library mismatch"),
        ("import time; time.sleep(60)", "has not answered within 1 s"),
    ],
)
def test_a_torch_that_does_not_work_is_a_fault_with_its_own_words(tmp_path, text, fault):
    found = device_search.found(write_torch(tmp_path, text), patience_seconds=1 if "sleep" in text else 60)
    assert fault in found.fault
    assert found.devices == ()
    assert found.by_torch


def test_a_look_that_hangs_does_not_outlive_the_consumer(tmp_path):
    mark = tmp_path / "pid"
    environment = write_torch(
        tmp_path,
        f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(600)",
    )
    code = "import os; from overnight_consumer.device_search import found; found(dict(os.environ))"
    with subprocess.Popen([sys.executable, "-P", "-c", code], env=environment) as consumer:
        wait_until(lambda: mark.exists() and mark.read_text(), "it looks")
        consumer.kill()
    wait_until(lambda: not alive(int(mark.read_text())), "it is gone")


def test_the_driver_tells_gpus_by_their_identifiers(monkeypatch):
    library = types.SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert nvml.uuids() == ["GPU-0", "GPU-1"]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.uuids() == []


def test_what_torch_prints_is_not_taken_for_the_answer(tmp_path):
    fake = Path(with_fake_cuda(1)["PYTHONPATH"].split(os.pathsep)[0], "torch.py").read_text()
    environment = write_torch(tmp_path, fake + "\nprint('{hello}')\n") | {"FAKE_CUDA_DEVICES": "1"}
    assert device_search.found(environment).devices == (FoundDevice("Fake GPU 0"),)


def test_without_torch_the_driver_says_how_many_there_are(tmp_path, monkeypatch):
    missing = write_torch(tmp_path, "raise ModuleNotFoundError('no torch', name='torch')")
    monkeypatch.setattr(nvml, "uuids", lambda: ["GPU-aa", "GPU-bb", "GPU-cc"])
    found = device_search.found(missing | {"CUDA_VISIBLE_DEVICES": "GPU-cc,0"})
    assert (len(found.devices), found.by_torch) == (2, False)
    monkeypatch.setattr(nvml, "uuids", list)
    assert "PyTorch is not installed" in device_search.found(missing).fault


def test_the_real_torch_of_this_environment_says_what_it_can():
    torch = pytest.importorskip("torch")
    found = device_search.found(dict(os.environ))
    assert len(found.devices) == torch.cuda.device_count()
    assert bool(found.fault) == (not found.devices)
