"""The dashboards are what their source says, whole, and ask only for metrics that there are."""

import subprocess
import sys

import pytest

from overnight_consumer.metrics import FAMILIES as OF_CONSUMER
from overnight_producer.metrics import FAMILIES as OF_PRODUCER
from support.dashboards import FOLDER, alerts, dashboards, expression_of, panels, queries
from support.known_metrics import KNOWN, OF_PROMETHEUS, OF_RABBITMQ, OURS, names_of
from support.markdown import ROOT, document, section
from support.promql import filled, metric_names, selectors

DASHBOARDS = dashboards()
# The only panels that may show nothing, and why.
MAY_BE_EMPTY = {
    "GPU use": "where no consumer has a GPU",
    "GPU memory": "where no consumer has a GPU",
}
# What we count and show on no dashboard, and why.
NOT_SHOWN = {
    "overnight_driver_jobs": "the jobs themselves are shown",
    "overnight_driver_replies_total": "consumers show the same, and what was dropped is shown",
    "overnight_driver_failures_total": "failures are shown as the consumers count them, by queue",
    "overnight_driver_points_given_up_total": "shown by job",
    "overnight_job_paused": "a paused job shows in its points per second",
    "overnight_dead_letters_read_timestamp_seconds": "the age of the depths is shown",
}


def every_panel():
    return [(name, panel) for name, dashboard in DASHBOARDS.items() for panel in panels(dashboard)]


def test_the_files_are_what_the_source_writes(tmp_path):
    subprocess.run(
        [sys.executable, ROOT / "deploy" / "grafana" / "build.py", "--folder", tmp_path], check=True
    )
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    assert written == committed, "run `make dashboards` and commit what it wrote"


def test_dashboards_are_known_by_fixed_ids_that_differ():
    assert {name: dashboard["uid"] for name, dashboard in DASHBOARDS.items()} == {
        "farm": "overnight-farm",
        "consumers-and-slots": "overnight-consumers-and-slots",
        "runbooks": "overnight-runbooks",
    }
    assert all(dashboard["editable"] is False for dashboard in DASHBOARDS.values())


def test_every_panel_has_an_id_a_title_a_unit_and_a_description():
    for name, panel in every_panel():
        where = f"{name} / {panel.get('title')}"
        assert panel["id"] > 0, where
        assert panel["title"], where
        if panel["type"] not in ("row", "text"):
            assert panel["fieldConfig"]["defaults"]["unit"], where
            assert panel["description"].endswith("."), where
            assert panel["targets"], where


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_of_a_dashboard_have_ids_and_titles_of_their_own(name):
    found = list(panels(DASHBOARDS[name]))
    for what in ("id", "title"):
        values = [panel[what] for panel in found]
        assert len(values) == len(set(values)), what


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_lie_within_the_grid_and_none_over_another(name):
    taken = {}
    for panel in panels(DASHBOARDS[name]):
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken.get((x, y))}"
                taken[x, y] = panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_rows_of_panels_leave_no_hole_at_their_right_end(name):
    rows = {}
    for panel in panels(DASHBOARDS[name]):
        rows.setdefault(panel["gridPos"]["y"], []).append(panel["gridPos"]["w"])
    last = max(rows)
    assert {y: sum(widths) for y, widths in rows.items() if y != last or name != "runbooks"} == {
        y: 24 for y in rows if y != last or name != "runbooks"
    }


def test_every_panel_asks_the_data_source_that_was_chosen():
    for name, panel in every_panel():
        if panel["type"] not in ("row", "text"):
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
            variables = [each["name"] for each in DASHBOARDS[name]["templating"]["list"]]
            assert variables[0] == "datasource"


def test_every_variable_is_used_and_every_used_one_is_there():
    for name, dashboard in DASHBOARDS.items():
        there = {f"${each['name']}" for each in dashboard.get("templating", {}).get("list", [])} - {
            "$datasource"
        }
        text = " ".join(query.expression for query in queries() if query.dashboard == name)
        used = {word for word in ("$queue", "$instance", "$job") if word in text}
        assert used == there, name
    assert "$" not in "".join(filled(query.expression) for query in queries())


def test_panels_ask_only_for_metrics_that_there_are():
    for query in queries():
        assert metric_names(query.expression) <= KNOWN, str(query)


def test_every_metric_of_ours_is_shown_or_left_out_for_a_reason():
    shown = {name for query in queries() for name in metric_names(query.expression)}
    families = {family for family in (*OF_CONSUMER, *OF_PRODUCER) if not names_of(family) & shown}
    assert {family.name for family in families} == set(NOT_SHOWN)


def test_the_lists_of_foreign_names_hold_no_more_than_is_asked_for():
    asked = {name for query in queries() for name in metric_names(query.expression)}
    asked |= {name for rule in alerts().values() for name in metric_names(expression_of(rule))}
    assert asked - OURS == OF_RABBITMQ | OF_PROMETHEUS


def test_only_the_named_panels_may_be_empty():
    marked = {panel["title"]: panel["description"] for _, panel in every_panel() if "Empty" in str(panel)}
    assert set(marked) == set(MAY_BE_EMPTY)
    for title, reason in MAY_BE_EMPTY.items():
        assert f"Empty {reason}" in marked[title]


def test_links_lead_to_runbooks_that_there_are():
    runbooks = DASHBOARDS["runbooks"]
    titles = {panel["title"] for panel in panels(runbooks)}
    for _, panel in every_panel():
        for link in panel.get("links") or []:
            assert link["url"] == f"/d/{runbooks['uid']}"
            assert link["title"].removeprefix("Runbook: ") in titles


def test_the_runbooks_are_those_of_the_operations_page():
    page = section(document("docs/operations.md"), "Runbooks")
    shown = {panel["title"]: panel["options"]["content"] for panel in panels(DASHBOARDS["runbooks"])}
    assert shown == {name: section(page, name).strip() for name in alerts()}
    assert "](" not in "".join(shown.values()), "a link in a runbook would lead nowhere in Grafana"


def test_the_reader_of_promql_finds_names_and_selectors():
    expression = (
        'sum by (le, job_id) (rate(a_bucket{x="b{c}", y=~"d"}[$__rate_interval])) / on (instance) group_left (e) '
        'clamp_min(f, 0.5) or vector(0) unless g{h!="i"} offset 5m > 1e3'
    )
    assert metric_names(expression) == {"a_bucket", "f", "g"}
    assert selectors('g{h!="i"} + g') == {'g{h!="i"}', "g"}
