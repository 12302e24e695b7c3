"""The how-tos do what they say: their own code and commands are run, as real processes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pika
import pika.exceptions
import pytest

from overnight_common.facts import facts_of
from overnight_common.signatures import WANTED
from overnight_producer.jobs.home import all_jobs
from overnight_producer.jobs.jobfile import JobFile
from support.markdown import blocks, code, document, section, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.rabbitmq import RabbitMQNode

OWN_METHOD = document("docs/how-to/your-own-method.md")
TO_RABBITMQ = document("docs/how-to/from-laptop-to-rabbitmq.md")
RIGHTS = {row["user of"]: row for row in table(document("docs/operations.md"), "Rights")}
PROGRAMS = {"overnight": "overnight_producer", "overnight-consumer": "overnight_consumer"}
PATIENCE_SECONDS = 60.0


def start(command: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """Start a command of ours as it stands in a document."""
    program, *arguments = shlex.split(command)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OVERNIGHT_")}
    return subprocess.Popen(
        [sys.executable, "-m", PROGRAMS[program], *arguments],
        cwd=folder,
        env=environment | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for its end and return what it said."""
    try:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"not at its end:\n{output}") from None
    assert process.returncode == status, output
    return output


def run(command: str, folder: Path, **variables: str) -> str:
    return finish(start(command, folder, **variables))


