import shlex

import pytest

from overnight_common.brokers.base import BrokerState, Depth
from overnight_producer.views import standing
from support.job_files import spec_of
from support.standings import Clock, snapshot_of

SPEC = spec_of(1797, queue="gpu", broker="amqp://me@rabbit:5672/farm", method="lib:slow")


def test_there_is_no_eta_before_there_is_a_rate():
    snapshot = snapshot_of(0, points_per_second=0.0)
    assert standing.ending_phrase(snapshot, 0.0) == "waiting for the first result"


def test_an_absurd_eta_is_no_error():
    assert "hundred years" in standing.ending_phrase(snapshot_of(1, points_per_second=1e-9), 0.0)


def test_the_eta_is_told_as_duration_and_as_clock_time():
    snapshot = snapshot_of(1797 - 124, points_per_second=1.0)
    words = standing.ending_phrase(snapshot, 0.0)
    assert words.startswith("2 min 4 s left, done about ")


def test_a_healthy_job_has_no_troubles():
    assert standing.troubles(snapshot_of(100), SPEC, lonely=False) == []


@pytest.mark.parametrize(
    ("depth", "seen", "so"),
    [
        (Depth(5, 0, 0), 0, True),
        (Depth(5, None, 0), 2, True),  # two were there a moment ago
        (Depth(0, 0, 0), 0, False),
        (Depth(5, 0, 1), 0, False),
        (Depth(5, None, None), 0, True),
        (Depth(5, None, None), 1, False),
        (None, 0, False),
    ],
)
def test_nobody_takes_tasks_when_they_wait_and_no_consumer_is_there(depth, seen, so):
    assert standing.nobody_takes(snapshot_of(0, depth=depth, slots_seen=seen)) is so


def test_a_queue_without_consumer_is_named_with_the_command_that_helps():
    (line,) = standing.troubles(snapshot_of(0), SPEC, lonely=True)
    assert line == (
        "no consumer on queue gpu: start one with"
        " `OVERNIGHT_BROKER=amqp://me:PASSWORD@rabbit:5672/farm"
        " overnight-consumer --queue gpu --methods lib:slow`"
    )


def test_the_command_that_helps_can_be_pasted_into_a_shell():
    spec = spec_of(3, method="command:python job.py", command="python 'my job.py'", broker="embedded:x")
    words = shlex.split(standing.consumer_command(spec))
    assert words == ["overnight-consumer", "--queue", "default", "--command", "python 'my job.py'"]


def test_a_lost_broker_is_told_instead_of_the_missing_consumer():
    (line,) = standing.troubles(snapshot_of(0, broker=BrokerState.DISCONNECTED), SPEC, lonely=True)
    assert "no link to the broker at amqp://me@rabbit:5672/farm" in line


def test_a_blocked_broker_is_told():
    (line,) = standing.troubles(snapshot_of(0, broker=BrokerState.BLOCKED), SPEC, lonely=False)
    assert "memory or disk alarm" in line


def test_accused_consumers_are_named_with_their_cause_but_not_without_end():
    accused = {f"host-{i}": "method_unavailable: no torch\nhere" for i in range(5)}
    lines = standing.troubles(snapshot_of(0, accused=accused), SPEC, lonely=False)
    assert lines[0] == "consumer host-0 cannot do these tasks: method_unavailable: no torch here"
    assert lines[3:] == ["and 2 more consumers like that"]


def test_the_longest_running_task_is_named_once_it_is_over_a_minute():
    running = [(3, 9, "desk", 2, 192.0), (9, 10, "desk", 1, 61.0), (10, 11, "desk", 3, 59.0)]
    lines = standing.troubles(snapshot_of(0, running=running), SPEC, lonely=False)
    assert lines == ["longest: [3, 9) on desk slot 2 for 3 min 12 s (1 more over 1 min)"]
    assert standing.stragglers(snapshot_of(0, running=running[2:])) == []


def test_patience_ends_only_when_it_was_so_all_the_time():
    clock = Clock()
    patience = standing.Patience(3.0, clock)
    assert not patience.over(True)
    clock.now += 2.9
    assert not patience.over(True)
    assert not patience.over(False)
    clock.now += 2.9
    assert not patience.over(True)
    clock.now += 3.0
    assert patience.over(True)


def test_the_status_line_tells_all_at_a_glance():
    line = standing.status_line(snapshot_of(812, given_up=3), 0.0)
    assert line.startswith(
        "812 of 1,797 points (45 %), 3 given up, 12.4 points/s, 1.9 of 2 slots busy, 1 min 19 s left,"
    )


def test_where_the_number_of_slots_is_unknown_the_busy_ones_are_told_alone():
    assert standing.slots_phrase(snapshot_of(1, slots_seen=0)) == "about 1.9 slots busy"
    assert standing.slots_phrase(snapshot_of(1, slots_seen=0, slots_busy=0.01)) == ""


def test_a_paused_job_has_neither_rate_nor_eta():
    line = standing.status_line(snapshot_of(812, paused=True), 0.0)
    assert line == "812 of 1,797 points (45 %), 1.9 of 2 slots busy, paused"
