"""Jobs on one queue share it: what is due to each, and a simulation of several drivers with their windows."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

import pytest

from overnight_common.messages import VERSION, Reply
from overnight_producer.driving.rates import Rates
from overnight_producer.driving.share import Load, QueueShare
from overnight_producer.driving.window import FIRST_WINDOW, Sight, next_window

STEP_SECONDS = 0.1


def load(**changes):
    given = {"active": True, "tasks_per_second": 0.0, "busy_slots": 0.0, "slots": 0, "worked_at": None}
    return Load(**(given | changes))


def test_a_job_alone_has_the_whole_queue():
    share = QueueShare()
    share.report("a", load(tasks_per_second=7.0, busy_slots=2.0, slots=2, worked_at=5.0))
    part = share.part_of("a")
    assert (part.jobs, part.tasks_per_second, part.slots, part.worked_at) == (1, 7.0, 2, 5.0)


def test_two_jobs_count_work_in_seconds_and_not_in_tasks():
    share = QueueShare()
    share.report("short", load(tasks_per_second=20.0, busy_slots=2.0))  # 0.1 s each
    share.report("long", load(tasks_per_second=2.0, busy_slots=2.0))  # 1 s each
    assert share.part_of("short").tasks_per_second == pytest.approx(40, rel=0.02)
    assert share.part_of("long").tasks_per_second == pytest.approx(4, rel=0.02)
    assert share.part_of("short").jobs == share.part_of("long").jobs == 2


def test_tasks_that_take_no_time_share_too():
    share = QueueShare()
    share.report("a", load(tasks_per_second=1500.0))
    share.report("b", load(tasks_per_second=500.0))
    assert share.part_of("a").tasks_per_second == pytest.approx(2000)
    assert share.part_of("b").tasks_per_second == pytest.approx(2000)


def test_a_paused_job_and_one_that_has_left_take_no_part():
    share = QueueShare()
    share.report("a", load(tasks_per_second=5.0, busy_slots=1.0))
    share.report("b", load(active=False))
    assert share.part_of("a").jobs == 1
    share.report("c", load())
    assert share.part_of("a").jobs == 2
    share.leave("c")
    share.leave("b")
    assert share.part_of("a").jobs == 1


def test_work_on_any_job_shows_that_the_queue_is_served():
    share = QueueShare()
    share.report("a", load(worked_at=3.0))
    share.report("b", load(worked_at=9.0))
    share.report("new", load())
    assert share.part_of("new").worked_at == 9.0


def test_beside_others_a_window_grows_to_its_part_although_the_queue_is_never_empty():
    sight = Sight(waiting=9, ready=300, tasks_per_second=40.0, slots=4, jobs=2)
    sizes = [16]
    for _ in range(5):
        sizes.append(next_window(sizes[-1], sight))
    assert sizes == [16, 32, 64, 128, 200, 200]


def test_the_floor_of_two_tasks_for_each_slot_is_shared_too():
    size = 64
    for _ in range(200):
        size = next_window(size, Sight(waiting=9, ready=50, tasks_per_second=0.0, slots=8, jobs=4))
    assert size == 4


@dataclass
class Job:
    """A driver with endless tasks of one length."""

    name: str
    seconds: float
    rates: Rates
    window: int = FIRST_WINDOW
    out: int = 0
    first_result: float | None = None
    busy: list[tuple[float, float]] = field(default_factory=list)

    def busy_since(self, when):
        return sum(seconds for at, seconds in self.busy if at >= when)


class Simulation:
    """Slots that take from one queue, and drivers that fill it as LiveWindow does."""

    def __init__(self, slots):
        self.now, self.slots = 0.0, slots
        self.queue, self.ends = deque(), []
        self.share, self.jobs = QueueShare(), []
        self.idle_since_start = 0.0

    def add(self, name, seconds):
        self.jobs.append(Job(name, seconds, Rates(self.now)))
        return self.jobs[-1]

    def run(self, seconds):
        until = self.now + seconds
        while self.now < until:
            for job in self.jobs:
                self.look(job)
                while job.out < job.window:
                    job.out += 1
                    self.queue.append(job)
            self.work(self.now + STEP_SECONDS)

    def look(self, job):
        rates, now = job.rates, self.now
        self.share.report(
            job.name,
            Load(
                True,
                rates.tasks_per_second(now),
                rates.busy_seconds_per_second(now),
                rates.slots_seen(now),
                None,
            ),
        )
        part = self.share.part_of(job.name)
        sight = Sight(9, len(self.queue), part.tasks_per_second, part.slots, part.jobs)
        job.window = next_window(job.window, sight)

    def work(self, until):
        while True:
            while self.queue and len(self.ends) < self.slots:
                job = self.queue.popleft()
                heapq.heappush(self.ends, (self.now + job.seconds, id(job), job))
            if not self.ends or self.ends[0][0] > until:
                break
            self.now, _, job = heapq.heappop(self.ends)
            job.out -= 1
            job.first_result = job.first_result or self.now
            job.busy.append((self.now, job.seconds))
            slot = 1 + len(job.busy) % self.slots
            job.rates.done(
                Reply(VERSION, "j", 0, 1, 1, "done", "c", slot, fingerprint="f", seconds=job.seconds),
                self.now,
            )
        self.idle_since_start += (self.slots - len(self.ends)) * (until - self.now)
        self.now = until


@pytest.mark.parametrize(("old", "new"), [(0.05, 0.05), (0.02, 1.0), (1.0, 0.02), (2.0, 2.0), (0.3, 2.0)])
def test_a_new_job_waits_at_most_fifteen_seconds_and_then_gets_half_of_the_slots(old, new):
    farm = Simulation(slots=4)
    first = farm.add("first", old)
    farm.run(60)
    second = farm.add("second", new)
    farm.run(90)
    assert second.first_result - 60 < 15
    recent = farm.now - 40
    share = second.busy_since(recent) / (second.busy_since(recent) + first.busy_since(recent))
    assert 0.4 < share < 0.6


def test_eight_jobs_have_their_first_results_soon_and_equal_parts_later():
    farm = Simulation(slots=4)
    jobs = []
    for number in range(8):
        jobs.append(farm.add(f"job {number}", 0.1 * (1 + number % 3)))
        farm.run(20)
    farm.run(60)
    for number, job in enumerate(jobs):
        assert job.first_result - 20 * number < 15
    busy = [job.busy_since(farm.now - 40) for job in jobs]
    assert max(busy) < 2 * min(busy)
    assert farm.idle_since_start < 0.02 * farm.now * farm.slots
