"""A process is told from another, and called gone only when it is."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time

from overnight_common.brokers.owners import Leases, Owner, is_gone, this_process

HERE = this_process()


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def owner_of(process: subprocess.Popen[bytes]) -> Owner:
    return dataclasses.replace(HERE, pid=process.pid, started="")


def test_this_process_is_not_gone() -> None:
    assert not is_gone(HERE, HERE)
    assert HERE.started or sys.platform != "linux"


def test_a_process_is_gone_when_it_was_killed_even_before_its_parent_looks() -> None:
    process = sleeper()
    owner = owner_of(process)
    assert not is_gone(owner, HERE)
    process.kill()
    give_up = time.monotonic() + 10
    while not is_gone(owner, HERE):  # nobody has waited for it: it is a zombie
        assert time.monotonic() < give_up
        time.sleep(0.01)
    process.wait()
    assert is_gone(owner, HERE)


def test_a_process_id_used_again_is_another_process() -> None:
    assert is_gone(dataclasses.replace(HERE, started="1"), HERE)


def test_a_process_of_another_namespace_is_never_called_gone() -> None:
    assert not is_gone(dataclasses.replace(HERE, namespace="pid:[1]", pid=2**22 + 1), HERE)


def test_a_process_of_an_earlier_boot_is_gone() -> None:
    assert is_gone(dataclasses.replace(HERE, boot="another"), HERE)
    assert not is_gone(dataclasses.replace(HERE, boot=""), HERE)


def test_only_an_owner_silent_for_a_whole_lease_loses_it() -> None:
    leases = Leases(HERE, lease_seconds=30)
    beating, silent = dataclasses.replace(HERE, namespace="a"), dataclasses.replace(HERE, namespace="b")
    for now in range(31):
        assert leases.run_out([(1, now, beating), (2, 7, silent)], float(now)) == []
    assert leases.run_out([(1, 31, beating), (2, 7, silent)], 30.5) == [(2, 7)]
    assert leases.run_out([(1, 31, beating), (2, 8, silent)], 31.0) == []  # it has come back to life


def test_a_lease_counts_from_the_first_look_whatever_the_clocks_of_others_say() -> None:
    leases = Leases(HERE, lease_seconds=30)
    other = dataclasses.replace(HERE, namespace="a")
    assert leases.run_out([(1, 1, other)], 1_000_000.0) == []
    assert leases.run_out([], 1_000_001.0) == []
    assert leases.run_out([(1, 1, other)], 1_000_100.0) == []
