"""What cannot work is refused with status 2 and the way out, before anything is made or published."""

from __future__ import annotations

import asyncio
import json
import socket

import numpy as np
import pytest

from overnight_common.brokers.base import DEAD_QUEUE, task_queue
from overnight_common.brokers.opening import open_broker
from support.broker_use import opened
from support.command_line import Desk

GOOD = {"method": "counted:square", "--data": "range:10", "--output": "out.npy"}
PASSWORD = "S3cret-w0rd"


def prepared(desk: Desk) -> Desk:
    np.save(desk.folder / "objects.npy", np.array([{"a": 1}, None], dtype=object))
    desk.write("points.bin", "not a data set")
    desk.write("torn.npy", "\x93NUMPY")
    desk.write("needs.py", "import a_package_that_is_not_here\ndef one(batch): return batch\n")
    desk.write("taking.py", "def scaled(batch, factor, offset=0): return batch * factor + offset\n")
    desk.write("torn_code.py", "def one(batch:\n")
    (desk.folder / "folder.npy").mkdir()
    return desk


def command(**changes: str | None) -> tuple[str, ...]:
    """Return a good command with some of its words changed; None leaves one out."""
    words = {
        **GOOD,
        **{("method" if name == "method" else flag(name)): value for name, value in changes.items()},
    }
    method = words.pop("method")
    flags = [word for name, value in words.items() if value is not None for word in (name, value)]
    return ("run", *([method] if method else []), *flags)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


