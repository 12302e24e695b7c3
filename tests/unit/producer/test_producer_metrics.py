import asyncio
from dataclasses import replace

import pytest

from overnight_common.brokers.base import DEAD_QUEUE, BrokerState, Depth, Message
from overnight_common.errors import NotConnectedError, TooLargeError
from overnight_common.messages import Cause, Failure
from overnight_common.metrics import Buckets
from overnight_producer.driving.observer import Cycle
from overnight_producer.driving.reckoning import PUBLISH_FAILED, SILENT_TASK
from overnight_producer.jobs.ranges import STALE_ATTEMPT, Range, RangeState
from overnight_producer.jobs.transaction import Written
from overnight_producer.metrics import ProducerMetrics
from support.broker_use import until
from support.job_files import new_job, spec_of
from support.memory_broker import MemoryBroker
from support.standings import failed, finished, progress_of, snapshot_of


@pytest.fixture
def metrics():
    return ProducerMetrics()


def values(metrics, name):
    (reading,) = [each for each in metrics.read() if each.family.name == f"overnight_{name}"]
    return {labels[0] if len(labels) == 1 else labels: value for labels, value in reading.values.items()}


def seen_in(metrics, name):
    return {
        labels: value
        for labels, value in values(metrics, name).items()
        if (sum(value.counts) if isinstance(value, Buckets) else value)
    }


# What a job file says of its own growth


def committed(job, change):
    with job.commit() as tx:
        change(tx)
    return tx.written


def test_a_transaction_sums_up_what_the_job_file_then_holds(tmp_path):
    with new_job(tmp_path, 10) as job:

        def change(tx):
            tx.cut([Range(start, start + 1, RangeState.PUBLISHED, 1) for start in range(10)])
            for start, stop in ((0, 2), (1, 3), (0, 1)):  # the last brings nothing new
                tx.add_result(start, stop, None, 0.5, "desk", 1, 1000.0)
            tx.add_failure(Range(5, 6), Failure(Cause.OUT_OF_MEMORY))
            for start in (5, 6, 6):  # the last is already
                tx.put(Range(start, start + 1, RangeState.GIVEN_UP))
            tx.lift(Range(5, 6, RangeState.GIVEN_UP))
            tx.count(STALE_ATTEMPT)

        written = committed(job, change)
        progress = job.progress()
        assert (written.points_done, written.tasks_done) == (progress.done, progress.tasks_done) == (3, 2)
        assert written.points_given_up == 2
        assert progress.given_up == 1
        assert written.failures == {"out_of_memory": 1}
        assert written.dropped == {STALE_ATTEMPT: 1}


# Counters


def test_what_was_committed_is_counted(metrics):
    first = Written(2, 20, 1, {"exception": 3}, {STALE_ATTEMPT: 2, SILENT_TASK: 4})
    metrics.cycled(Cycle(written=first, commit_seconds=0.002))
    metrics.cycled(Cycle())  # nothing happened, nothing was written
    metrics.cycled(Cycle(written=Written(1, 5, 0, {"exception": 1}, {}), commit_seconds=0.004))
    assert seen_in(metrics, "driver_tasks_done_total") == {(): 3}
    assert seen_in(metrics, "driver_points_done_total") == {(): 25}
    assert seen_in(metrics, "driver_points_given_up_total") == {(): 1}
    assert seen_in(metrics, "driver_failures_total") == {"exception": 4}
    assert seen_in(metrics, "driver_replies_dropped_total") == {STALE_ATTEMPT: 2}
    assert seen_in(metrics, "driver_silent_tasks_total") == {(): 4}
    commits = values(metrics, "driver_commit_seconds")[()]
    assert (sum(commits.counts), commits.sum) == (2, pytest.approx(0.006))


def test_publishes_are_counted_when_confirmed_and_failures_by_a_closed_set_of_reasons(metrics):
    metrics.cycled(Cycle(confirm_seconds=[0.25, 0.5]))
    assert seen_in(metrics, "driver_tasks_published_total") == {(): 2}
    assert values(metrics, "driver_confirm_seconds")[()].sum == 0.75
    names = [type(each("x")).__name__ for each in (NotConnectedError, TooLargeError)]
    dropped = {PUBLISH_FAILED + name: 1 for name in (*names, "SomethingNewError")}
    metrics.cycled(Cycle(written=Written(dropped=dropped)))
    assert seen_in(metrics, "driver_publish_failures_total") == {
        "not_connected": 1,
        "too_large": 1,
        "other": 1,
    }
    assert seen_in(metrics, "driver_replies_dropped_total") == {}


def test_replies_are_counted_by_kind_and_cause(metrics):
    late = failed(1, 2, cause=Cause.TIME_LIMIT)
    metrics.cycled(Cycle(replies=[finished(0, 1), late, late]))
    assert seen_in(metrics, "driver_replies_total") == {("done", "none"): 1, ("failed", "time_limit"): 2}


