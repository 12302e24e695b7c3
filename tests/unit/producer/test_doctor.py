import asyncio
import io
import json

import pytest

from overnight_common.brokers.base import Depth
from overnight_common.brokers.opening import open_broker
from overnight_producer.options import Place
from overnight_producer.reports import doctor, machine
from overnight_producer.reports.doctor import Verdict, examine_broker, examine_machine
from overnight_producer.views.tables import make_console


def findings_of(home, **variables):
    return {finding.name: finding for finding in examine_machine(home, variables)}


def examined(home, broker=None, as_json=False):
    stream = io.StringIO()
    place = Place(home=home, broker=broker, broker_timeout_seconds=0.3)
    return doctor.examine(place, as_json, make_console(stream)), stream.getvalue()


def test_a_sound_machine_is_status_0_and_leaves_no_trace(tmp_path):
    status, text = examined(tmp_path / "new")
    assert status == 0
    assert "error" not in text.split()
    assert not (tmp_path / "new").exists()


def test_everything_that_limits_a_run_is_looked_at(tmp_path):
    _, text = examined(tmp_path, as_json=True)
    told = {each["name"]: each for each in json.loads(text)["findings"]}
    assert list(told) == [
        "python",
        "cores",
        "memory",
        "shared memory",
        "home",
        "disk",
        "sqlite",
        "numpy",
        "torch",
        "threads",
        "broker",
    ]
    assert told["cores"]["figures"]["usable"] >= 1
    assert told["disk"]["figures"]["free_bytes"] > 0
    assert told["sqlite"]["figures"]["version"].startswith("3.")
    assert told["numpy"]["figures"]["version"]


def test_a_home_that_cannot_be_written_prevents_a_run(tmp_path):
    (tmp_path / "file").write_text("no folder")
    status, text = examined(tmp_path / "file" / "home")
    assert status == 1
    assert "cannot be written" in text
    assert "OVERNIGHT_HOME" in text


def test_a_broker_that_is_down_prevents_a_run_and_its_password_is_not_shown(tmp_path):
    status, text = examined(tmp_path, "amqp://someone:topsecret@127.0.0.1:1/")
    assert status == 1
    assert "127.0.0.1" in text
    assert "topsecret" not in text


def test_a_broker_that_answers_is_told_with_its_round_trip(tmp_path):
    broker = open_broker(None, tmp_path, max_message_bytes=1 << 20)
    finding = asyncio.run(examine_broker(broker, 5.0))
    assert finding.verdict is Verdict.OK
    assert "SQLite" in finding.value
    assert finding.figures["round_trip_seconds"] < 5.0


class Server:
    address = "amqp://rabbit/"

    def __init__(self, server):
        self.server = server

    async def open(self, _seconds):
        pass

    async def close(self):
        pass

    async def depth(self, _queue):
        return Depth(0, 0, 0)


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        ("RabbitMQ 3.10.8", Verdict.WARNING),
        ("RabbitMQ 3.11.0", Verdict.WARNING),
        ("RabbitMQ 3.12.0", Verdict.OK),
        ("RabbitMQ 4.0.5", Verdict.OK),
        ("embedded (SQLite 3.40.1)", Verdict.OK),
    ],
)
def test_a_server_that_ends_long_tasks_is_warned_of(server, verdict):
    finding = asyncio.run(examine_broker(Server(server), 1.0))
    assert finding.verdict is verdict
    assert ("consumer_timeout" in finding.advice) == (verdict is Verdict.WARNING)


def test_thread_variables_that_fight_with_the_slots_are_named(tmp_path):
    finding = findings_of(tmp_path, OMP_NUM_THREADS="8", MKL_NUM_THREADS="", PATH="/bin")["threads"]
    assert finding.verdict is Verdict.WARNING
    assert finding.value == "OMP_NUM_THREADS=8"
    assert findings_of(tmp_path)["threads"].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("cores", "verdict", "words"),
    [
        (machine.Cores(8, 8), Verdict.OK, "8 cores to use"),
        (machine.Cores(8, 1), Verdict.WARNING, "1 of 8: the container's quota is the limit"),
        (machine.Cores(8, None), Verdict.WARNING, "8 by affinity, quota unknown"),
        (machine.Cores(None, None), Verdict.WARNING, "unknown"),
    ],
)
def test_the_limit_that_binds_the_cores_is_named(cores, verdict, words):
    finding = doctor._cores(cores)
    assert (finding.verdict, finding.value) == (verdict, words)


@pytest.mark.parametrize(
    ("available", "limit", "used", "verdict", "words"),
    [
        (8 << 30, None, None, Verdict.OK, "8 GiB available"),
        (8 << 30, 2 << 30, 1 << 20, Verdict.OK, "2 GiB left of the container's 2 GiB"),
        (8 << 30, 1 << 30, 1 << 29, Verdict.WARNING, "512 MiB left of the container's 1 GiB"),
        (8 << 30, 64 << 30, 1 << 30, Verdict.OK, "8 GiB available"),
        (1 << 29, None, None, Verdict.WARNING, "512 MiB available"),
        (None, None, None, Verdict.OK, "unknown"),
    ],
)
def test_the_limit_that_binds_the_memory_is_named(available, limit, used, verdict, words):
    finding = doctor._memory(available, limit, used)
    assert (finding.verdict, finding.value) == (verdict, words)


def files(root, contents):
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("contents", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000\n"}, 1000),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "500\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            500,
        ),
        (
            {"proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "700\n"},
            700,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "nonsense\n\n:\n", "sys/fs/cgroup/memory.max": "\n"}, None),
    ],
)
def test_the_memory_limit_is_the_smallest_on_the_way_up(tmp_path, contents, limit):
    files(tmp_path, contents)
    assert machine.memory_limit_bytes(tmp_path) == limit


def test_available_memory_is_read_in_bytes(tmp_path):
    files(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"})
    assert machine.memory_available_bytes(tmp_path) == 2048 * 1024
    assert machine.memory_available_bytes(tmp_path / "none") is None


def test_a_file_in_the_current_folder_does_not_stand_in_for_a_module(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    cores, sqlite = machine.ask_consumer()
    assert sqlite
    assert cores.usable is not None


def test_a_home_on_a_network_share_prevents_a_run(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text("1 1 0:9 / / rw - nfs4 filer:/x rw\n")
    monkeypatch.setattr("overnight_common.file_systems.MOUNTS", mounts)
    status, text = examined(tmp_path)
    assert status == 1
    assert "network share (nfs4)" in text
