from hypothesis import given
from hypothesis import strategies as st

from overnight_consumer.reply_queues import HOLD_SECONDS, ReplyQueue, Verdict


def test_a_look_is_good_for_a_second():
    queue = ReplyQueue()
    assert queue.verdict(0) is Verdict.ASK
    queue.found(0, read=True)
    assert queue.verdict(1.0) is Verdict.GO
    assert queue.verdict(1.1) is Verdict.ASK


def test_gone_means_seen_and_then_missed_twice_two_seconds_apart():
    queue = ReplyQueue()
    queue.found(0, read=True)
    queue.missed(5)
    assert queue.verdict(5) is Verdict.HOLD
    queue.missed(6.9)
    assert queue.verdict(6.9) is Verdict.HOLD
    queue.missed(7.0)
    assert queue.verdict(7.0) is Verdict.GONE


def test_a_queue_that_comes_back_between_two_looks_is_not_gone():
    queue = ReplyQueue()
    queue.found(0, read=True)
    queue.missed(5)
    queue.found(6, read=True)
    queue.missed(8)
    assert queue.verdict(8) is Verdict.HOLD


def test_a_queue_never_seen_is_asked_for_a_minute_and_then_lost():
    queue = ReplyQueue()
    for second in range(0, 60, 2):
        queue.missed(second)
        assert queue.verdict(second) is Verdict.HOLD
    assert queue.verdict(60) is Verdict.LOST


def test_a_broker_that_lost_its_disk_does_not_look_like_a_cancel():
    queue = ReplyQueue()
    queue.found(0, read=True)
    queue.disconnected()
    queue.missed(10)
    queue.missed(20)
    assert queue.verdict(20) is Verdict.HOLD
    queue.found(21, read=True)
    assert queue.verdict(21) is Verdict.GO


def test_a_cancel_that_was_certain_stays_certain_after_a_break():
    queue = ReplyQueue()
    queue.found(0, read=True)
    queue.missed(5)
    queue.missed(7)
    queue.disconnected()
    assert queue.verdict(100) is Verdict.GONE


def test_looks_are_due_soon_after_a_miss_while_in_use_and_every_ten_seconds_while_a_task_runs():
    queue = ReplyQueue(used_at=0.0)
    queue.found(0, read=True)
    assert not queue.look_due(0.4, running=True)
    assert queue.look_due(0.5, running=False)  # in use
    assert not queue.look_due(9.9, running=True)
    assert queue.look_due(10.0, running=True)
    assert not queue.look_due(1000.0, running=False)
    queue.missed(20)
    assert not queue.look_due(21.9, running=True)
    assert queue.look_due(22.0, running=False)


@given(
    st.lists(
        st.tuples(st.sampled_from(["found", "missed", "disconnected"]), st.floats(0.01, 40)), max_size=40
    )
)
def test_only_a_queue_seen_on_this_connection_is_ever_gone(events):
    queue, now, seen, gone = ReplyQueue(), 0.0, False, False
    for event, pause in events:
        now += pause
        if event == "found":
            queue.found(now, read=True)
            seen, gone = True, False
        elif event == "missed":
            queue.missed(now)
        else:
            queue.disconnected()
            seen = False
        verdict = queue.verdict(now)
        if verdict is Verdict.GONE:
            assert seen or gone
            gone = True
        if verdict is Verdict.LOST:
            assert not seen
            assert queue.missed_at is not None
            assert now - queue.missed_at >= HOLD_SECONDS
