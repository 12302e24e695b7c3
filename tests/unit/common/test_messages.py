"""Messages: what is sent arrives; unknown fields pass; newer versions and foreign bytes are named errors."""

import contextlib
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from overnight_common.errors import DecodeError, EncodeError, NewerVersionError
from overnight_common.messages import (
    VERSION,
    Cause,
    DataReference,
    Encoded,
    Failure,
    Reply,
    Task,
    bundle,
    decode_address,
    decode_replies,
    decode_reply,
    decode_task,
    encode,
)

TASK = Task(1, "job", "replies", 3, 7, 2, "m", params={"a": [1, None]}, data=Encoded("json", b"[1]"))
REPLY = Reply(1, "job", 3, 7, 2, "done", "me", result=Encoded("npy", b"x"))

text = st.text(max_size=8)
payloads = st.builds(Encoded, st.sampled_from(["npy", "json"]), st.binary(max_size=20))
references = st.builds(DataReference, text, st.integers(0, 2**40), text)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
ranges = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)).map(sorted)


@st.composite
def tasks(draw):
    start, stop = draw(ranges)
    return Task(
        v=VERSION,
        job=draw(text),
        reply_to=draw(text),
        start=start,
        stop=stop,
        attempt=draw(st.integers(1, 2**31)),
        method=draw(text),
        fingerprint=draw(text),
        params=draw(st.dictionaries(text, plain, max_size=3)),
        seed=draw(st.integers(0, 2**64 - 1)),
        data=draw(st.none() | payloads | references),
        per_point=draw(st.booleans()),
        time_limit_seconds=draw(st.none() | st.floats(0, 1e9)),
    )


@st.composite
def replies(draw):
    start, stop = draw(ranges)
    kind = draw(st.sampled_from(["running", "done", "failed"]))
    failure = st.builds(Failure, st.sampled_from(Cause), text, text, text, text)
    return Reply(
        v=VERSION,
        job=draw(text),
        start=start,
        stop=stop,
        attempt=draw(st.integers(1, 2**31)),
        kind=kind,
        consumer=draw(text),
        slot=draw(st.integers(0, 512)),
        seconds=draw(st.floats(0, 1e9)),
        result=draw(st.none() | payloads),
        failure=draw(failure) if kind == "failed" else None,
        log_tail=draw(text),
    )


@given(tasks())
def test_any_task_arrives_as_it_was_sent(task):
    assert decode_task(encode(task)) == task


@given(replies())
def test_any_reply_arrives_as_it_was_sent(reply):
    assert decode_reply(encode(reply)) == reply


@given(st.lists(replies(), min_size=1, max_size=20))
def test_any_replies_arrive_together_as_they_were_sent(replies):
    assert decode_replies(bundle([encode(reply) for reply in replies])) == replies


@pytest.mark.parametrize("change", [{"v": 0}, {"start": 8}, {"kind": "failed"}])
def test_a_bundle_with_a_reply_of_the_wrong_form_is_refused(change):
    wrong = msgspec.msgpack.encode({**msgspec.msgpack.decode(encode(REPLY)), **change})

    with pytest.raises(DecodeError):
        decode_replies(bundle([encode(REPLY), wrong]))


@pytest.mark.parametrize("array", [b"\x92", b"\xdc\x00\x02", b"\xdd\x00\x00\x00\x02"])
def test_a_bundle_may_be_written_as_any_array(array):
    assert decode_replies(array + encode(REPLY) * 2) == [REPLY, REPLY]


def test_a_bundle_that_is_broken_or_empty_is_no_bundle():
    whole = bundle([encode(REPLY), encode(REPLY)])

    for body in (bundle([]), whole[:-1], whole + b"x"):
        with pytest.raises(DecodeError, match="not a bundle of replies"):
            decode_replies(body)


def test_a_bundle_of_a_newer_version_is_named():
    newer = msgspec.msgpack.encode({**msgspec.msgpack.decode(encode(REPLY)), "v": VERSION + 1})

    other_form = msgspec.msgpack.encode(
        {**msgspec.msgpack.decode(encode(REPLY)), "v": VERSION + 1, "slot": "x"}
    )
    for each in (newer, other_form):
        with pytest.raises(NewerVersionError, match="update Overnight"):
            decode_replies(bundle([encode(REPLY), each]))


@given(tasks(), st.dictionaries(st.from_regex(r"new_[a-z]{1,5}", fullmatch=True), plain, max_size=3))
def test_fields_that_a_later_release_adds_are_passed_over(task, added):
    fields = msgspec.msgpack.decode(encode(task))

    assert decode_task(msgspec.msgpack.encode({**fields, **added})) == task


