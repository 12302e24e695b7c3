import io

from overnight_common.brokers.base import BrokerState, Depth
from overnight_producer.jobs.ranges import Again, Complete, Range, Split
from overnight_producer.views.outlet import Outlet
from overnight_producer.views.view_plain import PlainView
from support.job_files import spec_of
from support.standings import Clock, failed, finished, snapshot_of


class Shown:
    def __init__(self, verbose=False, **changes):
        self.text, self.clock = io.StringIO(), Clock()
        self.view = PlainView(spec_of(1797, **changes), Outlet(self.text), verbose, self.clock, lambda: 0.0)
        self.view.start()

    @property
    def lines(self):
        return self.text.getvalue().splitlines()

    def show(self, seconds, done, **changes):
        self.clock.now += seconds
        self.view.show(snapshot_of(done, **changes))


def test_the_first_line_says_what_the_job_is():
    shown = Shown(id="k3f9a2x7bq4m", data_uri="/data/digits.npy")
    assert shown.lines == ["lib:slow over digits.npy: 1,797 points, job k3f9a2x7bq4m"]


def test_a_line_comes_every_ten_seconds_and_not_oftener():
    shown = Shown()
    for _ in range(4 * 35):
        shown.show(0.25, 100)
    assert len(shown.lines) == 1 + 4


def test_a_line_comes_at_each_tenth_of_the_way():
    shown = Shown()
    for done in range(0, 1797, 45):  # 2.5 % in 1.1 s
        shown.show(1.1, done)
    tenths = [line.split("(")[1].split(" %")[0] for line in shown.lines[1:]]
    assert tenths == ["10", "20", "30", "40", "50", "60", "70", "80", "90"]


def test_a_job_joined_in_the_middle_begins_with_where_it_stands():
    shown = Shown()
    shown.show(0.1, 900)
    assert shown.lines[1].startswith("900 of 1,797 points (50 %)")
    shown.show(2.0, 901)
    assert len(shown.lines) == 2


def test_a_fast_job_does_not_flood_the_log():
    shown = Shown()
    for done in range(0, 1797, 10):
        shown.show(0.005, done)  # all in a second
    assert len(shown.lines) <= 2


def test_a_trouble_is_told_when_it_comes_and_then_once_a_minute():
    shown = Shown()
    for _ in range(4 * 119):
        shown.show(0.25, 100, broker=BrokerState.DISCONNECTED)
    told = [line for line in shown.lines if line.startswith("no link to the broker")]
    assert len(told) == 2


def test_a_straggler_whose_time_grows_is_one_trouble():
    shown = Shown()
    for second in range(50):
        shown.show(1.0, 100, running=[(3, 9, "desk", 2, 100.0 + second)])
    assert len([line for line in shown.lines if line.startswith("longest")]) == 1


def test_a_missing_consumer_is_told_within_seconds_but_not_at_once():
    shown = Shown()
    shown.show(0.25, 0, depth=Depth(16, 0, 0))
    assert len(shown.lines) == 1
    for _ in range(16):
        shown.show(0.25, 0, depth=Depth(16, 0, 0))
    assert shown.lines[1].startswith("no consumer on queue default")


def test_failed_tasks_are_told_and_the_many_counted():
    shown = Shown()
    for start in range(41):
        shown.view.task(failed(start, start + 1), Again(0.2, charged=True))
    shown.show(1.0, 0)
    assert shown.lines[1] == "slot 1 failed point 0: ValueError: no (attempt 1), again in 0.2 s"
    assert shown.lines[-1] == "and 37 more tasks failed"


def test_finished_tasks_are_told_when_asked_for():
    shown = Shown(verbose=True)
    shown.view.task(finished(7, 14), Complete())
    assert shown.lines[1] == "slot 2 finished [7, 14) in 0.8 s"


def test_no_control_character_is_ever_printed():
    shown = Shown(method="lib:\x1b[2Jslow")
    split = Split(Range(0, 3), Range(3, 7))
    shown.view.task(failed(0, 7, "\x1b[31mred\r\n\x07", consumer="\x1b]0;x", slot=0), split)
    shown.show(20.0, 9, accused={"\x1b[1mh": "start_failed: \x08\x08"}, running=[(0, 1, "\x9bm", 1, 99.0)])
    shown.view.finish("done", 0)
    assert all(line.isprintable() for line in shown.lines)
    assert len(shown.lines) == 6


def test_the_last_figures_stand_before_the_ending_which_is_told_once():
    shown = Shown()
    shown.show(0.1, 1797)
    shown.view.finish("all done", 0)
    shown.view.finish("again", 0)
    assert shown.lines[1:] == [
        "1,797 of 1,797 points (100 %), 12.4 points/s, 1.9 of 2 slots busy",
        "all done",
    ]


def test_figures_that_were_told_are_not_told_again_at_the_end_with_another_rate():
    shown = Shown()
    shown.show(20.0, 1797)
    shown.show(0.1, 1797, points_per_second=11.0)
    shown.view.finish("all done", 0)
    assert [line for line in shown.lines if "100 %" in line] == [
        "1,797 of 1,797 points (100 %), 12.4 points/s, 1.9 of 2 slots busy"
    ]
