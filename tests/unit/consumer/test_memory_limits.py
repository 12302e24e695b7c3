import pytest

from overnight_consumer.memory_limits import container_limit_bytes, parse_size, share_bytes, slot_limit_bytes

GIB = 2**30
MEMINFO = "MemTotal:       16777216 kB\nMemFree: 1 kB\n"


def machine(tmp_path, files):
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 2**20),
        ("500M", 500 * 2**20),
        ("500m", 500 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("2 GB", 2 * GIB),
        ("1T", 2**40),
        ("3b", 3),
        ("0", None),
        ("", None),
        ("-1G", None),
        ("lots", None),
        ("1e9", None),
        ("5 X", None),
    ],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_size(text) == size


def test_the_smallest_limit_on_the_way_up_counts_in_version_2(tmp_path):
    files = {
        "proc/self/cgroup": "0::/pods/pod/app\n",
        "sys/fs/cgroup/pods/pod/app/memory.max": "max\n",
        "sys/fs/cgroup/pods/pod/memory.max": str(4 * GIB),
        "sys/fs/cgroup/pods/memory.max": str(8 * GIB),
    }
    assert container_limit_bytes(machine(tmp_path, files)) == 4 * GIB


def test_in_a_container_the_mount_itself_is_our_group(tmp_path):
    files = {"proc/self/cgroup": "0::/../../strange/path\n", "sys/fs/cgroup/memory.max": str(GIB)}
    assert container_limit_bytes(machine(tmp_path, files)) == GIB


def test_version_1_writes_a_huge_number_for_no_limit(tmp_path):
    files = {
        "proc/self/cgroup": "4:memory:/docker/ab\n0::/\n",
        "sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert container_limit_bytes(machine(tmp_path, files)) is None
    (tmp_path / "sys/fs/cgroup/memory/docker/memory.limit_in_bytes").write_text(str(2 * GIB))
    assert container_limit_bytes(tmp_path) == 2 * GIB


def test_a_limit_above_the_machine_is_none(tmp_path):
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": str(64 * GIB)}
    assert container_limit_bytes(machine(tmp_path, files)) is None


def test_auto_shares_the_limit_of_a_container_with_a_margin_and_a_bare_machine_has_none(tmp_path):
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": str(4 * GIB)})
    share = slot_limit_bytes("auto", 2, root)
    assert share is not None
    assert 1.75 * GIB < share < 1.85 * GIB
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max")
    assert slot_limit_bytes("auto", 2, root) is None
    assert slot_limit_bytes("none", 2, root) is None
    assert slot_limit_bytes("1G", 2, root) == GIB


def test_a_share_leaves_room_for_the_parent_and_is_never_absurd():
    assert share_bytes(512 * 2**20, 1) == 384 * 2**20
    assert share_bytes(200 * 2**20, 8) == 64 * 2**20
