"""Test the parts of the RabbitMQ side that need no RabbitMQ."""

from __future__ import annotations

import asyncio
import math
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight_common.brokers.amqp_address import Address
from overnight_common.brokers.amqp_foreign import (
    LONGEST_TEXT,
    MOST_HEADERS,
    delivery_count,
    own_headers,
    text_of,
)
from overnight_common.brokers.amqp_link import backoff_seconds, frame_of
from overnight_common.brokers.amqp_session import Consumer, plan_consumers, split_acks
from overnight_common.brokers.amqp_topology import DEAD, REPLIES, TASKS, shape_of
from overnight_common.brokers.amqp_writes import WRITE_SECONDS, GroupedWrites
from overnight_common.brokers.base import DEAD_QUEUE, reply_queue, task_queue
from overnight_common.brokers.queue_metrics import parse_unacked, read_unacked
from overnight_common.errors import BadInputError, BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable


def most(consumers: Iterable[Consumer]) -> int:
    """Return how many deliveries may come to be held if nothing is settled."""
    return sum(one.limit if one.active else one.held for one in consumers)


@st.composite
def some_consumers(draw: st.DrawFn) -> list[Consumer]:
    found = []
    for _ in range(draw(st.integers(0, 6))):
        limit = draw(st.integers(1, 50))
        active = draw(st.booleans())
        found.append(Consumer(limit, draw(st.integers(0, limit)), active, not active and draw(st.booleans())))
    return found


@given(st.integers(0, 100), some_consumers())
def test_a_plan_never_allows_more_than_the_target_or_what_is_held(
    target: int, consumers: list[Consumer]
) -> None:
    held = sum(one.held for one in consumers)
    cancel, added = plan_consumers(target, consumers)
    for one in cancel:
        one.active, one.cancelling = False, True
    assert most(consumers) + added <= max(target, held)
    if added:
        assert most(consumers) + added == target
        assert not any(one.cancelling for one in consumers)


@given(st.integers(0, 100), some_consumers())
def test_plans_end_with_the_target_once_all_cancels_are_answered(
    target: int, consumers: list[Consumer]
) -> None:
    for _ in range(10):
        for one in consumers:
            one.cancelling = False
        cancel, added = plan_consumers(target, consumers)
        for one in cancel:
            one.active = False
        if added:
            consumers.append(Consumer(added))
        if not cancel and not added:
            break
    assert most(consumers) == max(target, sum(one.held for one in consumers if not one.active))


def test_a_raised_prefetch_adds_the_difference_and_cancels_nobody() -> None:
    assert plan_consumers(10, [Consumer(4, 2)]) == ([], 6)


def test_a_lowered_prefetch_cancels_the_newest_first_and_only_as_many_as_needed() -> None:
    old, new = Consumer(4, 4), Consumer(6, 1)
    assert plan_consumers(6, [old, new]) == ([new], 0)


@given(st.sets(st.integers(1, 40), min_size=1), st.sets(st.integers(1, 40)))
def test_acks_cover_what_is_settled_and_nothing_that_is_held(settled: set[int], held: set[int]) -> None:
    held -= settled
    up_to, others = split_acks(list(settled), min(held, default=None))
    assert not any(tag <= up_to for tag in held)
    assert {tag for tag in settled if tag <= up_to} | set(others) == settled


def test_acks_in_order_become_one() -> None:
    assert split_acks([3, 1, 2], None) == (3, [])
    assert split_acks([3, 1, 2], 4) == (3, [])


def test_backoff_doubles_from_a_tenth_of_a_second_to_fifteen_and_is_jittered_downwards() -> None:
    assert [backoff_seconds(tries, lambda: 1.0) for tries in (0, 1, 2, 7, 8, 5000)] == [
        0.1,
        0.2,
        0.4,
        12.8,
        15,
        15,
    ]
    assert backoff_seconds(0, lambda: 0.0) == 0.05


@pytest.mark.parametrize(
    ("url", "text", "vhost"),
    [
        ("amqp://guest:secret@rabbit:5672/", "amqp://guest@rabbit:5672", "/"),
        ("amqp://guest:secret@rabbit:5672/%2F", "amqp://guest@rabbit:5672", "/"),
        ("amqp://rabbit", "amqp://guest@rabbit:5672", "/"),
        ("amqps://me:s%40cret@rabbit/lab%2Fone?heartbeat=60", "amqps://me@rabbit:5671/lab/one", "lab/one"),
        ("amqp://me:secret@[::1]:5673/lab", "amqp://me@[::1]:5673/lab", "lab"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, text: str, vhost: str) -> None:
    address = Address(url, 30)
    assert (address.text, address.vhost) == (text, vhost)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hushhush@rabbit/",
        "amqp://me:hushhush@rabbit:port/",
        "amqp://me:hush/hush@rabbit",
        "amqp://",
        "",
        "hushhush",
    ],
)
def test_what_is_no_address_is_bad_input_without_the_password(url: str) -> None:
    with pytest.raises(BadInputError) as caught:
        Address(url, 30)
    assert "amqp://user:password@host" in str(caught.value)
    if "@" in url:
        assert "hush" not in str(caught.value)