@contextmanager
def running(command: str, folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = start(command, folder, **variables)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def commands_of(text: str) -> list[str]:
    return [block.text.strip() for block in blocks(text) if not block.language]


def code_of(heading: str, language: str = "python") -> str:
    return "".join(block.text for block in blocks(section(OWN_METHOD, heading)) if block.language == language)


def json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# Your own method

FUNCTION, PER_POINT, CLASS = (
    "A function",
    "A function of one point",
    "A class, for a model that takes long to load",
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the code of the how-to, and data for it."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "mylib.py").write_text("".join(map(code_of, (FUNCTION, PER_POINT, CLASS))))
    (folder / "square.sh").write_text(code_of("A command", "sh"))
    (folder / "book.txt").write_text("a long word\n\ndas längste Wort Ⅻ\n")
    generator = np.random.default_rng(1)
    np.save(folder / "points.npy", generator.normal(size=(9, 4)))
    np.savez(folder / "model.npz", weights=generator.normal(size=(4, 2)))
    return folder


def namespace(folder: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec((folder / "mylib.py").read_text(), names)
    return names


def test_the_function_runs_as_it_is_shown(desk: Path) -> None:
    (command,) = commands_of(section(OWN_METHOD, FUNCTION))
    run(command, desk)
    points = np.load(desk / "points.npy")
    np.testing.assert_array_equal(np.load(desk / "energy.npy"), (np.abs(points) ** 3).sum(axis=1))


def test_the_function_of_one_point_runs_as_it_is_shown(desk: Path) -> None:
    (command,) = commands_of(section(OWN_METHOD, PER_POINT))
    run(command, desk)
    assert json_lines(desk / "words.jsonl") == ["long", "", "längste"]


def test_the_class_runs_as_it_is_shown(desk: Path) -> None:
    (command,) = commands_of(section(OWN_METHOD, CLASS))
    run(command, desk)
    points, weights = np.load(desk / "points.npy"), np.load(desk / "model.npz")["weights"]
    np.testing.assert_allclose(np.load(desk / "embedded.npy"), points @ weights, rtol=1e-12)


def test_the_command_runs_as_it_is_shown(desk: Path) -> None:
    (command,) = commands_of(section(OWN_METHOD, "A command"))
    run(command, desk)
    assert json_lines(desk / "squares.jsonl") == [i * i for i in range(1000)]


def test_facts_are_attached_as_it_is_shown() -> None:
    names: dict[str, Any] = {}
    exec(code_of("Facts about a method"), names)
    word, shapley = facts_of(names["longest_word"]), facts_of(names["shapley"])
    assert word is not None
    assert word.per_point
    assert shapley is not None
    assert (shapley.name, shapley.variants) == ("shapley", {"cuda": "mylib.torch_variant:shapley"})


def test_what_a_method_may_ask_for_is_what_it_gets(desk: Path) -> None:
    rows = table(OWN_METHOD, "What a method may ask for")
    assert {code(row["parameter"])[0] for row in rows} == set(WANTED)
    (desk / "asking.py").write_text(
        "def shapes(points, rng, seeds, indices, device, progress):\n"
        "    progress(0.5)\n"
        "    return [[type(rng[i]).__name__, str(seeds.dtype), int(indices[i]), device] for i in range(len(points))]\n"
        "def one(point, rng, seeds, indices, device, progress):\n"
        "    return [type(rng).__name__, str(seeds.dtype), int(indices), device]\n"
    )
    for method in ("asking:shapes", "asking:one --per-point"):
        run(f"overnight run {method} --data range:3 --batch 2 --output asked.jsonl", desk)
        asked = json_lines(desk / "asked.jsonl")
        assert asked == [["Generator", "uint64", i, "cpu"] for i in range(3)]


def test_a_command_finds_in_its_environment_what_the_table_says_and_nothing_else_of_ours(desk: Path) -> None:
    (desk / "names.sh").write_text(
        "env | cut -d= -f1 | grep -E '^(OVERNIGHT|CONSUMER)_' | sort | tr '\\n' ' '\n"
    )
    run("overnight run --command 'sh names.sh' --data range:1 --output names.jsonl", desk)
    there = json.loads((desk / "names.jsonl").read_text()).split()
    rows = table(OWN_METHOD, "A command")
    assert there == sorted(name for row in rows for name in code(row["it gets"]))


# From one laptop to RabbitMQ

SLOW = """
import time
import numpy as np


def energy(points, power=2):
    time.sleep(0.04 * len(points))
    with open("calls", "a") as file:
        file.write("".join(f"{int(point[0])}\\n" for point in points))
    return (np.abs(points) ** power).sum(axis=1)
"""
POINTS = 100


def rights(of: str) -> dict[str, str]:
    row = RIGHTS[of]
    return {name: code(row[name])[0] for name in ("configure", "write", "read")}


def rights_of_the_one_user() -> dict[str, str]:
    (script,) = [
        block.text for block in blocks(TO_RABBITMQ) if block.language == "sh" and "rabbitmqctl" in block.text
    ]
    *_, configure, write, read = shlex.split(script)
    return {"configure": configure, "write": write, "read": read}


def operators_command() -> str:
    (command,) = [
        span for span in code(section(document("docs/operations.md"), "Rights")) if "--idle-exit" in span
    ]
    return command


def points_done(folder: Path) -> list[int]:
    jobs = all_jobs(folder / ".overnight")
    if not jobs:
        return []
    with JobFile.open(jobs[-1][0]) as job:
        return [point for row in job.results() for point in range(row.start, row.stop)]


def wait_until_some_are_done(folder: Path) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while len(points_done(folder)) < 3:
        assert time.monotonic() < give_up, "no result came"
        time.sleep(0.02)


@pytest.mark.rabbitmq
def test_a_job_begun_on_the_laptop_goes_on_over_rabbitmq_with_the_least_rights(
    tmp_path: Path, private_rabbitmq: RabbitMQNode
) -> None:
    (tmp_path / "mylib.py").write_text(SLOW)
    points = np.stack([np.arange(POINTS, dtype=float), np.ones(POINTS)], axis=1)
    np.save(tmp_path / "points.npy", points)
    on_the_laptop, consumer, over_rabbitmq = commands_of(TO_RABBITMQ)
    url = private_rabbitmq.vhost()
    run(
        operators_command(), tmp_path, OVERNIGHT_BROKER=private_rabbitmq.user(url, **rights_of_the_one_user())
    )

    with running(on_the_laptop, tmp_path) as laptop:
        wait_until_some_are_done(tmp_path)
        laptop.send_signal(signal.SIGINT)
        assert "overnight resume" in finish(laptop, 130)
    before = points_done(tmp_path)
    assert 0 < len(before) < POINTS

    drivers = private_rabbitmq.user(url, **rights("drivers"))
    consumers = private_rabbitmq.user(url, **rights("consumers"))
    with running(consumer, tmp_path, OVERNIGHT_BROKER=consumers) as farm:
        run(over_rabbitmq, tmp_path, OVERNIGHT_BROKER=drivers)
        farm.send_signal(signal.SIGTERM)
        finish(farm)
    np.testing.assert_array_equal(np.load(tmp_path / "energy.npy"), (points**2).sum(axis=1))
    calls = [int(line) for line in (tmp_path / "calls").read_text().split()]
    assert set(calls) == set(range(POINTS))
    assert [calls.count(point) for point in before] == [1] * len(before)


@pytest.mark.rabbitmq
@pytest.mark.parametrize("of", RIGHTS)
def test_the_rights_allow_no_more_than_is_said(
    of: str, tmp_path: Path, private_rabbitmq: RabbitMQNode
) -> None:
    url = private_rabbitmq.vhost()
    run(operators_command(), tmp_path, OVERNIGHT_BROKER=url)
    tasks, other = "overnight.tasks.default", "overnight.tasks.other"
    forbidden: list[tuple[str, dict[str, object]]] = [
        ("queue_declare", {"queue": other, "durable": True}),
        ("queue_delete", {"queue": tasks}),
        ("queue_delete", {"queue": "overnight.dead"}),
    ]
    if of == "drivers":
        forbidden += [("basic_get", {"queue": tasks}), ("queue_purge", {"queue": tasks})]
    else:
        publish = {"exchange": "overnight.tasks", "routing_key": tasks, "body": b"x", "mandatory": True}
        forbidden += [("basic_publish", publish), ("basic_get", {"queue": "overnight.replies.job.1"})]
        forbidden += [
            ("basic_get", {"queue": "overnight.dead"}),
            ("queue_purge", {"queue": "overnight.dead"}),
        ]
    connection = pika.BlockingConnection(pika.URLParameters(private_rabbitmq.user(url, **rights(of))))
    try:
        for method, arguments in forbidden:
            channel = connection.channel()
            channel.confirm_delivery()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                getattr(channel, method)(**arguments)
            assert refused.value.reply_code == 403, (method, refused.value)
    finally:
        connection.close()
