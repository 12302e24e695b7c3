from dataclasses import replace
from pathlib import Path

import pytest

from overnight_common.errors import BadInputError
from overnight_consumer.limits import Limits
from overnight_consumer.settings import RawSettings, environment_commands, inherited_environment, validated
from support.fake_cuda import with_fake_cuda


def test_good_settings_are_made_whole(tmp_path):
    settings = validated(
        RawSettings(commands=("true",), source=tmp_path, slots="3", home=Path("here"), device="cpu")
    )
    assert settings.slots == 3
    assert settings.home.is_absolute()
    assert settings.name
    assert settings.devices.kind == "cpu"
    assert settings.broker is None


def test_auto_slots_are_the_cores(tmp_path):
    settings = validated(RawSettings(commands=("true",), source=tmp_path, device="cpu"))
    assert settings.slots == settings.cores >= 1


def test_auto_slots_are_one_a_device_and_a_number_is_kept(tmp_path, monkeypatch):
    for name, value in with_fake_cuda(3).items():
        monkeypatch.setenv(name, value)
    raw = RawSettings(commands=("true",), source=tmp_path, device="cuda")
    assert validated(raw).slots == 3
    assert validated(replace(raw, slots="7")).slots == 7
    assert validated(replace(raw, device="cuda:2")).slots == 1


def test_a_missing_device_is_told_with_all_other_faults(tmp_path, monkeypatch):
    for name, value in with_fake_cuda(0).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInputError) as caught:
        validated(RawSettings(commands=("true",), source=tmp_path, device="cuda", slots="0"))
    faults = "\n".join(caught.value.faults)
    assert "--device cuda: no CUDA device" in faults
    assert "--slots '0'" in faults


def test_every_fault_is_told_at_once(tmp_path):
    raw = RawSettings(
        methods=("gone:f", "no such", "-x"),
        commands=(" ",),
        queues=("a b", ""),
        source=tmp_path / "nowhere",
        slots="0",
        idle_exit=-1,
        grace=float("nan"),
        max_deliveries=0,
        max_message_bytes=1,
        device="abacus",
        log_level="loud",
        broker_timeout=-1,
        time_limit=0,
        memory_limit="much",
        recycle_tasks=0,
        recycle_growth="1X",
    )
    with pytest.raises(BadInputError) as caught:
        validated(raw)
    faults = "\n".join(caught.value.faults)
    for flag in (
        "idle-exit",
        "grace",
        "max-deliveries",
        "max-message-bytes",
        "device",
        "log-level",
        "broker-timeout",
        "time-limit",
        "memory-limit 'much'",
        "recycle-tasks",
        "recycle-growth '1X'",
    ):
        assert f"--{flag}" in faults
    for words in ("gone", "'no such'", "'-x'", "--command is empty", "'a b'", "''", "nowhere", "--slots '0'"):
        assert words in faults


def test_nothing_to_serve_is_a_fault():
    with pytest.raises(BadInputError, match="Nothing to serve"):
        validated(RawSettings())


def test_children_do_not_get_the_address_of_the_broker(monkeypatch):
    monkeypatch.setenv("OVERNIGHT_BROKER", "amqp://me:secret@host")
    monkeypatch.setenv("HARMLESS", "1")
    assert "OVERNIGHT_BROKER" not in inherited_environment()
    assert inherited_environment()["HARMLESS"] == "1"


def test_commands_in_the_environment_are_one_a_line(monkeypatch):
    monkeypatch.setenv("OVERNIGHT_COMMAND", "python a.py --x 1\n\nsh b.sh\n")
    assert environment_commands() == ("python a.py --x 1", "sh b.sh")


def test_limits_are_read_with_their_units(tmp_path):
    raw = RawSettings(
        commands=("true",), source=tmp_path, memory_limit="1.5G", recycle_growth="200M", recycle_tasks=5
    )
    limits = validated(raw).limits
    assert limits.memory_limit_bytes == 3 * 2**29
    assert (limits.recycling.tasks, limits.recycling.growth_bytes) == (5, 200 * 2**20)
    assert validated(RawSettings(commands=("true",), source=tmp_path, memory_limit="none")).limits == Limits()