# Jobs and their queues


def test_a_driven_job_is_shown_and_gone_when_it_is_left(metrics):
    spec = spec_of(1797)
    metrics.job_seen(spec, snapshot_of(500, given_up=3, out=20))
    assert values(metrics, "driver_jobs") == {(): 1}
    points = values(metrics, "job_points")
    progress = progress_of(500, given_up=3, out=20)
    assert points[(spec.id, "done")] == 500
    assert points[(spec.id, "waiting")] == progress.waiting
    assert sum(points.values()) == progress.total
    assert values(metrics, "job_eta_seconds")[spec.id] == pytest.approx(1294 / 12.4)
    assert values(metrics, "job_window_tasks") == {spec.id: 16}
    metrics.job_left(spec.id)
    metrics.job_left(spec.id)  # once more harms nobody
    assert values(metrics, "driver_jobs") == {(): 0}
    shown = [key for reading in metrics.read() for key in reading.values if spec.id in key]
    assert shown == []
    assert values(metrics, "queue_read_timestamp_seconds") == {}


def test_there_is_no_time_to_go_before_there_is_a_rate(metrics):
    metrics.job_seen(spec_of(1797), snapshot_of(0, points_per_second=0.0))
    assert values(metrics, "job_eta_seconds") == {}


def test_an_unknown_depth_is_absent_and_its_time_stays(metrics):
    spec = spec_of(1797)
    metrics.job_seen(spec, snapshot_of(1, depth=Depth(8, None, 2, read_at=5000.0)))
    assert values(metrics, "queue_ready_tasks") == {"default": 8}
    assert values(metrics, "queue_unacked_tasks") == {}
    assert values(metrics, "queue_consumers") == {"default": 2}
    metrics.job_seen(spec, snapshot_of(1, depth=None))
    assert values(metrics, "queue_ready_tasks") == values(metrics, "queue_consumers") == {}
    assert values(metrics, "queue_read_timestamp_seconds") == {"default": 5000.0}


def test_jobs_on_one_queue_show_its_latest_depth_once(metrics):
    one, two, elsewhere = spec_of(9), spec_of(9), replace(spec_of(9), queue="gpu")
    metrics.job_seen(one, snapshot_of(1, depth=Depth(8, 1, 2, read_at=5001.0)))
    metrics.job_seen(two, snapshot_of(1, depth=Depth(9, 1, 2, read_at=5000.0)))
    metrics.job_seen(elsewhere, snapshot_of(1, depth=Depth(3, 1, 2, read_at=5000.0)))
    assert values(metrics, "queue_ready_tasks") == {"default": 8, "gpu": 3}
    metrics.job_left(one.id)
    assert values(metrics, "queue_ready_tasks") == {"default": 9, "gpu": 3}
    assert values(metrics, "queue_read_timestamp_seconds")["default"] == 5001.0


def test_labels_of_many_jobs_with_queues_of_their_own_stay_few(metrics):
    for number in range(50):
        spec = replace(spec_of(9), queue=f"run-{number}")
        metrics.job_seen(spec, snapshot_of(1, depth=Depth(1, 1, 1)))
        metrics.job_left(spec.id)
    assert sum(len(reading.values) for reading in metrics.read()) == sum(
        len(reading.values) for reading in ProducerMetrics().read()
    )


def test_dead_letters_are_counted_while_connected_and_absent_otherwise(metrics, monkeypatch):
    monkeypatch.setattr("overnight_producer.metrics.DEAD_LETTERS_SECONDS", 0.01)
    monkeypatch.setattr("overnight_producer.metrics._SOON_SECONDS", 0.01)

    async def go():
        broker = MemoryBroker()
        broker.set_state(BrokerState.DISCONNECTED)
        counting = asyncio.create_task(metrics.count_dead_letters(broker))
        await asyncio.sleep(0)
        assert values(metrics, "dead_letters") == {}
        await broker.declare(DEAD_QUEUE)
        broker.set_state(BrokerState.CONNECTED)
        broker.publish(DEAD_QUEUE, Message(b"x", "dead"), lambda _: None)
        await until(lambda: values(metrics, "dead_letters") == {(): 1}, "the dead letter is counted")
        read_at = values(metrics, "dead_letters_read_timestamp_seconds")[()]
        broker.set_state(BrokerState.DISCONNECTED)
        await until(lambda: values(metrics, "dead_letters") == {}, "nothing is known any more")
        assert values(metrics, "dead_letters_read_timestamp_seconds")[()] >= read_at
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)

    asyncio.run(go())


def test_ready_means_connected(metrics):
    assert "not connected" in metrics.not_ready()
    metrics.broker.follow(MemoryBroker())
    assert metrics.not_ready() == ""
