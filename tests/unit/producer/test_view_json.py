import io
import json

from overnight_common.brokers.base import Depth
from overnight_common.messages import Cause
from overnight_producer.jobs.ranges import Again, Complete
from overnight_producer.views.outlet import Outlet
from overnight_producer.views.view_json import JsonView
from support.job_files import spec_of
from support.standings import Clock, failed, finished, snapshot_of


class Shown:
    def __init__(self, verbose=False):
        self.text, self.clock = io.StringIO(), Clock()
        self.view = JsonView(spec_of(1797), Outlet(self.text), verbose, self.clock, lambda: 0.0)
        self.view.start()

    @property
    def objects(self):
        return [json.loads(line) for line in self.text.getvalue().splitlines()]

    def events(self, name):
        return [each for each in self.objects if each["event"] == name]


def test_there_is_one_object_a_second_and_a_last_one():
    shown = Shown()
    for look in range(4 * 5):
        shown.view.show(snapshot_of(look))
        shown.clock.now += 0.25
    shown.view.show(snapshot_of(1797))
    shown.view.finish("all done", 0, "done")
    shown.view.finish("again", 1)
    assert [each["event"] for each in shown.objects] == ["start", *["progress"] * 6, "end"]
    last = shown.objects[-1]
    assert (last["points_done"], last["exit_status"], last["text"]) == (1797, 0, "all done")
    assert (shown.objects[-2]["state"], last["state"]) == ("running", "done")


def test_figures_are_raw_and_unknown_ones_null():
    shown = Shown()
    shown.view.show(snapshot_of(10, depth=None, points_per_second=0.0, running=[(3, 9, "desk", 2, 192.5)]))
    (figures,) = shown.events("progress")
    assert figures["points_per_second"] == 0.0
    assert figures["eta_seconds"] is None
    assert figures["queue_ready"] is None
    assert figures["longest_running"] == [
        {"start": 3, "stop": 9, "consumer": "desk", "slot": 2, "seconds": 192.5}
    ]


def test_an_empty_queue_is_zero_and_not_unknown():
    shown = Shown()
    shown.view.show(snapshot_of(10, depth=Depth(0, None, 0)))
    (figures,) = shown.events("progress")
    assert (figures["queue_ready"], figures["queue_unacked"], figures["queue_consumers"]) == (0, None, 0)


def test_a_failed_task_is_an_object_with_what_follows_from_it():
    shown = Shown()
    shown.view.task(failed(0, 7, "näin\n\udcff", Cause.TIME_LIMIT, device="cuda:1"), Again(0.2, charged=True))
    shown.view.task(finished(7, 14), Complete())
    (task,) = shown.events("task")
    assert task["device"] == "cuda:1"
    assert (task["start"], task["stop"], task["attempt"], task["slot"]) == (0, 7, 1, 1)
    assert (task["cause"], task["error_type"], task["consequence"]) == (
        "time_limit",
        "ValueError",
        "again in 0.2 s",
    )
    assert task["error_message"] == "näin\n?"


def test_what_is_said_becomes_an_object_in_its_place():
    shown = Shown()
    shown.view.say("a note\nof two lines")
    assert shown.events("message")[0]["text"] == "a note\nof two lines"


def test_tasks_left_out_are_counted():
    shown = Shown()
    for start in range(10):
        shown.view.task(failed(start, start + 1), Again(0.2, charged=True))
    shown.view.finish("paused", 1)
    assert shown.events("tasks_left_out")[0]["failed"] == 6
