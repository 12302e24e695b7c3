import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight_producer.views.wording import (
    block,
    clock,
    counted,
    duration,
    one_line,
    pace,
    percent,
    points_of,
)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0001, "0.1 ms"),
        (0.042, "42 ms"),
        (0.8, "0.8 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (79, "1 min 19 s"),
        (3600, "1 h"),
        (3599.7, "1 h"),
        (5400, "1 h 30 min"),
        (273_600, "3 d 4 h"),
        (-3, "0 ms"),
        (float("inf"), "for ever"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (0, "no rate yet"),
        (12_345.6, "12,346 points/s"),
        (99.96, "100 points/s"),
        (12.44, "12.4 points/s"),
        (1.0, "1 points/s"),
        (0.5, "2 s/point"),
        (1 / 89, "89.0 s/point"),
        (1 / 900, "15.0 min/point"),
        (1 / 7200, "2 h/point"),
    ],
)
def test_a_pace_is_told_in_the_unit_that_gives_a_handy_number(rate, words):
    assert pace(rate) == words


def test_a_clock_time_names_the_day_only_when_it_is_not_today():
    now = datetime.fromisoformat("2026-07-02T10:00:00+00:00").timestamp()  # a Thursday
    assert clock(now + 3600, now) == "11:00"
    assert clock(now + 15 * 3600, now) == "Fri 01:00"
    assert clock(now + 10 * 86_400, now) == "Sun 12 Jul 10:00"
    assert clock(now + 365 * 86_400, now) == "Fri 2 Jul 10:00 2027"


def test_the_clock_is_the_local_one(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    now = datetime.fromisoformat("2026-07-02T10:00:00+00:00").timestamp()
    assert clock(now, now) == "19:00"


@given(st.integers(1, 10**9), st.data())
def test_only_all_is_a_hundred_percent(total, data):
    done = data.draw(st.integers(0, total))
    words = percent(done, total)
    assert (float(words.removesuffix(" %")) == 100) == (done == total)
    assert len(words) <= 6


@pytest.mark.parametrize(
    ("done", "words"), [(0, "0 %"), (1, "0.1 %"), (450, "45 %"), (999, "99.9 %"), (1000, "100 %")]
)
def test_percent_tells_more_near_its_ends(done, words):
    assert percent(done, 1000) == words


@given(st.text(alphabet=st.characters(), max_size=500), st.integers(4, 80))
def test_foreign_text_becomes_one_short_printable_line(text, limit):
    line = one_line(text, limit)
    assert line.isprintable()
    assert len(line) <= limit


def test_terminal_escapes_in_foreign_text_leave_no_trace():
    assert one_line("\x1b[31mno\x1b[0m such\n\tdigit\x07") == "no such digit?"
    assert block("Trace\n\x1b[2J  File\ta\r\n  x\x00") == "Trace\n  File  a\n  x?"


def test_one_is_said_in_the_singular():
    assert counted(1, "point") == "1 point"
    assert counted(1797, "point") == "1,797 points"
    assert points_of(7, 8) == "point 7"
    assert points_of(7, 14) == "[7, 14)"
