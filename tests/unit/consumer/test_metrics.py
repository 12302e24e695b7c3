import asyncio
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from overnight_common.brokers.base import Delivery, Message, reply_queue, task_queue
from overnight_common.messages import VERSION, Cause, Task, decode_replies, encode
from overnight_common.metrics import Buckets
from overnight_common.observing import shielded
from overnight_common.values import encode_values
from overnight_consumer import gpus
from overnight_consumer.deaths import Death, ExitReason, exit_reason
from overnight_consumer.devices import Devices
from overnight_consumer.frames import Answer
from overnight_consumer.held import DONE, Held
from overnight_consumer.intake import Intake
from overnight_consumer.limits import Limits
from overnight_consumer.metrics import ConsumerMetrics, watched
from overnight_consumer.observer import IntakeSight, Nobody, Sight, SlotSight
from overnight_consumer.service import Service
from overnight_consumer.slot_states import SlotState, StartReason
from overnight_consumer.slots import Slot
from support.broker_use import until
from support.consumer_settings import settings_of
from support.memory_broker import MemoryBroker

QUEUE = task_queue("default")


class Clock:
    def __init__(self, at=1000.0):
        self.at = at

    def __call__(self):
        return self.at


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def metrics(clock):
    return ConsumerMetrics(settings_of(slots=2), clock, clock)


def values(metrics, name):
    """Return what one metric says, by label values; a single label stands for itself."""
    (reading,) = [each for each in metrics.read() if each.family.name == f"overnight_{name}"]
    return {labels[0] if len(labels) == 1 else labels: value for labels, value in reading.values.items()}


def seen_in(metrics, name):
    """Return those values that are not 0."""
    return {
        labels: value
        for labels, value in values(metrics, name).items()
        if (sum(value.counts) if isinstance(value, Buckets) else value)
    }


def held(method="toys:double", count=1, outcome="", ran=0.0, dispatched_at=0.0, **fields):
    task = Task(VERSION, "job", reply_queue("job", 1), 0, count, 1, method, **fields)
    intake = Intake(QUEUE, lambda *_: None, lambda *_: None)
    delivery = Delivery(QUEUE, Message(b"", "task"), 0, None)
    times = {"dispatched_at": dispatched_at, "run_seconds": ran}
    return Held(task, delivery, intake, b"", 0, slot=1, outcome=outcome, **times)


def at_work(*tasks):
    """Return how it looks when slots are busy with tasks."""
    return Sight(slots=tuple(SlotSight(SlotState.BUSY, 0.0, 0.0, each) for each in tasks))


# Tasks


def confirm(metrics, *tasks, seconds=0.25):
    """Let tasks be confirmed together."""
    metrics.confirmed(tasks, seconds)


def test_points_and_tasks_are_counted_when_the_reply_is_confirmed(metrics):
    metrics.seen(at_work(held(count=7)))
    assert seen_in(metrics, "consumer_tasks_done_total") == {}
    confirm(metrics, held(count=7, outcome=DONE))
    assert seen_in(metrics, "consumer_tasks_done_total") == {("default", "toys:double"): 1}
    assert seen_in(metrics, "consumer_points_done_total") == {("default", "toys:double"): 7}
    assert seen_in(metrics, "consumer_tasks_failed_total") == {}


def test_failures_are_counted_by_cause_and_bring_no_points(metrics):
    confirm(metrics, held(outcome=Cause.KILLED_BY_SIGNAL.value))
    assert seen_in(metrics, "consumer_tasks_failed_total") == {("default", "killed_by_signal"): 1}
    assert seen_in(metrics, "consumer_points_done_total") == {}


def test_tasks_whose_replies_travelled_together_are_counted_one_by_one(metrics):
    failed = Cause.KILLED_BY_SIGNAL.value
    confirm(
        metrics,
        held(count=7, outcome=DONE, ran=0.5),
        held(count=0, outcome=DONE),
        held("toys:other", outcome=DONE, ran=1.0),
        held(outcome=failed),
        held(count=3, outcome=DONE, ran=0.25),
        seconds=0.125,
    )
    assert seen_in(metrics, "consumer_tasks_done_total") == {
        ("default", "toys:double"): 2,
        ("default", "toys:other"): 1,
    }
    assert seen_in(metrics, "consumer_points_done_total")["default", "toys:double"] == 10
    assert seen_in(metrics, "consumer_tasks_failed_total") == {("default", failed): 1}
    assert {at: run.sum for at, run in seen_in(metrics, "consumer_run_seconds").items()} == {
        ("default", "toys:double"): 0.75,
        ("default", "toys:other"): 1.0,
    }
    (confirmed,) = values(metrics, "consumer_confirm_seconds").values()
    assert (sum(confirmed.counts), confirmed.sum) == (5, 5 * 0.125)