BAD = {
    "missing file": (command(data="pionts.npy"), ["there is no file", "pionts.npy"]),
    "no data set": (command(data=None), ["there is no data set", "--data"]),
    "object array": (command(data="objects.npy"), ["objects.npy", "object"]),
    "unknown format": (command(data="points.bin"), ["points.bin", "known are"]),
    "torn file": (command(data="torn.npy"), ["torn.npy"]),
    "a folder": (command(data="folder.npy"), ["folder.npy is a folder", "glob:"]),
    "broken range": (command(data="range:many"), ["range:many"]),
    "nothing matches": (command(data="glob:*.png"), ["*.png"]),
    "unknown method": (command(method="shaply"), ["shaply", "did you mean 'shapley'"]),
    "no method": (command(method=None), ["give a method"]),
    "method and command": (command(command="true"), ["and not both"]),
    "no such program": (
        ["run", "--command", "./jobb.sh", "--data", "range:5", "--output", "out.npy"],
        ["no program './jobb.sh'"],
    ),
    "unknown module": (command(method="conted:square"), ["conted", "did you mean 'counted'"]),
    "unknown function": (command(method="counted:sqare"), ["sqare", "did you mean 'square'"]),
    "no function": (command(method="counted:HERE"), ["counted:HERE", "not a function"]),
    "cannot be imported": (command(method="needs:one"), ["a_package_that_is_not_here", "Traceback"]),
    "no Python": (command(method="torn_code:one"), ["torn_code", "SyntaxError"]),
    "wrong parameter name": (
        command(method="taking:scaled", param="fcator=2"),
        ["--param fcator", "did you mean factor?"],
    ),
    "parameter missing": (
        command(method="taking:scaled"),
        ["needs a value for factor", "--param factor=..."],
    ),
    "no parameter": (command(param="iterations"), ["--param iterations", "name=value"]),
    "parameter too large": (
        command(method="taking:scaled", param="factor=[99999999999999999999999]"),
        ["cannot be encoded", "2**64"],
    ),
    "our own parameter": (command(param="indices=1"), ["--param indices", "Overnight itself"]),
    "negative batch": (command(batch="-7"), ["--batch -7", "from 1 on, or auto"]),
    "no batch": (command(batch="0"), ["--batch 0"]),
    "batch no number": (command(batch="ten"), ["--batch ten"]),
    "start beyond the end": (command(start="10"), ["--start 10", "the last one is number 9"]),
    "negative start": (command(start="-1"), ["--start -1"]),
    "negative count": (command(count="-1"), ["--count -1"]),
    "start no number": (command(start="two"), ["--start", "integer"]),
    "slots no number": (command(slots="many"), ["--slots many", "auto"]),
    "negative slots": (command(slots="-2"), ["--slots -2", "auto"]),
    "no time": (command(time_limit="0"), ["--time-limit 0", "above 0"]),
    "endless silence": (command(silence="inf"), ["--silence inf"]),
    "unknown scheme": (command(broker="redis://localhost"), ["redis://localhost", "amqp://"]),
    "broken URL": (command(broker=f"amqp://me:{PASSWORD}@host:port/"), ["broken", "port"]),
    "unknown output format": (command(output="out.xlsx"), ["out.xlsx", ".npy"]),
    "output in no folder": (command(output="nowhere/out.npy"), ["nowhere"]),
    "output is a folder": (command(output="folder.npy"), ["folder.npy"]),
    "output is the data": (command(data="points.npy", output="points.npy"), ["points.npy"]),
    "unknown flag": ((*command(), "--bacth", "7"), ["--bacth", "--batch"]),
    "no folder of modules": (command(source="nowhere"), ["--source nowhere"]),
    "queue name": (command(queue="my queue"), ["--queue 'my queue'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_the_way_out(desk: Desk, case: str) -> None:
    prepared(desk)
    np.save(desk.folder / "points.npy", np.arange(10))
    before = sorted(desk.folder.iterdir())
    arguments, expected = BAD[case]

    ended = desk.overnight(*arguments)

    assert ended.status == 2, ended
    for words in expected:
        assert words in ended.output, ended
    assert PASSWORD not in ended.output
    assert "overnight_producer/" not in ended.output, "it shows our own insides"
    # The log of this very command is all that is new, and Python's compiled modules.
    new = {path.name for path in desk.folder.iterdir()} - {path.name for path in before}
    assert new <= {"__pycache__"}


@pytest.mark.parametrize(
    "words",
    [
        ("resume", "--window", "-3"),
        ("retry", "--attempts", "0"),
        ("resume", "--slots", "many"),
        ("resume", "--all", "--silence", "0"),
        ("serve", "--window-seconds", "nan"),
    ],
)
def test_who_goes_on_with_jobs_refuses_what_run_refuses(desk: Desk, words: tuple[str, ...]) -> None:
    assert desk.overnight(*command(output=None)).status == 0

    ended = desk.overnight(*words)

    assert ended.status == 2, ended
    assert " ".join(words[-2:]) in ended.output


@pytest.mark.rabbitmq
def test_bad_input_publishes_nothing_to_rabbitmq(rabbit_desk: Desk) -> None:
    prepared(rabbit_desk)

    ended = rabbit_desk.overnight(*command(batch="-7"))

    assert ended.status == 2, ended
    assert asyncio.run(depths(rabbit_desk)) == [None, None]


async def depths(desk: Desk) -> list[object]:
    broker = open_broker(desk.broker, desk.home, max_message_bytes=1 << 20)
    async with opened(broker):
        return [await broker.depth(task_queue("default")), await broker.depth(DEAD_QUEUE)]


@pytest.mark.rabbitmq
def test_a_point_over_the_message_limit_is_refused_before_publishing(rabbit_desk: Desk) -> None:
    np.save(rabbit_desk.folder / "wide.npy", np.zeros((3, 4000)))

    ended = rabbit_desk.overnight(*command(data="wide.npy", max_message_bytes="8000"))

    assert ended.status == 2, ended
    assert "8000" in ended.output.replace(",", "").replace(" ", "")
    assert asyncio.run(depths(rabbit_desk)) == [None, None]
    assert not rabbit_desk.jobs()


def test_several_faults_are_named_at_once(desk: Desk) -> None:
    ended = desk.overnight(
        *command(
            method="counted:sqare", data="pionts.npy", batch="-7", slots="many", output="out.xlsx", start="-1"
        ),
        *("--broker", "redis://localhost"),
    )

    assert ended.status == 2, ended
    faults = [line for line in ended.output.splitlines() if line.startswith("overnight: ")]
    for words in ("sqare", "pionts.npy", "--batch -7", "--slots many", "out.xlsx", "--start -1", "redis://"):
        assert any(words in fault for fault in faults), (words, ended.output)


def test_an_output_that_cannot_be_written_is_refused(desk: Desk) -> None:
    desk.write("file", "")

    ended = desk.overnight(*command(output="file/out.npy"))

    assert ended.status == 2, ended
    assert "file" in ended.output
    assert not desk.home.exists()


def test_a_broker_that_is_down_ends_the_run_after_the_deadline_without_its_password(desk: Desk) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens here
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        ended = desk.overnight(*command(broker=f"amqp://me:{PASSWORD}@{address}/", broker_timeout="2"))

    assert ended.status == 3, ended
    assert 2 <= ended.seconds < 15
    assert address in ended.output
    assert PASSWORD not in ended.output
    assert desk.jobs() == []


@pytest.mark.rabbitmq
def test_a_wrong_password_is_said_and_not_shown(rabbit_desk: Desk) -> None:
    assert rabbit_desk.broker is not None
    address = rabbit_desk.broker.replace("guest:guest", f"guest:{PASSWORD}")

    ended = rabbit_desk.overnight(*command(broker=address, broker_timeout="2"))

    assert ended.status == 3, ended
    assert PASSWORD not in ended.output
    assert "guest" in ended.output


def test_zero_points_end_at_once_with_an_empty_result(desk: Desk) -> None:
    np.save(desk.folder / "none.npy", np.zeros((0, 4)))

    ended = desk.overnight(*command(data="none.npy"))

    assert ended.status == 0, ended
    assert len(desk.results()) == 0
    assert not (desk.folder / "calls").exists()


def test_zero_lines_end_with_an_empty_file(desk: Desk) -> None:
    desk.write("none.txt", "")

    ended = desk.overnight(*command(method="counted:lengths", data="none.txt", output="out.jsonl"))

    assert ended.status == 0, ended
    assert (desk.folder / "out.jsonl").read_text() == ""


@pytest.mark.parametrize("batch", ["1", "5", "auto"])
def test_one_point_gives_one_result_for_any_batch(desk: Desk, batch: str) -> None:
    ended = desk.overnight(*command(data="range:1", batch=batch))

    assert ended.status == 0, ended
    assert desk.results().tolist() == [0]


def test_a_batch_larger_than_the_data_set_is_one_task(desk: Desk) -> None:
    ended = desk.overnight(*command(batch="1000", start="3"))

    assert ended.status == 0, ended
    assert desk.results().tolist() == [index**2 for index in range(3, 10)]
    with desk.job() as job:
        assert [(row.start, row.stop) for row in job.results()] == [(3, 10)]


@pytest.mark.parametrize("name", ["data set.npy", "-dash.npy", "Größe 数据 🙂.npy", "a%20b.npy"])
def test_paths_in_any_script_work(desk: Desk, name: str) -> None:
    np.save(desk.folder / name, np.arange(6))

    ended = desk.overnight("run", "counted:square", f"--data={name}", "--output=results 数据.npy")

    assert ended.status == 0, ended
    assert desk.results("results 数据.npy").tolist() == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize(
    "words", [("status", "zzz"), ("resume",), ("export", "out.npy"), ("failures", "zzz"), ("cancel",)]
)
def test_commands_about_jobs_that_are_not_there_say_so(desk: Desk, words: tuple[str, ...]) -> None:
    ended = desk.overnight(*words)

    assert ended.status == 2, ended
    assert "there are no jobs" in ended.output
    assert not desk.home.exists()


def test_json_goes_to_standard_output_line_by_line(desk: Desk) -> None:
    ended = desk.overnight(*command(), "--json")

    assert ended.status == 0, ended
    lines = [json.loads(line) for line in ended.output.splitlines()]
    assert lines[-1]["exit_status"] == 0


def test_a_home_on_a_network_share_is_refused_by_both_programs_and_nothing_is_made(desk):
    run = ("run", "counted:square", "--data", "range:3", "--output", "out.unknown")
    for program, words in (
        ("overnight_producer", run),
        ("overnight_producer", ("dead", "list")),
        ("overnight_consumer", ("--methods", "counted:square")),
    ):
        refused = desk.disturbed("on-a-share", program, *words).wait()
        assert refused.status == 2, refused
        assert "on a network share (nfs4)" in refused.output
        assert "--home" in refused.output
        assert not desk.home.exists()
    assert "out.unknown" in desk.disturbed("on-a-share", "overnight_producer", *run).wait().output


def test_jobs_on_a_network_share_are_not_opened_from_there(desk):
    assert desk.overnight("run", "counted:square", "--data", "range:3", "--slots", "1").status == 0
    for words in (("status",), ("resume",), ("export", "out.npy"), ("serve",)):
        refused = desk.disturbed("on-a-share", "overnight_producer", *words).wait()
        assert refused.status == 2, refused
        assert "on a network share (nfs4)" in refused.output
