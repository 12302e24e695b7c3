"""Measured on real processes."""

import mmap
import os
import subprocess
import sys
import time

from overnight_consumer.memory_use import processes_of, used_bytes

MIB = 2**20
HOLD = "import sys; kept = b'x' * (64 * 2**20); {more}; print('ready', flush=True); sys.stdin.read()"


def held(more="pass", *, session=True):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(more=more)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=session,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_the_whole_session_counts_and_nothing_else():
    process = held("import subprocess; subprocess.Popen(['sleep', '1000'])")
    try:
        found = processes_of({process.pid})
        assert list(found) == [process.pid]
        assert len(found[process.pid]) == 2
        assert 64 * MIB < used_bytes(found[process.pid]) < 90 * MIB
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def test_what_forked_processes_share_counts_once_when_it_matters():
    process = held("import os; pid = [os.fork() for _ in range(2)]")
    try:
        give_up = time.monotonic() + 10
        while len(processes := processes_of({process.pid})[process.pid]) < 4:
            assert time.monotonic() < give_up
        assert used_bytes(processes) > 4 * 64 * MIB
        assert used_bytes(processes, enough=100 * MIB) < 100 * MIB
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def test_a_mapped_file_is_no_burden(tmp_path):
    before = used_bytes([os.getpid()])
    path = tmp_path / "large"
    path.write_bytes(b"x" * 128 * MIB)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[at] for at in range(0, len(mapped), 4096)) > 0
        assert used_bytes([os.getpid()]) - before < 16 * MIB


def test_a_process_that_is_gone_uses_nothing():
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait()
    assert used_bytes([process.pid]) == 0
    assert processes_of({process.pid}) == {}
