"""What of a reply queue is of use to a job, and when a job is not worth going on with."""

import math

import numpy as np
import pytest

from overnight_common.messages import VERSION, Cause, Encoded, Failure, Reply, bundle, encode
from overnight_common.values import encode_values
from overnight_producer.driving.ending import tasks_on_trial, why_hopeless, why_nobody_works
from overnight_producer.driving.reading import usable_replies
from support.job_files import spec_of

TORN = Encoded("npy", encode_values(np.zeros(2), 2).body[:-1])


def with_unknown_cause(spec):
    reply = Reply(VERSION, spec.id, 2, 4, 1, "failed", "desk", failure=Failure(Cause.EXCEPTION))
    return encode(reply).replace(b"exception", b"bad-lucks")


def body(job, start=2, stop=4, result=Encoded("json", b"[1, 2]")):  # noqa: B008 - frozen
    return encode(Reply(VERSION, job, start, stop, 1, "done", "desk", result=result))


def test_a_reply_to_this_job_is_read():
    spec = spec_of(10)
    (reply,), fault = usable_replies(body(spec.id), spec)
    assert reply.stop == 4
    assert not fault


def test_of_replies_that_came_together_the_usable_ones_are_read_and_the_others_are_named():
    spec = spec_of(10)
    together = bundle([body(spec.id), body("another"), body(spec.id, 4, 6), body(spec.id, 9, 11)])
    replies, fault = usable_replies(together, spec)
    assert [reply.start for reply in replies] == [2, 4]
    assert fault == f"a reply for [2, 4) of job another; a reply for [9, 11) of job {spec.id}"


def test_a_reply_that_this_version_does_not_understand_costs_none_of_those_that_came_with_it():
    spec = spec_of(10)
    good = body(spec.id)
    replies, fault = usable_replies(bundle([good, with_unknown_cause(spec), good]), spec)
    assert len(replies) == 2
    assert "bad-lucks" in fault


def test_of_many_faults_some_are_named_and_the_others_counted():
    spec = spec_of(10)
    _, fault = usable_replies(bundle([body("another")] * 5000), spec)
    assert fault.endswith("; and 4997 more")
    assert len(fault) < 200


@pytest.mark.parametrize(
    ("job", "fields", "reason"),
    [
        ("another", {}, "of job another"),
        (None, {"stop": 11}, "a reply for [2, 11)"),
        (None, {"result": Encoded("json", b"[1]")}, "other than 2 results"),
        (None, {"result": Encoded("npy", b"no array")}, "other than 2 results"),
        (None, {"result": TORN}, "other than 2 results"),
    ],
)
def test_what_cannot_be_of_this_job_is_refused_with_the_reason(job, fields, reason):
    spec = spec_of(10)
    replies, fault = usable_replies(body(job or spec.id, **fields), spec)
    assert not replies
    assert reason in fault


def test_what_is_no_reply_is_refused():
    replies, fault = usable_replies(b"hello", spec_of(10))
    assert not replies
    assert "not a reply" in fault


@pytest.mark.parametrize(
    ("limit", "given_up", "succeeded", "hopeless"),
    [(20, 19, 0, False), (20, 20, 2, True), (20, 20, 3, False), (None, 1000, 0, False), (0, 0, 0, False)],
)
def test_a_job_pauses_when_many_fail_and_few_succeed(limit, given_up, succeeded, hopeless):
    assert bool(why_hopeless(limit, given_up, succeeded)) is hopeless


@pytest.mark.parametrize(
    ("limit", "failed", "succeeded", "most"),
    [(20, 0, 0, None), (20, 1, 0, 20), (20, 300, 0, 20), (20, 300, 1, None), (None, 300, 0, None)],
)
def test_a_method_that_has_only_failed_has_few_tasks_out(limit, failed, succeeded, most):
    assert tasks_on_trial(limit, failed, succeeded) == most


def test_who_accuses_itself_is_named_when_nobody_works():
    assert why_nobody_works(600, "overnight.tasks.gpu", {}) == (
        "no task was done for 600 s: no consumer answers on overnight.tasks.gpu"
    )
    assert "desk says no such module" in why_nobody_works(600, "q", {"desk": "no such module"})


@pytest.mark.parametrize(
    "figures", [{"seconds": math.nan}, {"seconds": math.inf}, {"slot": 2**63}, {"peak_rss_bytes": 2**63}]
)
def test_a_reply_with_figures_that_the_job_file_cannot_hold_is_refused(figures):
    spec = spec_of(10)
    reply = Reply(VERSION, spec.id, 2, 4, 1, "done", "desk", **figures)
    replies, fault = usable_replies(encode(reply), spec)
    assert not replies
    assert "figures" in fault