def test_a_probe_is_no_task(metrics):
    confirm(metrics, held(count=0, outcome=DONE))
    assert seen_in(metrics, "consumer_tasks_done_total") == {}


def test_a_probe_makes_no_name_known(metrics):
    confirm(metrics, held("stranger:5", count=0, outcome=DONE))
    confirm(metrics, held("stranger:5", outcome=Cause.METHOD_UNAVAILABLE.value, ran=1.0))
    assert set(seen_in(metrics, "consumer_run_seconds")) == {("default", "unknown")}


def test_every_cause_and_served_method_begins_at_zero(metrics):
    assert set(values(metrics, "consumer_tasks_failed_total")) == {
        ("default", cause.value) for cause in Cause
    }
    assert values(metrics, "consumer_tasks_done_total") == {("default", "toys:double"): 0}


def test_the_wait_is_from_publication_to_start_and_never_negative(metrics, clock):
    published = [clock.at - 60.0, clock.at + 60.0, 0.0]  # the last by a producer that does not tell
    tasks = [held(published_at=at, dispatched_at=clock.at - 57.0) for at in published]
    metrics.seen(at_work(*tasks))
    confirm(metrics, *tasks)  # known already
    confirm(metrics, held(published_at=clock.at, outcome="lost_consumer"))  # never started
    (wait,) = values(metrics, "consumer_wait_seconds").values()
    assert (sum(wait.counts), wait.sum) == (2, 3.0)


def test_names_of_methods_that_only_messages_know_are_all_called_unknown(metrics):
    for number in range(100):
        confirm(metrics, held(f"nobody:serves{number}", outcome="method_unavailable", ran=1.0))
    assert set(seen_in(metrics, "consumer_run_seconds")) == {("default", "unknown")}


def test_a_method_of_a_served_module_is_named_once_it_did_a_task():
    metrics = ConsumerMetrics(settings_of(methods=("toys",)))
    confirm(metrics, held("triple", outcome="exception", ran=1.0))
    confirm(metrics, held("triple", outcome=DONE, ran=1.0))
    assert set(seen_in(metrics, "consumer_run_seconds")) == {("default", "unknown"), ("default", "triple")}
    assert seen_in(metrics, "consumer_tasks_done_total") == {("default", "triple"): 1}


def test_the_text_of_a_command_is_no_label():
    metrics = ConsumerMetrics(settings_of(methods=(), commands=("sh secret.sh",)))
    confirm(metrics, held("command:sh secret.sh", outcome=DONE))
    assert values(metrics, "consumer_tasks_done_total") == {("default", "command"): 1}


# Slots


def test_busy_seconds_grow_while_a_task_runs_and_stand_still_after_it():
    async def go():
        slot = Slot(1, lambda _number, voice: FakeChild(voice), Deaf(), lambda _: None, lambda _: None)
        slot.start()
        slot._child.voice.on_ready()
        slot.run(held())
        began = time.monotonic()
        busy = slot.sight(began + 3600)
        assert (busy.state, busy.held) == (SlotState.BUSY, slot.held)
        assert busy.busy_seconds == pytest.approx(3600, abs=0.1)
        assert busy.task_seconds == pytest.approx(3600, abs=0.1)
        slot._child.voice.on_answer(Answer("done", "", "", 0.1, b""))
        free = slot.sight(began + 7200)
        assert (free.state, free.task_seconds, free.held) == (SlotState.FREE, 0.0, None)
        assert 0 < free.busy_seconds < 1
        assert slot.sight(began + 9999).busy_seconds == free.busy_seconds
        slot.run(held())
        slot._child.die(-9)
        assert slot.state is SlotState.STARTING
        assert free.busy_seconds < slot.sight(began).busy_seconds < 1
        await slot.stop()

    asyncio.run(go())


def test_slots_are_shown_as_they_were_seen_last(metrics):
    assert values(metrics, "consumer_slots")["stopped"] == 2
    slots = (SlotSight(SlotState.BUSY, 99.0, 40.0, held()), SlotSight(SlotState.BUSY, 70.0, 3.0, held()))
    metrics.seen(Sight(slots=slots))
    assert seen_in(metrics, "consumer_slots") == {"busy": 2}
    assert values(metrics, "slot_busy_seconds_total") == {"1": 99.0, "2": 70.0}
    assert values(metrics, "consumer_oldest_task_seconds") == {(): 40.0}
    metrics.seen(Sight(slots=(SlotSight(SlotState.FREE, 99.5, 0.0, None),)))
    assert values(metrics, "consumer_oldest_task_seconds") == {(): 0}


