"""Whatever bytes and properties lie in the queues, nobody falls over them, and the job beside them ends."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from overnight_common.brokers.base import DEAD_QUEUE, Message, reply_queue, task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.errors import DecodeError
from overnight_common.messages import VERSION, Reply, Task, bundle, decode_task, encode
from overnight_common.values import encode_values
from support.broker_use import Outcomes, opened
from support.command_line import Desk, Program, noise, wait_until
from support.raw_amqp import publish_raw

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

POINTS, BATCH = 12, 2
IN_EACH_QUEUE = 150
RUN = (
    *("run", "counted:noisy", "--data", f"range:{POINTS}", "--batch", str(BATCH), "--output", "out.npy"),
    *("--slots", "0", "--queue", "default"),
)
FOREIGN_TASK = encode(Task(VERSION, "foreign", "overnight.replies.foreign.1", 0, 2, 1, "counted:noisy"))
FOREIGN_REPLY = encode(
    Reply(VERSION, "foreign", 0, 2, 1, "done", "c", 1, "cpu", "f", result=encode_values([1.5, 2.5], 2))
)


def drawn(strategy: SearchStrategy[Any]) -> list[Any]:
    """Return what hypothesis would try, so that all of it meets one and the same consumer."""
    found: list[Any] = []

    @settings(
        max_examples=IN_EACH_QUEUE,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(one: Any) -> None:
        found.append(one)

    collect()
    return found


@st.composite
def spoilt(draw: st.DrawFn, message: bytes) -> bytes:
    """Cut, change or lengthen a message that was good."""
    place = draw(st.integers(0, len(message) - 1))
    instead = draw(st.binary(max_size=4))
    return message[:place] + instead + message[place + draw(st.integers(0, len(instead) + 1)) :]


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
deep = st.sampled_from([b"\x91" * 50_000, b"\x81\xa1v" * 50_000, b"\xdd\xff\xff\xff\xff", b""])


def bodies(good: bytes) -> SearchStrategy[bytes]:
    together = bundle([good] * 3)
    return (
        st.binary(max_size=200) | plain.map(msgspec.msgpack.encode) | spoilt(good) | spoilt(together) | deep
    )


def is_task(body: bytes) -> bool:
    try:
        decode_task(body)
    except DecodeError:
        return False
    return True


# A task that can be read is served: its reply queue may still come.
task_bodies = bodies(FOREIGN_TASK).filter(lambda body: not is_task(body))
reply_bodies = bodies(FOREIGN_REPLY) | st.just(FOREIGN_REPLY)
words = st.text(max_size=30).map(lambda text: text.encode()[:255].decode(errors="ignore"))
odd = words | st.binary(max_size=255)
names = st.sampled_from(
    ["x-delivery-count", "x-death", "x-first-death-reason", "reason", "from_queue", "at"]
) | odd.filter(bool).map(lambda name: name[:128])
header_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=300)
    | st.binary(max_size=300)
    | st.decimals(-1000, 1000, places=2)
    | st.datetimes(timezones=st.just(UTC)).filter(lambda at: at.year > 1970),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
properties = st.fixed_dictionaries(
    {},
    optional={
        "headers": st.dictionaries(names, header_values, max_size=5),
        "type": odd,
        "message_id": odd,
        "content_type": odd,
        "correlation_id": odd,
        "reply_to": odd,
        "app_id": odd,
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, 2**64 - 1),
    },
)
own_headers = st.dictionaries(
    st.text(max_size=30), st.text(max_size=300) | st.integers(-(2**63), 2**63), max_size=4
)


def until_begun(desk: Desk) -> tuple[Program, Program]:
    desk.hold(POINTS - BATCH)  # one slot stays free
    driver = desk.start(*RUN)
    consumer = desk.consumer("--methods", "counted:noisy", "--slots", "2")
    driver.wait_until(lambda: desk.noted("held"))
    return driver, consumer


def assert_all_are_dead_and_the_job_ends(
    desk: Desk, driver: Program, consumer: Program, foreign: int
) -> None:
    assert foreign > IN_EACH_QUEUE
    wait_until(
        lambda: dead_letters(desk) == foreign, lambda: f"{dead_letters(desk)} instead of {foreign}", 60
    )
    desk.let_go()
    ended = driver.wait()
    assert ended.status == 0, ended
    assert desk.results().tobytes() == noise(POINTS).tobytes()
    assert set(desk.calls().values()) == {1}
    told = desk.overnight("dead", "list", "--json").output
    letters = json.loads(told[told.index("{") :])["dead_letters"]
    assert len(letters) == foreign
    assert all(letter["reason"] not in ("", "unknown") for letter in letters)
    assert {letter["from_queue"] for letter in letters} == {task_queue("default"), replies_of(desk)}
    assert consumer.stop().status == 0
    for program in (driver, consumer):
        assert "Traceback" not in program.output, program.output


def dead_letters(desk: Desk) -> int:
    told = desk.overnight("queues", "--json")
    assert told.status == 0, told
    queues = json.loads(told.output[told.output.index("{") :])["queues"]  # 3.10 is warned of before
    return sum(each["ready"] or 0 for each in queues if each["queue"] == DEAD_QUEUE)


def replies_of(desk: Desk) -> str:
    with desk.job() as job:
        return reply_queue(job.spec.id, job.spec.epoch)


def test_every_byte_string_in_the_queues_ends_in_the_dead_letters_with_a_reason(desk: Desk) -> None:
    driver, consumer = until_begun(desk)
    tasks = drawn(st.tuples(task_bodies, words, words, own_headers))
    replies = drawn(st.tuples(reply_bodies, words, words, own_headers))

    async def put() -> None:
        broker, outcomes = open_broker(None, desk.home, max_message_bytes=1 << 20), Outcomes()
        async with opened(broker):
            for queue, those in ((task_queue("default"), tasks), (replies_of(desk), replies)):
                for body, kind, name, headers in those:
                    broker.publish(queue, Message(body, kind, name, headers), outcomes)
            assert set(await outcomes.wait(len(tasks) + len(replies))) == {None}

    asyncio.run(put())
    assert_all_are_dead_and_the_job_ends(desk, driver, consumer, len(tasks) + len(replies))


@pytest.mark.rabbitmq
def test_every_byte_string_with_whatever_properties_ends_there_on_rabbitmq_too(rabbit_desk: Desk) -> None:
    desk = rabbit_desk
    assert desk.broker is not None
    driver, consumer = until_begun(desk)
    tasks, replies = drawn(st.tuples(task_bodies, properties)), drawn(st.tuples(reply_bodies, properties))
    all_of_them = [(task_queue("default"), *task) for task in tasks]
    all_of_them += [(replies_of(desk), *reply) for reply in replies]
    taken = publish_raw(desk.broker, all_of_them)
    assert_all_are_dead_and_the_job_ends(desk, driver, consumer, taken)
