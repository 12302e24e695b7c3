"""The tables of docs/task-lifecycle.md say what the rules of the driver do."""

from dataclasses import replace

import pytest

from overnight_common.messages import Cause, Failure, Reply
from overnight_producer.jobs.ranges import (
    WORTH,
    Again,
    Drop,
    GiveUp,
    Policy,
    Range,
    RangeState,
    Split,
    decide,
    failed,
)
from overnight_producer.options import Driving
from support.markdown import code, document, section, table, tables

LIFECYCLE = document("docs/task-lifecycle.md")
REPLIES = table(LIFECYCLE, "What a reply does")
BY_CAUSE = "by cause"


def test_every_cause_is_listed_with_what_it_costs():
    rows = table(LIFECYCLE, "What a cause costs")
    assert {code(row["cause"])[0]: row["cost"] for row in rows} == {
        cause.value: WORTH[cause].value for cause in Cause
    }
    assert len(rows) == len(Cause)


def test_the_columns_are_the_states_of_a_range_and_none():
    assert list(REPLIES[0]) == ["reply", *(state.value for state in RangeState), "no such range"]


@pytest.mark.parametrize("row", REPLIES, ids=lambda row: row["reply"])
def test_each_reply_does_what_the_table_says(row):
    kind, attempts = row["reply"].split(", ")
    for column, cell in row.items():
        if column != "reply":
            here = None if column == "no such range" else Range(10, 14, RangeState(column), attempt=2)
            for attempt in {"any attempt": (1, 2), "this attempt": (2,), "earlier attempt": (1,)}[attempts]:
                assert said(decide(here, reply(kind, attempt), Policy(), 0.5)) == cell.strip("`"), column


def reply(kind, attempt):
    failure = Failure(Cause.EXCEPTION) if kind == "failed" else None
    return Reply(1, "job", 10, 14, attempt, kind, "c", failure=failure)


def said(decision):
    if isinstance(decision, Again | Split | GiveUp):
        return BY_CAUSE
    return f"Drop({decision.reason})" if isinstance(decision, Drop) else type(decision).__name__


RANGES = {
    "several points, as cut": Range(10, 14, RangeState.RUNNING, attempt=1),
    "several points, a half": Range(10, 14, RangeState.RUNNING, attempt=1, half=True),
    "one point": Range(10, 11, RangeState.RUNNING, attempt=1),
}
ENDS = {"split in halves": Split, "given up": GiveUp}


def test_budgets_are_those_of_the_table():
    budgets = tables(section(LIFECYCLE, "What a cause costs"))[1]
    assert [row["budget of"] for row in budgets] == list(RANGES)
    for row in budgets:
        attempts = int(row["attempts"].split()[0])
        before = [replace(RANGES[row["budget of"]], charged=charged) for charged in range(attempts)]
        decisions = [failed(one, Failure(Cause.EXCEPTION), Policy(), 0.5) for one in before]
        assert [type(each) for each in decisions] == [Again] * (attempts - 1) + [ENDS[row["then"]]]
    assert Driving().attempts == Policy().point_attempts


def test_every_row_of_the_failure_table_names_a_test():
    for row in table(LIFECYCLE, "When something breaks"):
        assert any(name.startswith("test_") for name in code(row["shown by"])), row["what breaks"]