def test_a_newer_version_is_named_and_its_address_can_still_be_read():
    fields = msgspec.msgpack.decode(encode(TASK))
    same_form = msgspec.msgpack.encode({**fields, "v": VERSION + 1})
    other_form = msgspec.msgpack.encode({**fields, "v": VERSION + 1, "data": "changed", "params": 3})

    for body in (same_form, other_form):
        with pytest.raises(NewerVersionError, match="update Overnight"):
            decode_task(body)
        address = decode_address(body)
        assert (address.job, address.reply_to, address.start, address.stop) == ("job", "replies", 3, 7)
    with pytest.raises(NewerVersionError):
        decode_reply(msgspec.msgpack.encode({**msgspec.msgpack.decode(encode(REPLY)), "v": VERSION + 1}))


@pytest.mark.parametrize(
    "change",
    [
        {"v": 0},
        {"v": "1"},
        {"start": -1},
        {"start": 8},
        {"attempt": 0},
        {"stop": 2**70},
        {"params": {1: 2}},
        {"data": {"kind": "npy", "body": b""}},
        {"data": {"by": "wire", "kind": "npy", "body": b""}},
        {"data": {"by": "value", "kind": "pickle", "body": b""}},
        {"method": None},
        {"job": 5},
    ],
)
def test_a_task_of_the_wrong_form_is_refused(change):
    fields = {**msgspec.msgpack.decode(encode(TASK)), **change}
    body = msgspec.msgpack.encode(fields) if fields["stop"] < 2**64 else b"\xc1"

    with pytest.raises(DecodeError) as caught:
        decode_task(body)
    assert not isinstance(caught.value, NewerVersionError)


def test_a_failure_comes_with_failed_replies_and_no_others():
    fields = msgspec.msgpack.decode(encode(REPLY))

    with pytest.raises(DecodeError):
        decode_reply(msgspec.msgpack.encode({**fields, "kind": "failed"}))
    with pytest.raises(DecodeError):
        decode_reply(msgspec.msgpack.encode({**fields, "failure": {"cause": "exception"}}))
    with pytest.raises(DecodeError):
        decode_reply(
            msgspec.msgpack.encode(
                {**fields, "kind": "failed", "failure": {"cause": "bad_luck"}, "result": None}
            )
        )


def decodes_or_raises_one_error(body):
    for decode in (decode_task, decode_reply, decode_replies, decode_address):
        with contextlib.suppress(DecodeError):
            decode(body)


@given(st.binary(max_size=200))
@example(b"\x91" * 100_000)
@example(b"\xdc\xff\xff")
@example(b"\xdc\x00\x01" * 30_000)
@example(b"\x81\xa1v" * 20_000)
@example(b"\xdf\xff\xff\xff\xff")
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xc6\xff\xff\xff\xff")
@settings(max_examples=500, deadline=None)
def test_any_bytes_decode_or_raise_one_named_error(body):
    decodes_or_raises_one_error(body)


@given(st.sampled_from([encode(TASK), encode(REPLY), bundle([encode(REPLY)] * 3)]), st.data())
@settings(max_examples=500, deadline=None)
def test_a_damaged_message_decodes_or_raises_one_named_error(body, data):
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    decodes_or_raises_one_error(bytes(damaged))
    decodes_or_raises_one_error(bytes(damaged[: data.draw(st.integers(0, len(body)))]))


@given(st.binary(min_size=1, max_size=40))
@example(b"\x81\x90\x01")  # a map with a list as its key
@example(b"\x81\x80\x01")  # a map with a map as its key
@example(b"\xd6\xff\xff\xff\xff\xff")  # a time
@example(b"\xc7\x0c\xff" + b"\xff" * 12)  # a time far outside the calendar
@settings(max_examples=500, deadline=None)
def test_any_bytes_in_the_parameters_decode_or_raise_one_named_error(raw):
    fields = msgspec.msgpack.decode(encode(TASK))
    body = msgspec.msgpack.encode({**fields, "params": {"x": msgspec.Raw(raw)}})

    decodes_or_raises_one_error(body)


@dataclass
class Thing:
    size: object


@pytest.mark.parametrize("value", [object(), 2**64, "\ud800", {1, object()}, Thing(object())])
def test_parameters_that_have_no_form_in_a_message_are_a_named_error(value):
    with pytest.raises(EncodeError):
        encode(msgspec.structs.replace(TASK, params={"x": value}))


def test_text_that_is_no_unicode_does_not_cost_the_reply():
    failure = Failure(Cause.EXCEPTION, "OSError", "no file caf\udce9", "File 'caf\udce9'", "да caf\udce9")
    reply = Reply(1, "job", 0, 1, 1, "failed", "me", failure=failure, log_tail="caf\udce9")

    back = decode_reply(encode(reply))

    assert back.failure.message == "no file caf?"
    assert back.failure.stderr_tail == "да caf?"
    assert back.log_tail == "caf?"


def test_four_causes_accuse_the_consumer_and_no_others():
    accusing = {cause.value for cause in Cause if cause.accuses_consumer}

    assert accusing == {"method_unavailable", "wrong_fingerprint", "data_unavailable", "start_failed"}


def test_no_message_needs_numpy():
    import subprocess
    import sys

    code = (
        "import sys, overnight_common.messages, overnight_common.brokers.base\nprint('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert done.stdout == b"False\n"
