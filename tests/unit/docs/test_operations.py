"""Exit codes and queues in docs/operations.md are those of the programs."""

import subprocess
import sys

import pytest

from overnight_common.brokers.amqp_topology import shape_of
from overnight_common.brokers.base import DEAD_QUEUE, reply_queue, task_queue
from overnight_consumer import cli as consumer_cli
from overnight_producer import statuses as exit_status
from support.markdown import code, document, table

OPERATIONS = document("docs/operations.md")
NOBODY_THERE = ["--broker", "amqp://guest:guest@127.0.0.1:1", "--broker-timeout", "0.2"]
QUEUES = {
    "overnight.tasks.<queue>": task_queue("default"),
    "overnight.replies.<job>.<epoch>": reply_queue("job", 1),
    "overnight.dead": DEAD_QUEUE,
}


def statuses(program):
    return {int(code(row["status"])[0]) for row in table(OPERATIONS, "Exit codes") if row[program]}


def test_the_exit_codes_of_the_producer_are_its_constants():
    assert statuses("`overnight`") == {
        exit_status.DONE,
        exit_status.SOME_GIVEN_UP,
        exit_status.BAD_INPUT,
        exit_status.UNREACHABLE,
        exit_status.CANCELLED,
        exit_status.INTERRUPTED,
    }


def test_the_exit_codes_of_the_consumer_are_its_constants():
    signals = {128 + 2, 128 + 15}
    assert statuses("`overnight-consumer`") == {
        0,
        consumer_cli.EXIT_UNHEALTHY,
        consumer_cli.EXIT_BAD_INPUT,
        consumer_cli.EXIT_UNREACHABLE,
        *signals,
    }


@pytest.mark.parametrize(
    ("program", "arguments", "status"),
    [
        ("overnight_producer", [], 0),
        ("overnight_producer", ["status"], 0),
        ("overnight_producer", ["run"], 2),
        ("overnight_producer", ["status", "nojob"], 2),
        ("overnight_producer", ["queues", *NOBODY_THERE], 3),
        ("overnight_producer", ["doctor", *NOBODY_THERE], 1),
        ("overnight_consumer", [], 2),
        ("overnight_consumer", ["check", "--metrics-port", "1"], 1),
        ("overnight_consumer", ["--methods", "shapley", *NOBODY_THERE], 3),
        ("overnight_consumer", ["--methods", "shapley", "--slots", "1", "--idle-exit", "0"], 0),
    ],
)
def test_programs_end_with_the_status_of_the_table(program, arguments, status, tmp_path):
    command = [sys.executable, "-m", program, *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr


def test_queues_and_their_arguments_are_those_of_the_table():
    rows = table(OPERATIONS, "Exchanges and queues")
    assert [code(row["queue"])[0] for row in rows] == list(QUEUES)
    for row in rows:
        shape = shape_of(QUEUES[code(row["queue"])[0]])
        assert (code(row["exchange"])[0], row["kind"]) == (shape.exchange.name, shape.exchange.kind)
        assert code(row["arguments"]) == [f"{name}={value}" for name, value in shape.arguments.items()]