def test_memory_is_that_of_the_child_and_all_it_started_and_absent_without_a_child(metrics):
    grandchild = "x = b'x' * 40_000_000; print(1, flush=True); input()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    with child:
        assert child.stdout.readline() == b"1\n"
        metrics.child_started(1, child.pid, StartReason.FIRST)
        assert set(values(metrics, "slot_memory_bytes")) == {"1"}
        assert 45_000_000 < values(metrics, "slot_memory_bytes")["1"] < 200_000_000
        metrics.child_ended(1, 1, ExitReason.STOPPED)  # the one before it
        assert set(values(metrics, "slot_memory_bytes")) == {"1"}
        child.stdin.write(b"\n")
    assert values(metrics, "slot_memory_bytes") == {}


@pytest.mark.parametrize(
    ("status", "reason"),
    [(-9, "killed"), (-11, "segmentation_fault"), (-6, "signal"), (0, "exit_status"), (3, "exit_status")],
)
def test_a_death_of_which_we_are_innocent_is_told_from_its_status(status, reason):
    assert exit_reason(Death(status, 0, "")).value == reason


class Recorder(Nobody):
    def __init__(self):
        self.starts, self.ends = [], []

    def child_started(self, number, pid, why):
        self.starts.append(why)

    def child_ended(self, number, pid, how):
        self.ends.append(how)


class FakeChild:
    pid = 4711

    def __init__(self, voice):
        self.voice, self.kills = voice, 0

    def send(self, *works):
        pass

    def kill(self):
        self.kills += 1

    async def stop(self, patience_seconds):
        self.die(0)

    def die(self, status):
        self.voice.on_death(Death(status, 0, ""))


class Deaf:
    def __getattr__(self, name):
        return lambda *_: None


def test_each_end_of_a_child_has_its_reason_and_each_start_too():
    async def go():
        children = []

        def start(number, voice):
            children.append(FakeChild(voice))
            return children[-1]

        recorder = Recorder()
        limits = Limits(time_limit_seconds=0.001, memory_limit_bytes=100)
        slot = Slot(1, start, Deaf(), lambda _: None, lambda _: None, recorder, limits)
        slot.start()
        children[-1].die(1)  # while starting
        await until(lambda: len(children) == 2, "another one is started")
        for end in ("kill", "abandon", "limit", "memory"):
            children[-1].voice.on_ready()
            slot.run(held())
            if end == "abandon":
                slot.abandon()
            elif end == "limit":
                children[-1].voice.on_started()
                await until(lambda: children[-1].kills, "the limit passes")
            elif end == "memory":
                slot.note_memory(101)
            children[-1].die(-9)
        children[-1].voice.on_ready()
        slot.renew()
        await slot.stop()
        return recorder

    recorder = asyncio.run(go())
    assert [why.value for why in recorder.starts] == [
        "first",
        "backoff",
        *["death"] * 4,
        "renewal",
    ]
    assert [how.value for how in recorder.ends] == [
        *("start_failed", "killed", "cancelled", "time_limit", "memory_limit", "stopped", "stopped"),
    ]


# Readiness


def sight(consuming=True, paused=False, draining=False):
    return Sight((IntakeSight(QUEUE, consuming, paused, 4),), held=3, draining=draining)


def test_ready_means_connected_and_really_consuming_from_every_queue(metrics):
    assert "not connected" in metrics.not_ready()
    metrics.broker.follow(MemoryBroker())
    assert "subscribed" in metrics.not_ready()
    for seen, words in (
        (sight(), ""),
        (sight(consuming=False), f"no tasks come from {QUEUE}"),
        (sight(consuming=False, paused=True), "at fault"),
        (sight(draining=True), "stopping"),
    ):
        metrics.seen(seen)
        assert words in metrics.not_ready()
        assert bool(metrics.not_ready()) == bool(words)
    two = Sight((*sight().intakes, *sight(consuming=False).intakes))
    metrics.seen(two)
    assert metrics.not_ready()


def test_what_the_loop_saw_last_is_shown(metrics):
    metrics.broker.follow(MemoryBroker())
    metrics.seen(sight(paused=True, consuming=False))
    assert values(metrics, "consumer_consuming") == {"default": 0}
    assert values(metrics, "consumer_paused") == {"default": 1}
    assert values(metrics, "consumer_prefetch_deliveries") == {"default": 4}
    assert values(metrics, "consumer_held_deliveries") == {(): 3}
    metrics.seen(sight(draining=True))
    assert values(metrics, "consumer_draining") == {(): 1}


