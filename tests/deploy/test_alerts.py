"""Each alert fires when it should and is silent when it should be, and its runbook is there."""

import re
import shutil
import subprocess

import pytest

from support.dashboards import RULES, alerts, expression_of
from support.known_metrics import KNOWN
from support.markdown import ROOT, document, section
from support.prometheus import needed
from support.promql import metric_names

ALERTS = alerts()
UNIT_TESTS = ROOT / "deploy" / "prometheus" / "tests"
_NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?=[md]?(?![\w.]))")


@pytest.fixture(scope="module")
def promtool():
    return needed("promtool")


def unit_tests_of(alert):
    return sorted(UNIT_TESTS.glob(f"{alert}*.yml"))


def failures_of(promtool, folder, alert, rule):
    """Run the unit tests of an alert on another rule and return what promtool says against it."""
    (folder / "rules").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "rules" / RULES.name).write_text(
        f"groups:\n  - name: alone\n    rules:\n      - alert: {alert}\n{rule}"
    )
    tests = [shutil.copy(path, folder / "tests") for path in unit_tests_of(alert)]
    done = subprocess.run([promtool, "test", "rules", *tests], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_rules_are_valid(promtool):
    done = subprocess.run(
        [promtool, "check", "rules", "--lint-fatal", RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_alerts_fire_and_are_silent_as_they_should(promtool):
    tests = sorted(UNIT_TESTS.glob("*.yml"))
    assert tests == sorted(path for name in ALERTS for path in unit_tests_of(name))
    done = subprocess.run([promtool, "test", "rules", *tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tested_in_both_directions(name):
    text = "".join(path.read_text() for path in unit_tests_of(name))
    assert re.search(rf"alertname: {name}, exp_alerts: \[\]", text)
    assert re.search(rf"alertname: {name}\n +exp_alerts:\n +- exp_labels", text)


def mutants(rule):
    """Yield what is changed, and the rule with the change: one number, name, comparison or word in it."""
    expression = expression_of(rule)
    for name in sorted(metric_names(expression)):
        yield f"{name} misspelt", re.sub(rf"\b{name}\b", f"{name}x", rule)
    for number in sorted(set(_NUMBER.findall(expression))):
        for other in _others(number):
            yield f"{number} -> {other:g}", with_expression(rule, _changed(expression, number, other))
    for period in re.findall(r"(?<=for: )(\d+)m", rule):
        for other in _others(period):
            yield f"for {period} -> {other:g}", re.sub(r"for: \w+", f"for: {other * 60:g}s", rule)
    for word, other in (
        ("critical", "warning"),
        ("warning", "critical"),
        ("absent(", "count("),
        (" > ", " < "),
        (" <= ", " >= "),
        (" == ", " != "),
        (" < ", " > "),
        ("max by", "min by"),
        ("max(", "min("),
        ("!~", "=~"),
    ):
        if word in rule:
            yield f"{word} -> {other}", rule.replace(word, other)
    for word in (" unless ", " and ", " or "):
        for place in range(expression.count(word)):
            whole = expression.split(word)
            shorter = word.join([*whole[: place + 1], *whole[place + 2 :]])
            if shorter.count("(") == shorter.count(")"):
                yield f"without {word.strip()} {place + 1}", with_expression(rule, shorter)


def _others(number):
    return (float(number) * 2, float(number) / 2) if float(number) else (1.0,)


def _changed(text, number, other):
    """Change a number wherever it stands; a time must stay whole."""
    smaller = {"m": (60, "s"), "d": (24, "h"), "": (1, "")}
    return re.sub(
        rf"(?<![\w.]){re.escape(number)}([md]?)(?![\w.])",
        lambda match: f"{other * smaller[match[1]][0]:g}{smaller[match[1]][1]}",
        text,
    )


def with_expression(rule, expression):
    before, _, rest = rule.partition("        expr:")
    after = re.search(r"^        (?:for|labels):", rest, re.MULTILINE)
    return f"{before}        expr: '{expression}'\n{rest[after.start() :]}"


@pytest.mark.parametrize("name", ALERTS)
def test_any_change_of_a_number_a_name_or_a_condition_is_noticed(name, promtool, tmp_path):
    changed = list(mutants(ALERTS[name]))
    assert len(changed) >= 5
    assert failures_of(promtool, tmp_path / "as-it-is", name, ALERTS[name]) == ""
    for number, (what, rule) in enumerate(changed):
        assert rule != ALERTS[name], what
        said = failures_of(promtool, tmp_path / str(number), name, rule)
        assert "FAILED" in said, f"{what} is not noticed:\n{rule}"
        assert "got:" in said, f"{what} is no rule at all: {said}"


def test_alerts_ask_only_for_metrics_that_there_are():
    for name, rule in ALERTS.items():
        assert metric_names(expression_of(rule)) <= KNOWN, name


def test_each_alert_has_a_severity_and_a_runbook_of_its_name():
    page = section(document("docs/operations.md"), "Runbooks")
    for name, rule in ALERTS.items():
        assert re.search(r"severity: (critical|warning)\}", rule), name
        assert f"runbook: docs/operations.md#{name.lower()}\n" in rule
        assert len(section(page, name)) > 200
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == list(ALERTS)
