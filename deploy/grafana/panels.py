"""Describe dashboards, rows and panels in our own few words, and turn them into Grafana's."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

RUNBOOKS_UID = "overnight-runbooks"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_TAG = "overnight"
_NOTHING = "-"


class Kind(Enum):
    """Name how a panel shows its figures."""

    STAT = "stat"
    BARS = "bar gauge"
    LINES = "lines"
    STACKED = "stacked lines"
    HEAT_MAP = "heat map"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Panel:
    """Describe one panel.

    Attributes:
        title: what it shows.
        unit: as Grafana names it, such as `s`, `bytes` or `percentunit`.
        description: what the figures mean, in whole sentences.
        queries: what a series is called -> PromQL.
        kind: how it is shown.
        width: of 24.
        height: in Grafana's rows.
        alert: name of the alert whose runbook tells what to do about it, if there is one.
        empty: when it is right that nothing is shown, as the rest of "Empty …".
        most: the top of the scale, if it has one.
    """

    title: str
    unit: str
    description: str
    queries: dict[str, str]
    kind: Kind = Kind.LINES
    width: int = 8
    height: int = 8
    alert: str = ""
    empty: str = ""
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Describe a panel of text, in Markdown."""

    title: str
    text: str
    width: int = 12
    height: int = 10


@dataclass(frozen=True, slots=True)
class Variable:
    """Describe a choice at the top of a dashboard: any values of one label of a metric."""

    name: str
    label: str
    metric: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Describe a dashboard; `rows` are title -> panels, from left to right and from top to bottom."""

    uid: str
    title: str
    description: str
    rows: dict[str, list[Panel]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    variables: tuple[Variable, ...] = ()


def build(described: Dashboard) -> Any:
    """Return the dashboard as the SDK models it."""
    built = (
        dashboard.Dashboard(described.title)
        .uid(described.uid)
        .description(described.description)
        .tags([_TAG])
        .readonly()
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Overnight")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .keep_time(True)
        )
    )
    if described.rows:
        built = built.with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    for variable in described.variables:
        built = built.with_variable(_variable(variable))
    number = 0
    for title, panels in described.rows.items():
        number += 1
        built = built.with_row(dashboard.Row(title).id(number))
        for panel in panels:
            number += 1
            built = built.with_panel(_panel(panel).id(number))
    for note in described.notes:
        number += 1
        built = built.with_panel(_note(note).id(number))
    return built.build()


def _variable(variable: Variable) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(_SOURCE)
        .query(f"label_values({variable.metric}, {variable.name})")
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def _note(note: Note) -> text.Panel:
    return (
        text.Panel()
        .title(note.title)
        .mode(TextMode.MARKDOWN)
        .content(note.text)
        .span(note.width)
        .height(note.height)
    )


def _panel(panel: Panel) -> Any:
    shown = (
        _blank(panel)
        .title(panel.title)
        .description(_description(panel))
        .datasource(_SOURCE)
        .unit(panel.unit)
        .no_value(_NOTHING)
        .span(panel.width)
        .height(panel.height)
    )
    if panel.most is not None:
        shown = shown.max(panel.most)
    if panel.alert:
        link = dashboard.DashboardLink(f"Runbook: {panel.alert}").type(DashboardLinkType.LINK)
        shown = shown.links([link.url(f"/d/{RUNBOOKS_UID}")])
    for letter, (name, expression) in zip("ABCDEFGH", panel.queries.items(), strict=False):
        shown = shown.with_target(_target(panel.kind, letter, name, expression))
    return shown


def _description(panel: Panel) -> str:
    return f"{panel.description} Empty {panel.empty}." if panel.empty else panel.description


def _target(kind: Kind, letter: str, name: str, expression: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().ref_id(letter).expr(expression).legend_format(name)
    if kind is Kind.HEAT_MAP:
        return target.range().format(PromQueryFormat.HEATMAP)
    if kind is Kind.TABLE:
        return target.instant().format(PromQueryFormat.TABLE)
    return target.instant() if kind is Kind.BARS else target.range()


def _blank(panel: Panel) -> Any:
    """Return a panel of the right kind; the SDK's own defaults hide legends and let scales begin anywhere."""
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .placement(LegendPlacement.BOTTOM)
        .display_mode(LegendDisplayMode.LIST)
    )
    match panel.kind:
        case Kind.STAT:
            last = common.ReduceDataOptions().calcs(["lastNotNull"])
            return stat.Panel().reduce_options(last)
        case Kind.BARS:
            last = common.ReduceDataOptions().calcs(["lastNotNull"])
            return bargauge.Panel().reduce_options(last).orientation(VizOrientation.HORIZONTAL).min(0)
        case Kind.LINES:
            return timeseries.Panel().legend(legend).min(0).fill_opacity(5)
        case Kind.STACKED:
            stacking = common.StackingConfig().mode(StackingMode.NORMAL)
            return timeseries.Panel().legend(legend).min(0).stacking(stacking).fill_opacity(40)
        case Kind.HEAT_MAP:
            return heatmap.Panel().calculate(False).y_axis(heatmap.YAxisConfig().unit(panel.unit))
        case Kind.TABLE:
            return table.Panel()