# GPUs


def test_each_slot_is_shown_with_its_device():
    devices = Devices(("cuda:0", "cuda:2"), ("0", "2"))
    read = ConsumerMetrics(settings_of(slots=3, devices=devices)).read()
    (shown,) = [reading.values for reading in read if reading.family.name == "overnight_slot_device_info"]
    assert shown == {("1", "cuda:0"): 1, ("2", "cuda:2"): 1, ("3", "cuda:0"): 1}


class NVMLError(Exception):
    pass


def fake_nvml(count=2, init=None, lost=()):
    def memory(handle):
        if handle in lost:
            raise NVMLError
        return types.SimpleNamespace(used=10 * (handle + 1), total=100)

    def started():
        if init:
            raise init

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=started,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetUtilizationRates=lambda handle: types.SimpleNamespace(gpu=25),
    )


def test_gpus_are_shown_where_nvml_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(lost=(1,)))
    readings = {reading.family.name: reading.values for reading in gpus.reader()()}
    assert readings == {
        "overnight_gpu_memory_used_bytes": {("0",): 10},
        "overnight_gpu_memory_bytes": {("0",): 100},
        "overnight_gpu_busy_ratio": {("0",): 0.25},
    }


@pytest.mark.parametrize("module", [None, fake_nvml(init=NVMLError())], ids=["no package", "no driver"])
def test_without_nvml_nothing_is_said_of_gpus(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert gpus.reader()() == []


# A whole consumer, in this process


class Broken:
    """Raise in every hook."""

    def __init__(self):
        self.called = set()

    def _raise(self, name):
        self.called.add(name)
        raise RuntimeError(f"the registry is broken: {name}")

    def child_started(self, *_):
        self._raise("child_started")

    def child_ended(self, *_):
        self._raise("child_ended")

    def confirmed(self, *_):
        self._raise("confirmed")

    def accused(self, *_):
        self._raise("accused")

    def seen(self, *_):
        self._raise("seen")


async def served(settings, observer, tasks):
    """Run a consumer until it is idle, and return the replies by attempt."""
    broker = MemoryBroker()
    await broker.declare(QUEUE)
    await broker.declare(reply_queue("job", 1))
    for task in tasks:
        broker.publish(QUEUE, Message(encode(task), "task"), lambda _: None)
    assert await Service(settings, broker, observer).run() == 0
    bodies = broker.bodies(reply_queue("job", 1))
    replies = [reply for body in bodies for reply in decode_replies(body)]
    assert len(broker.acked) == len(tasks)
    return {reply.attempt: reply for reply in replies}


def task_of(method, attempt):
    data = encode_values(np.array([1, 2]), 2)
    return Task(VERSION, "job", reply_queue("job", 1), 0, 2, attempt, method, data=data)


def test_a_broken_registry_harms_no_task(caplog):
    methods = ("toys:double", "toys:raises", "toys:exits")
    settings = settings_of(methods=methods, idle_exit_seconds=0.5)
    tasks = [task_of(method, attempt) for attempt, method in enumerate((*methods, "toys:double"), 1)]
    broken = Broken()
    replies = asyncio.run(served(settings, shielded(broken), tasks))
    assert {attempt: reply.kind for attempt, reply in replies.items()} == {
        1: "done",
        2: "failed",
        3: "failed",
        4: "done",
    }
    assert broken.called == {"child_started", "child_ended", "confirmed", "seen"}


def test_what_a_whole_consumer_did_is_in_its_figures(monkeypatch):
    methods = ("toys:double", "toys:exits")
    settings = settings_of(methods=methods, idle_exit_seconds=0.5, metrics_port=0)
    tasks = [task_of(method, attempt) for attempt, method in enumerate((*methods, "toys:double"), 1)]
    kept = []
    monkeypatch.setattr(
        "overnight_consumer.metrics.shielded", lambda observer: kept.append(observer) or observer
    )

    async def go():
        with watched(settings, MemoryBroker(), 0) as observer:
            return await served(settings, observer, tasks)

    asyncio.run(go())
    (metrics,) = kept
    assert seen_in(metrics, "consumer_tasks_done_total") == {("default", "toys:double"): 2}
    assert seen_in(metrics, "consumer_points_done_total") == {("default", "toys:double"): 4}
    assert seen_in(metrics, "consumer_tasks_failed_total") == {("default", "exit_status"): 1}
    assert seen_in(metrics, "child_starts_total") == {"first": 1, "death": 1}
    assert seen_in(metrics, "child_exits_total") == {"exit_status": 1, "stopped": 1}
    assert values(metrics, "consumer_slots")["free"] == 1
