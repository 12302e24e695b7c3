"""Drive a model job through random replies, late, double and foreign ones, and check that nothing is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from overnight_common.errors import NotConnectedError, TooLargeError
from overnight_common.messages import Cause, Failure, Reply
from overnight_producer.jobs.ranges import (
    Complete,
    Drop,
    GiveUp,
    Policy,
    RangeState,
    apply,
    decide,
    publish_failed,
    published,
    retried,
    silent,
)
from support.job_files import cut

START = 5
POLICY = Policy()
CAUSES = st.sampled_from(list(Cause))
# Results are rare, so that a job lives long enough for failures that are late, double or foreign.
ANSWERS = st.sampled_from(["failed"] * 6 + ["running", "done"])
OLD_ANSWERS = st.sampled_from(["failed"] * 9 + ["running"] * 2 + ["done"])
JITTER = st.floats(0, 1, exclude_max=True)


class ModelJob(RuleBasedStateMachine):
    @initialize(points=st.integers(1, 20), batch=st.integers(1, 9))
    def begin(self, points, batch):
        self.stop = START + points
        self.table = {(each.start, each.stop): each for each in cut(START, self.stop, batch)}
        self.done = set()  # points with a result
        self.published = []  # every (start, stop, attempt) that ever went out
        self.failures_since_retry = {}

    # What the driver does

    def put_in_place(self, old, new):
        del self.table[old.start, old.stop]
        for each in new:
            if set(range(each.start, each.stop)) <= self.done:
                continue  # as `Transaction.replace` does
            assert (each.start, each.stop) not in self.table
            self.table[each.start, each.stop] = each

    def settle(self, first, after):
        self.done |= set(range(first, after))
        for each in list(self.table.values()):
            if set(range(each.start, each.stop)) <= self.done:
                del self.table[each.start, each.stop]

    def set_back(self, here, decision, cause):
        key = (here.start, here.stop)
        if isinstance(decision, GiveUp):
            assert here.points == 1
        if isinstance(decision, GiveUp) or getattr(decision, "charged", False):
            self.failures_since_retry[key] = self.failures_since_retry.get(key, 0) + 1
        self.put_in_place(here, apply(here, decision, cause))

    def receive(self, start, stop, attempt, kind, cause, jitter):
        reply = Reply(
            v=1,
            job="j",
            start=start,
            stop=stop,
            attempt=attempt,
            kind=kind,
            consumer="c",
            failure=Failure(cause=cause) if kind == "failed" else None,
        )
        here = self.table.get((start, stop))
        decision = decide(here, reply, POLICY, jitter)
        if isinstance(decision, Complete):
            self.settle(start, stop)
        elif not isinstance(decision, Drop):
            assert here is not None
            assert here.in_flight
            assert here.attempt == attempt
            self.set_back(here, decision, cause)

    # What may happen

    @rule(data=st.data())
    def publish(self, data):
        waiting = [each for each in self.table.values() if each.state is RangeState.WAITING]
        if waiting:
            here = data.draw(st.sampled_from(waiting))
            after = published(here)
            self.published.append((after.start, after.stop, after.attempt))
            self.put_in_place(here, [after])

    @precondition(lambda self: self.published)
    @rule(
        data=st.data(),
        kind=OLD_ANSWERS,
        cause=CAUSES,
        jitter=JITTER,
    )
    def answer_any_publication_of_the_past(self, data, kind, cause, jitter):
        start, stop, attempt = data.draw(st.sampled_from(self.published))
        self.receive(start, stop, attempt, kind, cause, jitter)

    @rule(
        data=st.data(),
        kind=ANSWERS,
        cause=CAUSES,
        jitter=JITTER,
    )
    def answer_a_task_that_is_out(self, data, kind, cause, jitter):
        out = [each for each in self.table.values() if each.in_flight]
        if out:
            here = data.draw(st.sampled_from(out))
            self.receive(here.start, here.stop, here.attempt, kind, cause, jitter)

    @rule(data=st.data(), kind=OLD_ANSWERS, cause=CAUSES, jitter=JITTER)
    def answer_a_range_that_was_never_cut(self, data, kind, cause, jitter):
        start = data.draw(st.integers(START, self.stop - 1))
        stop = data.draw(st.integers(start + 1, self.stop))
        self.receive(start, stop, data.draw(st.integers(1, 5)), kind, cause, jitter)

    @rule(data=st.data())
    def lose_a_task(self, data):
        out = [each for each in self.table.values() if each.in_flight]
        if out:
            here = data.draw(st.sampled_from(out))
            self.set_back(here, silent(here, POLICY), Cause.LOST_CONSUMER)

    @rule(data=st.data(), too_large=st.booleans(), jitter=JITTER)
    def fail_to_publish(self, data, too_large, jitter):
        out = [each for each in self.table.values() if each.state is RangeState.PUBLISHED]
        if out:
            here = data.draw(st.sampled_from(out))
            error = TooLargeError("large") if too_large else NotConnectedError("gone")
            self.set_back(here, publish_failed(here, error, POLICY, jitter), None)

    @rule(data=st.data())
    def retry_a_given_up_point(self, data):
        given_up = [each for each in self.table.values() if each.state is RangeState.GIVEN_UP]
        if given_up:
            here = data.draw(st.sampled_from(given_up))
            self.failures_since_retry.pop((here.start, here.stop), None)
            self.put_in_place(here, [retried(here)])

    # What must hold

    @invariant()
    def every_point_is_done_or_in_exactly_one_range(self):
        covered = [point for each in self.table.values() for point in range(each.start, each.stop)]
        assert len(covered) == len(set(covered))
        assert set(covered) | self.done == set(range(START, self.stop))

    @invariant()
    def no_range_is_complete_and_none_given_up_has_a_result(self):
        for each in self.table.values():
            assert not set(range(each.start, each.stop)) <= self.done

    @invariant()
    def attempts_never_repeat(self):
        assert len(self.published) == len(set(self.published))

    @invariant()
    def no_budget_is_exceeded(self):
        for (start, stop), failures in self.failures_since_retry.items():
            assert failures <= (3 if stop - start == 1 else 1)  # the second failure of several is the split

    def teardown(self):
        if not hasattr(self, "table"):
            return
        for _ in range(10_000):
            open_ranges = [each for each in self.table.values() if each.state is not RangeState.GIVEN_UP]
            if not open_ranges:
                break
            here = open_ranges[0]
            if here.in_flight:
                kind = "done" if here.start % 3 else "failed"
                self.receive(here.start, here.stop, here.attempt, kind, Cause.EXCEPTION, 0.5)
            else:
                after = published(here)
                self.published.append((after.start, after.stop, after.attempt))
                self.put_in_place(here, [after])
        else:
            raise AssertionError("the job never ends")
        given_up = {each.start for each in self.table.values()}
        assert all(each.points == 1 for each in self.table.values())
        assert given_up | self.done == set(range(START, self.stop))
        assert not given_up & self.done
        self.attempts_never_repeat()
        for start in given_up:  # a late result lifts the giving-up
            self.receive(start, start + 1, 1, "done", Cause.EXCEPTION, 0.5)
        assert not self.table


ModelJob.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestModelJob = ModelJob.TestCase
