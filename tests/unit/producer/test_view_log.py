"""The log of a job among others has a line when something changes, and none while it just goes on."""

from __future__ import annotations

import logging

import pytest

from overnight_common.brokers.base import BrokerState, Depth
from overnight_producer.views.view_log import LogView
from support.job_files import spec_of
from support.standings import Clock, snapshot_of


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "overnight.jobs")
    return lambda: [record.getMessage().partition(": ")[2] for record in caplog.records]


def test_a_job_that_just_goes_on_has_three_lines(lines):
    view = LogView(spec_of(1797), monotonic=Clock())
    view.start()
    for done in (0, 1, 50, 90):
        view.show(snapshot_of(done))
    view.finish("1797 of 1797 points done", 0)
    assert [line.split()[0:2] for line in lines()] == [["is", "driven"], ["has", "results:"], ["1797", "of"]]


def test_a_pause_and_its_end_are_told(lines):
    view = LogView(spec_of(1797), monotonic=Clock())
    for paused in (False, True, True, False):
        view.show(snapshot_of(0, paused=paused))
    assert lines() == ["is paused by request", "goes on"]


def test_a_trouble_is_told_once_in_ten_minutes(lines, caplog):
    clock = Clock()
    view = LogView(spec_of(1797), monotonic=clock)
    lonely = {"depth": Depth(ready=5, unacked=0, consumers=0)}
    for clock.now in (0.0, 5.0, 60.0, 500.0, 700.0):
        view.show(snapshot_of(0, **lonely))
        view.show(snapshot_of(0, **lonely, broker=BrokerState.BLOCKED))
    consumers = [line for line in lines() if line.startswith("no consumer on queue")]
    blocked = [line for line in lines() if "takes no tasks now" in line]
    assert (len(consumers), len(blocked)) == (2, 2)
    assert {record.levelname for record in caplog.records} == {"WARNING"}
