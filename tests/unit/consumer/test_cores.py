import os

import pytest

from overnight_consumer.cgroups import parse_cgroups
from overnight_consumer.cores import available_cores, parse_cfs, parse_cpu_max, quota_cores


def machine(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000\n", None),
        ("150000 100000", 1.5),
        ("50000", 0.5),
        ("", None),
        ("garbage", None),
        ("1 0", None),
        ("-1 100000", None),
        ("nan 1", None),
        ("inf 1", None),
        ("200000 x", None),
    ],
)
def test_cpu_max_is_understood_or_ignored(text, cores):
    assert parse_cpu_max(text) == cores


def test_no_quota_of_version_1_is_minus_one():
    assert parse_cfs("-1", "100000") is None
    assert parse_cfs("400000", "100000") == 4


def test_the_list_of_cgroups_is_read_however_it_looks():
    text = "12:cpu,cpuacct:/docker/ab\n0::/init.scope\nnonsense\n5:name=systemd:/a:b\n"
    assert parse_cgroups(text) == {
        "cpu": "/docker/ab",
        "cpuacct": "/docker/ab",
        "": "/init.scope",
        "name=systemd": "/a:b",
    }
    assert parse_cgroups("") == {}


def test_the_smallest_quota_on_the_way_up_counts_in_version_2(tmp_path):
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod/app\n",
            "sys/fs/cgroup/kubepods/pod/app/cpu.max": "max 100000",
            "sys/fs/cgroup/kubepods/pod/cpu.max": "250000 100000",
            "sys/fs/cgroup/kubepods/cpu.max": "800000 100000",
        },
    )
    assert quota_cores(root) == 2.5


def test_in_a_container_the_mount_itself_is_our_group(tmp_path):
    files = {"proc/self/cgroup": "0::/../../strange/path\n", "sys/fs/cgroup/cpu.max": "300000 100000"}
    assert quota_cores(machine(tmp_path, files)) == 3


def test_version_1_is_read_from_wherever_it_is_mounted(tmp_path):
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/docker/ab\n",
        "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us": "50000",
        "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us": "100000",
    }
    assert quota_cores(machine(tmp_path, files)) == 0.5


def test_without_any_cgroup_there_is_no_quota(tmp_path):
    assert quota_cores(tmp_path) is None
    assert quota_cores(machine(tmp_path, {"proc/self/cgroup": "\x00\xff"})) is None


@pytest.mark.parametrize(("quota", "cores"), [("50000 100000", 1), ("199999 100000", 1), ("max", None)])
def test_a_fraction_is_rounded_down_but_never_below_one(tmp_path, quota, cores):
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota})
    affinity = len(os.sched_getaffinity(0))
    assert available_cores(root) == min(affinity, cores or affinity)


def test_a_quota_above_the_affinity_does_not_add_cores(tmp_path):
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "99900000 100000"})
    assert available_cores(root) == len(os.sched_getaffinity(0))