def test_each_kind_of_queue_has_its_exchange_and_a_foreign_one_is_refused() -> None:
    assert shape_of(task_queue("gpu")).exchange is TASKS
    assert shape_of(reply_queue("job", 2)).exchange is REPLIES
    assert shape_of(DEAD_QUEUE).exchange is DEAD
    for foreign in ("somebody.else", "", task_queue("x" * 300)):
        with pytest.raises(BrokerError, match="not the full name"):
            shape_of(foreign)


def test_the_figure_of_one_queue_is_found_in_the_metrics() -> None:
    text = (
        "# TYPE rabbitmq_detailed_queue_messages_unacked gauge\n"
        'rabbitmq_detailed_queue_messages_unacked{vhost="/",queue="overnight.tasks.a"} 7\n'
        'rabbitmq_detailed_queue_messages_unacked{vhost="lab",queue="overnight.tasks.a"} 1.2e+03\n'
    )
    assert parse_unacked(text, "/", "overnight.tasks.a") == 7
    assert parse_unacked(text, "lab", "overnight.tasks.a") == 1200
    assert parse_unacked(text, "lab", "overnight.tasks.b") is None


def test_metrics_that_do_not_answer_tell_nothing() -> None:
    assert read_unacked("http://127.0.0.1:1/metrics/detailed", "/", "overnight.tasks.a", 1.0) is None


def test_what_is_written_after_a_silence_leaves_at_once_and_what_follows_leaves_together_and_in_order() -> (
    None
):
    written: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def write() -> None:
        loop = asyncio.get_running_loop()
        writes = GroupedWrites(loop, lambda data: written.put_nowait((loop.time(), data)))
        writes.add(b"a")
        writes.add(b"b")
        first_at, first = await written.get()
        for letter in (b"c", b"d", b"e"):
            writes.add(letter)
            await asyncio.sleep(0)
        second_at, second = await written.get()
        assert (first, second) == (b"ab", b"cde")
        assert second_at - first_at >= WRITE_SECONDS - 0.001

    asyncio.run(write())


def header_frame(properties: bytes) -> bytes:
    """Return a whole frame of AMQP that announces a body of 7 bytes on channel 3."""
    payload = struct.pack(">HHQ", 60, 0, 7) + properties
    return struct.pack(">BHL", 2, 3, len(payload)) + payload + b"\xce"


@pytest.mark.parametrize(
    "value",
    [b"d" + struct.pack(">d", math.nan), b"T" + b"\xff" * 8, b"f" + struct.pack(">f", math.inf), b"?"],
)
def test_a_message_whose_properties_cannot_be_read_comes_without_them(value: bytes) -> None:
    table = b"\x01n" + value
    headers = struct.pack(">H", 1 << 13) + struct.pack(">I", len(table)) + table
    frame = header_frame(headers)
    end, found = frame_of(frame + b"more")
    assert end == len(frame)
    assert (found.channel_number, found.body_size, found.properties.headers) == (3, 7, None)


def test_readable_frames_are_read_as_they_are_and_a_part_of_one_is_waited_for() -> None:
    frame = header_frame(struct.pack(">H", 1 << 13) + struct.pack(">I", 4) + b"\x01nt\x01")
    assert frame_of(frame)[1].properties.headers == {"n": True}
    assert frame_of(frame[:-1]) == (0, None)


def test_an_unreadable_frame_that_is_no_messages_header_breaks_the_link() -> None:
    with pytest.raises(Exception, match="cannot be read"):
        frame_of(struct.pack(">BHL", 1, 0, 4) + b"\xff" * 4 + b"\xce")


def test_whatever_a_stranger_wrote_becomes_small_texts_and_integers() -> None:
    strange = {
        "n": None,
        "b": b"\xff",
        b"\xfe": [1, {"x": 2.5}],
        "t": True,
        "long": "x" * 9000,
        "x-death": [],
    }
    assert own_headers(strange) == {
        "n": "",
        "b": "\ufffd",
        "\ufffd": "[1, {'x': 2.5}]",
        "t": 1,
        "long": "x" * LONGEST_TEXT,
    }
    assert len(own_headers({str(n): n for n in range(500)})) == MOST_HEADERS
    assert own_headers({"x-first-death-reason": "delivery_limit", "x-first-death-queue": "q"}) == {
        "reason": "the broker: delivery_limit",
        "from_queue": "q",
    }
    assert [text_of(value) for value in (None, "", b"\xc3", 5)] == ["", "", "\ufffd", "5"]


@pytest.mark.parametrize(("count", "expected"), [(None, 0), (3, 3), ("abc", 0), ([], 0), (True, 1)])
def test_only_a_number_is_a_delivery_count(count: object, expected: int) -> None:
    assert delivery_count({"x-delivery-count": count}) == expected
